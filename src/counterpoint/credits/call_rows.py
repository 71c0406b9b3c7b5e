"""Training rows from traces and credit: one row per model call, with an advantage per call and per token.

Always true: nothing is dropped silently. For every level, what the calls carry, what a finer level replaced and what found no
call add up to the credit that was given, trace by trace, within 1e-9; `CallRows.placement` holds the three amounts.

Levels from fine to coarse: token; event (message, tool, a decision of the orchestrator); turn; agent; role; team. The most
specific one that covers a call wins. The credit of an effect (a spawn, a message that a decision sent, a tool's result, a merge)
goes to the model call that caused it, along the recorded edges: an additive credit is the sum of the call's own and of all its
effects'; of another one, in which every row is an advantage by itself, the call's own row replaces those of its effects. A unit
that covers n calls gives each its whole amount as the advantage, as every published broadcast does, and an n-th of it as the
share that is accounted for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from counterpoint.errors import InputError
from counterpoint.trace import Event, Trace
from counterpoint.trace.model_calls import Ints, common_prefix, ids_of, model_call, prompt_ids_of
from counterpoint.trace.rows import Credit, CreditRow
from counterpoint.trace.tabular import Tabular

Floats = NDArray[np.float64]

LEVELS = ("token", "event", "turn", "agent", "role", "team")


class Unplaced(NamedTuple):
    """Credit that no model call carries, and why."""

    trace: int
    level: str
    unit_id: str
    value: float
    why: str


class Placement(NamedTuple):
    """Where the credit went: level to (traces,) amounts. `given` is `carried` + `replaced` + what is in `unplaced`."""

    given: dict[str, Floats]
    carried: dict[str, Floats]
    replaced: dict[str, Floats]
    """What calls would have carried, had a finer level, or their own row, not covered them."""
    unplaced: tuple[Unplaced, ...]

    def check(self) -> None:
        """Raise `InputError` where an amount was lost."""
        for level, amounts in self.given.items():
            missing = np.zeros(len(amounts))
            for one in self.unplaced:
                if one.level == level:
                    missing[one.trace] += one.value
            gap = np.abs(amounts - self.carried[level] - self.replaced[level] - missing)
            if (gap > 1e-9 * np.maximum(1.0, np.abs(amounts))).any():
                raise InputError(
                    f"credit of the {level} level was lost: {gap.max():.3g}", fix="a bug in Counterpoint: please report it"
                )


@dataclass(frozen=True)
class CallRow:
    """One model call: what it read, what it wrote, how likely that was, and what it earned."""

    trace: int
    """Place of the trace among the traces given."""
    event: str
    agent: str
    role: str | None
    model: str | None
    """The model that spoke."""
    policy: str | None
    """Its adapter, or else its version: rows of different ones belong to different learners, or to older weights."""
    version: str | None
    """The version of the model that spoke; where an adapter did, that of the model under it, as the trace tells it."""
    group: str
    """Traces of one task are compared with each other."""
    prefix: int | None
    """The row whose prompt and answer this prompt begins with, as far as `shared`; None where it begins afresh."""
    shared: int
    prompt_rest: Ints | None
    """The prompt's token ids after `shared`; None where they were not recorded."""
    token_ids: Ints | None
    """The answer's token ids; None where they were not recorded."""
    logps: Floats | None
    """Log-probability of each token under what it was sampled from."""
    sampled: bool
    """False for an answer that somebody put there (an edit of a fork): it teaches nothing about the policy."""
    level: str | None
    """The level that the advantage comes from; None where no credit covers the call."""
    advantage: float | None
    token_advantages: Floats | None
    """One per token of the answer, where they are recorded or the credit is by token."""
    share: float
    """The part of the credit that this call stands for."""

    @property
    def mask(self) -> Ints | None:
        """Which tokens of the answer teach: 1 for those of a policy that got an advantage."""
        teaches = self.sampled and self.advantage is not None
        return None if self.token_ids is None else np.full(len(self.token_ids), int(teaches), np.int64)


