"""Traces as rows: who acted, in which turn, what was paid, who is compared with whom, what credit comes of it.

Always true: an action is an event in which a member's model acts (decision, message, tool call, aggregate, and whatever else
keeps a model call), in the order of time and then of the file; outsiders (user, tool, system) have none. What is paid for a
unit is, in this order: its rows in `signals`, where given (none: not scored); the rewards that its own events carry in the
channel, where any event of the trace carries one; else the team's reward, which all share. A reward on an event that is no
action (a return, a tool's result) is one of the action that led to it, so that all units together are paid what the events
carry. A row without a number is refused by name and never becomes 0.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np

from counterpoint.credits.groups import Convention, group_advantages, group_codes
from counterpoint.credits.mechanism import team_reward
from counterpoint.errors import InputError, NotIdentified
from counterpoint.trace import Event, Trace
from counterpoint.trace.model_calls import model_call
from counterpoint.trace.rows import Cost, Credit, CreditRow, Signals
from counterpoint.trace.team import team_of
from counterpoint.trace.vocabulary import ACTING, OUTSIDE_ROLES

Key = str | Callable[[Trace], Hashable]


class TraceUnit(NamedTuple):
    """One unit of one trace, before it has a credit."""

    trace: int
    unit: str
    unit_id: str


def keys_of(traces: Sequence[Trace], key: Key) -> list[Hashable]:
    """The group of each trace: by a field of the trace (`task_id`), by `batch` (all together), or by a function of it."""
    if callable(key):
        return [key(t) for t in traces]
    if key == "batch":
        return ["batch"] * len(traces)
    if key not in ("task_id", "trace_id", "system", "topology"):
        raise InputError(f"no group key {key!r}", fix="task_id, trace_id, system, topology, batch, or a function of a trace")
    return [getattr(t, key) for t in traces]


def actions(trace: Trace) -> list[int]:
    """Places in `trace.events` of what the team did."""
    events = trace.events
    acts = [i for i, e in enumerate(events) if e.type in ACTING or model_call(e) is not None]
    own = [i for i in acts if events[i].role not in OUTSIDE_ROLES and events[i].agent not in OUTSIDE_ROLES]
    return sorted(own, key=lambda i: events[i].t)


def steps_of(trace: Trace) -> list[int]:
    """Places of what the team did and of what came back: actions and returns, for amounts that stand on single events."""
    returns = [i for i, e in enumerate(trace.events) if e.type == "return"]
    return sorted({*actions(trace), *returns}, key=lambda i: trace.events[i].t)


def event_unit(event: Event) -> str:
    """The unit that an event's own credit is a row of."""
    return {"orchestrator_decision": "orchestrator", "tool_call": "tool"}.get(event.type, "message")


def main_of(trace: Trace) -> str:
    """The name of the orchestrator."""
    team = team_of(trace)
    if team.main is None:
        raise NotIdentified("this trace has no lead: no agent acts", "record the team's actions", where=trace.trace_id)
    return team.names[team.main]


def unit_events(trace: Trace, unit: str) -> dict[str, list[int]]:
    """Unit id to its actions, for every unit of the trace that acts."""
    own, events = actions(trace), trace.events
    if unit == "team":
        return {"": own}
    if unit == "orchestrator":
        name = main_of(trace)
        return {name: [i for i in own if events[i].agent == name]}
    if unit in ("message", "tool"):
        return {events[i].id: [i] for i in own if event_unit(events[i]) == unit}
    out: dict[str, list[int]] = {}
    for i in own:
        event = events[i]
        if unit == "turn" and event.turn is None:
            raise NotIdentified("an action has no turn number", "record `turn`, or ask for another unit", where=trace.trace_id)
        if unit == "role" and event.role is None:
            raise NotIdentified("an action has no role", "record `role`, or ask for another unit", where=trace.trace_id)
        names = {"agent": event.agent, "role": event.role or "", "turn": f"{event.agent}#{event.turn}"}
        if unit not in names:
            raise InputError(f"no rows for unit {unit!r}", fix="team, orchestrator, role, agent, turn, message or tool")
        out.setdefault(names[unit], []).append(i)
    return out


