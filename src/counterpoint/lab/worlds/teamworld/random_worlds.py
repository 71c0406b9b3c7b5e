"""Worlds that nobody chose: drawn by a number from stated ranges, so that no method can have been tried on them before.

    sorts of tasks     1 to 3;   of each: one or two of the five kinds of items, 3 to 12 items a kind
    prices             of a call, a spawn, a brief and a round: log-uniform;  in every third world rounds are free
    skills             of both families, by kind: uniform;   types of work: 1 or 2;   agents: at most 4, 8, 16 or 32

Always true: a world is a function of (seed, place). A draw is kept by what hand-made play gets in it, and by nothing that learns:
play that knows the dials reaches half of the bound (and on 16 tasks a sort, by luck, no more than all of it), and the best of
nobody, one worker and as many as may be at most 0.8 of that.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from counterpoint.lab.worlds.teamworld.config import KINDS
from counterpoint.lab.worlds.teamworld.policies.composed import Parts
from counterpoint.lab.worlds.teamworld.suites import SUITES, SuiteWorld
from counterpoint.options import LARGEST_SEED

RANDOM = "random"
"""The suites of random worlds: `random:SEED`."""
WORLDS = 6
"""Worlds of a random suite."""
_KNOWN, _ROOM = 0.5, 0.8
_BASE = {
    "max_rounds": 200, "context_capacity": 4000, "node_module_size": 1, "node_cross_edges": 0, "pool_items": 0, "draft_items": 0,
    "chain_items": 0, "vote_items": 0, "node_modules": 0, "drift": (0.0, 0.0), "topology": "centralized",
}  # fmt: skip
_COUNT = {"vote": "vote_items", "pool": "pool_items", "draft": "draft_items", "chain": "chain_items", "node": "node_modules"}


@cache
def random_worlds(seed: int, count: int = WORLDS) -> tuple[SuiteWorld, ...]:
    """The first `count` worlds of a seed."""
    return tuple(_world(seed, place) for place in range(count))


def worlds_of_suite(name: str) -> tuple[SuiteWorld, ...]:
    """The worlds of a suite: one of `SUITES`, or `random:SEED`, which takes half a minute; none where there is no such suite."""
    kind, _, seed = name.partition(":")
    if kind == RANDOM and seed.isascii() and seed.isdigit() and int(seed) <= LARGEST_SEED:
        return random_worlds(int(seed))
    return SUITES.get(name, ())


def _world(seed: int, place: int) -> SuiteWorld:
    attempt = 0
    while not _tells_apart(world := _draw(seed, place, attempt)):
        attempt += 1
    return world


def _tells_apart(world: SuiteWorld) -> bool:
    """Whether hand-made play leaves room between a fixed team and play that knows the dials."""
    if not math.isfinite(world.bound) or world.bound <= 0:
        return False
    known, *fixed = world.rules.values()
    return _KNOWN * world.bound <= known <= world.bound and max(fixed) <= _ROOM * known


def _draw(seed: int, place: int, attempt: int) -> SuiteWorld:
    rng = np.random.default_rng((seed, place, attempt))
    sorts = [_sort(rng) for _ in range(int(rng.integers(1, 4)))]
    kinds = sorted({kind for one in sorts for kind in one}, key=KINDS.index)
    about = "; or ".join(" and ".join(f"{count} of kind {kind}" for kind, count in one.items()) for one in sorts)
    return SuiteWorld(
        f"random{place + 1}", about, (), "mixture", {**_BASE, **_team(rng), **_skills(rng)},
        tuple({_COUNT[kind]: one.get(kind, 0) for kind in kinds} for one in sorts), (Parts(play="optimal"),) * len(sorts),
    )  # fmt: skip


def _sort(rng: np.random.Generator) -> dict[str, int]:
    kinds = rng.permutation(len(KINDS))[: int(rng.integers(1, 3))]
    return {KINDS[k]: int(rng.integers(3, 13)) for k in sorted(kinds)}


def _log(rng: np.random.Generator, low: float, high: float) -> float:
    return round(float(np.exp(rng.uniform(math.log(low), math.log(high)))), 4)


def _pair(rng: np.random.Generator, low: float, high: float) -> tuple[float, float]:
    first, second = rng.uniform(low, high, 2)
    return round(float(first), 3), round(float(second), 3)


def _team(rng: np.random.Generator) -> dict[str, Any]:
    price = _log(rng, 0.02, 0.2)
    return {
        "max_agents": int(rng.choice([4, 8, 16, 32])), "types": int(rng.integers(1, 3)),
        "mismatch": round(float(rng.uniform(0.1, 0.5)), 3), "price": (price, round(price * float(rng.uniform(1, 2.5)), 4)),
        "spawn_price": _log(rng, 0.1, 1.5), "brief_price": _log(rng, 0.001, 0.25),
        "round_price": 0.0 if rng.random() < 1 / 3 else _log(rng, 0.02, 3.0), "orchestrator_works": bool(rng.random() < 0.25),
    }  # fmt: skip


def _skills(rng: np.random.Generator) -> dict[str, Any]:
    skill = {
        "pool_mean": round(float(rng.uniform(4, 16)), 1), "pool_shape": _log(rng, 0.3, 2.5), "pool_slots": 48, "pool_calls": 40,
        "pool_find": _pair(rng, 0.04, 0.4), "pool_weight": _log(rng, 0.5, 1.5), "draft_gain": _pair(rng, 0.1, 0.6),
        "draft_weight": _log(rng, 1.0, 4.0), "draft_calls": 20, "chain_hops": int(rng.integers(2, 5)),
        "hop_right": _pair(rng, 0.5, 0.95), "chain_weight": _log(rng, 3.0, 14.0), "vote_weight": _log(rng, 1.0, 8.0),
        "max_votes": 6, "node_right": _pair(rng, 0.5, 0.95), "node_weight": _log(rng, 2.0, 11.0),
    }  # fmt: skip
    critic = {"topology": "planner_executor_critic", "critic_false_accept": round(float(rng.uniform(0.05, 0.4)), 3)}
    return {**skill, **(critic if rng.random() < 0.3 else {})}
