"""Which mechanism answers "who earned it" for these traces, when nobody names one; and each agent's share, for pictures.

Always true: the first that answers, of: what the team would have got without an agent (by a replay that costs no model call), the
recorded votes counted again, the drafts' scores, the other runs of the task, and, for a log that has none of these, where the
words of the result stand first. Even shares are never chosen. What was passed over is named with its reason.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import counterpoint.registry as registry
from counterpoint.credit.row_places import RowPlaces
from counterpoint.errors import CounterpointError, NotIdentified
from counterpoint.trace import Trace
from counterpoint.trace.replay import Replay
from counterpoint.trace.rows import Credit, Shares

MOST_REPLAYED = 50_000
"""Agents times events up to which all agents are taken out in turn, without being asked for."""
MOST_READ = 20_000
"""Events up to which a picture looks for the origin of words."""


class _Candidate(NamedTuple):
    """A mechanism, why it is the best where it answers, and what the traces must have."""

    method: str
    why: str
    options: dict[str, Any]
    lacks: Callable[[Sequence[Trace], Replay | None], str | None]
    """Why it cannot be asked, without asking it."""


def _no_reward(traces: Sequence[Trace]) -> str | None:
    missing = [t.trace_id for t in traces if "team" not in t.rewards]
    return None if not missing else "no outcome is recorded (reward 'team'): counterpoint score adds one"


def _no_replay(traces: Sequence[Trace], replay: Replay | None) -> str | None:
    if replay is None:
        return "this run cannot be replayed without asking a model, or not at all"
    size = sum(len(t.events) * len(t.members) for t in traces)
    if size > MOST_REPLAYED:
        return f"one replay per agent is a lot of work here ({sum(len(t.members) for t in traces):,} agents): ask for it by name"
    return _no_reward(traces)


def _no_group(traces: Sequence[Trace], replay: Replay | None) -> str | None:
    if len(traces) < 2:
        return "one run of the task was given: there is nothing to compare it with"
    alone = [task for task, n in Counter(t.task_id for t in traces).items() if n < 2]
    return f"task {alone[0]!r} was run once" if alone else _no_reward(traces)


_CANDIDATES = (
    _Candidate("difference", "the run can be replayed without each agent, which shows what each caused", {}, _no_replay),
    _Candidate("shapley", "the trace holds scored votes, to be counted again without each agent", {}, lambda t, _: _no_reward(t)),
    _Candidate("ledger", "drafts were scored on the way", {"unit": "all"}, lambda t, _: _no_reward(t)),
    _Candidate("agent_wise", "several runs of the same task can be compared", {}, _no_group),
    _Candidate(
        "provenance",
        "this log cannot be replayed and holds no scored votes or drafts; where the result's words stand first can be observed",
        {},
        lambda traces, _: None,
    ),
)


class Chosen(NamedTuple):
    """A credit that was chosen, and why."""

    credit: Credit
    why: str
    passed: dict[str, str]
    """Mechanism that was passed over to the reason."""


def choose(traces: Sequence[Trace], *, replay: Replay | None = None, most_read: int | None = None) -> Chosen:
    """The credit of the best mechanism that is identified for these traces; `replay` only where it costs no model call.

    Traces of more than `most_read` events are not searched for the origin of words.
    """
    passed: dict[str, str] = {}
    for one in _CANDIDATES:
        why_not = one.lacks(traces, replay)
        if one.method == "provenance" and most_read is not None and (n := sum(len(t.events) for t in traces)) > most_read:
            why_not = f"{n:,} events are more than can be searched at once"
        if why_not is None:
            given = one.options | ({"replay": replay} if one.method == "difference" else {})
            try:
                found: Credit = registry.get("credit", one.method)(list(traces), **given)
                if found.rows:
                    notes = {**found.notes, "chosen": one.why, "passed": passed}
                    return Chosen(replace(found, notes=notes), one.why, passed)
                why_not = next(iter(found.unidentified.values()), "no unit gets a row")
            except CounterpointError as error:
                why_not = error.what
        passed[one.method] = why_not
    fix = "import the log with its texts, or name a mechanism of `counterpoint credit --list`"
    raise NotIdentified(f"no mechanism can say who earned it: {passed['provenance']}", fix, where=traces[0].trace_id)


def agent_shares(trace: Trace, *, replay: Replay | None = None) -> Shares | None:
    """Each agent's share by the mechanism that is chosen for this trace; None where there is no answer.

    Agents plus `unassigned` are the team reward; for provenance they are the whole result, which is 1.
    """
    try:
        found = choose([trace], replay=replay, most_read=MOST_READ).credit
    except CounterpointError:
        return None
    agents = RowPlaces(trace).by_agent(found)
    whole = 1.0 if found.mechanism == "provenance" else float(trace.rewards["team"])
    return Shares(found.mechanism, whole, agents, whole - math.fsum(agents.values()))
