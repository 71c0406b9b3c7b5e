"""R6, CoMAS: a solution is paid by its score, its evaluation by what is left, the scorer for being readable.

    r(solution) = (s - 1) / 2,  r(evaluation) = (3 - s) / 2,  r(scorer) = 0, or -1 where no score can be read;      s in 1, 2, 3

Always true: rows of unit message. A score stands on an event of role `scorer` in the channel `score`, and is of the last
solution and the last evaluation before it (by role), unless other messages lead to it by edges; whoever is scored twice gets
the mean. A scorer's event without the channel has no readable score: it is paid -1, and the pair that it judged has no row.

With `replies` there are no such roles: every answer (a return with the channel `score`, the share of judges that accept it) is
an evaluation of the last one that somebody else gave to its task; s = 3 where it agrees, 1 + 2 score where it does not. Rows of
unit turn.

Source: CoMAS arXiv 2510.08529 v2, which does not say what the pair gets when the score cannot be read.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from counterpoint.errors import InputError
from counterpoint.rewards.reward import Reward, events_of_types, gathered, turn_of
from counterpoint.trace import Event, Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Signal

_TALK = ("message", "return")
_SCORE = "score"
"""The channel of an event in which a scorer's score stands."""


def pair_rewards(score: float | None) -> tuple[float | None, float | None, float]:
    """Of the solution, the evaluation and the scorer; a score is 1, 2 or 3, None where it cannot be read."""
    if score is None:
        return None, None, -1.0
    if not 1 <= score <= 3:
        raise InputError(f"a score is {score}", fix="1, 2 or 3; leave out what cannot be read")
    return (score - 1) / 2, (3 - score) / 2, 0.0


def _judged(trace: Trace, events: list[Event], at: int, role: str) -> Event | None:
    """The event of a role that a scorer judges: one that leads to it, or else the last before it."""
    scorer = events[at]
    linked = {e.src for e in trace.edges if e.dst == scorer.id}
    before = [e for e in events[:at] if e.role == role]
    return next((e for e in reversed(before) if e.id in linked), before[-1] if before else None)


def _comas_signals(trace: Trace, *, replies: bool = False) -> Iterator[Signal]:
    if replies:
        yield from _replies(trace)
        return
    events = events_of_types(trace, _TALK)
    pairs: list[tuple[str | None, float]] = []
    for at, event in enumerate(events):
        if event.role != "scorer":
            continue
        amounts = pair_rewards((event.reward or {}).get(_SCORE))
        judged = (_judged(trace, events, at, "solver"), _judged(trace, events, at, "evaluator"), event)
        pairs += [(e.id, paid) for e, paid in zip(judged, amounts, strict=True) if e is not None and paid is not None]
    for event_id, value in gathered(pairs, "mean").items():
        yield Signal("message", event_id, "R6", value)


def reply_score(same: bool, accepted: float) -> float:
    """The score of an answer after a reply to it: 3 where the reply agrees, and else by the share of judges that accept it."""
    return 3.0 if same else 1.0 + 2.0 * accepted


def _replies(trace: Trace) -> Iterator[Signal]:
    """Answers in turn: each is an evaluation of the last answer that somebody else gave to the same task, and a solution until
    the next. What an agent gets in a turn is the mean of what its answers of that turn got."""
    paid: list[tuple[str | None, float]] = []
    last: dict[str, Event] = {}
    for event in events_of_types(trace, ("return",)):
        if event.task is None or _SCORE not in (event.reward or {}):
            continue
        before = last.get(event.task)
        if before is not None and before.agent != event.agent:
            same = (before.extra or {}).get("claim") == (event.extra or {}).get("claim")
            solution, evaluation, _ = pair_rewards(reply_score(same, (before.reward or {})[_SCORE]))
            paid += [(turn_of(before), solution or 0.0), (turn_of(event), evaluation or 0.0)]
        last[event.task] = event
    for turn, value in gathered(paid, "mean").items():
        yield Signal("turn", turn, "R6", value)


def _example() -> Example:
    """The rollouts: w1 solves, w2 evaluates, w3 scores by what it claimed, and says nothing readable on item 1 of two."""
    roles = {"w1": "solver", "w2": "evaluator", "w3": "scorer"}

    def recast(e: Event) -> Event:
        claim = (e.extra or {}).get("claim")
        paid = {"score": 1.0 + 2.0 * claim} if e.agent == "w3" and claim is not None and e.type == "message" else {}
        return replace(e, role=roles.get(e.agent, e.role), reward={**(e.reward or {}), **paid} or None)

    return Example([replace(t, events=[recast(e) for e in t.events]) for t in rollouts()])


comas = Reward(family="R6", unit="message", source="CoMAS, arXiv 2510.08529 v2", score=_comas_signals, example=_example)
