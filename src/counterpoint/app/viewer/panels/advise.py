"""What to change: changes of the run, tried by forks that cost nothing, or listed with their price.

Always true: no model that costs anything is asked; what is shown with a gain is what `counterpoint advise` measures with as many
trials. A run that nothing can replay has no rows and says what it would need. A page in one file lists changes and tries none.
"""

from __future__ import annotations

import math
from shlex import quote

from msgspec import Struct

from counterpoint.app.api.advise import advise as advised
from counterpoint.app.api.advise import can_replay, price_of, trials_of
from counterpoint.app.api.credit import asks_model
from counterpoint.app.viewer.panel import Panel
from counterpoint.app.viewer.trace_view import view_of
from counterpoint.credits.advice import Advice, Change, Trials
from counterpoint.credits.best_arm import LEAST
from counterpoint.errors import CounterpointError
from counterpoint.trace import Trace

_EACH = 8
"""Trials for each change; the command takes more."""
_MOST_EVENTS, _MOST_CHANGES = 3_000, 60
"""A run with more of either is listed and not tried: it would take more than a few seconds."""


class TriedChange(Struct, frozen=True, kw_only=True):
    """One thing that could be different."""

    scope: str
    """`task`: for all runs of the task; `run`: in this run alone."""
    kind: str
    says: str
    event: int | None
    """Where it begins, by the event's number on the page."""
    gain: float | None
    """In points of the team reward; null where it was not tried."""
    low: float | None
    high: float | None
    trials: int
    tokens: int | None
    """What following it costs."""
    verdict: str


class Suggestions(Struct, frozen=True, kw_only=True):
    """What could be changed, the best first."""

    changes: list[TriedChange]
    certificates: dict[str, str]
    """What is certain, by scope."""
    trials: int
    command: str
    """What tries them, or tries them further."""
    notes: list[str]


def _answer(trace: Trace) -> Suggestions:
    """Tried where that costs nothing and takes seconds, else listed."""
    return view_of(trace).once("advise", lambda: _suggestions(trace, is_tried=True))


def _listed(trace: Trace) -> Suggestions:
    """The changes, none of them tried."""
    return _suggestions(trace, is_tried=False)


def _suggestions(trace: Trace, *, is_tried: bool) -> Suggestions:
    command = f"counterpoint advise {quote(trace.trace_id)}"
    if "team" not in trace.rewards and not can_replay(trace):
        why = "this run cannot be replayed and has no outcome; 40 scored runs of its task, half of them with a change, would do"
        return _none(command, why)
    if "team" not in trace.rewards:
        return _none(
            command,
            f"the run has no outcome, so no change can be judged; `counterpoint notes score {trace.trace_id} up` sets one",
        )
    try:
        trials = trials_of(trace)
        if trials is None:
            return _none(
                command,
                "this run cannot be replayed; with 20 recorded runs of its task with a change, and 20 without, it can be judged",
            )
        price = price_of(trials)
        if asks_model(trace):
            note = f"trying these would ask a model for up to {price.tokens:,} tokens"
            again = f"{command} --model openai:NAME --base-url URL --cap tokens={price.tokens}"
            return _untried(trace, trials, again, note)
        if not is_tried:
            return _untried(trace, trials, command, "nothing is tried in a page of one file")
        if len(trace.events) > _MOST_EVENTS or len(trials.changes) > _MOST_CHANGES:
            return _untried(trace, trials, command, f"{price.forks:,} trials at least, which is too many to try here")
        if not trials.changes:
            return _none(command, "there is nothing to change in this run")
        return _tried(trace, advised(trace, budget=_EACH * max(len(trials.changes), LEAST)), command)
    except CounterpointError as error:
        return _none(command, error.one_line())


def _none(command: str, why: str) -> Suggestions:
    return Suggestions(changes=[], certificates={}, trials=0, command=command, notes=[why])


def _untried(trace: Trace, trials: Trials, command: str, why: str) -> Suggestions:
    changes = [_change(trace, c, tokens=trials.tokens(c)) for c in trials.changes[:_MOST_CHANGES]]
    left = len(trials.changes) - len(changes)
    more = [f"{left:,} more changes are not listed"] if left else []
    return Suggestions(changes=changes, certificates={}, trials=0, command=command, notes=[why, *more])


def _tried(trace: Trace, found: Advice, command: str) -> Suggestions:
    changes = [_change(trace, r.change, r.tokens, r.gain, r.low, r.high, r.trials, r.verdict) for r in found.rows]
    return Suggestions(
        changes=changes, certificates=dict(found.certificates), trials=found.trials, command=command, notes=[]
    )  # fmt: skip


def _change(
    trace: Trace, change: Change, tokens: int | None, gain: float = math.nan, low: float = math.nan, high: float = math.nan,
    trials: int = 0, verdict: str = "not tried",
) -> TriedChange:  # fmt: skip
    at = trace.index.get(change.at)
    event = None if at is None else int(view_of(trace).team.place_E[at])
    return TriedChange(
        scope=change.scope, kind=change.kind, says=change.says, event=event,
        gain=_finite(gain), low=_finite(low), high=_finite(high), trials=trials, tokens=tokens, verdict=verdict,
    )  # fmt: skip


def _finite(value: float) -> float | None:
    return round(value, 6) if math.isfinite(value) else None


advise = Panel(name="Advise", key="7", answer=_answer, shapes=(TriedChange, Suggestions), offline=_listed)