def paid_actions(trace: Trace, channel: str) -> dict[int, float] | None:
    """Place of each action to the rewards in the channel of itself and of what it led to; None where no event carries any.

    What is no action was led to by the latest action of its agent at or before it, in the graph's order; where its agent had not
    acted, by the latest action that it depends on; else by its agent's first. The sum is that of all events.
    """
    paid_E = {i: float(e.reward[channel]) for i, e in enumerate(trace.events) if e.reward and e.reward.get(channel) is not None}
    if not paid_E:
        return None
    out = dict.fromkeys(actions(trace), 0.0)
    lost = [i for i in paid_E if i not in out]
    own: dict[str, list[int]] = {}
    for k in sorted(out, key=trace.graph.rank.__getitem__) if lost else ():
        own.setdefault(trace.events[k].agent, []).append(k)
    place = {i: _led_to(trace, own, i) for i in lost}
    for i, amount in paid_E.items():
        out[place.get(i, i)] += amount
    return out


def _led_to(trace: Trace, acts: Mapping[str, list[int]], i: int) -> int:
    """The place of the action that led to event i; `acts` are those of each agent, in the graph's order."""
    rank, event = trace.graph.rank, trace.events[i]
    own = acts.get(event.agent, [])
    if n := bisect_right(own, rank[i], key=rank.__getitem__):
        return own[n - 1]
    above = trace.graph.ancestors(i)
    if before := [k for some in acts.values() for k in some if above[k]]:
        return max(before, key=rank.__getitem__)
    if own:
        return own[0]
    what = f"event {event.id!r} carries a reward, and nothing that the team did led to it: {event.agent} never acts"
    raise NotIdentified(what, "record what it did, or an edge from the action that led to it", where=trace.trace_id)


def payments_of(
    traces: Sequence[Trace],
    units: Sequence[Mapping[str, list[int]]],
    unit: str,
    *,
    channel: str = "team",
    signals: Signals | None = None,
) -> list[dict[str, float]]:
    """Unit id to what was paid for it, of each trace; see the rule at the top."""
    if signals is not None:
        sums: dict[tuple[str, str], float] = {}
        for i in range(len(signals)):
            if signals.units[i] == unit:
                name = (signals.trace_ids[signals.trace[i]], signals.unit_ids[i])
                sums[name] = sums.get(name, 0.0) + float(signals.values[i])
        return [{u: sums[t.trace_id, u] for u in own if (t.trace_id, u) in sums} for t, own in zip(traces, units, strict=True)]
    out = []
    for trace, own in zip(traces, units, strict=True):
        amounts = paid_actions(trace, channel)
        if amounts is not None:
            out.append({u: float(sum(amounts[i] for i in places)) for u, places in own.items()})
        else:
            out.append(dict.fromkeys(own, team_reward(trace, channel)))
    return out


def paid_steps(
    trace: Trace,
    steps: Sequence[Sequence[int]],
    channel: str = "team",
    signals: Mapping[str, float] | None = None,
    *,
    leads: bool = False,
) -> list[float]:
    """What was paid for each step of a chain: what `signals` has by unit id for its events, for turns and agents that end in it;
    without signals the rewards of its events; or else the team's reward on the last step. Where the chain `leads` the team, what
    was paid for others' actions is of its latest step before them, in the graph's order (of the first, where there is none)."""
    if signals is not None:
        last: dict[str, int] = {}
        for k, step in enumerate(steps):
            for event in (trace.events[i] for i in step):
                last |= dict.fromkeys((event.id, event.agent, f"{event.agent}#{event.turn}"), k)
        out = [0.0] * len(steps)
        for name, k in last.items():
            out[k] += signals.get(name, 0.0)
        return out
    amounts = paid_actions(trace, channel)
    if amounts is not None:
        totals = [float(sum(amounts.pop(i) for i in step)) for step in steps]
        if leads and steps:
            rank = trace.graph.rank
            first = sorted((min(int(rank[i]) for i in step), k) for k, step in enumerate(steps))
            for i, amount in amounts.items():
                totals[first[max(bisect_right(first, (int(rank[i]), len(steps))) - 1, 0)][1]] += amount
        return totals
    return [0.0] * (len(steps) - 1) + [team_reward(trace, channel)] if steps else []


