"""What a finished trace says about each of its messages, as numbers: the features of amortised message credit.

Always true: features are read from the trace alone, after the fact, at no call; what a message lacks is 0 beside a mark that says
so (`is_vote`, `is_known`). A sender's reliability leaves out the message itself. Columns (research notes B2): see `NAMES`; `gain`
is information gain, signed towards the verified truth, at the time the message came (see `_masked`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from counterpoint.credit.masked_replay import Aggregate, Verify, Vote, gains, masked, smoothed, votes_of
from counterpoint.credit.messages import MESSAGES, messages_of
from counterpoint.trace import Event, Trace

NAMES = (
    "masked",  # masked value
    "smoothed",  # the same with a soft majority
    "gain",  # information gain when it came, towards the truth
    "own",  # whether it was right: 2 worth - 1
    "outcome",  # verified outcome of its task: +1 right, -1 wrong
    "own_outcome",  # right and the task right, or wrong and the task wrong
    "redundancy",  # share of the other votes on the task that say the same
    "reliability",  # of its sender, elsewhere in the trace, shrunk to the batch's mean
    "place",  # votes on the task before it, as a share
    "is_return",  # message type
    "is_vote",
    "is_read",
    "is_known",  # whether the task was verified
)


class Table(NamedTuple):
    """Features of many messages."""

    trace_M: np.ndarray
    """The place of each message's trace."""
    ids: tuple[str, ...]
    x_MD: np.ndarray


def features(
    traces: Sequence[Trace],
    *,
    rule: str | Aggregate = "majority",
    verify: Verify | None = None,
    start: Any = None,
    types: Collection[str] = MESSAGES,
    scores: str = "R2",
) -> Table:
    """One row per message of the traces, in their order."""
    every = [votes_of(t, scores) for t in traces]
    known = [v.worth for votes in every for v in votes if v.worth is not None]
    mean = float(np.mean(known)) if known else 0.5
    where, ids, rows = [], [], []
    for i, (trace, votes) in enumerate(zip(traces, every, strict=True)):
        values, _ = masked(votes, rule=rule, verify=verify, start=start)
        about = _about_votes(trace, votes, values, mean)
        for e in messages_of(trace, types):
            where.append(i)
            ids.append(e.id)
            rows.append(about.get(e.id) or _row({"is_return": float(e.type == "return"), "reliability": mean}))
    return Table(np.array(where, np.int64), tuple(ids), np.array(rows, np.float64).reshape(len(ids), len(NAMES)))


def _row(told: dict[str, float]) -> list[float]:
    return [told.get(name, 0.0) for name in NAMES]


def _about_votes(trace: Trace, votes: Sequence[Vote], values: dict[str, float], mean: float) -> dict[str, list[float]]:
    """The features of the messages that are votes."""
    codes = {task: n for n, task in enumerate(dict.fromkeys(v.task for v in votes))}
    task_V = np.array([codes[v.task] for v in votes], np.int64)
    v_V = np.array([0.0 if v.worth is None or not v.is_read else 2 * v.worth - 1 for v in votes])
    soft_V, gain_V = smoothed(task_V, v_V), gains(task_V, v_V)
    by_task: dict[str, list[Vote]] = defaultdict(list)
    for v in votes:
        by_task[v.task].append(v)
    right = {task: _outcome(mine, values) for task, mine in by_task.items()}
    sender = _reliability(trace, votes, mean)
    out = {}
    for n, v in enumerate(votes):
        mine, own, outcome = by_task[v.task], v_V[n], right[v.task]
        others = [w for w in mine if w.id != v.id]
        told = {
            "masked": values.get(v.id, 0.0),
            "smoothed": soft_V[n],
            "gain": gain_V[n],
            "own": own,
            "outcome": outcome or 0.0,
            "own_outcome": own * (outcome or 0.0),
            "redundancy": sum(w.claim == v.claim for w in others) / len(others) if others else 0.0,
            "reliability": sender[v.id],
            "place": mine.index(v) / len(mine),
            "is_return": float(trace.events[trace.index[v.id]].type == "return"),
            "is_vote": 1.0,
            "is_read": float(v.is_read),
            "is_known": float(outcome is not None),
        }
        out[v.id] = _row(told)
    return out


def _outcome(votes: Sequence[Vote], values: dict[str, float]) -> float | None:
    """Whether a task's votes came out right: +1, -1, 0 for as many right as wrong; None where nobody knows."""
    told = [2 * v.worth - 1 for v in votes if v.worth is not None and v.is_read]
    return float(np.sign(sum(told))) if told and any(v.id in values for v in votes) else None


def _reliability(trace: Trace, votes: Sequence[Vote], mean: float) -> dict[str, float]:
    """(right elsewhere + 2 mean) / (votes elsewhere + 2) of each vote's sender."""
    sent: dict[str, list[tuple[str, float]]] = defaultdict(list)
    events: list[Event] = trace.events
    who = {v.id: events[trace.index[v.id]].from_ or events[trace.index[v.id]].agent for v in votes}
    for v in votes:
        if v.worth is not None:
            sent[who[v.id]].append((v.id, v.worth))
    out = {}
    for v in votes:
        rest = [worth for at, worth in sent[who[v.id]] if at != v.id]
        out[v.id] = (sum(rest) + 2 * mean) / (len(rest) + 2)
    return out
