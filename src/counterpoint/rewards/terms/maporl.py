"""R2, MAPoRL: an agent's own score now, the team's mean score later, and pay for being right among wrong.

    r_ta = (v_ta + sum over t' > t of gamma^(t'-t) mean_b v_t'b) / sum over t' >= t of gamma^(t'-t)      v in 0..1

Always true: rows of unit turn (`agent#turn`), for agents that were scored in every turn in which anybody was; others have none.
The scores are the mean of the amounts logged on an agent's events of that turn (channel R2). Without `alpha` a row lies between
the least and the largest score. `alpha` (four numbers) adds the incentives of `bonus`, as the paper means them or
`as_released`.

With `by_task` each task of the trace is a debate of its own, in which who is not asked again keeps the answer that stands.

Source: MAPoRL arXiv 2502.18439.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from counterpoint.errors import InputError
from counterpoint.options import Channel
from counterpoint.rewards.reward import Reward, amounts, gathered, turn_of
from counterpoint.trace import Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Signal


def _finite(values: np.ndarray | Sequence[Sequence[float]], what: str) -> np.ndarray:
    out = np.asarray(values, np.float64)
    if not np.isfinite(out).all():
        raise InputError(f"a {what} is NaN or infinite", fix="leave out what was not scored")
    return out


def own_now_team_later(score_TA: np.ndarray | Sequence[Sequence[float]], *, gamma: float = 0.3) -> np.ndarray:
    """(T, A) own score now, the team's mean score later, discounted: (v_ta + sum_t'>t gamma^(t'-t) mean_b v_t'b) / sum gamma^."""
    score_TA = _finite(np.asarray(score_TA, np.float64), "score")
    if score_TA.ndim != 2 or not score_TA.size:
        raise InputError(f"scores are turns by agents, not shape {score_TA.shape}")
    out = np.empty_like(score_TA)
    later, weight = 0.0, 0.0
    for t in range(len(score_TA) - 1, -1, -1):
        out[t] = (score_TA[t] + later) / (1.0 + weight)
        later, weight = gamma * (float(score_TA[t].mean()) + later), gamma * (1.0 + weight)
    return out


def bonus(correct_TA: np.ndarray | Sequence[Sequence[float]], alpha: Sequence[float], *, as_released: bool = False) -> np.ndarray:
    """(T, A) the incentives added to `own_now_team_later`; four signed constants, nothing at turn 0, thresholds 0.5.

    Own wrong to right: +a0 if the others were right, +a1 if wrong; right to wrong: -a0 if the others were wrong, -a1 if right.
    Others wrong to right at t + 1: +a3 if self is right, +a2 if wrong; others right to wrong: -a2 if self right, -a3 if wrong.
    The text means this second line as pay for good influence; the released signs are the opposite and punish it: `as_released`.
    """
    right = _finite(np.asarray(correct_TA, np.float64), "correctness") > 0.5
    turns, agents = right.shape
    if len(alpha) != 4:
        raise InputError(f"MAPoRL has four constants, not {len(alpha)}")
    if agents < 2:
        raise InputError("MAPoRL's incentives need at least two agents")
    others = (right.sum(axis=1, keepdims=True) - right) / (agents - 1) > 0.5
    out = np.zeros((turns, agents))
    sign = -1.0 if as_released else 1.0
    a0, a1, a2, a3 = (float(a) for a in alpha)
    for t in range(1, turns):
        was, now, heard = right[t - 1], right[t], others[t - 1]
        out[t] += np.where(~was & now, np.where(heard, a0, a1), 0.0) - np.where(was & ~now, np.where(heard, a1, a0), 0.0)
        if t + 1 < turns:
            then, next_ = others[t], others[t + 1]
            out[t] += sign * np.where(~then & next_, np.where(now, a3, a2), 0.0)
            out[t] -= sign * np.where(then & ~next_, np.where(now, a2, a3), 0.0)
    return out


def _maporl_signals(
    trace: Trace,
    *,
    channel: Channel = "R2",
    gamma: float = 0.3,
    alpha: Sequence[float] | None = None,
    as_released: bool = False,
    by_task: bool = False,
) -> Iterator[Signal]:
    if by_task:
        yield from _by_task(trace, channel, gamma, alpha, as_released)
        return
    scores = gathered(((turn_of(e), paid) for e, paid in amounts(trace, [channel])), "mean")
    turns = sorted({int(name.rsplit("#", 1)[1]) for name in scores})
    every = dict.fromkeys(name.rsplit("#", 1)[0] for name in scores)
    agents = [agent for agent in every if all(f"{agent}#{turn}" in scores for turn in turns)]
    if not agents:
        return
    score_TA = np.array([[scores[f"{agent}#{turn}"] for agent in agents] for turn in turns])
    paid_TA = own_now_team_later(score_TA, gamma=gamma)
    if alpha is not None:
        paid_TA = paid_TA + bonus(score_TA, alpha, as_released=as_released)
    for row, turn in zip(paid_TA.tolist(), turns, strict=True):
        yield from (Signal("turn", f"{agent}#{turn}", "R2", value) for agent, value in zip(agents, row, strict=True))


def _by_task(trace: Trace, channel: str, gamma: float, alpha: Sequence[float] | None, as_released: bool) -> Iterator[Signal]:
    """Of each task its own debate: a turn of it is a turn of the trace in which anybody answered, and who was not asked again
    keeps the answer, and the score, that stand; those who come later join from their first answer on."""
    answers: dict[str, dict[int, dict[str, float]]] = {}
    for e, paid in amounts(trace, [channel]):
        if e.task is not None and e.turn is not None:
            answers.setdefault(e.task, {}).setdefault(e.turn, {})[e.agent] = paid
    values: list[tuple[str, float]] = []
    for by_turn in answers.values():
        turns, standing, rows = sorted(by_turn), {}, []  # type: list[int], dict[str, float], list[dict[str, float]]
        for turn in turns:
            standing = {**standing, **by_turn[turn]}
            rows.append(standing)
        later, weight, out = 0.0, 0.0, {}  # type: float, float, dict[int, dict[str, float]]
        for k in range(len(turns) - 1, -1, -1):
            out[k] = {a: (v + later) / (1.0 + weight) for a, v in rows[k].items()}
            later, weight = gamma * (float(np.mean(list(rows[k].values()))) + later), gamma * (1.0 + weight)
        for k, turn in enumerate(turns):
            there = [a for a in rows[k] if k and a in rows[k - 1]]
            more = np.zeros(len(there))
            if alpha is not None and len(there) > 1:
                some = [[row[a] for a in there] for row in rows[k - 1 : k + 2]]
                more = bonus(some, alpha, as_released=as_released)[1]
            extra = dict(zip(there, more.tolist(), strict=True))
            values += [(f"{agent}#{turn}", out[k][agent] + extra.get(agent, 0.0)) for agent in by_turn[turn]]
    for unit_id, value in gathered(values, "mean").items():
        yield Signal("turn", unit_id, "R2", value)


maporl = Reward(
    family="R2",
    unit="turn",
    source="MAPoRL, arXiv 2502.18439",
    score=_maporl_signals,
    example=lambda: Example(rollouts(), {"alpha": [0.1, 0.1, 0.2, 0.2]}),
)
