"""Roll-ups: tokens, cost, time, calls and errors by agent, role, tool, type or model, own and with children.

Always true: every event is in exactly one row, so own figures sum to the trace's; a figure that no event of a row carries is
None. The total of an agent is its own plus that of all it spawned, directly or not. A tool that answers under its own name
counts for its caller. Rows come in a fixed order: agents as in the spawn tree, others by tokens, then events, then name.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from counterpoint.audits.facts import Facts, facts_of
from counterpoint.errors import InputError, NotFound, did_you_mean
from counterpoint.trace import Trace
from counterpoint.trace.quantities import counted_tokens, is_thinking, missing_transcripts, placeholder_outputs, stated_calls

By = Literal["agent", "role", "tool", "type", "model"]
BY = ("agent", "role", "tool", "type", "model")


class Row(Struct, frozen=True, kw_only=True):
    """One agent, role, tool, type or model: what it spent and did."""

    name: str | None
    """None for the events that belong to no role, tool or model."""
    label: str | None = None
    """What people call an agent."""
    parent: str | None = None
    """The agent that spawned it."""
    depth: int = 0
    role: str | None = None
    events: int
    steps: int
    calls: int
    """Tool calls, those that another states of it included."""
    messages: int
    errors: int
    tokens_in: int | None
    tokens_out: int | None
    tokens_own: int | None
    tokens_total: int | None
    """With children; None where there is no such thing (tools, types, models, roles of agents with several roles)."""
    cost_own: float | None
    cost_total: float | None
    unpriced: dict[str, int] = {}
    """Its own tokens that no cost covers, by model ("" where none is named)."""
    busy_s: float | None
    """Seconds in which it worked; overlapping spans of one agent count once."""
    busy_total_s: float | None
    path: float | None
    """Share of the critical path."""
    first_t: float | None
    last_t: float | None
    """From its first start to its last end; None for an agent that never acts."""


class Coverage(Struct, frozen=True, kw_only=True):
    """How much of the trace's tokens the events account for."""

    accounted: int
    total: int
    share: float | None
    no_record: int
    """Acting events without a token record."""
    missing: int = 0
    """Agents that are known and whose records are not there: then nobody knows the share."""
    placeholders: int = 0
    """Model calls that state a placeholder for their output: then nobody knows the share."""


def coverage(trace: Trace) -> Coverage:
    """Tokens on events against `costs.tokens`; the total is the larger, since a source may state less than its events carry."""
    facts = facts_of(trace)
    accounted = counted_tokens(trace.events)
    total = int(trace.tokens or 0)
    silent = facts.thinks_E & ~facts.has_tokens_E
    missing, placeholders = missing_transcripts(trace.meta), placeholder_outputs(trace.meta)
    share = accounted / total if total and not missing and not placeholders else None
    known = {"accounted": accounted, "total": total, "no_record": int(silent.sum())}
    return Coverage(**known, share=share, missing=missing, placeholders=placeholders)


def rollup(trace: Trace, by: By = "agent") -> list[Row]:
    """The rows of a trace by agent, role, tool, type or model."""
    if by not in BY:
        raise InputError(f"cannot group by {by!r}", fix=did_you_mean(by, BY))
    facts = facts_of(trace)
    names, group_E = _groups(facts, by)
    sums = _Sums(facts, group_E, len(names))
    totals = _totals(facts, by, names)
    if by == "agent":
        rows = [sums.row(a, names[a], totals, a) for a in _depth_first(facts)]
        return [row for row in rows if row.events or row.parent is not None]
    rows = [sums.row(g, name, totals) for g, name in enumerate(names)]
    return sorted(rows, key=lambda r: (-(r.tokens_own or 0), -r.events, r.name is None, r.name or ""))


def behind(trace: Trace, by: By, name: str) -> list[int]:
    """The events behind a row, in the story's order; `NotFound` for a name that has none."""
    facts = facts_of(trace)
    names, group_E = _groups(facts, by)
    if name not in names:
        raise NotFound(f"no {by} named {name!r} in {trace.trace_id}", fix=did_you_mean(name, [n for n in names if n is not None]))
    return facts.in_story(group_E == names.index(name))


