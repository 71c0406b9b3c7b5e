"""How votes become an answer (O4): the six rules, on counts of yes and no by family.

    bayes   argmax_y Σ_z share_z Π_f [ m·r^c (1−r)^w + (1−m)·s^c (1−s)^w ],  c and w the votes of f for and against y,
            s = skill[f][z], r = right_if_misled, m = misconception[f][z], all seen through the knowledge g
    naive   the same with each vote on its own: s' = m·r + (1−m)·s per vote, no shared misconception

Always true: a rule reads only what the orchestrator can see; ties keep the draft as it was.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from counterpoint.envs.teamworld.config import DIFFICULTIES, RULES, Config
from counterpoint.envs.teamworld.kinds.vote import VoteState

_EDGE = 1e-12


@lru_cache(maxsize=64)
def _likelihood(config: Config, naive: bool) -> np.ndarray:
    """(family, difficulty, right votes, wrong votes): the chance of those votes of one family, given the difficulty."""
    size = config.max_votes + 1
    right, wrong = np.arange(size)[:, None], np.arange(size)[None]
    out = np.empty((2, DIFFICULTIES, size, size))
    for f in (0, 1):
        for z in range(DIFFICULTIES):
            s, r, m = (
                np.clip(p, _EDGE, 1 - _EDGE) for p in (config.skill[f][z], config.right_if_misled, config.misconception[f][z])
            )
            if naive:
                s, m = m * r + (1 - m) * s, 0.0
            out[f, z] = m * r**right * (1 - r) ** wrong + (1 - m) * s**right * (1 - s) ** wrong
    return out


def posterior(config: Config, tally: np.ndarray, *, naive: bool = False) -> np.ndarray:
    """P(yes) for tallies (..., 2 families, 2 answers), at knowledge 1."""
    table = _likelihood(config, naive)
    no, yes = np.minimum(tally[..., 0], config.max_votes), np.minimum(tally[..., 1], config.max_votes)
    if_yes = if_no = 0.0
    for z, share in enumerate(config.difficulty_shares):
        if_yes = if_yes + share * table[0, z, yes[..., 0], no[..., 0]] * table[1, z, yes[..., 1], no[..., 1]]
        if_no = if_no + share * table[0, z, no[..., 0], yes[..., 0]] * table[1, z, no[..., 1], yes[..., 1]]
    return np.asarray(if_yes / (if_yes + if_no))


_SMALL = 1 << 17


@lru_cache(maxsize=64)
def _leans(config: Config, naive: bool) -> np.ndarray:
    """P(yes) − ½ for every tally, flat; for limits on votes that leave the table small."""
    every = np.indices((config.max_votes + 1,) * 4).reshape(4, -1).T.reshape(-1, 2, 2)
    return posterior(config, every, naive=naive) - 0.5


def _lean(config: Config, tally: np.ndarray, *, naive: bool) -> np.ndarray:
    """P(yes) − ½ for tallies (rows, 2 families, 2 answers)."""
    side = config.max_votes + 1
    if side**4 > _SMALL:
        return posterior(config, tally, naive=naive) - 0.5
    t = np.minimum(tally, config.max_votes).reshape(-1, 4)
    return _leans(config, naive)[((t[:, 0].astype(np.int64) * side + t[:, 1]) * side + t[:, 2]) * side + t[:, 3]]


def answers(config: Config, votes: VoteState, ep: np.ndarray, item: np.ndarray, rule: np.ndarray) -> np.ndarray:
    """The draft answer of these questions under the rule of each."""
    old, tally = votes.answer[ep, item], votes.tally[ep, item]
    lean = np.zeros(len(ep))
    for number in rule[:1] if (rule == rule[:1]).all() else np.unique(rule):
        rows = np.flatnonzero(rule == number)
        match RULES[int(number)]:
            case "bayes" | "naive" as name:
                lean[rows] = _lean(config, tally[rows], naive=name == "naive")
            case "weighted":
                sums = votes.confidence[ep[rows], item[rows]]
                lean[rows] = sums[:, 1] - sums[:, 0]
            case "first":
                first = votes.first[ep[rows], item[rows]]
                lean[rows] = np.where(first < 0, 0, 2.0 * first - 1)
            case _:
                counts = tally[rows].sum(axis=1, dtype=np.int64)
                lean[rows] = counts[:, 1] - counts[:, 0]
    lean[np.abs(lean) < _EDGE] = 0
    return np.where(lean == 0, old, lean > 0).astype(np.int8)