@dataclass(frozen=True)
class CallRows(Tabular):
    """The model calls of many traces, in the order of the traces and then of the file."""

    TABLE: ClassVar = {
        "trace_id": "string", "event_id": "string", "agent": "string", "role": "string", "model": "string", "policy": "string",
        "version": "string", "group": "string", "sampled": "bool", "level": "string", "advantage": "double", "share": "double",
        "prompt_ids": "list:int64", "completion_ids": "list:int64", "completion_mask": "list:int64", "logps": "list:double",
        "token_advantages": "list:double",
    }  # fmt: skip

    trace_ids: tuple[str, ...]
    rows: tuple[CallRow, ...]
    placement: Placement

    def __len__(self) -> int:
        return len(self.rows)

    def table_rows(self) -> Iterator[Sequence[Any]]:
        """A row per call, prompts whole."""
        for i, row in enumerate(self.rows):
            about = (self.trace_ids[row.trace], row.event, row.agent, row.role, row.model, row.policy, row.version, row.group)
            arrays = (self.prompt_ids(i), row.token_ids, row.mask, row.logps, row.token_advantages)
            yield (*about, row.sampled, row.level, row.advantage, row.share, *(None if a is None else a.tolist() for a in arrays))

    def row_count(self) -> int:
        """How many calls there are."""
        return len(self.rows)

    def caption(self) -> str:
        """How many calls, and how many of them got an advantage."""
        credited = sum(row.level is not None for row in self.rows)
        about = f"{len(self.rows):,} model calls of {len(self.trace_ids):,} traces, {credited:,} with an advantage"
        lost = [u.value for u in self.placement.unplaced]
        return f"{about}; {len(lost):,} amounts, {sum(lost):.4g} in all, found no call" if lost else about

    def prompt_ids(self, place: int) -> Ints | None:
        """The whole prompt of a row, put together from what it shares with earlier rows."""
        row = self.rows[place]
        if row.prompt_rest is None or row.prefix is None:
            return row.prompt_rest
        parts, wanted = [row.prompt_rest], row.shared
        while wanted and row.prefix is not None:  # back from call to call, and not by recursion: an agent may make thousands
            row = self.rows[row.prefix]
            if row.prompt_rest is None:
                return None
            own = wanted - row.shared
            if own > len(row.prompt_rest) and row.token_ids is not None:
                parts.append(row.token_ids[: own - len(row.prompt_rest)])
            if own > 0:
                parts.append(row.prompt_rest[:own])
            wanted = min(wanted, row.shared)
        return np.concatenate(parts[::-1])


def named_as(rows: CallRows, traces: Sequence[Trace], others: Sequence[Trace]) -> CallRows:
    """The rows with the names that `others` have for the same traces, event by event: those without secrets, for what leaves."""
    named = []
    for row in rows.rows:
        trace = others[row.trace]
        event = trace.events[traces[row.trace].index[row.event]]
        who = replace(row, event=event.id, agent=event.agent, role=event.role, model=event.model, group=_group(trace))
        named.append(replace(who, **_speaker(trace, event)))
    words = names_in(traces, others)
    unplaced = tuple(u._replace(unit_id=in_words(words[u.trace], u.unit_id)) for u in rows.placement.unplaced)
    return CallRows(tuple(t.trace_id for t in others), tuple(named), rows.placement._replace(unplaced=unplaced))


def _words(trace: Trace, other: Trace) -> dict[str, str]:
    """Every name of a trace that units are called by, to the one that the other has for it."""
    words: dict[str, str] = {}
    for event, same in zip(trace.events, other.events, strict=True):
        words |= {event.id: same.id, event.agent: same.agent}
        if event.role is not None and same.role is not None:
            words[event.role] = same.role
    return words


def in_words(words: Mapping[str, str], unit_id: str) -> str:
    """The name of a unit in other words; that of a turn or token keeps its number."""
    name, mark, number = unit_id.rpartition("#")
    return words.get(unit_id) or (words.get(name, name) + mark + number if mark else unit_id)