def signals_by_trace(signals: Signals) -> dict[str, dict[str, float]]:
    """Trace id to unit id to what was paid for that unit: an agent, a turn or an event; teams and roles are left out."""
    out: dict[str, dict[str, float]] = {name: {} for name in signals.trace_ids}
    columns = zip(signals.trace.tolist(), signals.units, signals.unit_ids, signals.values.tolist(), strict=True)
    for i, unit, unit_id, value in columns:
        if unit not in ("team", "role"):
            own = out[signals.trace_ids[i]]
            own[unit_id] = own.get(unit_id, 0.0) + value
    return out


def values_of(trace: Trace, value: Any, what: str = "a critic") -> dict[str, Any]:
    """Event id to a critic's number (or array): `value(trace)` gives a mapping by event id or a sequence along the events."""
    if value is None:
        raise NotIdentified(f"this mechanism needs {what}", "give a function: trace -> numbers by event", where=trace.trace_id)
    values = value(trace) if callable(value) else value
    if isinstance(values, Mapping):
        return dict(values)
    if len(values) != len(trace.events):
        raise InputError(f"{len(values)} values for {len(trace.events)} events", where=trace.trace_id, fix="one per event")
    return {e.id: v for e, v in zip(trace.events, values, strict=True)}


def compared(
    rows: Sequence[TraceUnit], keys: Sequence[Hashable], traces: Sequence[Trace], convention: Convention
) -> dict[str, Any]:
    """The notes: every group with its size and its members, and the convention that was applied."""
    members: dict[str, list[str]] = {}
    for row, key in zip(rows, keys, strict=True):
        members.setdefault(str(key), []).append(traces[row.trace].trace_id + (f" {row.unit_id}" if row.unit_id else ""))
    return {**asdict(convention), "groups": {k: len(v) for k, v in members.items()}, "compared": members}


ALONE = "a group of one: nobody to compare with"
ALONE_FIX = "several traces per task, or the option singleton: zero or keep"


def credit_of(
    mechanism: str,
    estimand: str,
    traces: Sequence[Trace],
    rows: Iterable[tuple[TraceUnit, float]],
    *,
    why_not: str = "an input is NaN",
    fix: str = "a critic, counterfactual or rating that answers with a number for every unit",
    notes: Mapping[str, Any] | None = None,
    declared: np.ndarray | None = None,
    cost: Cost | None = None,
    unidentified: Mapping[tuple[int, str], str] | None = None,
) -> Credit:
    """The credit; rows that are NaN are named as refused, and when none is left the whole question is."""
    credited: list[CreditRow] = []
    refused = dict(unidentified or {})
    for row, value in rows:
        if np.isnan(value):
            refused[row.trace, row.unit_id] = why_not
        else:
            credited.append(CreditRow(row.trace, row.unit, row.unit_id, float(value)))
    if not credited and refused:
        raise NotIdentified(next(iter(refused.values())), fix)
    credited.sort(key=lambda r: r.trace)
    ids = tuple(t.trace_id for t in traces)
    return Credit(
        mechanism, estimand, declared is not None, ids, tuple(credited), declared, cost or Cost(), refused, dict(notes or {})
    )


def grouped_credit(
    mechanism: str,
    estimand: str,
    traces: Sequence[Trace],
    rows: Sequence[TraceUnit],
    values: Sequence[float],
    keys: Sequence[Hashable],
    convention: Convention,
    *,
    size: int | None = None,
    notes: Mapping[str, Any] | None = None,
) -> Credit:
    """Rows compared within the groups of their keys, with notes that say who was compared with whom."""
    codes, names = group_codes(keys)
    counts = np.bincount(codes, minlength=len(names))
    if size is not None and (counts != size).any():
        wrong = [f"{names[g]!r} has {counts[g]}" for g in np.flatnonzero(counts != size)[:3]]
        raise InputError(f"groups of {size} were expected: {', '.join(wrong)}", fix="complete the groups, or leave out `size`")
    advantages = group_advantages(values, codes, convention, episodes=[r.trace for r in rows])
    table = {**compared(rows, keys, traces, convention), **(notes or {})}
    pairs = zip(rows, advantages.tolist(), strict=True)
    return credit_of(mechanism, estimand, traces, pairs, why_not=ALONE, fix=ALONE_FIX, notes=table)


