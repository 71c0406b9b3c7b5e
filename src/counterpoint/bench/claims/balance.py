"""Auto-balanced R8 learns faster than the primary reward alone, ends no worse, and ignores a component's scale.

Always true: methods are compared in the same worlds, with steps of equal length; a row is a paired difference in the share of
the optimal primary reward (0.03 is 3 points) or a property of the weights. Targets are research B6's and line 6 of its section
9.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from counterpoint.bench.claim import Row, at_least, at_most
from counterpoint.bench.claims._b6 import MixedWorld, train_mixed
from counterpoint.errors import InputError

RUNS = 24
"""Worlds per seed: the standard error of the gain at 40 steps is then 0.002, a tenth of its distance from the target."""


def balance(*, seed: int, seeds: int) -> Iterator[Row]:
    """24 worlds per seed, 600 steps each."""
    if seeds < 1:
        raise InputError(f"seeds is at least 1, not {seeds}")
    found = [_one(s) for s in range(seed, seed + seeds)]
    each = {name: [f[name] for f in found] for name in found[0]}
    yield at_least("ours - primary only, 40 steps", each["early"], 0.03)
    yield at_least("ours - primary only, 600 steps", each["final"], 0.0)
    yield at_least("ours - per-component normalisation (GDPO), 40 steps", each["early gdpo"], 0.0)
    yield at_least("ours - per-component normalisation (GDPO), 600 steps", each["final gdpo"], 0.0)
    yield at_most("weight of the noise, largest of the runs", each["noise"], 0.1)
    yield at_most("weight of the misaligned component of scale 10, mean over runs", each["misaligned"], 0.1)
    yield at_most("policy moved by every auxiliary times 1000 (total variation)", each["rescaled"], 0.01)
    yield at_least("an anti-aligned component: ours - primary only, 600 steps", each["against"], -0.01)


def _one(seed: int) -> dict[str, float]:
    world = MixedWorld.of(np.random.default_rng([seed, 0]), RUNS)
    draws = lambda: np.random.default_rng([seed, 1])  # noqa: E731
    primary, gdpo, ours = (train_mixed(world, method, draws()) for method in ("primary", "gdpo", "ours"))
    larger = replace(world, scale_K=world.scale_K * np.array([1.0, 1e3, 1e3, 1e3]))
    rescaled = train_mixed(larger, "ours", draws())
    hostile = MixedWorld.of(np.random.default_rng([seed, 0]), RUNS, agrees=-1.0)
    against = train_mixed(hostile, "ours", draws())
    gain, over = (ours.share_RM - primary.share_RM).mean(axis=0), (ours.share_RM - gdpo.share_RM).mean(axis=0)
    return {
        "early": float(gain[0]),
        "final": float(gain[1]),
        "early gdpo": float(over[0]),
        "final gdpo": float(over[1]),
        "noise": float(ours.weights_RK[:, 3].max()),
        "misaligned": float(ours.weights_RK[:, 1].mean()),
        "rescaled": float(0.5 * np.abs(rescaled.policy_RCA - ours.policy_RCA).sum(axis=-1).max()),
        "against": float((against.share_RM - primary.share_RM)[:, 1].mean()),
    }
