"""Foreign events as a graph in time: an order in which every edge goes forward, and times that never go back along one.

Always true, whatever comes in: the order holds every event once; each edge kept leads forward in it; along it the mended time
does not fall. Parent links are believed before clocks: where they contradict, the effect is moved to its cause. An edge
that would close a cycle is dropped, the latest first.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NamedTuple


class Ordered(NamedTuple):
    """The outcome."""

    order: list[int]
    """Event numbers, causes first."""
    times: list[float]
    """Mended time by event number."""
    dropped: set[int]
    """Numbers of the edges that closed a cycle."""


def ordered(times: Sequence[float], edges: Sequence[tuple[int, int]]) -> Ordered:
    """Order events by time as far as the edges allow."""
    n = len(times)
    if all(src < dst and times[src] <= times[dst] for src, dst in edges) and all(
        times[i] <= times[i + 1] for i in range(n - 1)
    ):
        return Ordered(list(range(n)), list(times), set())
    after: list[list[int]] = [[] for _ in range(n)]
    waiting = [0] * n
    for k, (src, dst) in enumerate(edges):
        after[src].append(k)
        waiting[dst] += 1
    return _kahn(list(times), edges, after, waiting)


def _kahn(mended: list[float], edges: Sequence[tuple[int, int]], after: list[list[int]], waiting: list[int]) -> Ordered:
    n = len(mended)
    ready = [(mended[i], i) for i in range(n) if waiting[i] == 0]
    heapq.heapify(ready)
    by_time: list[int] = []  # who is freed next from a cycle; made only when there is one
    order: list[int] = []
    is_done = [False] * n
    dropped: set[int] = set()
    while len(order) < n:
        if not ready:
            by_time = by_time or sorted((i for i in range(n) if not is_done[i]), key=lambda i: (-mended[i], -i))
            while is_done[by_time[-1]]:
                by_time.pop()
            heapq.heappush(ready, (mended[by_time[-1]], by_time[-1]))
            waiting[by_time[-1]] = 0
        _, i = heapq.heappop(ready)
        if is_done[i]:
            continue
        is_done[i] = True
        order.append(i)
        for k in after[i]:
            dst = edges[k][1]
            if is_done[dst]:
                dropped.add(k)
                continue
            mended[dst] = max(mended[dst], mended[i])
            waiting[dst] -= 1
            if waiting[dst] == 0:
                heapq.heappush(ready, (mended[dst], dst))
    return Ordered(order, mended, dropped)