# -- Traces that share their beginning, as a tree: siblings are what was said next after the same words ---------------
# Always true: two actions are one node when they, and everything before them in their traces, agree in who, what kind and which
# content. The last action of a trace is a sample of its own even where another trace ends on the same words. A node's value is
# the mean reward of the traces that pass through it.
#
# What was passed over (a noop) has no words: it is told by what was not done.
#
# Two samples of the same text in the middle of a trace cannot be told apart by content; `sample` (a function of an event) can.


class Step(NamedTuple):
    """An action of a trace and its place in the tree."""

    trace: int
    place: int
    """In the trace's events."""
    parent: int
    """The node of everything before it; the same number means the same prefix."""
    node: int
    depth: int


class PrefixTree(NamedTuple):
    """All steps, trace by trace, and what became of each node."""

    steps: list[Step]
    value_N: np.ndarray
    """Mean reward of the traces through each node."""
    leaves_N: np.ndarray
    """How many there are."""

    def first_steps(self) -> list[int]:
        """For each node that is a step, the first step that reached it: a node counts once, however many traces pass."""
        first: dict[int, int] = {}
        for i, step in enumerate(self.steps):
            first.setdefault(step.node, i)
        return list(first.values())


def _content(event: Event) -> Hashable:
    """What tells an action from another one after the same prefix; None where nothing does."""
    if event.content_ref is None and event.decision is not None:
        return event.decision, str((event.extra or {}).get("sub_decision"))
    return event.content_ref


def tree_of(
    traces: Sequence[Trace],
    keys: Sequence[Hashable],
    rewards: Sequence[float],
    sample: Callable[[Event], Hashable] | None = None,
    by: str = "action",
) -> PrefixTree:
    """The forest of these traces, one tree per key; a step is an action, or (`by="turn"`) all that the team did in a turn."""
    if by not in ("action", "turn"):
        raise InputError(f"no tree by {by!r}", fix="action or turn")
    number: dict[tuple[Any, ...], int] = {}
    steps: list[Step] = []
    through: list[tuple[int, float]] = []
    for i, (trace, key) in enumerate(zip(traces, keys, strict=True)):
        node = number.setdefault(("root", key), len(number))
        own = turn_places(trace) if by == "turn" else [[place] for place in actions(trace)]
        for depth, places in enumerate(own):
            done = tuple(_done(trace, place, sample) for place in places)
            last = i if depth == len(own) - 1 else None
            parent, node = node, number.setdefault((node, *(done[0] if by == "action" else (done,)), last), len(number))
            steps.append(Step(i, places[0], parent, node, depth))
            through.append((node, rewards[i]))
    nodes = np.array([n for n, _ in through], np.int64)
    leaves = np.bincount(nodes, minlength=len(number))
    sums = np.bincount(nodes, [r for _, r in through], len(number))
    return PrefixTree(steps, sums / np.maximum(leaves, 1), leaves)


def _done(trace: Trace, place: int, sample: Callable[[Event], Hashable] | None) -> tuple[str, str, Hashable]:
    """Who did what, and which content it had."""
    event = trace.events[place]
    content = sample(event) if sample is not None else _content(event)
    if content is None:
        raise NotIdentified(
            f"event {event.id!r} has no content: shared prefixes cannot be seen",
            "record contents, or give sample=",
            where=trace.trace_id,
        )
    return event.agent, event.type, content


def words_of(trace: Trace, places: Sequence[int]) -> Hashable:
    """What was done at these places, and with which contents: equal where the same was done."""
    return tuple(_done(trace, place, None) for place in places)


def turn_places(trace: Trace) -> list[list[int]]:
    """Places of the team's actions, turn by turn."""
    by_turn: dict[int, list[int]] = {}
    for name, places in unit_events(trace, "turn").items():
        by_turn.setdefault(int(name.rsplit("#", 1)[1]), []).extend(places)
    return [sorted(by_turn[turn]) for turn in sorted(by_turn)]


def step_units(traces: Sequence[Trace], step: Step, by: str) -> list[TraceUnit]:
    """The units that a step's credit is a row of: the action's event, or the turn of everybody who acted in it."""
    trace = traces[step.trace]
    event = trace.events[step.place]
    if by == "action":
        return [TraceUnit(step.trace, event_unit(event), event.id)]
    who = dict.fromkeys(trace.events[k].agent for k in actions(trace) if trace.events[k].turn == event.turn)
    return [TraceUnit(step.trace, "turn", f"{name}#{event.turn}") for name in who]
