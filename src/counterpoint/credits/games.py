"""Games over agents: the worth of subsets, what a spawn tree leaves of them, and marginals along an order.

Always true: along any order the marginals of a game telescope to v(N) - v(nobody), so that every mean over orders is efficient.

With a spawn tree, removing an agent removes all below it: sigma(S) = {i in S : every ancestor of i is in S}, and the restricted
game is v(sigma(S)). `Game` calls a worth for every new prefix; `VoteGame` knows a worth that is a sum over
items, one majority vote each, and evaluates a whole order in one sorted pass over the votes:

    v(S) = sum_j w_j * (1 if the votes of S on item j are mostly right, 0 if mostly wrong, tie if even or none)
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from counterpoint.errors import InputError
from counterpoint.trace.graph import Graph

# -- Orders of agents and events by random keys, with antithetic partners, and means over them ------------------------
# Always true: an order is a function of its keys alone; the partner takes 1 - u for u. A parent-first order puts every agent
# after its spawner and keeps each subtree together: siblings stand by their keys, so that the partner reverses siblings and
# nothing else (a full reversal is no parent-first order). The two of a pair are one sample: standard errors are over pairs.
#
# Over all pairs an agent's keys are spread evenly (a Latin hypercube), each still uniform and independent of the others'. This
# removes most of the variance that comes from an agent's own position, and makes the standard errors conservative rather than
# sharp.

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


class Sampled(NamedTuple):
    """A mean over orders."""

    mean_A: Floats
    se_A: Floats
    """Standard errors over pairs; NaN for one pair."""
    orders: int


class SpawnTree(NamedTuple):
    """What a parent-first order needs of a spawn tree."""

    parent_A: Ints
    size_A: Ints
    """Agents in the subtree, itself included."""
    levels: list[Ints]
    """Agents by depth."""


def tree(parent_A: Ints) -> SpawnTree:
    """The sizes and levels of a forest; -1 is the parent of a root."""
    depth = np.zeros(len(parent_A), np.int64)
    up = parent_A
    while (up >= 0).any():
        depth += up >= 0
        up = np.where(up >= 0, parent_A[up], -1)
    levels = [np.flatnonzero(depth == d) for d in range(int(depth.max(initial=-1)) + 1)]
    size = np.ones(len(parent_A), np.int64)
    for level in reversed(levels[1:]):
        np.add.at(size, parent_A[level], size[level])
    return SpawnTree(parent_A, size, levels)


def by_keys(keys_A: Floats) -> Ints:
    """Any order: agents by their keys."""
    return np.argsort(keys_A, kind="stable")


def parent_first(team: SpawnTree, keys_A: Floats) -> Ints:
    """The depth-first order in which siblings stand by their keys."""
    by = np.lexsort((keys_A, team.parent_A))
    before = np.cumsum(team.size_A[by]) - team.size_A[by]
    group = team.parent_A[by]
    starts = np.flatnonzero(np.diff(group, prepend=-2))
    offset = np.empty(len(by), np.int64)
    offset[by] = before - np.repeat(before[starts], np.diff(np.append(starts, len(by))))
    place = offset
    for level in team.levels[1:]:
        place[level] += place[team.parent_A[level]] + 1
    order = np.empty_like(place)
    order[place] = np.arange(len(place))
    return order


def mean_over_orders(
    marginals: Callable[[Ints], Floats],
    order_of: Callable[[Floats], Ints],
    n: int,
    orders: int,
    rng: np.random.Generator,
    *,
    antithetic: bool = True,
    stratified: bool = True,
    stop_se: float | None = None,
    least: int = 8,
) -> Sampled:
    """The mean of `marginals(order)` over random orders, in pairs; it stops early once every standard error is at most `stop_se`.

    Without `antithetic` the second of a pair has keys of its own. An odd number of orders is rounded up.
    """
    total, squares, pairs = np.zeros(n), np.zeros(n), 0
    all_keys = _latin((orders + 1) // 2, n, rng) if stratified else rng.random(((orders + 1) // 2, n))
    for keys in all_keys:
        other = 1.0 - keys if antithetic else rng.random(n)
        pair = (marginals(order_of(keys)) + marginals(order_of(other))) / 2
        pairs += 1
        moved = pair - total
        total += moved / pairs  # Welford: the running mean, and the squares about it
        squares += moved * (pair - total)
        if stop_se is not None and pairs >= max(2, least // 2) and _se(squares, pairs).max(initial=0.0) <= stop_se:
            break
    return Sampled(total, _se(squares, pairs), 2 * pairs)


def _latin(pairs: int, n: int, rng: np.random.Generator) -> Floats:
    """(pairs, n) uniform keys: those of one agent, together with their partners 1 - u, lie one in each of 2 * pairs strata."""
    stratum = np.argsort(rng.random((pairs, n)), axis=0)
    keys = (stratum + rng.random((pairs, n))) / (2 * pairs)
    return np.where(rng.random((pairs, n)) < 0.5, keys, 1 - keys)


def _se(squares: Floats, pairs: int) -> Floats:
    return np.sqrt(squares / (pairs - 1) / pairs) if pairs > 1 else np.full_like(squares, np.nan)


def extension(graph: Graph, keys_E: Floats) -> list[int]:
    """The order of events that respects every edge and takes, of those that are ready, the one with the least key."""
    degrees = graph.in_degree().tolist()
    first, targets = (a.tolist() for a in graph.children)
    ready = [(float(keys_E[i]), i) for i in range(graph.n) if not degrees[i]]
    heapq.heapify(ready)
    out: list[int] = []
    while ready:
        _, i = heapq.heappop(ready)
        out.append(i)
        for j in targets[first[i] : first[i + 1]]:
            degrees[j] -= 1
            if not degrees[j]:
                heapq.heappush(ready, (float(keys_E[j]), j))
    return out


Mask = NDArray[np.bool_]

MOST_EXACT = 14
"""The most players whose 2^n worths are tabled."""


class TeamGame(Protocol):
    """What an estimator needs of a game."""

    @property
    def n(self) -> int:
        """How many players."""

    def worth(self, present_A: Mask) -> float:
        """v(S)."""

    def along(self, order: Ints, parent_A: Ints | None = None) -> Floats:
        """(players,) v(before and i) - v(before) for each player i along an order; of v o sigma when parents are given."""


def above(parent_A: Ints) -> list[list[int]]:
    """The ancestors of each agent, nearest first."""
    parent = parent_A.tolist()
    out: list[list[int]] = []
    for a in range(len(parent)):
        here = parent[a]
        chain: list[int] = []
        while here >= 0:
            if len(chain) > len(parent):
                raise InputError("the spawn tree has a loop", fix="every agent is spawned once, by an earlier one")
            chain.append(here)
            here = parent[here]
        out.append(chain)
    return out


def closure(parent_A: Ints, present_A: Mask) -> Mask:
    """sigma(S): those present whose ancestors are all present."""
    return np.array([bool(here) and all(present_A[b] for b in up) for here, up in zip(present_A, above(parent_A), strict=True)])


@dataclass(frozen=True)
class Game:
    """A game whose worth is called, once for every set that comes up."""

    n: int
    value: Callable[[Mask], float]
    """The worth of those present."""
    seen: dict[bytes, float] = field(default_factory=dict)

    def worth(self, present_A: Mask) -> float:
        key = np.packbits(present_A).tobytes()
        if key not in self.seen:
            self.seen[key] = float(self.value(present_A))
        return self.seen[key]

    def along(self, order: Ints, parent_A: Ints | None = None) -> Floats:
        out, present_A = np.zeros(self.n), np.zeros(self.n, np.bool_)
        before = self.worth(present_A)
        for i in order.tolist():
            present_A[i] = True
            after = self.worth(present_A if parent_A is None else closure(parent_A, present_A))
            out[i], before = after - before, after
        return out


@dataclass(frozen=True)
class VoteGame:
    """Items that are decided by majority: row k is a vote of `agent_V[k]` on item `item_V[k]`, right or wrong."""

    n: int
    agent_V: Ints
    item_V: Ints
    right_V: Mask
    weight_J: Floats
    """(items,) what an item pays when it is answered right."""
    tie: float = 0.5
    """The share it pays when votes are even or absent: a coin's."""

    @cached_property
    def sign_V(self) -> Ints:
        """+1 for a right vote, -1 for a wrong one."""
        return np.where(self.right_V, 1, -1)

    def share(self, margin: NDArray[np.int64]) -> Floats:
        """What an item pays, as a share of its weight, at a margin of right over wrong votes."""
        return np.where(margin > 0, 1.0, np.where(margin < 0, 0.0, self.tie))

    def worth(self, present_A: Mask) -> float:
        is_present = present_A[self.agent_V]
        margin_J = np.bincount(self.item_V[is_present], self.sign_V[is_present], len(self.weight_J)).astype(np.int64)
        return math.fsum(self.share(margin_J) * self.weight_J)

    def along(self, order: Ints, parent_A: Ints | None = None) -> Floats:
        when_A = np.empty(self.n, np.int64)
        when_A[order] = np.arange(self.n)
        if parent_A is not None:  # a vote counts once the last of its author and the author's ancestors has come
            when_A = _latest(when_A, parent_A)
        when_V = when_A[self.agent_V]
        by = np.argsort(self.item_V * self.n + when_V, kind="stable")
        item, sign = self.item_V[by], self.sign_V[by]
        running = np.cumsum(sign)
        starts = np.flatnonzero(np.diff(item, prepend=-1))
        base = np.repeat(np.append(0, running)[starts], np.diff(np.append(starts, len(item))))
        after = running - base
        gain = (self.share(after) - self.share(after - sign)) * self.weight_J[item]
        out: Floats = np.bincount(order[when_V[by]], gain, self.n).astype(np.float64)
        return out


