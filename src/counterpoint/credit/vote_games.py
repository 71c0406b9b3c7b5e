"""Exact values of majority-vote games of any number of agents, item by item, and the votes that a trace holds.

Always true: the values of a sum of games are the sums of their values, and who has no vote on an item (nor anybody below with
one) is a dummy there; so each item is solved among its few voters and, where the tree matters, their ancestors. Before a
player stands a random margin M of right over wrong votes, and all that is needed is its distribution:

    shapley      M: votes of a random prefix of the other voters
    nested_owen  M: level by level, whole sibling subtrees of a random prefix, and the ancestors
    permission   phi_i = integral over t in 0..1 of E[v(S_t and i) - v(S_t without i)], each other player in S_t with chance t
                 (Owen's multilinear extension); a polynomial in t, so Gauss-Legendre with enough nodes is exact
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from counterpoint.credit.games import VoteGame, above
from counterpoint.errors import InputError
from counterpoint.trace import Trace

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def vote_game(trace: Trace, number: Mapping[str, int], tie: float = 0.5) -> VoteGame | None:
    """The majority game of a trace's returned claims, over the agents numbered; None where the trace has none.

    A vote is a return on a task "vote ITEM" that carries its claim (`extra.claim`) and whether it was right (reward R2). An item
    pays `meta.config.vote_weight`, or 1; items that nobody answered pay the coin's share to everybody and nobody.
    """
    rows = [
        (number[e.agent], e.task, float(e.reward["R2"]) > 0.5)
        for e in trace.events
        if e.type == "return" and e.task and e.task.startswith("vote ") and e.agent in number
        if e.extra and "claim" in e.extra and e.reward and "R2" in e.reward
    ]
    if not rows:
        return None
    item = {task: j for j, task in enumerate(dict.fromkeys(task for _, task, _ in rows))}
    config = trace.meta.get("config") or {}
    return VoteGame(
        len(number),
        np.array([a for a, _, _ in rows], np.int64),
        np.array([item[task] for _, task, _ in rows], np.int64),
        np.array([right for _, _, right in rows], np.bool_),
        np.full(len(item), float(config.get("vote_weight", 1.0))),
        tie,
    )


def exact_votes(game: VoteGame, value: str = "shapley", parent_A: Ints | None = None) -> Floats:
    """(players,) the exact value of a majority game: `shapley`, or over a spawn tree `nested_owen` or `permission`."""
    if value != "shapley" and parent_A is None:
        raise InputError(f"{value} needs the spawn tree", fix="give parent_A")
    out = np.zeros(game.n)
    up = above(parent_A) if parent_A is not None else [[] for _ in range(game.n)]
    margin_J: list[dict[int, int]] = [{} for _ in game.weight_J]
    for a, j, sign in zip(game.agent_V.tolist(), game.item_V.tolist(), game.sign_V.tolist(), strict=True):
        margin_J[j][a] = margin_J[j].get(a, 0) + sign
    solved: dict[tuple[object, ...], Sequence[float]] = {}
    for margins, weight in zip(margin_J, game.weight_J.tolist(), strict=True):
        if not margins:
            continue
        item = _Item(margins, up if value != "shapley" else [[] for _ in range(game.n)])
        if item.key not in solved:
            solved[item.key] = item.permission(game) if value == "permission" else item.owen(game)
        np.add.at(out, item.players, np.multiply(solved[item.key], weight))
    return out


class _Item:
    """One item: its voters and their ancestors as a small forest, numbered parents first."""

    def __init__(self, margins: Mapping[int, int], up: Sequence[Sequence[int]]) -> None:
        players = sorted(
            {*margins, *(b for a in margins for b in up[a])}, key=lambda a: (len(up[a]), up[a][::-1], margins.get(a, 0), a)
        )
        place = {a: i for i, a in enumerate(players)}
        self.players = players
        self.parent = [place[up[a][0]] if up[a] else -1 for a in players]
        self.own = [margins.get(a, 0) for a in players]
        self.reach = sum(map(abs, self.own))
        """No margin is beyond this."""
        self.children: list[list[int]] = [[] for _ in range(len(players) + 1)]
        for i, p in enumerate(self.parent):
            self.children[p].append(i)  # the roots under the last, -1
        self.key = (*self.parent, None, *self.own)

    def share(self, game: VoteGame) -> Floats:
        return game.share(np.arange(-self.reach, self.reach + 1))

    def shift(self, chance: Floats, by: int) -> Floats:
        out = np.roll(chance, by, axis=-1)
        if by > 0:
            out[..., :by] = 0.0
        elif by < 0:
            out[..., by:] = 0.0
        return out

    def joined(self, first: Floats, second: Floats) -> Floats:
        """The distribution of the sum of two independent margins, row by row."""
        out = np.zeros(np.broadcast_shapes(first.shape, second.shape))
        for k in np.flatnonzero(second.reshape(-1, second.shape[-1]).any(axis=0)).tolist():
            out += self.shift(first, k - self.reach) * second[..., k : k + 1]
        return out

    def nothing(self, rows: int | None = None) -> Floats:
        out = np.zeros(2 * self.reach + 1 if rows is None else (rows, 2 * self.reach + 1))
        out[..., self.reach] = 1.0
        return out

    def owen(self, game: VoteGame) -> list[float]:
        total = self.own.copy()
        for i in reversed(range(len(total))):
            if self.parent[i] >= 0:
                total[self.parent[i]] += total[i]
        share, out = self.share(game), [0.0] * len(total)
        before = {-1: self.nothing()}
        for group in (-1, *range(len(total))):
            for i in self.children[group]:
                others = [total[j] for j in self.children[group] if j != i]
                here = self.joined(before[group], self._prefix(others))
                before[i] = self.shift(here, self.own[i])
                out[i] = float((before[i] - here) @ share)
        return out

    def _prefix(self, others: Sequence[int]) -> Floats:
        """The margin of a random prefix of others: sets of size s have chance s! (k-s)! / (k+1)!."""
        by_size = np.zeros((len(others) + 1, 2 * self.reach + 1))
        by_size[0, self.reach] = 1.0
        for other in others:
            by_size[1:] += self.shift(by_size[:-1], other)
        k = len(others)
        chance = np.array([1.0 / ((k + 1) * math.comb(k, s)) for s in range(k + 1)])
        return chance @ by_size

    def permission(self, game: VoteGame) -> list[float]:
        nodes, weights = np.polynomial.legendre.leggauss((len(self.own) + 1) // 2)
        t, w = (nodes + 1) / 2, weights / 2
        here, n = t[:, None], len(self.own)
        inside: list[Floats] = [self.nothing(len(t))] * n  # the margin of a subtree whose root is in
        for i in reversed(range(n)):
            inside[i] = self.nothing(len(t))
            for j in self.children[i]:
                inside[i] = self.joined(inside[i], self._maybe(inside[j], here))
            inside[i] = self.shift(inside[i], self.own[i])
        share, out = self.share(game), [0.0] * n
        around, depth = {-1: self.nothing(len(t))}, {-1: 0}
        for group in (-1, *range(n)):
            for i in self.children[group]:
                rest = around[group]
                for j in self.children[group]:
                    rest = rest if j == i else self.joined(rest, self._maybe(inside[j], here))
                gain = (self.joined(rest, inside[i]) - rest) @ share
                out[i] = float((w * t ** depth[group]) @ gain)
                around[i], depth[i] = self.shift(rest, self.own[i]), depth[group] + 1
        return out

    def _maybe(self, inside: Floats, t: Floats) -> Floats:
        return t * inside + (1 - t) * self.nothing(len(inside))
