"""Pairs of calls of which one is to be preferred: what DPO learns from."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from counterpoint.lab.train.lm.learner import CallTokens


def pairs_of(sequences: Sequence[CallTokens]) -> list[tuple[CallTokens, CallTokens]]:
    """Of calls with one and the same prompt the best and the worst by their advantages, where they differ and said two things."""
    found: dict[bytes, list[tuple[float, int]]] = {}
    for i, one in enumerate(sequences):
        amount = 0.0 if one.advantages is None else float(one.advantages.mean())
        found.setdefault(one.prompt.tobytes(), []).append((amount, i))
    pairs = []
    for same in found.values():
        (most, best), (least, worst) = max(same, key=lambda x: (x[0], -x[1])), min(same)
        if most > least and not np.array_equal(sequences[best].said, sequences[worst].said):
            pairs.append((sequences[best], sequences[worst]))
    return pairs