def names_in(traces: Sequence[Trace], others: Sequence[Trace]) -> list[dict[str, str]]:
    """For each trace, what the other one calls its events, agents and roles."""
    return [_words(*pair) for pair in zip(traces, others, strict=True)]


def cause_of(trace: Trace) -> dict[int, int]:
    """Event to the model call that it is, or that caused it: places in `trace.events`; others have no entry.

    An effect's cause is the last call among its direct predecessors by the same agent; a tool's result has that of its call;
    a chain of effects leads back to the first. What a limit forced was caused by nobody. Calls of other agents that an effect
    merely read (the returns of a merge) did not cause it.
    """
    graph = trace.graph
    start, parents = graph.parents
    causes: dict[int, int] = {}
    for place in graph.order.tolist():
        event = trace.events[place]
        if model_call(event) is not None:
            causes[place] = place
            continue
        if event.policy == "forced":
            continue
        before = [int(p) for p in parents[start[place] : start[place + 1]]]
        own = [causes[p] for p in before if p in causes and trace.events[p].agent == event.agent]
        if not own and event.type == "tool_result":  # recorded under the tool's own name
            own = [causes[p] for p in before if p in causes and trace.events[p].type == "tool_call"]
        if own:
            causes[place] = max(own)
    return causes


class _Calls:
    """The calls of one trace, and which of them a unit of each level covers."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.places = [i for i, e in enumerate(trace.events) if model_call(e) is not None]
        self.causes = cause_of(trace)
        self.by: dict[str, dict[str, list[int]]] = {"turn": {}, "agent": {}, "role": {}, "team": {"": self.places}}
        for i in self.places:
            event = trace.events[i]
            self.by["agent"].setdefault(event.agent, []).append(i)
            if event.role is not None:
                self.by["role"].setdefault(event.role, []).append(i)
            if event.turn is not None:
                self.by["turn"].setdefault(f"{event.agent}#{event.turn}", []).append(i)

    def level_of(self, row: CreditRow) -> str:
        """Orchestrator rows name an event (a decision) or the orchestrator itself."""
        if row.unit in ("message", "tool") or (row.unit == "orchestrator" and row.unit_id in self.trace.index):
            return "event"
        return "agent" if row.unit == "orchestrator" else row.unit

    def covered(self, level: str, unit_id: str) -> tuple[list[int], str]:
        """The calls that a unit covers, or why there are none."""
        if level in ("event", "token"):
            event_id = unit_id.rpartition("#")[0] if level == "token" else unit_id
            place = self.trace.index.get(event_id)
            if place is None:
                return [], f"the trace has no event {event_id!r}"
            if level == "token" and place not in self.places:
                return [], "no model call wrote this token"
            call = self.causes.get(place)
            return ([], "no recorded model call caused this event") if call is None else ([call], "")
        return self.by[level].get(unit_id, []), f"this {level} has no recorded model call"


def call_rows(traces: Sequence[Trace], credit: Credit) -> CallRows:
    """One row per model call of the traces, with the advantage that a credit table of any unit gives it."""
    if credit.trace_ids != tuple(t.trace_id for t in traces):
        raise InputError("the credit is of other traces", fix="give the traces that it was computed from, in that order")
    by_trace: list[list[CreditRow]] = [[] for _ in traces]
    for row in credit.rows:
        by_trace[row.trace].append(row)
    all_calls = [_Calls(trace) for trace in traces]
    used = {calls.level_of(row) for calls, own in zip(all_calls, by_trace, strict=True) for row in own}
    stated, carried, replaced = ({level: np.zeros(len(traces)) for level in LEVELS if level in used} for _ in range(3))
    placement = Placement(stated, carried, replaced, ())
    rows: list[CallRow] = []
    unplaced: list[Unplaced] = []
    for i, calls in enumerate(all_calls):
        earned = _earned(i, calls, by_trace[i], placement, unplaced, additive=credit.additive)
        rows += _rows(i, calls, earned, len(rows))
    placement = placement._replace(unplaced=tuple(unplaced))
    placement.check()
    return CallRows(credit.trace_ids, tuple(rows), placement)


class _Earned(NamedTuple):
    level: str
    advantage: float
    share: float
    by_token: dict[int, float]


def _earned(
    i: int, calls: _Calls, rows: Sequence[CreditRow], placement: Placement, unplaced: list[Unplaced], *, additive: bool
) -> dict[int, _Earned]:
    """Call to what it earned, fine levels first; the amounts are booked as they go."""
    earned: dict[int, _Earned] = {}
    for level in LEVELS:
        own = [row for row in rows if calls.level_of(row) == level]
        fresh: dict[int, _Earned] = {}
        judged = set() if additive or level != "event" else {calls.trace.index.get(row.unit_id) for row in own}
        for row in own:
            placement.given[level][i] += row.value
            covered, why = calls.covered(level, row.unit_id)
            if not covered:
                unplaced.append(Unplaced(i, level, row.unit_id, row.value, why))
                continue
            part = row.value / len(covered)
            for call in covered:
                is_effect = level == "event" and calls.trace.index.get(row.unit_id) != call
                if call in earned or (is_effect and call in judged):
                    placement.replaced[level][i] += part
                    continue
                placement.carried[level][i] += part
                token = {int(row.unit_id.rpartition("#")[2]): row.value} if level == "token" else {}
                old = fresh.get(call, _Earned(level, 0.0, 0.0, {}))
                fresh[call] = _Earned(level, old.advantage + row.value, old.share + part, {**old.by_token, **token})
        earned |= fresh
    return earned


def _rows(i: int, calls: _Calls, earned: Mapping[int, _Earned], first: int) -> Iterator[CallRow]:
    trace = calls.trace
    last: dict[str, tuple[int, Ints]] = {}
    prompts = prompt_ids_of(trace)
    for k, place in enumerate(calls.places):
        event = trace.events[place]
        note = model_call(event) or {}
        tokens, logps, prompt = ids_of(note.get("token_ids")), note.get("logps"), prompts.get(event.id)
        before = last.get(event.agent)
        shared = 0 if before is None or prompt is None else common_prefix(before[1], prompt)
        got = earned.get(place)
        yield CallRow(
            trace=i,
            event=event.id,
            agent=event.agent,
            role=event.role,
            model=event.model,
            **_speaker(trace, event),
            group=_group(trace),
            prefix=before[0] if before is not None and shared else None,
            shared=shared,
            prompt_rest=None if prompt is None else prompt[shared:],
            token_ids=tokens,
            logps=None if logps is None else np.asarray(logps, np.float64),
            sampled=event.policy != "forced" and not (event.extra or {}).get("edited"),
            level=None if got is None else got.level,
            advantage=None if got is None else got.advantage,
            token_advantages=_by_token(event, tokens, got),
            share=0.0 if got is None else got.share,
        )
        if prompt is not None:
            last[event.agent] = first + k, prompt if tokens is None else np.concatenate([prompt, tokens])


def _group(trace: Trace) -> str:
    return trace.task_id or trace.trace_id


def _speaker(trace: Trace, event: Event) -> dict[str, Any]:
    """The policy and the version that spoke."""
    named = (model_call(event) or {}).get("policy")
    if not named and event.policy != "forced":
        return {"policy": event.policy, "version": event.policy}
    model = trace.meta.get("model")
    version = str(model["version"]) if isinstance(model, Mapping) and model.get("version") is not None else None
    return {"policy": str(named) if named else event.policy, "version": version}


def _by_token(event: Event, tokens: Ints | None, got: _Earned | None) -> Floats | None:
    """Token credit stands at its tokens; any other advantage is that of every token of the call."""
    n = event.tokens_out or 0 if tokens is None else len(tokens)
    if got is None or (tokens is None and not got.by_token):
        return None
    if got.level != "token":
        return np.full(n, got.advantage)
    if max(got.by_token) >= n:
        what = f"credit for token {max(got.by_token)} of event {event.id!r}, which wrote {n}"
        raise InputError(what, fix="count tokens from 0")
    out = np.zeros(n)
    out[list(got.by_token)] = list(got.by_token.values())
    return out
