"""Hand-made policies, each readable on one screen: `named(name, config)` makes one for a world.

Always true: a policy sees an `Observation` and nothing else, keeps no state between rounds, and takes its noise from the
observation; so the same seed gives the same action, alone or in a batch, and a fork can ask it again.
"""

from __future__ import annotations

from functools import lru_cache

from counterpoint.envs.teamworld.config import Config
from counterpoint.envs.teamworld.legal import limits
from counterpoint.envs.teamworld.play import Policy, play
from counterpoint.envs.teamworld.policies.composed import ComposedPolicy, Parts
from counterpoint.envs.teamworld.policies.random_ import Random
from counterpoint.errors import NotFound, did_you_mean

NAMES = ("reference", "oracle", "best_cap", "majority", "first_answer", "serial", "spawn_all", "random")


def named(name: str, config: Config) -> Policy:
    """A hand-made policy, prepared for a configuration."""
    match name:
        case "reference":
            return ComposedPolicy(config, Parts(), name)
        case "oracle":
            return ComposedPolicy(config, Parts(play="optimal"), name)
        case "best_cap":
            return ComposedPolicy(config, best_cap(config), name)
        case "majority":
            return ComposedPolicy(config, Parts(aggregate="majority"), name)
        case "first_answer":
            return ComposedPolicy(config, Parts(aggregate="first", cap=1), name)
        case "serial":
            return ComposedPolicy(config, Parts(spawn="serial"), name)
        case "spawn_all":
            return ComposedPolicy(config, Parts(spawn="all"), name)
        case "random":
            return Random(config)
    raise NotFound(f"no policy named {name!r}", fix=did_you_mean(name, NAMES))


_REHEARSAL = range(1_000_003, 1_000_003 + 16)
_COARSE = (1, 2, 3, 4, 5, 6, 8, 10, 14, 20, 28, 40, 56, 80, 110, 160, 220)


@lru_cache(maxsize=64)
def best_cap(config: Config) -> Parts:
    """The parts of the best capped policy: the same number of calls on every item, the best of a coarse scale, up to the first
    that is clearly past the best. The rehearsal plays seeds of its own, so the cap depends on the configuration alone."""
    most = int(limits(config).max()) if config.items > config.chain_items else config.hop_checks + 1
    best, best_worth = 1, float("-inf")
    for cap in (c for c in _COARSE if c <= most):
        worth = float(play(config, ComposedPolicy(config, Parts(cap=cap), "cap"), _REHEARSAL).value().mean())
        if worth > best_worth:
            best, best_worth = cap, worth
        elif cap > 2 * best:
            break
    return Parts(cap=best)
