"""Message credit by regression in hindsight: no calls once fitted, or blended with a few forks.

    c_am(m) = ridge regression of fork credit on features of m in the finished trace (`NAMES`)
    blend   = (c_am / s_am^2 + c_fork / s_f^2) / (1 / s_am^2 + 1 / s_f^2)      s_am: residual sd of the fit, s_f: fork error

Always true: without weights there is no guess but a refusal: `fit(traces, credit)` learns them from traces whose credit was
found by forks. Features need the finished trace (hindsight), so this is for credit, never for acting; what a message lacks is
0 beside a mark that says so (`is_vote`, `is_known`).

Each fork variance is pooled with the mean over the trace's messages (weight 4), because k replicates estimate it poorly. What
did not work: the blend has the smaller error, but forks alone may rank better. Departure from hindsight credit (arXiv
1912.02503): linear, on features.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np

from counterpoint.credits.doubly_robust import Ridge, ridge
from counterpoint.credits.example import Recount
from counterpoint.credits.forks import MESSAGES, Contrast, added, effects, messages_of, needed
from counterpoint.credits.masked_replay import Aggregate, Verify, Vote, gains, masked, smoothed, votes_of
from counterpoint.credits.mechanism import Mechanism
from counterpoint.credits.mechanisms.message_delete import message_delete
from counterpoint.credits.shared_options import SEED, EventTypes, MergeRule, ReplayOf, Replicates, StartAnswer, Verifier
from counterpoint.errors import InputError, NotIdentified
from counterpoint.options import Channel
from counterpoint.trace import Event, Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.replay import Delete
from counterpoint.trace.rows import Cost, Credit, CreditRow

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


class MessageFeatures(NamedTuple):
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
) -> MessageFeatures:
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
    return MessageFeatures(np.array(where, np.int64), tuple(ids), np.array(rows, np.float64).reshape(len(ids), len(NAMES)))


def _row(values: dict[str, float]) -> list[float]:
    return [values.get(name, 0.0) for name in NAMES]


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
        features = {
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
        out[v.id] = _row(features)
    return out


def _outcome(votes: Sequence[Vote], values: dict[str, float]) -> float | None:
    """Whether a task's votes came out right: +1, -1, 0 for as many right as wrong; None where nobody knows."""
    signs = [2 * v.worth - 1 for v in votes if v.worth is not None and v.is_read]
    return float(np.sign(sum(signs))) if signs and any(v.id in values for v in votes) else None


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


_ESTIMAND = "deletion credit of m, predicted in hindsight (blended with forks where k > 0)"
_POOL = 4.0


@dataclass(frozen=True)
class Weights:
    """What `fit` learned."""

    model: Ridge
    residual_sd: float
    """How far predictions were from fork credit, beyond the forks' own error."""
    messages: int
    """How many it learned from."""


def fit(
    traces: Sequence[Trace],
    credit: Credit,
    *,
    penalty: float = 3.0,
    start: Any = None,
    types: Collection[str] = MESSAGES,
) -> Weights:
    """Weights from traces and their fork credit (`message_delete` or `message_substitute` of these traces)."""
    if credit.trace_ids != tuple(t.trace_id for t in traces):
        raise InputError("the credit is of other traces", fix="give the traces that the credit was computed for, in their order")
    forked = {(r.trace, r.unit_id): r for r in credit.rows if r.unit == "message"}
    table = features(traces, start=start, types=types)
    keys = zip(table.trace_M.tolist(), table.ids, strict=True)
    pairs = [(m, forked[key]) for m, key in enumerate(keys) if key in forked]
    if len(pairs) < 2 * table.x_MD.shape[1]:
        raise NotIdentified(
            f"{len(pairs)} messages with fork credit for {table.x_MD.shape[1]} features", "more traces with fork credit"
        )
    x, y = table.x_MD[[m for m, _ in pairs]], np.array([r.value for _, r in pairs])
    model = ridge(x, y, penalty)
    noise = float(np.mean([r.se**2 for _, r in pairs if r.se is not None] or [0.0]))
    rest = float(((y - model(x)) ** 2).sum() / max(1, len(y) - x.shape[1] - 1))
    return Weights(model, float(np.sqrt(max(rest - noise, 0.05 * rest))), len(y))


def blended(amortised_U: np.ndarray, sd: float, fork_U: np.ndarray, se_U: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Inverse-variance mean of prediction and forks, and its standard error; NaN forks leave the prediction."""
    has = np.isfinite(fork_U)
    var_U = np.where(has, se_U, 0.0) ** 2
    mean = float(var_U[has].mean()) if has.any() else 0.0
    var_U = ((k - 1) * var_U + _POOL * mean) / (k - 1 + _POOL)
    to_forks = np.where(has, sd**2 / np.maximum(sd**2 + var_U, 1e-300), 0.0)
    value_U = amortised_U + to_forks * (np.where(has, fork_U, 0.0) - amortised_U) * has
    return value_U, np.sqrt(np.where(has, to_forks * var_U, sd**2))


def _message_amortised_credit(
    traces: Sequence[Trace],
    *,
    weights: Weights | None = None,
    replay: ReplayOf = None,
    k: Replicates = 0,
    seed: Annotated[int, SEED] = 0,
    rule: MergeRule = "majority",
    verify: Verifier = None,
    start: StartAnswer = None,
    types: EventTypes = MESSAGES,
    channel: Channel = "team",
) -> Credit:
    if weights is None:
        raise NotIdentified("the regression has no weights", "weights=fit(traces, message_delete(traces, replay=..., k=8))")
    if k == 1 or k < 0:
        raise InputError(f"k is {k}", fix="0 for no forks, or 2 and more: one replicate has no variance")
    table = features(traces, rule=rule, verify=verify, start=start, types=types)
    value_M, se_M = weights.model(table.x_MD), np.full(len(table.ids), weights.residual_sd)
    cost = Cost()
    if k:
        replay = needed(replay, "a blend with forks")
        costs = []
        for i, trace in enumerate(traces):
            mine = np.flatnonzero(table.trace_M == i)
            asked = [Contrast(table.ids[m], None, Delete()) for m in mine]
            forked = effects(replay, trace, asked, k=k, seed=seed, channel=channel)
            value_M[mine], se_M[mine] = blended(value_M[mine], weights.residual_sd, forked.effect_U, forked.se_U, k)
            costs.append(forked.cost)
        cost = added(costs)
    rows = tuple(
        CreditRow(int(i), "message", at, float(v), float(s))
        for i, at, v, s in zip(table.trace_M, table.ids, value_M, se_M, strict=True)
    )
    notes = {"k": k, "learned from": weights.messages, "residual_sd": weights.residual_sd}
    return Credit("message_amortised", _ESTIMAND, False, tuple(t.trace_id for t in traces), rows, cost=cost, notes=notes)


def _example() -> Example:
    """Weights learned from the deletion credit of the same traces, by counting their claims again."""
    traces = rollouts()
    return Example(traces, {"weights": fit(traces, message_delete(traces, replay=Recount()))})


message_amortised = Mechanism(
    unit="message",
    estimand=_ESTIMAND,
    assumptions="messages of the traces judged are like those it was fitted on",
    cost="none with k = 0 (the fit took forks on other traces); else 2k - 1 forks per message",
    additive=False,
    source="docs/lab/research/message-credit.md; hindsight credit assignment, arXiv 1912.02503. Departure: ridge regression on "
    "stated features",
    run=_message_amortised_credit,
    needs=("weights",),
    example=_example,
)
