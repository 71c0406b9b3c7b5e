"""TeamWorld as a world: a configuration with a name, its policies, its optimum, episodes, traces and forks.

Always true: the trace of an episode carries all it takes to run it again (world, version, configuration, seed, policy, edits),
and `fork` runs it again: events before the fork are the same because every draw is keyed, not because they were copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from counterpoint.envs.teamworld.agents import TeamAgents
from counterpoint.envs.teamworld.env import TeamEnv
from counterpoint.envs.teamworld.optimum.bound import optimum
from counterpoint.envs.teamworld.play import Policy, play
from counterpoint.envs.teamworld.setting import Setting, columns, traced
from counterpoint.envs.teamworld.team_replay import TeamReplay
from counterpoint.envs.world import Optimum, Runs
from counterpoint.trace import Trace
from counterpoint.trace.replay import Do, Fork


@dataclass(frozen=True)
class TeamWorld(Setting):
    """One released configuration of TeamWorld, or one that you make by `replace`."""

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

    def env(self) -> TeamEnv:
        """One episode to step by hand, after Gymnasium's habits."""
        return TeamEnv(self)

    def agents(self) -> TeamAgents:
        """One episode as a game of all its agents, after PettingZoo's parallel habit: workers may say what they like."""
        return TeamAgents(self)

    def fork(self, trace: Trace, at: str, do: Do | None = None, seed: int | None = None) -> Trace:
        """What would have happened; the trace must be of this world, and its policy one that `policies()` names."""
        return TeamReplay(self).fork(trace, at, do, seed)

    def forks(self, trace: Trace, forks: Sequence[Fork]) -> Runs:
        """Many forks of one trace at once, not logged: their returns."""
        return TeamReplay(self).forks(trace, forks)

    def returns(self, trace: Trace, forks: Sequence[Fork]) -> np.ndarray:
        """The returns of many forks of one trace."""
        return self.forks(trace, forks).values
