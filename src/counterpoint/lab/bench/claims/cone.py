"""Cone advantages at 1000 workers: the spread of ten, the mean of the full return, and bias by one lost edge.

Always true: the truth is planted. Each of W workers acts by a coin, a = -1 or 1. Its action adds 0.3 a to its own result and
0.2 a to what a peer makes of its note, so that a * advantage has mean 0.5; everything else is noise of size 1 in each event. The
critic is exact, so that the surprises of events are these amounts. Means are compared on the same episodes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from counterpoint.credits.mechanisms.cone import cone_sums, return_sums
from counterpoint.display import tracked
from counterpoint.errors import InputError
from counterpoint.lab.bench.claim import ClaimRow, at_least, at_most, equal_within
from counterpoint.trace.graph import Graph
from counterpoint.trace.keyed import child_seed, purpose

Floats = NDArray[np.float64]
_EPISODES, _AT_ONCE = 8000, 500


def cone(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """Teams of 10, 100 and 1000 workers; the advantage of one worker's action, `seeds` times."""
    if seeds < 1:
        raise InputError(f"seeds is at least 1, not {seeds}")
    for workers in (10, 100, 1000):
        runs = [_advantages(workers, s) for s in tracked(range(seed, seed + seeds), "seeds")]
        sds = [(whole.std(), full.std()) for whole, full, _ in runs]
        yield equal_within(f"W = {workers}: cone sd", [c for c, _ in sds], 1.73, 0.2)
        yield at_least(f"W = {workers}: full-return sd over cone sd", [f / c for c, f in sds], {10: 2, 100: 5, 1000: 10}[workers])
        # Pooled over the seeds: one comparison. At 3 SE, chance alone would miss one of these three rows in 120 runs.
        gap = np.concatenate([whole - full for whole, full, _ in runs])
        yield at_most(f"W = {workers}: |cone mean - full mean| in SE", abs(gap.mean()) / (gap.std() / len(gap) ** 0.5), 4.5)
        yield equal_within(f"W = {workers}: cone mean", [whole.mean() for whole, _, _ in runs], 0.5, 0.1)
        yield equal_within(f"W = {workers}: cone mean, one edge lost", [lost.mean() for _, _, lost in runs], 0.3, 0.08)
        lost = np.concatenate([whole - lost for whole, _, lost in runs])
        yield at_least(f"W = {workers}: bias of the lost edge in SE", lost.mean() / (lost.std() / len(lost) ** 0.5), 6.0)


def _graph(workers: int, *, lose: bool = False) -> Graph:
    """Event 0 sends all; then W actions, their W own results and their W notes as peers used them."""
    acts = np.arange(1, workers + 1)
    src = np.concatenate((np.zeros(workers, np.int64), acts, acts))
    dst = np.concatenate((acts, acts + workers, acts + 2 * workers))
    keep = ~((src == 1) & (dst == 1 + 2 * workers)) if lose else np.ones(len(src), np.bool_)
    return Graph(3 * workers + 1, src[keep].astype(np.int32), dst[keep].astype(np.int32))


def _advantages(workers: int, seed: int) -> tuple[Floats, Floats, Floats]:
    """a * advantage of the first worker's action: by its cone, by the full return, and by the cone without the note's edge."""
    rng = np.random.default_rng(child_seed(seed, purpose(f"cone {workers}")))
    graph, lossy = _graph(workers), _graph(workers, lose=True)
    out: list[tuple[Floats, Floats, Floats]] = []
    for _ in range(_EPISODES // _AT_ONCE):
        a = rng.choice([-1.0, 1.0], (_AT_ONCE, workers))
        delta = rng.normal(size=(_AT_ONCE, graph.n))
        delta[:, 0] = 0.0
        delta[:, workers + 1 : 2 * workers + 1] += 0.3 * a
        delta[:, 2 * workers + 1 :] += 0.2 * a
        sums = cone_sums(graph, delta, [1])[:, 0], return_sums(graph, delta)[:, 1], cone_sums(lossy, delta, [1])[:, 0]
        out.append(tuple(x * a[:, 0] for x in sums))
    whole, full, lost = (np.concatenate(column) for column in zip(*out, strict=True))
    return whole, full, lost
