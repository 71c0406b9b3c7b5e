"""Which mechanism answers "who earned it" for these traces, when nobody names one; and each agent's share, for pictures.

Always true: the first that answers, of: what the team would have got without an agent (by a replay that costs no model call), the
recorded votes counted again, the recorded merge made again, the drafts' scores, and the other runs of the task. Where none does,
who earned it is not identified, and nothing is chosen: where words stood first, and even shares, have to be asked for by name. An
answer that gives everything to one of several agents is kept for when nothing better answers.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import counterpoint.registry as registry
from counterpoint.credits.row_places import RowPlaces
from counterpoint.errors import CounterpointError, NotIdentified
from counterpoint.trace import Trace
from counterpoint.trace.outcome import as_recorded
from counterpoint.trace.replay import Replay
from counterpoint.trace.rows import Credit, Shares

MOST_REPLAYED = 50_000
"""Agents times events up to which all agents are taken out in turn, without being asked for."""
LEAST_DRAFTS = 2
"""Scored drafts from which the way of their score says more than who merged them."""
Merges = Callable[[Trace], Any]
"""A trace to its last merge, which can be made again without some workers (`credit.mechanisms.remerge.Merged`), or None."""


class _Given(NamedTuple):
    """What beside the traces may be asked, without a model call."""

    replay: Replay | None
    merged: Merges | None


class _Candidate(NamedTuple):
    """A mechanism, why it is the best where it answers, and what the traces must have."""

    method: str
    why: str
    options: dict[str, Any]
    lacks: Callable[[Sequence[Trace], _Given], str | None]
    """Why it cannot be asked, without asking it."""
    takes: tuple[str, ...] = ()
    """What it is given beside the traces: replay, merged."""
    unit: str | None = None
    """It is asked only where this unit is asked for."""


def _no_reward(traces: Sequence[Trace]) -> str | None:
    missing = [t.trace_id for t in traces if "team" not in t.rewards]
    return None if not missing else "no outcome is recorded (reward 'team'): counterpoint notes score adds one"


def _no_replay(traces: Sequence[Trace], given: _Given) -> str | None:
    if given.replay is None:
        return "this run cannot be replayed without asking a model, or not at all"
    size = sum(len(t.events) * len(t.members) for t in traces)
    if size > MOST_REPLAYED:
        return f"one replay per agent is a lot of work here ({sum(len(t.members) for t in traces):,} agents): ask for it by name"
    return _no_reward(traces)


def _no_message_replay(traces: Sequence[Trace], given: _Given) -> str | None:
    if given.replay is not None:
        told = sum(len(t.events) * sum(e.type in ("message", "return") for e in t.events) for t in traces)
        if told > 10 * MOST_REPLAYED:
            return "one replay per message is a lot of work here: ask for it by name"
    return _no_replay(traces, given)


def _no_merge(traces: Sequence[Trace], given: _Given) -> str | None:
    found = [] if given.merged is None else [one for trace in traces if (one := given.merged(trace)) is not None]
    if len(found) < len(traces):
        return "its merges cannot be made again: this is no recording of `counterpoint play`"
    if any(one.runs_code for one in found):
        return "the task's checker runs what the team wrote as a program: ask for it by name"
    if any(len(one.workers) < 2 for one in found):
        return "fewer than two workers are in the last merge"
    return _no_reward(traces)


def _few_drafts(traces: Sequence[Trace], given: _Given) -> str | None:
    scored = min(sum(e.type == "aggregate" and "draft" in (e.reward or {}) for e in trace.events) for trace in traces)
    if 0 < scored < LEAST_DRAFTS:
        return "one draft was scored: whoever merged it would get everything, and those whose work is in it nothing"
    return _no_reward(traces)


def _no_group(traces: Sequence[Trace], given: _Given) -> str | None:
    if len(traces) < 2:
        return "one run of the task was given: there is nothing to compare it with"
    alone = [task for task, n in Counter(t.task_id for t in traces).items() if n < 2]
    return f"task {alone[0]!r} was run once" if alone else _no_reward(traces)


_CANDIDATES = (
    _Candidate(
        "message_delete",
        "the run can be replayed without each message, which shows what each caused",
        {},
        _no_message_replay,
        ("replay",),
        "message",
    ),
    _Candidate(
        "difference", "the run can be replayed without each agent, which shows what each caused", {}, _no_replay, ("replay",)
    ),
    _Candidate("shapley", "the trace holds scored votes, to be counted again without each agent", {}, lambda t, _: _no_reward(t)),
    _Candidate(
        "remerge",
        "the team's last merge can be made and scored again without each worker's returns, which asks no model; nobody reacts",
        {},
        _no_merge,
        ("merged",),
    ),
    _Candidate("ledger", "drafts were scored on the way", {"unit": "all"}, _few_drafts),
    _Candidate("agent_wise", "several runs of the same task can be compared", {}, _no_group),
)


class Chosen(NamedTuple):
    """A credit that was chosen, and why."""

    credit: Credit
    why: str
    passed: dict[str, str]
    """Mechanism that was passed over to the reason."""


class NobodyChosen(NotIdentified):
    """No mechanism is identified for these traces; `passed` says of each why not."""

    def __init__(self, traces: Sequence[Trace], unit: str | None, passed: dict[str, str]) -> None:
        whose = "who earned it" if unit is None else f"which {unit} earned it"
        why = _no_reward(traces) or "nothing here says what the team would have got without an agent"
        fix = "`--mechanism provenance` says who was the first to say the result's words; `counterpoint credit --list` has more"
        super().__init__(f"no mechanism can say {whose}: {why}", fix, where=traces[0].trace_id)
        self.passed = passed


def choose(
    traces: Sequence[Trace], *, replay: Replay | None = None, merged: Merges | None = None, unit: str | None = None
) -> Chosen:
    """The credit of the best mechanism that is identified for these traces; `replay` only where it costs no model call.

    `merged` makes the merges of a recorded team again. With `unit` it is the best of those that have rows of this unit. Where
    none is identified, `NobodyChosen` says of each why not.
    """
    given, passed = _Given(replay, merged), {}  # type: _Given, dict[str, str]
    kept: Chosen | None = None
    for one in _CANDIDATES:
        if one.unit not in (None, unit):
            continue
        try:
            why_not = one.lacks(traces, given)
            if why_not is None:
                options = one.options | {name: getattr(given, name) for name in one.takes}
                found: Credit = registry.get("mechanism", one.method)(list(traces), **options)
                has_unit = unit is None or unit in found.units
                best = _only_one(traces, found) if unit in (None, "agent") else None
                if found.rows and has_unit and best is None:
                    return _told(found, one.why, passed)
                why_not = next(iter(found.unidentified.values()), "no unit gets a row")
                if not has_unit:
                    why_not = f"it has rows of {' and '.join(found.units) or 'nothing'}, and none of a {unit}"
                elif best is not None:
                    why_not = f"it gives everything to {best}, and the others nothing"
                    kept = kept or _told(found, f"{one.why}; no better answer than: everything to {best}", passed)
        except CounterpointError as error:
            why_not = error.what
        passed[one.method] = why_not
    if kept is not None:
        return kept
    raise NobodyChosen(traces, unit, passed)


def _told(found: Credit, why: str, passed: dict[str, str]) -> Chosen:
    return Chosen(replace(found, notes={**found.notes, "chosen": why, "passed": passed}), why, passed)


def _only_one(traces: Sequence[Trace], found: Credit) -> str | None:
    """The one agent that a ledger of the drafts gives everything to, in every trace of more than one member; None elsewhere."""
    if found.mechanism != "ledger":
        return None
    names: set[str] = set()
    for i, trace in enumerate(traces):
        paid = [name for name, value in RowPlaces(trace).by_agent(found, i).items() if value]
        if len(paid) != 1 or len(trace.members) < 2:
            return None
        names.update(paid)
    return ", ".join(sorted(names))


def agent_shares(trace: Trace, *, replay: Replay | None = None, merged: Merges | None = None) -> Shares | None:
    """Each agent's share by the mechanism that is chosen for this trace; None where there is no answer.

    Agents plus `unassigned` are the team reward as the run scored itself, which is what all of these share out (the reward that a
    person gave where it did not). A trace without an outcome has no shares.
    """
    try:
        found = choose([trace], replay=replay, merged=merged).credit
    except CounterpointError:
        return None
    agents = RowPlaces(trace).by_agent(found)
    whole = float(as_recorded(trace).rewards.get("team", trace.rewards["team"]))
    return Shares(found.mechanism, whole, agents, whole - math.fsum(agents.values()))