def _latest(when_A: Ints, parent_A: Ints) -> Ints:
    latest, up = when_A.copy(), parent_A
    while (up >= 0).any():
        has = up >= 0
        latest[has] = np.maximum(latest[has], when_A[up[has]])
        up = np.where(has, parent_A[up], -1)
    return latest


# -- exact, by all 2^n worths ----------------------------------------------------------------------------------------


def table(game: TeamGame, parent_A: Ints | None = None) -> Floats:
    """(2^n,) the worth of every set, bit i for player i; of sigma(S) when parents are given."""
    if game.n > MOST_EXACT:
        raise InputError(f"{game.n} players have too many subsets", fix=f"at most {MOST_EXACT}; sample orders instead")
    sets = np.arange(1 << game.n)
    present = (sets[:, None] >> np.arange(game.n)) & 1 == 1
    if parent_A is not None:
        for i, up in enumerate(above(parent_A)):
            present[:, i] &= present[:, up].all(axis=1)
    return np.array([game.worth(row) for row in present])


def exact_shapley(worth_S: Floats) -> Floats:
    """phi_i = sum over S without i of |S|! (n-|S|-1)! / n! * (v(S and i) - v(S)), from the table of worths."""
    n = len(worth_S).bit_length() - 1
    sets = np.arange(1 << n)
    size = ((sets[:, None] >> np.arange(n)) & 1).sum(axis=1)
    chance = np.array([math.factorial(k) * math.factorial(n - k - 1) / math.factorial(n) for k in range(n)])
    out = np.zeros(n)
    for i in range(n):
        without = sets[(sets >> i) & 1 == 0]
        out[i] = math.fsum(chance[size[without]] * (worth_S[without | (1 << i)] - worth_S[without]))
    return out


