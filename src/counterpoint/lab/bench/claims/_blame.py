"""Rows of the claims about blame: shares of runs with intervals over the runs, and whether a bar makes a word true.

Always true: runs are what varies. A matrix has a row per seed (a split, or another training set) and a column per run, and its
interval is the crossed bootstrap's (`comparison.estimate`), so that more seeds on the same runs do not make it narrower than the
runs allow. What no seed changes has Wilson's interval over the runs. A target is held by the interval's lower end.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from counterpoint.audits.blame.certainty import HALF
from counterpoint.audits.blame.ranker import softmax
from counterpoint.audits.blame.steps import Floats
from counterpoint.lab.bench.claim import NO_TARGET, ClaimRow
from counterpoint.lab.bench.comparison import estimate
from counterpoint.trace.statistics import wilson_ends

_BARS = tuple(n / 20 for n in range(4, 20))
_FEWEST_RUNS = 5
"""Runs above a bar without which it is not tried."""
_HALVINGS = 200


def over_runs(name: str, hits_SR: Sequence[Sequence[float]], least: float | None = None) -> ClaimRow:
    """A share, over seeds and runs; with `least`, held to it by the lower end."""
    found = estimate([(1, np.asarray(hits_SR, np.float64))])
    low, high = (None if end is None else min(max(end, 0.0), 1.0) for end in (found.low, found.high))
    if least is None:
        return ClaimRow(name, found.mean, low, high, NO_TARGET, True)
    return ClaimRow(name, found.mean, low, high, f">= {least:.6g}", low is not None and low >= least)


def gain_over_runs(
    name: str, hits_SR: Sequence[Sequence[float]], rule_R: Sequence[float] | Sequence[Sequence[float]], *, has_target: bool = True
) -> ClaimRow:
    """The mean difference from a fixed rule, or from other hits, paired by run; its lower end is held to be above 0."""
    found = estimate([(1, np.asarray(hits_SR, np.float64) - np.asarray(rule_R, np.float64))])
    if not has_target:
        return ClaimRow(name, found.mean, found.low, found.high, NO_TARGET, True)
    return ClaimRow(name, found.mean, found.low, found.high, "> 0", found.low is not None and found.low > 0)


def share_row(name: str, hits_R: Sequence[float]) -> ClaimRow:
    """A share of runs with Wilson's interval; chances that are no whole hits have none."""
    mean = sum(hits_R) / len(hits_R)
    if any(hit not in (0.0, 1.0) for hit in hits_R):
        return ClaimRow(name, mean, None, None, NO_TARGET, True)
    return ClaimRow(name, mean, *wilson_ends(int(sum(hits_R)), len(hits_R)), NO_TARGET, True)


def first_shares(scores_SR: Sequence[Sequence[Floats]]) -> Floats:
    """(seeds, runs) the share that each ranking gives its first suspect."""
    return np.array([[float(softmax(scores).max()) for scores in row] for row in scores_SR])


def half_right_bar(share_SR: Floats, hits_SR: Floats) -> float | None:
    """The lowest bar from which at least half of the first suspects are right; None where none of at least five runs is."""
    for bar in _BARS:
        is_above = share_SR >= bar
        if is_above.any(axis=0).sum() < _FEWEST_RUNS:
            return None
        if hits_SR[is_above].mean() >= HALF:
            return bar
    return None


def likely_elsewhere(share_SR: Floats, hits_SR: Floats, seed: int) -> tuple[float, float]:
    """How often first suspects above a bar were right in runs that the bar was not fitted on, and the share of these rankings.

    The runs are halved at random, again and again; a bar is fitted on either half and tried on the other. NaN where no bar was.
    """
    rng = np.random.default_rng(seed % 2**63)
    count = share_SR.shape[1]
    right = above = 0.0
    for _ in range(_HALVINGS):
        order = rng.permutation(count)
        halves = order[: count // 2], order[count // 2 :]
        for own, other in (halves, halves[::-1]):
            bar = half_right_bar(share_SR[:, own], hits_SR[:, own])
            if bar is not None:
                is_above = share_SR[:, other] >= bar
                right, above = right + float(hits_SR[:, other][is_above].sum()), above + float(is_above.sum())
    return (right / above if above else float("nan")), above / (_HALVINGS * share_SR.size)
