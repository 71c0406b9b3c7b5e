"""What a credit's gradient is worth, from batches of it and of the gradient of the expected team reward.

With independent batches g_1 .. g_m, an independent estimate h of g* = grad E R in halves h_1, h_2, and u = h / sqrt(h_1 . h_2):

    signal along the truth = (mean of g_i . u)^2 - var(g_i . u) / m
    noise = trace Cov g = mean |g_i|^2 - mean over i != j of g_i . g_j
    signal to noise of one team = signal / (noise x teams of a batch), of one call the same by the calls of a team
    cosine of E g with g* = mean of g_i . u / sqrt(mean over i != j of g_i . g_j)          1: no bias but of length

Always true: all by unbiased parts; the team's own signal is h_1 . h_2, from all the teams of the reference; of some
parameters, or some decisions, everything is as if there were no others.

Tucker et al. 2018 (how to measure it).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class GradientSample:
    """Batches of gradients under one credit, and what a team of it costs."""

    batches: Floats
    """(batches, parameters)."""
    teams: int
    """Of a batch."""
    calls: float
    """Of a team, forks and rounds counted."""

    def of(self, parameters: NDArray[np.int64]) -> GradientSample:
        """The same of some parameters."""
        return replace(self, batches=self.batches[:, parameters])


class Fidelity(NamedTuple):
    """What a credit's gradient is worth."""

    batch: float
    """Cosine of a batch with the reference, on average."""
    cosine: float
    """Of its mean with the reference; NaN where it is not above the noise of the measurement."""
    per_team: float
    """Signal to noise of one team."""
    per_call: float
    """The same of one call."""


def fidelity(found: GradientSample, truth: GradientSample, *, is_truth: bool = False) -> Fidelity:
    """How a credit's gradient stands to the reference; `is_truth`: both are the team's reward."""
    one, two = truth.batches[::2].mean(0), truth.batches[1::2].mean(0)
    square = float(one @ two)
    u = (one + two) / 2 / np.sqrt(square) if square > 0 else np.full(len(one), np.nan)
    along = found.batches @ u
    length = np.linalg.norm(found.batches, axis=1)
    batch = float(np.mean(along / length)) if length.all() else float("nan")
    own, _ = _parts(found.batches)
    cosine = 1.0 if is_truth else float(along.mean() / np.sqrt(own)) if own > 0 else float("nan")
    signal = square if is_truth else float(along.mean() ** 2 - along.var(ddof=1) / len(along))
    judge = truth if is_truth else found
    noise = _parts(judge.batches)[1] * judge.teams
    per_team = signal / noise if noise > 0 else float("nan")
    return Fidelity(batch, cosine, per_team, per_team / found.calls)


def _parts(batches: Floats) -> tuple[float, float]:
    """|E g|^2 and the trace of Cov g, unbiased."""
    total, m = batches.sum(0), len(batches)
    squares = float((batches * batches).sum())
    signal = (float(total @ total) - squares) / (m * (m - 1))
    return signal, squares / m - signal