def exact_owen(worth_S: Floats, parent_A: Ints) -> Floats:
    """The mean marginal over all parent-first depth-first orders (nested Owen value), from the table of worths.

    Before i come its ancestors and, level by level and independently, a random prefix of the sibling subtrees on its way.
    """
    n, up = len(parent_A), above(parent_A)
    below = [sum(1 << b for b in range(n) if b == a or a in up[b]) for a in range(n)]
    out = np.zeros(n)
    for i in range(n):
        sets, chances = np.zeros(1, np.int64), np.ones(1)
        for a in [i, *up[i]]:
            others = [below[b] for b in range(n) if parent_A[b] == parent_A[a] and b != a]
            prefix, chance = _prefixes(others)
            sets, chances = (sets[:, None] | prefix).ravel(), (chances[:, None] * chance).ravel()
        sets |= sum(1 << a for a in up[i])
        out[i] = math.fsum(chances * (worth_S[sets | (1 << i)] - worth_S[sets]))
    return out


def _prefixes(others: Sequence[int]) -> tuple[Ints, Floats]:
    """Every set that can stand before one of k + 1 shuffled siblings, and its chance |S|! (k-|S|)! / (k+1)!."""
    k = len(others)
    picks = np.arange(1 << k)
    chosen = (picks[:, None] >> np.arange(k)) & 1
    size = chosen.sum(axis=1)
    chance = np.array([math.factorial(s) * math.factorial(k - s) / math.factorial(k + 1) for s in range(k + 1)])
    sets = np.zeros(1 << k, np.int64)
    for column, other in enumerate(others):
        sets |= np.where(chosen[:, column] == 1, other, 0)
    return sets, chance[size]
