"""Orders of agents and events by random keys, with antithetic partners, and means over them.

Always true: an order is a function of its keys alone; the partner takes 1 - u for u. A parent-first order puts every agent after
its spawner and keeps each subtree together: siblings stand by their keys, so that the partner reverses siblings and nothing
else (a full reversal is no parent-first order). The two of a pair are one sample: standard errors are over pairs.

Over all pairs an agent's keys are spread evenly (a Latin hypercube), each still uniform and independent of the others'. This
removes most of the variance that comes from an agent's own position, and makes the standard errors conservative rather than
sharp.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from counterpoint.trace.graph import Graph

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
    left = graph.in_degree().tolist()
    first, targets = (a.tolist() for a in graph.children)
    ready = [(float(keys_E[i]), i) for i in range(graph.n) if not left[i]]
    heapq.heapify(ready)
    out: list[int] = []
    while ready:
        _, i = heapq.heappop(ready)
        out.append(i)
        for j in targets[first[i] : first[i + 1]]:
            left[j] -= 1
            if not left[j]:
                heapq.heappush(ready, (float(keys_E[j]), j))
    return out
