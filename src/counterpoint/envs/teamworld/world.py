"""TeamWorld as a world: a configuration with a name, its policies, its optimum, episodes, traces and forks.

Always true: the trace of an episode carries all it takes to run it again (world, version, configuration, seed, policy, edits),
and `fork` runs it again: events before the fork are the same because every draw is keyed, not because they were copied.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np

from counterpoint.envs._world import Optimum, Runs, changed
from counterpoint.envs.teamworld.config import Config
from counterpoint.envs.teamworld.engine import Batch
from counterpoint.envs.teamworld.env import TeamEnv
from counterpoint.envs.teamworld.optimum.bound import optimum
from counterpoint.envs.teamworld.play import play
from counterpoint.envs.teamworld.policies import NAMES, Policy, named
from counterpoint.envs.teamworld.replay import TeamReplay
from counterpoint.envs.teamworld.results import columns, traced
from counterpoint.errors import InputError
from counterpoint.trace import Trace
from counterpoint.trace.replay import Do, Fork

__all__ = ["VERSION", "TeamWorld"]

VERSION = "1"


@dataclass(frozen=True)
class TeamWorld:
    """One released configuration of TeamWorld, or one that you make by `replace`."""

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

    def replace(self, **changes: Any) -> TeamWorld:
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

    def optimum(self) -> Optimum:
        """Exact, or a certified upper bound; see `optimum/bound.py`."""
        return optimum(self.config)

    def run(self, policy: str | Policy, seeds: Sequence[int] | np.ndarray, *, log: bool = False) -> Runs:
        """One episode per seed, all at once."""
        chosen = self.policy(policy)
        numbers = np.asarray(seeds, np.int64)
        batch = play(self.config, chosen, numbers, log=log)
        make = traced(self, batch, numbers, chosen) if log else None
        return Runs(seeds=numbers, values=batch.value(), columns=columns(batch), make_trace=make)

    def batch(self, seeds: Sequence[int] | np.ndarray, *, log: bool = False) -> Batch:
        """Many episodes to step by hand: `observe()` and `step(action)` with arrays over episodes."""
        return Batch(self.config, np.asarray(seeds, np.int64), log=log)

    def env(self) -> TeamEnv:
        """One episode to step by hand, after Gymnasium's habits."""
        return TeamEnv(self)

    def fork(self, trace: Trace, at: str, do: Do | None = None, seed: int | None = None) -> Trace:
        """What would have happened; the trace must be of this world, and its policy one that `policies()` names."""
        return TeamReplay(self).fork(trace, at, do, seed)

    def forks(self, trace: Trace, forks: Sequence[Fork]) -> Runs:
        """Many forks of one trace at once, not logged: their returns."""
        return TeamReplay(self).forks(trace, forks)

    def returns(self, trace: Trace, forks: Sequence[Fork]) -> np.ndarray:
        """The returns of many forks of one trace."""
        return self.forks(trace, forks).values