def _groups(facts: Facts, by: By) -> tuple[list[str | None], NDArray[np.int32]]:
    """The names of the groups, and the group of each event."""
    team, events = facts.team, facts.events
    if by == "agent":
        return list(team.names), team.agent_E
    if by == "role":
        role_A = facts.role_A
        agent = team.agent_E.tolist()
        labels = [e.role if e.role is not None and e.type != "spawn" else role_A[a] for e, a in zip(events, agent, strict=True)]
    elif by == "model":
        labels = models_in_force(facts)
    else:
        labels = [getattr(e, by) for e in events]
    number = {label: g for g, label in enumerate(dict.fromkeys(labels))}
    return list(number), np.fromiter(map(number.__getitem__, labels), np.int32, len(labels))


def models_in_force(facts: Facts) -> list[str | None]:
    """The model of each event: its own, or of what carries no tokens (as a tool's result) the one that its agent thinks with."""
    agent, order = facts.team.agent_E.tolist(), facts.team.order_E.tolist()
    labels = [e.model for e in facts.events]
    in_force = {agent[i]: labels[i] for i in reversed(order) if labels[i] is not None}  # at first the agent's first
    for i in order:
        if labels[i] is not None:
            in_force[agent[i]] = labels[i]
        elif not facts.has_tokens_E[i]:
            labels[i] = in_force.get(agent[i])
    return labels


def _depth_first(facts: Facts) -> list[int]:
    """Agents as a tree is drawn: each before what it spawned, spawns in their order."""
    out: list[int] = []
    stack = [a for a in range(len(facts.team) - 1, -1, -1) if facts.team.parent_A[a] < 0]
    while stack:
        a = stack.pop()
        out.append(a)
        stack.extend(reversed(facts.team.children[a]))
    return out


Totals = dict[str, list[float]]


def _totals(facts: Facts, by: By, names: list[str | None]) -> Totals | None:
    """Each figure with children, per group; None where groups are not sets of agents."""
    team = facts.team
    if by == "agent":
        of_A, top_A = list(range(len(team))), [True] * len(team)
    elif by == "role" and _has_one_role_each(facts):
        number = {name: g for g, name in enumerate(names)}
        of_A = [number.get(role, -1) for role in facts.role_A]
        top_A = _tops(facts, of_A)
    else:
        return None
    figures: dict[str, NDArray[np.generic]] = {
        "tokens": facts.tokens_E,
        "has_tokens": facts.has_tokens_E,
        "cost": facts.cost_E,
        "has_cost": facts.has_cost_E,
        "busy": facts.pieces.length_E,
        "has_dur": facts.has_dur_E & facts.work_E,
    }
    out: Totals = {}
    for figure, value_E in figures.items():
        subtree = team.with_children(team.per_agent(value_E)).tolist()
        sums = [0] * len(names)
        for a, g in enumerate(of_A):
            if top_A[a] and g >= 0:
                sums[g] += subtree[a]
        out[figure] = list(sums)
    return out


def _has_one_role_each(facts: Facts) -> bool:
    role_A, agent = facts.role_A, facts.team.agent_E.tolist()
    return all(e.type == "spawn" or e.role in (None, role_A[a]) for e, a in zip(facts.events, agent, strict=True))


def _tops(facts: Facts, of_A: list[int]) -> list[bool]:
    """For each agent whether no agent above it has its group: one walk with a count of the groups on the way."""
    team, top = facts.team, [True] * len(of_A)
    open_: dict[int, int] = {}
    stack = [(a, False) for a in range(len(of_A)) if team.parent_A[a] < 0]
    while stack:
        a, is_done = stack.pop()
        if is_done:
            open_[of_A[a]] -= 1
            continue
        top[a] = not open_.get(of_A[a])
        open_[of_A[a]] = open_.get(of_A[a], 0) + 1
        stack.append((a, True))
        stack.extend((c, False) for c in team.children[a])
    return top


def _unpriced(facts: Facts, group_E: NDArray[np.int32], groups: int) -> list[dict[str, int]]:
    """Tokens of each group that no cost covers, by model; none where the source states what the whole cost."""
    out: list[dict[str, int]] = [{} for _ in range(groups)]
    if facts.trace.unpriced:
        for i in np.flatnonzero(~facts.has_cost_E & (facts.tokens_E > 0)).tolist():
            of, model = out[group_E[i]], facts.events[i].model or ""
            of[model] = of.get(model, 0) + int(facts.tokens_E[i])
    return out


