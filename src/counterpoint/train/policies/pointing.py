"""The pointer of O2: wanted items choose among free agents, the most urgent first, each agent once a round.

    P(agent k for item j) = softmax over the agents still free of  query_j . key_k + w . pair_jk

Always true: the choices of a round are made in order, so the product of their probabilities is the probability of the whole
assignment. An item for which nobody legal is free waits, and that has no probability to speak of.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from counterpoint.envs.teamworld.config import KINDS
from counterpoint.envs.teamworld.observation import Observation
from counterpoint.train.policies import features as f

_NODE = KINDS.index("node")
_CELLS = 1 << 19  # pairs of items and agents that are scored at once


@dataclass(frozen=True)
class Pointed:
    """Who was chosen, in the order of the wanted rows; candidates as flat rows where they were kept."""

    agent: np.ndarray
    """-1 where nobody could be."""
    logp: np.ndarray
    row: np.ndarray
    """Candidates: the place of their item among the wanted."""
    agent_x: np.ndarray
    pair_x: np.ndarray
    picked: np.ndarray


def _affinity(obs: Observation, ep: np.ndarray, item: np.ndarray) -> np.ndarray:
    """(R, K) how much of what each node needs, weighted by shared neighbours, was built by each agent."""
    seen = obs.of("node")
    needs = seen.needs
    joined = (needs | needs.transpose(0, 2, 1)).astype(np.float32)
    close = needs[ep, item] * (1 + np.einsum("rn,rnm->rm", joined[ep, item], joined[ep]))
    out = np.zeros((len(ep), obs.alive.shape[1]), np.float32)
    row, need = np.nonzero((close > 0) & (seen.by[ep] >= 0))
    np.add.at(out, (row, seen.by[ep[row], need]), close[row, need])
    return out / np.maximum(1, out.sum(axis=1, keepdims=True))


def _pairs(obs: Observation, ep: np.ndarray, item: np.ndarray, alive: int) -> np.ndarray:
    """(R, K, PAIR) what an item and an agent are to each other."""
    x = np.zeros((len(ep), alive, f.PAIR), np.float32)
    x[:, :, 0] = obs.type[ep, :alive] == obs.item_type[ep, item][:, None]
    x[:, 0, 0] = 1
    nodes = np.flatnonzero(obs.kind[item] == _NODE)
    if len(nodes):
        seen = obs.of("node")
        inner = item[nodes] - seen.first_item
        x[nodes, :, 1] = _affinity(obs, ep[nodes], inner)[:, :alive]
        root = ~seen.needs[ep[nodes], inner].any(axis=1)
        builders = np.zeros((obs.episodes, obs.alive.shape[1]), np.bool_)
        e, n = np.nonzero(seen.by >= 0)
        builders[e, seen.by[e, n]] = True
        x[nodes, :, 2] = root[:, None] & ~builders[ep[nodes], :alive]
        x[nodes, :, 3] = ~root[:, None] & ~builders[ep[nodes], :alive]
    return x


def _barred(obs: Observation, ep: np.ndarray, item: np.ndarray, width: int) -> np.ndarray | None:
    """(R, K) who has voted on the item as often as an agent may; None where that is no limit."""
    c, seen = obs.config, obs.of("vote")
    if seen is None or c.votes_per_agent >= c.max_votes:
        return None
    out = np.zeros((len(ep), width), np.bool_)
    votes = np.flatnonzero(obs.kind[item] == KINDS.index("vote"))
    cast = seen.callers[ep[votes], item[votes]][:, :, None] == np.arange(width)[None, None]
    out[votes] = cast.sum(axis=1) >= c.votes_per_agent
    return out


def _chosen(
    score: np.ndarray, may: np.ndarray, u: np.ndarray | None, whom: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """One agent for each row that has any, and its log-probability."""
    at = np.arange(len(score))
    score = np.where(may, score, -np.inf).astype(np.float64)
    score -= score.max(axis=1, keepdims=True)
    share = np.exp(score)
    total = share.sum(axis=1, keepdims=True)
    if whom is not None:
        choice = whom
    elif u is None:
        choice = score.argmax(axis=1)
    else:
        choice = np.minimum((share.cumsum(axis=1) < u[:, None] * total).sum(axis=1), score.shape[1] - 1)
        choice = np.where(may[at, choice], choice, score.argmax(axis=1))
    return choice, score[at, choice] - np.log(total[:, 0])


def point(
    obs: Observation, rows: f.Rows, go: np.ndarray, rank: np.ndarray, free: np.ndarray, query: np.ndarray, key: np.ndarray,
    pair: np.ndarray, u: np.ndarray | None, agent_x: np.ndarray | None, whom: np.ndarray | None = None,
) -> Pointed:  # fmt: skip
    """Choose for the wanted rows `go`, whose rank in their episode is given; candidates are kept where their rows are given.
    `whom` says who was chosen before, where choices are only judged again; -1 is nobody."""
    width = key.shape[1]
    left = free[:, :width].copy()
    agent, logp = np.full(len(go), -1), np.zeros(len(go))
    kept: list[tuple[np.ndarray, ...]] = []
    order = np.argsort(rank, kind="stable")
    bounds = np.searchsorted(rank[order], np.arange(int(rank.max(initial=-1)) + 2))
    ranks = len(bounds) - 1
    block = max(1, int(ranks * _CELLS // max(1, len(go) * width)))
    for first in range(0, ranks, block):  # scores do not depend on who is left, so many ranks are scored at once
        starts = bounds[first : first + block + 1]
        mine = order[starts[0] : starts[-1]]
        ep, item = rows.ep[go[mine]], rows.item[go[mine]]
        pairs, barred = _pairs(obs, ep, item, width), _barred(obs, ep, item, width)
        score = np.einsum("rd,rkd->rk", query[go[mine]], key[ep]) + pairs @ pair
        could = np.zeros((len(mine), width), np.bool_)
        for begin, end in itertools.pairwise((starts - starts[0]).tolist()):
            may = left[ep[begin:end]]
            if barred is not None:
                may &= ~barred[begin:end]
            could[begin:end] = may
            at = begin + np.flatnonzero(may.any(axis=1))
            if whom is not None:
                at = at[whom[mine[at]] >= 0]
            if not len(at):
                continue
            noise, asked = None if u is None else u[go[mine[at]]], None if whom is None else whom[mine[at]]
            choice, own = _chosen(score[at], could[at], noise, asked)
            agent[mine[at]], logp[mine[at]] = choice, own
            left[ep[at], choice] = False
        if agent_x is not None:
            r, k = np.nonzero(could)
            kept.append((mine[r], agent_x[ep[r], k], pairs[r, k], k == agent[mine[r]]))
    if not kept:
        empty = np.zeros(0, np.int64)
        return Pointed(agent, logp, empty, np.zeros((0, f.AGENT), np.float32), np.zeros((0, f.PAIR), np.float32), empty > 0)
    row, ax, px, picked = (np.concatenate(column) for column in zip(*kept, strict=True))
    back = np.argsort(row, kind="stable")
    return Pointed(agent, logp, row[back], ax[back], px[back], picked[back])
