"""A configuration with a name: what an episode, a trace and a fork must know of their world.

Always true: a setting is frozen; other parameters are another setting, whose traces have other ids.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Self

import numpy as np

from counterpoint.envs.teamworld.config import Config
from counterpoint.envs.teamworld.engine import Batch
from counterpoint.envs.teamworld.policies import NAMES, named
from counterpoint.envs.teamworld.policy import Policy
from counterpoint.envs.world import changed
from counterpoint.errors import InputError

VERSION = "1"


@dataclass(frozen=True)
class Setting:
    """A named configuration of TeamWorld, its policies and its episodes."""

    name: str
    short: str
    config: Config
    silent: Mapping[str, str] = field(default_factory=dict)
    version: str = VERSION
    released: Config | None = None
    """The configuration that this one was made from; None for a released one."""

    @property
    def variant(self) -> str:
        """Short mark of other parameters than the released ones, for ids; empty for a released world."""
        if self.released is None or self.released == self.config:
            return ""
        return "." + blake2b(repr(self.config).encode(), digest_size=3).hexdigest()

    def replace(self, **changes: Any) -> Self:
        """The same world with other parameters; lists stand for tuples. Which sub-decisions are silent is not known of it."""
        changes = {k: tuple(v) if isinstance(v, list) else v for k, v in changes.items()}
        return dataclasses.replace(self, config=changed(self.config, changes), released=self.released or self.config)

    def policies(self) -> list[str]:
        """The hand-made policies."""
        return list(NAMES)

    def policy(self, policy: str | Policy) -> Policy:
        """A policy by name, prepared for this configuration; a policy itself is passed through."""
        if isinstance(policy, str):
            return named(policy, self.config)
        if not hasattr(policy, "act"):
            raise InputError(f"{policy!r} is no policy", fix="a name, or an object with act(observation)")
        return policy

    def batch(self, seeds: Sequence[int] | np.ndarray, *, log: bool = False) -> Batch:
        """Many episodes to step by hand: `observe()` and `step(action)` with arrays over episodes."""
        return Batch(self.config, np.asarray(seeds, np.int64), log=log)