class _Sums:
    """Every figure of every group, by one bincount each."""

    def __init__(self, facts: Facts, group_E: NDArray[np.int32], groups: int) -> None:
        self.facts, self.groups = facts, groups
        order = facts.team.order_E
        self._order, self._group = order, group_E[order]
        team = facts.team
        self.events = self._count(np.ones(facts.n, np.bool_))
        self.steps = self._count(facts.steps_E)
        self.calls = self._count(team.of_types(("tool_call",))) + self._exact(
            np.array([stated_calls(e) if e.extra else 0 for e in facts.events], np.int64)
        )
        self.messages = self._count(team.of_types(("message",)) & ~np.array([is_thinking(e) for e in facts.events], np.bool_))
        self.errors = self._count(facts.failed_E)
        self.tokens_in, self.tokens_out = self._exact(facts.tokens_in_E), self._exact(facts.tokens_out_E)
        self.has_in = self._count(np.array([e.tokens_in is not None for e in facts.events], np.bool_))
        self.has_out = self._count(np.array([e.tokens_out is not None for e in facts.events], np.bool_))
        self.unpriced = _unpriced(facts, group_E, groups)
        self.cost, self.has_cost = self._sum(facts.cost_E), self._count(facts.has_cost_E)
        self.busy, self.has_dur = self._sum(facts.pieces.length_E), self._count(facts.has_dur_E & facts.work_E)
        self.path = self._path()
        self.first, self.last = np.full(groups, np.inf), np.full(groups, -np.inf)
        np.minimum.at(self.first, group_E, facts.t_E)
        np.maximum.at(self.last, group_E, facts.t_E + facts.dur_E)

    def _count(self, mask_E: NDArray[np.bool_]) -> NDArray[np.int64]:
        return np.bincount(self._group[mask_E[self._order]], minlength=self.groups)

    def _exact(self, count_E: NDArray[np.int64]) -> NDArray[np.int64]:
        out = np.zeros(self.groups, np.int64)
        np.add.at(out, self._group, count_E[self._order])
        return out

    def _sum(self, value_E: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.bincount(self._group, value_E[self._order], self.groups).astype(np.float64)

    def _path(self) -> NDArray[np.float64] | None:
        """Each group's share of the critical path; None without edges or weight."""
        path = self.facts.path
        if path is None:
            return None
        on_path = np.zeros(self.facts.n)
        on_path[path.events] = path.adds
        return self._sum(on_path) / path.length

    def row(self, g: int, name: str | None, totals: Totals | None, agent: int = -1) -> Row:
        """The row of a group; with its place in the spawn tree where the group is an agent."""
        facts, team = self.facts, self.facts.team
        up = int(team.parent_A[agent]) if agent >= 0 else -1

        def total(figure: str, has: str) -> float | None:
            return totals[figure][g] if totals is not None and totals[has][g] else None

        tokens_total = total("tokens", "has_tokens")
        return Row(
            name=name,
            label=team.label_A[agent] if agent >= 0 else None,
            parent=team.names[up] if up >= 0 else None,
            depth=int(team.depth_A[agent]) if agent >= 0 else 0,
            role=facts.role_A[agent] if agent >= 0 else None,
            events=int(self.events[g]),
            steps=int(self.steps[g]),
            calls=int(self.calls[g]),
            messages=int(self.messages[g]),
            errors=int(self.errors[g]),
            tokens_in=int(self.tokens_in[g]) if self.has_in[g] else None,
            tokens_out=int(self.tokens_out[g]) if self.has_out[g] else None,
            tokens_own=int(self.tokens_in[g] + self.tokens_out[g]) if self.has_in[g] or self.has_out[g] else None,
            tokens_total=None if tokens_total is None else int(tokens_total),
            cost_own=float(self.cost[g]) if self.has_cost[g] else None,
            cost_total=total("cost", "has_cost"),
            unpriced=self.unpriced[g],
            busy_s=float(self.busy[g]) if self.has_dur[g] else None,
            busy_total_s=total("busy", "has_dur"),
            path=float(self.path[g]) if self.path is not None else None,
            first_t=float(self.first[g]) if self.events[g] else None,
            last_t=float(self.last[g]) if self.events[g] else None,
        )
