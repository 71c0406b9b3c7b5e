"""Games over agents: the worth of subsets, what a spawn tree leaves of them, and marginals along an order.

Always true: along any order the marginals of a game telescope to v(N) - v(nobody), so that every mean over orders is efficient.

With a spawn tree, removing an agent removes all below it: sigma(S) = {i in S : every ancestor of i is in S}, and the restricted
game is v(sigma(S)). `Game` calls a worth for every new prefix; `VoteGame` knows a worth that is a sum over
items, one majority vote each, and evaluates a whole order in one sorted pass over the votes:

    v(S) = sum_j w_j * (1 if the votes of S on item j are mostly right, 0 if mostly wrong, tie if even or none)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from counterpoint.errors import InputError

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
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
        kept = present_A[self.agent_V]
        margin_J = np.bincount(self.item_V[kept], self.sign_V[kept], len(self.weight_J)).astype(np.int64)
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
