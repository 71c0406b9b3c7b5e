"""Gradients under eight credits at DPBench's table: a world in which what one eats, another cannot.

A network for all philosophers, half trained at five (`lab/bench/dining/learn.py`), plays tables of 2, 4, 8 and 16. Its gradient
under each credit (`lab/bench/dining/gradients.py`) is held against that of 20,000 other teams under the team's reward, as in
`gradient-fidelity`; a seed has its own network and draws. Widths begin at 4 in the powers, as two of two end in deadlock.

Expected from a trial at seed 3: own meals (groups by agent, partition) do not point where the reward points, at four least of
all; what comes from a step on is unbiased and no noisier than the whole at 16. These are held; the rest is reported.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from counterpoint.display import tracked
from counterpoint.errors import InputError
from counterpoint.lab.bench.claim import By, ClaimRow, at_least, at_most, reported
from counterpoint.lab.bench.claims.gradient_fidelity import measured_rows, slope
from counterpoint.lab.bench.fidelity import Fidelity, fidelity
from counterpoint.trace.keyed import child_seed, purpose

SIZES = (2, 4, 8, 16)
_LEARNED = 15_000
"""Steps of tables that the network has learned from."""
_TEAMS, _REFERENCE, _BATCHES, _FORKED, _BATCH = 20_000, 40, 32, 8, 16
_KEY = purpose("gradient dining")


def gradient_dining(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """Each seed: a network, and at each size 20,000 teams for the reference and 512 under each credit, 128 where it forks."""
    yield from rows(seed, seeds, SIZES, _TEAMS, _BATCHES, _LEARNED)


def rows(seed: int, seeds: int, sizes: tuple[int, ...], teams: int, batches: int, learned: int) -> Iterator[ClaimRow]:
    """The claim at any size."""
    from counterpoint.lab.bench.dining.gradients import NAMES, PARTITION, TEAM

    if seeds < 1:
        raise InputError(f"seeds is at least 1, not {seeds}")
    found: list[dict[int, dict[str, Fidelity]]] = []
    groups: dict[tuple[str, str], list[Fidelity]] = {}
    for s in tracked(range(seed, seed + seeds), "seeds"):
        found.append(_measured(s, sizes, teams, batches, learned, groups))
    yield from measured_rows(found, NAMES, sizes, "philosophers")
    wide = [size for size in sizes if size > 2]
    for name in NAMES:
        yield reported(f"power of the philosophers in signal to noise: {name}", [slope(f, name, wide) for f in found])
    for (name, layer), each in groups.items():
        place = f"{layer} layer, {max(sizes)} philosophers"
        if name != TEAM:
            yield reported(f"{place}, cosine of the mean: {name}", [one.cosine for one in each])
        yield reported(f"{place}, signal to noise of a team: {name}", [one.per_team for one in each])
    end: By = "high" if seeds > 1 else "mean"
    for name in ("groups by agent", PARTITION):
        yield at_most(
            f"bias of own meals, {wide[0]} philosophers, cosine: {name}", [f[wide[0]][name].cosine for f in found], 0.9, by=end
        )
    over = [f[wide[-1]]["turns"].per_team / f[wide[-1]][TEAM].per_team for f in found]
    yield at_least(f"signal to noise of a team, {wide[-1]} philosophers: turns over team", over, 1.0)


def _measured(
    seed: int, sizes: tuple[int, ...], teams: int, batches: int, learned: int, groups: dict[tuple[str, str], list[Fidelity]]
) -> dict[int, dict[str, Fidelity]]:  # fmt: skip
    """By size and credit; of the largest, by layer too, into `groups`."""
    from counterpoint.lab.bench.dining.gradients import FORKING, NAMES, TEAM, gradient_sample
    from counterpoint.lab.bench.dining.learn import train

    net = train("team", learned, child_seed(seed, _KEY) >> 40)
    sizes_of = [p.numel() for p in net.parameters()]
    ends = np.cumsum([0, *(a + b for a, b in zip(sizes_of[::2], sizes_of[1::2], strict=True))])
    out: dict[int, dict[str, Fidelity]] = {}
    for size in sizes:
        first = child_seed(seed, _KEY, size) >> 24
        truth = gradient_sample(net, size, [TEAM], first, _REFERENCE, max(2, teams // _REFERENCE))[TEAM]
        own = first + _REFERENCE
        mine = gradient_sample(net, size, [n for n in NAMES if n not in FORKING], own, batches, _BATCH)
        mine |= gradient_sample(net, size, FORKING, own, min(_FORKED, batches), _BATCH)
        out[size] = {name: fidelity(mine[name], truth, is_truth=name == TEAM) for name in NAMES}
        if size == max(sizes):
            for k, layer in enumerate(("first", "second", "last")):
                at = np.arange(ends[k], ends[k + 1])
                for name in NAMES:
                    part = fidelity(mine[name].of(at), truth.of(at), is_truth=name == TEAM)
                    groups.setdefault((name, layer), []).append(part)
    return out
