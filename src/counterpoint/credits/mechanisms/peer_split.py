"""SEPO: the team's verdict, moved a little by how an agent and its peers split the merit among themselves.

    w_i = 0.3 self_i + 0.7 peer_i        self_i, peer_i: what i, and the others on average, give i of n / 2 shares
    R_i = R + lam (w_i - mean w)  if R = 1;      R_i = R - lam (w_i - mean w)  if R = -1;      A_i = R_i - mean over the task

Always true: the terms of a rollout sum to 0 over its rated agents, so that the verifier's verdict stays what the team gets;
with an even split every w is 0.5, whatever the size of the team. An agent that nobody rated gets R alone. R is 1 where the
team's reward is above `threshold` ("mean": above the mean of its task), else -1.

`ratings(trace)` gives (rater, rated) -> score of 0 or more; a rater's scores are scaled to a split. Who rates and is not rated (a
judge from outside) is one more peer of everybody; who is rated and rates nobody splits evenly. Without `ratings` the split is an
oracle's: the mean score (R2) of each agent's claims, the same from every rater.

Source: SEPO, in CCPO, arXiv 2603.21563 (lam 0.2; two agents there, any number here). A = R - mean: no std, as there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from counterpoint.credits.groups import Convention, Floats
from counterpoint.credits.mechanism import Mechanism, team_reward
from counterpoint.credits.rows import TraceUnit, credit_of, grouped_credit, keys_of, unit_events
from counterpoint.credits.shared_options import GroupKey, Singleton
from counterpoint.errors import InputError, did_you_mean
from counterpoint.options import Channel
from counterpoint.trace import Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Credit

Ratings = Mapping[tuple[str, str], float]
_GIVES = {
    "reward": "R +- lam (w - mean w): the verdict, moved by the agent's share of the merit",
    "advantage": "that reward less its mean over the rollouts of the task in which the agent takes part",
}


def split_weights(score_RA: Sequence[Sequence[float]] | Floats, *, self_weight: float = 0.3) -> Floats:
    """(A,) w of each agent, from what each rater (row) scores each agent (column); a row of zeros is an even split.

    The first A rows are the agents themselves, those after them raters from outside, who are peers of everybody.
    """
    score = np.asarray(score_RA, np.float64)
    n = score.shape[1] if score.ndim == 2 else 0
    if not 0 < n <= len(score) or not np.isfinite(score).all() or (score < 0).any():
        fix = "finite numbers, a row for each agent and then for each rater from outside"
        raise InputError(f"scores are at least 0, rater by rated, not shape {score.shape}", fix=fix)
    total = score.sum(axis=1, keepdims=True)
    share = np.where(total > 0, score / np.where(total > 0, total, 1.0), 1.0 / n) * n / 2
    own, others = np.diag(share), len(score) - 1
    peer = (share.sum(axis=0) - own) / others if others else own
    return self_weight * own + (1 - self_weight) * peer


def split_rewards(verdict: float, w_A: Sequence[float] | Floats, *, lam: float = 0.2) -> Floats:
    """(A,) R + lam (w - mean w) for a verdict of 1, R - lam (w - mean w) for one of -1."""
    w = np.asarray(w_A, np.float64)
    return verdict + np.sign(verdict) * lam * (w - w.mean())


def _oracle(trace: Trace) -> dict[tuple[str, str], float]:
    """The mean score of each agent's claims, the same from every rater."""
    paid: dict[str, list[float]] = defaultdict(list)
    for event in trace.events:
        if event.reward and "R2" in event.reward:
            paid[event.agent].append(max(0.0, event.reward["R2"]))
    return {(a, b): float(np.mean(own)) for a in paid for b, own in paid.items()}


def _of_trace(trace: Trace, verdict: float, ratings: Ratings, lam: float, self_weight: float) -> dict[str, float]:
    """Agent to its reward; the rated ones share, the others get the verdict."""
    names = list(dict.fromkeys(rated for _, rated in ratings))
    out = dict.fromkeys(unit_events(trace, "agent"), verdict)
    if names:
        outside = [rater for rater in dict.fromkeys(rater for rater, _ in ratings) if rater not in names]
        scores = [[ratings.get((rater, rated), 0.0) for rated in names] for rater in (*names, *outside)]
        paid = split_rewards(verdict, split_weights(scores, self_weight=self_weight), lam=lam).tolist()
        out |= {name: value for name, value in zip(names, paid, strict=True) if name in out}
    return out


def _peer_split_credit(
    traces: Sequence[Trace],
    *,
    give: str = "advantage",
    ratings: Callable[[Trace], Ratings] | None = None,
    lam: float = 0.2,
    self_weight: float = 0.3,
    threshold: float | str = 0.5,
    key: GroupKey = "task_id",
    channel: Channel = "team",
    singleton: Singleton = None,
) -> Credit:
    if give not in _GIVES:
        raise InputError(f"unknown give={give!r}", fix=did_you_mean(give, _GIVES))
    if isinstance(threshold, str) and threshold != "mean":
        raise InputError(f"no threshold {threshold!r}", fix="a number, or mean")
    tasks, rewards = keys_of(traces, key), [team_reward(t, channel) for t in traces]
    of_task: dict[object, list[float]] = defaultdict(list)
    for task, reward in zip(tasks, rewards, strict=True):
        of_task[task].append(reward)
    rows, values, keys = [], [], []
    for i, (trace, task) in enumerate(zip(traces, tasks, strict=True)):
        least = float(np.mean(of_task[task])) if threshold == "mean" else float(threshold)
        verdict = 1.0 if rewards[i] > least else -1.0
        own = _of_trace(trace, verdict, _oracle(trace) if ratings is None else ratings(trace), lam, self_weight)
        rows += [TraceUnit(i, "agent", name) for name in own]
        values += list(own.values())
        keys += [(task, name) for name in own]
    if give == "reward":
        return credit_of("peer_split", _GIVES[give], traces, zip(rows, values, strict=True), notes={"lam": lam})
    how = Convention(scale="none", singleton=singleton or "refuse")  # type: ignore[arg-type]
    return grouped_credit("peer_split", _GIVES[give], traces, rows, values, keys, how, notes={"lam": lam})


peer_split = Mechanism(
    sees="item",
    unit="agent",
    estimand=_GIVES["advantage"],
    assumptions="ratings of one rater are comparable with each other; agents of one name are comparable between traces of a task",
    cost="one rating per agent and rater; nothing where scored claims stand in for raters",
    additive=False,
    source="SEPO (with CCPO), arXiv 2603.21563",
    run=_peer_split_credit,
    needs=("group",),
    example=lambda: Example(rollouts()),
)
