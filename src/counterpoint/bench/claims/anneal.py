"""The R7 scaffold leaves by itself: an indicator-driven lambda ends at zero, whatever its first value.

Always true: shares and spawn rates are exact values of the final policy; a row about the indicator shows the worst run over the
first values 0.1, 1 and 10. Targets are research B6's; the two plain schedules stand beside it as they were measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

import numpy as np

from counterpoint.bench.claim import Row, at_least, at_most
from counterpoint.bench.claims._b6_spawn import SpawnRun, SpawnWorld, train_spawn
from counterpoint.errors import InputError
from counterpoint.reward.schedules import Scaffold, constant, linear

RUNS, STEPS, FIRST = 3, 1500, (0.1, 1.0, 10.0)


def anneal(*, seed: int, seeds: int) -> Iterator[Row]:
    """Three worlds per seed, first value and start; 1,500 steps each."""
    if seeds < 1:
        raise InputError(f"seeds is at least 1, not {seeds}")
    worlds = [(s, k) for s in range(seed, seed + seeds) for k in range(RUNS)]
    left = 0.0
    for start in (0.29, 0.02):
        runs = {first: [_run(w, Scaffold(first), start=start) for w in worlds] for first in FIRST}
        left = max([left, *(r.weight / first for first, rs in runs.items() for r in rs)])
        worst = min(r.share for rs in runs.values() for r in rs)
        yield at_least(f"indicator, first spawn rate {start}: final share of the optimum", worst, 0.99)
    serial = {first: [_run(w, Scaffold(first), serial=True) for w in worlds] for first in FIRST}
    left = max([left, *(r.weight / first for first, rs in serial.items() for r in rs)])
    yield at_most("indicator: final lambda / lambda0", left, 1e-3)
    for first, runs_ in serial.items():
        yield at_most(f"serial-only tasks, lambda0 {first:g}: final spawn rate", max(r.rate for r in runs_), 0.02)
    ours = fmean(r.share for r in [_run(w, Scaffold(1.0)) for w in worlds])
    for name, schedule in (("constant", constant(1.0)), ("linear over half the run", linear(1.0, STEPS / 2))):
        other = fmean(r.share for r in [_run(w, schedule) for w in worlds])
        yield at_least(f"indicator - {name}: final share of the optimum", ours - other, 0.0)


def _run(world: tuple[int, int], schedule: object, *, start: float = 0.29, serial: bool = False) -> SpawnRun:
    place = SpawnWorld.of(np.random.default_rng([*world, 0]), serial=serial)
    return train_spawn(place, np.random.default_rng([*world, 1]), schedule, start=start, steps=STEPS)  # type: ignore[arg-type]
