"""What a learned orchestrator looks at: numbers of every item, agent, pair, role and team, from an observation alone.

Always true: permuting items or agents permutes their rows and leaves the team's row as it was; a row's length depends on
nothing but this file, so a policy trained with ten items and three agents reads ten thousand and a hundred. Counts enter as
logarithms, shares or reciprocals, so that a larger team lies near the smaller ones and not beyond them. No number here comes
from hidden truth or from the optimum; prices, skills and difficulties are not shown.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

from counterpoint.lab.worlds.teamworld.config import KINDS
from counterpoint.lab.worlds.teamworld.observation import Observation

Floats = np.ndarray
Some = np.ndarray | slice
ITEM, AGENT, PAIR, ROLE = 42, 8, 4, 8
LATE = 6
"""The place in a role's row that says whether it is later than the start."""
TEAM = 15 + ITEM
WORKER = 13
SEEN_BY_CRITIC = WORKER + ITEM + 1


@dataclass(frozen=True)
class Context:
    """Counts of an observation that several rows use. Axis E."""

    workers: Floats
    """(E,) who can be called at all."""
    by_family: Floats
    """(E, 2)"""
    open: Floats
    """(E,) items not closed that could still be called."""
    by_kind: Floats
    """(E, 5) the same by kind."""
    by_type: Floats
    """(E, types) who can be called, by what they are specialists of; the orchestrator is one of everything."""


@dataclass(frozen=True)
class Rows:
    """Items that can be called now, one row each, sorted by episode; a pool may have several (`copy` counts them)."""

    ep: np.ndarray
    item: np.ndarray
    copy: np.ndarray
    x: Floats
    at: np.ndarray
    """Places in flat arrays over (E, N)."""

    def __len__(self) -> int:
        return len(self.ep)

    def subset(self, rows: np.ndarray) -> Rows:
        """Some of the rows."""
        return Rows(*(column[rows] for column in (self.ep, self.item, self.copy, self.x, self.at)))

    def of(self, table: np.ndarray) -> np.ndarray:
        """The entries of an (E, N) table for these rows."""
        return table.reshape(-1)[self.at]


_MANY = 64  # from so many open items on, more of them are no news to the team's own heads (spawn sizes apart)


def _late(obs: Observation) -> float:
    """How late it is, up to a point: what is true of round 40 is taken to be true of later ones."""
    return min(obs.round, 40) / 100


_HASH = np.random.default_rng(0).standard_normal(ITEM)


def distinct(x: Floats) -> tuple[np.ndarray, np.ndarray]:
    """(places of one row of each sort, sort of every row): most items of an episode look alike, and are judged once."""
    key = x @ _HASH
    order = key.argsort(kind="stable")
    ranked = key[order]
    is_new = np.ones(len(key), np.bool_)
    np.not_equal(ranked[1:], ranked[:-1], out=is_new[1:])
    sort = np.empty(len(key), np.int64)
    sort[order] = is_new.cumsum() - 1
    return order[is_new], sort


def context(obs: Observation) -> Context:
    """The counts."""
    members = obs.alive.copy()
    members[:, 0] &= obs.config.orchestrator_works
    workers = members.sum(axis=1)
    families = np.empty((obs.episodes, 2), np.int64)
    families[:, 1] = (members & (obs.family == 1)).sum(axis=1)
    families[:, 0] = workers - families[:, 1]
    kinds, first = np.zeros((obs.episodes, len(KINDS)), np.int64), 0
    for k, count in enumerate(obs.config.counts):  # items of a kind lie side by side
        if count:
            kinds[:, k], first = obs.ready[:, first : first + count].sum(axis=1), first + count
    open_ = kinds.sum(axis=1)
    return Context(workers, families, open_, kinds, workers[:, None] if obs.config.types == 1 else by_type(obs, members))


def by_type(obs: Observation, some: np.ndarray) -> np.ndarray:
    """(E, types) how many of some agents are of each type; the orchestrator is of every one."""
    if obs.config.types == 1:
        return some.sum(axis=1)[:, None]
    mine = obs.type[:, None] == np.arange(obs.config.types, dtype=obs.type.dtype)[:, None]
    mine[:, :, 0] = True
    mine &= some[:, None]
    return mine.sum(axis=2)


