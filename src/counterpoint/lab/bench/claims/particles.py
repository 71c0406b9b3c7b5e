"""mpe2's spread and speaker-listener worlds beside what papers report for MAPPO and QMIX, at the same steps.

A small network for each agent learns by MAPPO (`lab/bench/particles/learn.py`) from as many steps of a team as QMIX had in the
published table (a tenth of what MAPPO had there), in the older package's order of a step, in which the papers measured; it is
judged there on unseen episodes, and as it is in mpe2 itself. Episodes have 25 steps; each action is the likeliest. Rates were
chosen at seeds 1 and 2, everything else alike in both worlds. 2 million steps are 3 to 5 minutes of a core.

Published: EPyMARL (arXiv 2006.07869), greatest mean return of forty evaluations over five seeds, 2 million steps for QMIX and 20
million for MAPPO, returns divided by the number of agents: threads 15 and 29 of its repository, whose reader gets -700 for random
play, three times ours. The four figures could not be read again here: rows say so, and nothing is held to them. That greatest
mean is over evaluations; ours is the last network's.

Always true: what is learned is held to random play; a rule that one may write down stands beside; no GPU is used.

`counterpoint reproduce counterpoint.lab.bench.claims.particles:spread` is one world by itself.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from counterpoint.display import tracked
from counterpoint.errors import InputError
from counterpoint.lab.bench.claim import ClaimRow, at_least, reported
from counterpoint.lab.bench.particles.fields import STEPS, WORLDS

BUDGET = 2_000_000
"""Steps of a team."""
RATES = {"spread": 2e-3, "speaker_listener": 7e-4}
"""Of Adam."""
EPISODES, IN_PACKAGE = 1_000, 100
_UNSEEN = 1_000_000
_SOURCE = "published, arXiv:2006.07869; from memory"
PUBLISHED = {
    "spread": {"QMIX, 2 million steps": -126.62, "MAPPO, 20 million": -133.54},
    "speaker_listener": {"QMIX, 2 million steps": -11.56, "MAPPO, 20 million": -10.68},
}


def particles(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """Returns of networks that learn in two particle worlds, beside the published ones at the same steps."""
    for name in WORLDS:
        yield from _world(name, seed, seeds)


def spread(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """Three agents cover three landmarks."""
    yield from _world("spread", seed, seeds)


def speaker_listener(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """A speaker tells a listener where to go."""
    yield from _world("speaker_listener", seed, seeds)


def _world(name: str, seed: int, seeds: int) -> Iterator[ClaimRow]:
    if seeds < 1:
        raise InputError(f"seeds is at least 1, not {seeds}")
    starts = range(seed, seed + seeds)
    for what in ("random", "by hand"):
        yield reported(f"{name}: {what}", [float(np.mean(hand_returns(name, what, start))) for start in starts])
    yield from networks(name, starts)
    for what, value in PUBLISHED[name].items():
        yield reported(f"{name}: {what} ({_SOURCE})", value)


def hand_returns(name: str, what: str, seed: int, *, is_older: bool = True) -> np.ndarray:
    """Returns of unseen episodes of random play, or of the rule."""
    field, rng = WORLDS[name][0](is_older=is_older), np.random.default_rng(_UNSEEN + seed)
    field.begin(EPISODES, rng)
    out = np.zeros(EPISODES)
    for _ in range(STEPS):
        drawn = rng.random((EPISODES, field.agents, 5))
        out += field.step(field.by_hand() if what == "by hand" else np.where(field.possible, drawn, -1.0).argmax(axis=-1))
    return out


def networks(name: str, starts: range) -> Iterator[ClaimRow]:
    """What networks of some starts get in the older package's order of a step, and in mpe2."""
    from counterpoint.lab.bench.particles.learn import returns, returns_in_package, train

    field = WORLDS[name][0](is_older=True)
    nets = [train(field, BUDGET, start, rate=RATES[name]) for start in tracked(starts, f"networks in {name}")]
    found = [float(np.mean(returns(net, field, EPISODES, _UNSEEN + s))) for net, s in zip(nets, starts, strict=True)]
    yield reported(f"{name}: learned", found)
    gaps = [one - float(np.mean(hand_returns(name, "random", start))) for one, start in zip(found, starts, strict=True)]
    yield at_least(f"{name}: learned over random", gaps, 0.0)
    seeds = [range(_UNSEEN + s, _UNSEEN + s + IN_PACKAGE) for s in starts]
    got = [float(np.mean(returns_in_package(net, name, some))) for net, some in zip(nets, seeds, strict=True)]
    yield reported(f"{name}: learned, in mpe2 as it is", got)
