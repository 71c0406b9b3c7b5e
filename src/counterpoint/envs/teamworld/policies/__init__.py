"""Hand-made policies, each readable on one screen: `named(name, config)` makes one for a world.

Always true: a policy sees an `Observation` and nothing else, keeps no state between rounds, and takes its noise from the
observation; so the same seed gives the same action, alone or in a batch, and a fork can ask it again.
"""

from __future__ import annotations

from counterpoint.envs.teamworld.config import Config
from counterpoint.envs.teamworld.policies.best_cap import best_cap
from counterpoint.envs.teamworld.policies.parts import Parts, Team
from counterpoint.envs.teamworld.policies.random_ import Random
from counterpoint.envs.teamworld.policy import Policy
from counterpoint.errors import NotFound, did_you_mean

__all__ = ["NAMES", "Policy", "named"]

NAMES = ("reference", "oracle", "best_cap", "majority", "first_answer", "serial", "spawn_all", "random")


def named(name: str, config: Config) -> Policy:
    """A hand-made policy, prepared for a configuration."""
    match name:
        case "reference":
            return Team(config, Parts(), name)
        case "oracle":
            return Team(config, Parts(play="optimal"), name)
        case "best_cap":
            return Team(config, best_cap(config), name)
        case "majority":
            return Team(config, Parts(aggregate="majority"), name)
        case "first_answer":
            return Team(config, Parts(aggregate="first", cap=1), name)
        case "serial":
            return Team(config, Parts(spawn="serial"), name)
        case "spawn_all":
            return Team(config, Parts(spawn="all"), name)
        case "random":
            return Random(config)
    raise NotFound(f"no policy named {name!r}", fix=did_you_mean(name, NAMES))
