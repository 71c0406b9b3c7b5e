"""Forks of the episodes that a network played: the network itself goes on after the fork, with the noise that it had.

Always true: a fork shares all noise with its episode, the policy's too, so that nothing differs but what follows from the change.
Every call and round of a fork is counted (`spent`), whatever it was asked for.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from counterpoint.errors import Refused
from counterpoint.lab.train.policies.acting import TeamPolicy
from counterpoint.lab.train.policies.network import Network
from counterpoint.lab.worlds.teamworld.team_replay import TeamReplay
from counterpoint.lab.worlds.teamworld.world import TeamWorld
from counterpoint.lab.worlds.world import world as find
from counterpoint.trace import Trace
from counterpoint.trace.replay import Do, Fork


class NetReplay:
    """A replay of traces whose policy is a network, by the salt of each trace."""

    def __init__(self, net: Network, salts: dict[str, np.ndarray]) -> None:
        """`salts`: by trace id, one number, or one per round."""
        self._net, self._salts = net, salts
        self.spent = {"forks": 0, "calls": 0, "charged": 0}

    def _replay(self, trace: Trace, forks: int) -> TeamReplay:
        world = find(str(trace.meta["world"]))
        if not isinstance(world, TeamWorld):
            raise Refused(f"{trace.meta['world']} is not a TeamWorld", where=trace.trace_id, fix="train in a TeamWorld")
        own = np.asarray(self._salts[trace.trace_id], np.int64)
        salt = np.full(forks, own) if own.ndim == 0 else np.repeat(own[:, None], forks, axis=1)
        policy = TeamPolicy(self._net, name=str(trace.meta["policy"]), greedy=False, salt=salt)
        return TeamReplay(world, policy)

    def fork(self, trace: Trace, at: str, do: Do | None = None, seed: int | None = None) -> Trace:
        """The trace that would have come about."""
        self.returns(trace, [Fork(at, do, seed)])
        return self._replay(trace, 1).fork(trace, at, do, seed)

    def returns(self, trace: Trace, forks: Sequence[Fork]) -> np.ndarray:
        """The returns of many forks, in the order given."""
        runs = self._replay(trace, len(forks)).forks(trace, forks)
        calls, rounds = runs.columns["calls"], runs.columns["rounds"]
        more = {"forks": len(forks), "calls": int(calls.sum()), "charged": int(np.maximum(calls + rounds, 1).sum())}
        self.spent = {name: n + more[name] for name, n in self.spent.items()}
        return runs.values