def item_rows(obs: Observation, about: Context, free: np.ndarray) -> Rows:
    """A row for every ready item of a running episode; a pool has one per free agent, as far as its calls reach."""
    items = obs.config.items
    at = obs.ready.reshape(-1).nonzero()[0]
    ep = at // items
    item, copy = at - ep * items, np.zeros(len(at), np.int64)
    if "pool" in obs.seen:
        ep, item, copy = _copied(obs, ep, item, free)
        at = ep * items + item
    kind, able = obs.kind[item], about.by_type[ep, obs.item_type.reshape(-1)[at]]
    some = np.maximum(1, about.workers)
    shared = np.zeros((obs.episodes, ITEM), np.float32)  # what the rows of an episode have in common
    shared[:, 7] = 1 / (1 + about.workers)
    shared[:, 8] = about.open / np.maximum(1, about.open + about.workers)
    shared[:, 9] = _late(obs)
    shared[:, 39] = about.by_family[:, 1] / some
    x = shared[ep]
    if len(obs.seen) == 1:
        x[:, kind[:1]] = 1
    else:
        x[np.arange(len(ep)), kind] = 1
    x[:, 5] = np.log1p(obs.calls.reshape(-1)[at]) / 2
    if "pool" in obs.seen:
        x[:, 6] = np.log1p(copy)
    x[:, 40] = able / some[ep]
    x[:, 41] = able == 0
    for name, seen in obs.seen.items():
        rows = slice(None) if len(obs.seen) == 1 else (kind == KINDS.index(name)).nonzero()[0]
        fill, mine = _FILL[name], ep[rows]
        if len(mine):
            fill(x, rows, obs, seen, mine, item[rows] - seen.first_item)
    return Rows(ep, item, copy, x, at)


