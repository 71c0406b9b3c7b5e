"""Learned from scratch: W1 near its bound, D without spawning, M above hand-made rules and other presets.

Always true: a run starts from a random network and sees rewards and observations only; bounds are used to judge, never to
learn. Held-out tasks are the same for every policy, and differences are paired by task and training seed. The presets are
compared on M at one smaller budget of worker calls and rounds, the same for all, forks included (a run ends with the update that
spends it). W1 is also learned with prices and skills drawn from the seed.

`counterpoint reproduce counterpoint.lab.bench.claims.teamworld:wide_verify` is one part by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import counterpoint.registry as registry
from counterpoint.errors import InputError
from counterpoint.lab.bench.claim import ClaimRow, at_least, at_most
from counterpoint.lab.bench.claims._learned import Learned, share, train_all, values_of
from counterpoint.lab.bench.intervals import mean_interval
from counterpoint.lab.worlds.teamworld.world import TeamWorld
from counterpoint.trace.keyed import purpose, uniform

_SIZES = {64: 200, 256: 60, 1024: 16}
_W1 = {
    "preset": "counterpoint", "world": "W1", "mix": [{"vote_items": 16}, {"vote_items": 64}, {"vote_items": 192}],
    "updates": 100, "budget_calls": 0,
}  # fmt: skip
_D = {"preset": "counterpoint", "world": "D", "updates": 50, "budget_calls": 0}
_M = {"preset": "counterpoint", "world": "M", "updates": 60, "budget_calls": 0}
_RIVAL_BUDGET = 80_000
_TASKS = np.arange(120) + 700_000
RULES = ("best_cap", "majority", "first_answer", "serial", "spawn_all", "random")
"""Hand-made policies that each follow one rule; the reference and the oracle solve the world instead."""
RIVALS = ("grpo", "dr_mas", "m_grpo", "c3", "kimi_parl", "puppeteer", "sharp", "mappo", "qmix")


def teamworld(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """W1, D, M, and M against the other presets (the longest part)."""
    for part in (wide_verify, other_prices, deep_chain, mixture, rivals):
        yield from part(seed=seed, seeds=seeds)


def _every(seed: int, seeds: int) -> range:
    if seeds < 1:
        raise InputError(f"seeds is at least 1, not {seeds}")
    return range(seed, seed + seeds)


def _drawn(s: int) -> dict[str, Any]:
    """Prices from half to twice the released ones, and family B's skill a little up or down."""
    u = uniform(s, purpose("drawn team world"), np.arange(5))
    f = 2.0 ** (2 * u - 1)
    config = registry.get("world", "wide_verify").config
    return {
        "spawn_price": config.spawn_price * float(f[0]),
        "round_price": config.round_price * float(f[1]),
        "brief_price": config.brief_price * float(f[2]),
        "price": (config.price[0], config.price[1] * float(f[3])),
        "skill_b": tuple(float(q + 0.06 * (u[4] - 0.5)) for q in config.skill_b),
    }


def wide_verify(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """The part on W1: near its bound at three sizes, the worst seed too."""
    w1: TeamWorld = registry.get("world", "wide_verify")
    runs = train_all([{**_W1, "seed": s} for s in _every(seed, seeds)])
    for size, episodes in _SIZES.items():
        world = w1.replace(vote_items=size, max_agents=256)
        found = [share(r, world, np.arange(episodes) + 500_000) for r in runs]
        yield at_least(f"W1 N={size}: share of the certified bound", found, 0.95)
        yield at_least(f"W1 N={size}: the worst seed", min(found), 0.93)


def other_prices(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """The part on W1 with prices and skills drawn from the seed."""
    w1: TeamWorld = registry.get("world", "wide_verify")
    every = _every(seed, seeds)
    runs = train_all([{**_W1, "seed": s, "set": _drawn(s)} for s in every])
    found = [share(r, w1.replace(vote_items=64, **_drawn(s)), np.arange(200) + 500_000) for s, r in zip(every, runs, strict=True)]
    yield at_least("W1 N=64, prices and skills drawn from the seed: share of the certified bound", found, 0.95)


def deep_chain(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """The part on D, where nobody is worth spawning."""
    world: TeamWorld = registry.get("world", "deep_chain")
    played = [values_of(r, world, np.arange(200) + 500_000) for r in train_all([{**_D, "seed": s} for s in _every(seed, seeds)])]
    yield at_most("D: agents spawned", [float(agents.mean()) for _, agents in played], 0.05)
    yield at_least("D: share of the optimum", [float(v.mean() / world.optimum().value) for v, _ in played], 0.9)


def mixture(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """The part on M, against hand-made rules."""
    world: TeamWorld = registry.get("world", "mixture")
    ours = [values_of(r, world, _TASKS)[0] for r in train_all([{**_M, "seed": s} for s in _every(seed, seeds)])]
    yield at_least("M: share of the bound", [float(v.mean() / world.optimum().value) for v in ours], 0.95)
    for rule in RULES:
        beside = world.run(rule, _TASKS).values
        yield _above(f"M: counterpoint - {rule}, points", [float((v - beside).mean()) for v in ours])


def rivals(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """The part on M against the other presets, at one smaller budget."""
    world: TeamWorld = registry.get("world", "mixture")
    names, every = ("counterpoint", *RIVALS), _every(seed, seeds)
    runs = train_all([{"preset": p, "world": "M", "seed": s, "budget_calls": _RIVAL_BUDGET} for p in names for s in every])
    scores = np.array([values_of(r, world, _TASKS)[0].mean() for r in runs]).reshape(len(names), len(every))
    for i, rival in enumerate(RIVALS, start=1):
        yield _above(f"M at {_RIVAL_BUDGET:,} calls and rounds: counterpoint - {rival}, points", (scores[0] - scores[i]).tolist())
    yield at_most("M: largest over smallest budget of these, calls and rounds", _spread(runs), 1.2)


def _above(name: str, samples: list[float]) -> ClaimRow:
    """Above zero, interval and all; one seed has no interval and is judged by its value."""
    mean, low, high = mean_interval(samples)
    return ClaimRow(name, mean, low, high, "> 0, whole interval", (mean if low is None else low) > 0)


def _spread(runs: list[Learned]) -> float:
    charged = [r.charged for r in runs]
    return max(charged) / min(charged)