def _copied(obs: Observation, ep: np.ndarray, item: np.ndarray, free: np.ndarray) -> tuple[np.ndarray, ...]:
    """Pools as often as free agents may search them this round."""
    share = -(-free.sum(axis=1) // max(1, obs.config.pool_items))
    room = obs.config.pool_calls - obs.calls[ep, item]
    times = np.where(obs.kind[item] == KINDS.index("pool"), np.maximum(1, np.minimum(share[ep], room)), 1)
    ends = times.cumsum()
    each = np.arange(len(ep)).repeat(times)
    return ep[each], item[each], np.arange(len(each)) - (ends - times)[each]


def _votes(x: Floats, rows: Some, obs: Observation, seen: Any, ep: np.ndarray, item: np.ndarray) -> None:
    at = ep * seen.answer.shape[1] + item
    votes = seen.tally.reshape(-1, 2, 2)[at].astype(np.int64)
    no, yes, says = votes[:, :, 0], votes[:, :, 1], (seen.answer.reshape(-1)[at] == 1)[:, None]
    fore, against = np.where(says, yes, no), np.where(says, no, yes)
    apart, both = fore - against, fore + against
    x[rows, 10:16:3], x[rows, 11:16:3] = fore / 4, against / 4
    x[rows, 12:16:3] = apart / (1.0 + both)
    x[rows, 16] = (np.abs(apart[:, 0]) + np.abs(apart[:, 1])) / 4
    x[rows, 17] = both[:, 0] + both[:, 1] == 0
    if obs.config.topology == "planner_executor_critic":  # nobody else rejects
        x[rows, 18] = seen.rejected[ep, item].sum(axis=1) / 4


def _pools(x: Floats, rows: Some, obs: Observation, seen: Any, ep: np.ndarray, item: np.ndarray) -> None:
    found, calls = seen.count[ep, item], obs.calls[ep, item + seen.first_item]
    x[rows, 19] = np.log1p(found) / 2
    x[rows, 20] = found / (3.0 + calls)
    x[rows, 21] = np.log1p(seen.news[ep, item])
    x[rows, 22] = calls / 40


def _drafts(x: Floats, rows: Some, obs: Observation, seen: Any, ep: np.ndarray, item: np.ndarray) -> None:
    x[rows, 23] = seen.shown[ep, item] / 8
    x[rows, 24] = seen.zeros[ep, item] / 6
    x[rows, 25] = np.minimum(seen.zeros[ep, item], 2)
    x[rows, 26] = seen.lost[ep, item]
    x[rows, 27] = obs.calls[ep, item + seen.first_item] / 20


def _chains(x: Floats, rows: Some, obs: Observation, seen: Any, ep: np.ndarray, item: np.ndarray) -> None:
    c, hop = obs.config, seen.hop[ep, item]
    passes, fails = seen.passes[ep, item], seen.fails[ep, item]
    x[rows, 28] = (c.chain_hops - 1 - hop) / 6
    x[rows, 29] = seen.has[ep, item]
    x[rows, 30] = seen.attempts[ep, item] / c.hop_attempts
    x[rows, 31], x[rows, 32] = passes, fails
    x[rows, 33] = hop == c.chain_hops - 1
    past = seen.history[ep, item]
    known = past >= 0
    x[rows, 34] = np.where(known, past // 16, 0).sum(axis=1) / 6
    x[rows, 35] = np.where(known, past % 16, 0).sum(axis=1) / 3


def _nodes(x: Floats, rows: Some, obs: Observation, seen: Any, ep: np.ndarray, item: np.ndarray) -> None:
    needs = seen.needs
    count = needs[ep, item].sum(axis=1)
    x[rows, 36] = count / 4
    waiting = (needs & ~seen.done[:, :, None]).sum(axis=1)
    x[rows, 37] = waiting[ep, item] / 4
    x[rows, 38] = count == 0


_FILL = {"vote": _votes, "pool": _pools, "draft": _drafts, "chain": _chains, "node": _nodes}


def agent_rows(obs: Observation) -> Floats:
    """(E, slots in use, AGENT) a row for every slot."""
    width = int(np.any(obs.alive, axis=0).nonzero()[0].max(initial=0)) + 1
    family, taken = obs.family[:, :width], obs.taken[:, :width]
    x = np.zeros((*family.shape, AGENT), np.float32)
    x[:, :, 0], x[:, :, 1] = family == 0, family == 1
    x[:, :, 2:4] = x[:, :, :2] * _late(obs)
    x[:, 0, 4] = 1
    x[:, :, 5] = np.log1p(taken) / 3
    x[:, :, 6] = taken == 0
    x[:, :, 7] = obs.depth[:, :width] > 1
    return x


def team_rows(obs: Observation, about: Context, rows: Rows) -> Floats:
    """(E, TEAM) counts, and the mean of the item rows."""
    x = np.zeros((obs.episodes, TEAM), np.float32)
    x[:, :5] = about.by_kind / np.maximum(1, about.open)[:, None]
    x[:, 5:7] = np.log1p(about.by_family) / 3
    x[:, 7] = about.open / np.maximum(1, about.open + about.workers)
    x[:, 8] = about.open / np.maximum(1, about.open + 4 * about.workers)
    x[:, 9] = np.log1p(100 * _late(obs)) / 4
    x[:, 10] = _late(obs)
    x[:, 11] = obs.round == 0
    x[:, 12] = about.workers == 0
    x[:, 13] = obs.asks > 0
    x[:, 14] = np.log1p(np.minimum(about.open, _MANY)) / 4
    count = np.bincount(rows.ep, minlength=obs.episodes)
    some = count.nonzero()[0]
    if len(some):
        each = count[some]
        x[some, 15:] = np.add.reduceat(rows.x, each.cumsum() - each, axis=0) / each[:, None]
    return x


OPEN_ITEMS = (2, 3)
"""The columns of a role's row that change while nobody is spawned: open items, those of parallel and of serial kinds."""


def role_rows(obs: Observation, about: Context) -> Floats:
    """(E, 2 * types, ROLE) a row for every role that could be spawned: family times type, type running fastest."""
    types = obs.config.types
    x = np.zeros((obs.episodes, 2 * types, ROLE), np.float32)
    serial = (obs.kind >= KINDS.index("draft"))[None]
    for f in (0, 1):
        for t in range(types):
            r = f * types + t
            mine = obs.ready & (obs.item_type == t)
            there = (obs.alive & (obs.family == f) & (obs.type == t))[:, 1:].sum(axis=1)
            x[:, r, 0] = 1
            x[:, r, 1] = f
            x[:, r, 2] = np.log1p((mine & ~serial).sum(axis=1)) / 4
            x[:, r, 3] = np.log1p((mine & serial).sum(axis=1)) / 4
            x[:, r, 4] = np.log1p(there) / 3
            x[:, r, 5] = np.log1p(about.workers) / 3
            x[:, r, LATE] = obs.round > 0
            x[:, r, 7] = obs.config.orchestrator_works
    return x


# -- The pointer of O2: wanted items choose among free agents, the most urgent first, each agent once a round ---------
#     P(agent k for item j) = softmax over the agents still free of  query_j . key_k + w . pair_jk
#
# Always true: the choices of a round are made in order, so the product of their probabilities is the probability of the whole
# assignment. An item for which nobody legal is free waits, and that has no probability to speak of.

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
    x = np.zeros((len(ep), alive, PAIR), np.float32)
    x[:, :, 0] = obs.type[ep, :alive] == obs.item_type[ep, item][:, None]
    x[:, 0, 0] = 1
    seen = obs.of("node")
    nodes = (obs.kind[item] == _NODE).nonzero()[0] if seen is not None else ()
    if len(nodes):
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
    at, last = np.arange(len(score)), score.shape[1] - 1
    score = np.where(may, score, -np.inf)
    score -= np.maximum.reduce(score, axis=1, keepdims=True)
    share = np.exp(score)
    total = np.add.reduce(share, axis=1, keepdims=True)
    if whom is not None:
        choice = whom
    elif u is None:
        choice = score.argmax(axis=1)
    else:
        choice = np.add.reduce(share.cumsum(axis=1) < u[:, None] * total, axis=1)
        np.minimum(choice, last, out=choice)
        is_free = may[at, choice]
        if not is_free.all():
            choice = np.where(is_free, choice, score.argmax(axis=1))
    return choice, score[at, choice] - np.log(total[:, 0])


Turns = list[tuple[int, int]]
"""Where the rows of each rank begin and end."""


def _in_turn(
    score: np.ndarray, ep: np.ndarray, u: np.ndarray | None, left: np.ndarray, could: np.ndarray, turns: Turns
) -> tuple[np.ndarray, np.ndarray]:
    """`_where_legal` where everybody who is free is legal, so that every row has somebody: a few operations a rank."""
    agent, best, total = np.empty(len(score), np.int64), np.empty(len(score)), np.empty((len(score), 1))
    every, last = np.arange(len(score)), score.shape[1] - 1
    for begin, end in turns:
        mine, at = ep[begin:end], every[: end - begin]
        could[begin:end] = may = left[mine]
        own = np.where(may, score[begin:end], -np.inf)
        own -= np.maximum.reduce(own, axis=1, keepdims=True)
        share = np.exp(own)
        part = np.add.reduce(share, axis=1, keepdims=True, out=total[begin:end])
        if u is None:
            choice = own.argmax(axis=1)
        else:
            choice = np.add.reduce(share.cumsum(axis=1) < u[begin:end, None] * part, axis=1)
            np.minimum(choice, last, out=choice)
        height = own[at, choice]
        if np.minimum.reduce(height) == -np.inf:  # rounding led past the last one who is free
            choice = np.where(may[at, choice], choice, own.argmax(axis=1))
            height = own[at, choice]
        agent[begin:end], best[begin:end] = choice, height
        left[mine, choice] = False
    return agent, best - np.log(total[:, 0])


def _where_legal(
    score: np.ndarray, ep: np.ndarray, u: np.ndarray | None, left: np.ndarray, could: np.ndarray, turns: Turns,
    barred: np.ndarray | None, whom: np.ndarray | None,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """(agent, its log-probability) of every row, rank by rank; -1 and 0 where nobody legal is left, or was chosen before. Who is
    left, and who could be chosen, is written down."""
    agent, logp = np.full(len(score), -1), np.zeros(len(score))
    for begin, end in turns:
        may = left[ep[begin:end]]
        if barred is not None:
            may &= ~barred[begin:end]
        could[begin:end] = may
        at = begin + (may.any(axis=1) if whom is None else may.any(axis=1) & (whom[begin:end] >= 0)).nonzero()[0]
        if len(at):
            choice, own = _chosen(score[at], could[at], None if u is None else u[at], None if whom is None else whom[at])
            agent[at], logp[at] = choice, own
            left[ep[at], choice] = False
    return agent, logp


def point(
    obs: Observation, rows: Rows, go: np.ndarray, rank: np.ndarray, free: np.ndarray, query: np.ndarray, key: np.ndarray,
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
        score = (np.einsum("rd,rkd->rk", query[go[mine]], key[ep]) + pairs @ pair).astype(np.float64)
        noise = None if u is None else u[go[mine]]
        could, turns = np.zeros((len(mine), width), np.bool_), list(itertools.pairwise((starts - starts[0]).tolist()))
        if barred is None and whom is None:
            agent[mine], logp[mine] = _in_turn(score, ep, noise, left, could, turns)
        else:
            told = None if whom is None else whom[mine]
            agent[mine], logp[mine] = _where_legal(score, ep, noise, left, could, turns, barred, told)
        if agent_x is not None:
            r, k = np.nonzero(could)
            kept.append((mine[r], agent_x[ep[r], k], pairs[r, k], k == agent[mine[r]]))
    if not kept:
        empty = np.zeros(0, np.int64)
        return Pointed(agent, logp, empty, np.zeros((0, AGENT), np.float32), np.zeros((0, PAIR), np.float32), empty > 0)
    row, ax, px, picked = (np.concatenate(column) for column in zip(*kept, strict=True))
    back = np.argsort(row, kind="stable")
    return Pointed(agent, logp, row[back], ax[back], px[back], picked[back])
