"""What a policy is, and playing episodes: one loop, any policy, any number of seeds at once.

Always true: a policy keeps no state between rounds and takes its noise from the observation, so that a fork can ask it again. The
loop asks the policy, steps the batch, and ends when every episode has stopped or run out of rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from counterpoint.envs.teamworld.action import Action
from counterpoint.envs.teamworld.config import Config
from counterpoint.envs.teamworld.edits import Edit
from counterpoint.envs.teamworld.engine import Batch
from counterpoint.envs.teamworld.observation import Observation


class Policy(Protocol):
    """Decides for every episode of a batch at once."""

    name: str

    def act(self, obs: Observation) -> Action:
        """This round's action."""


def finish(batch: Batch, policy: Policy) -> Batch:
    """Play a batch on from where it is to the end."""
    while not batch.state.done.all():
        batch.step(policy.act(batch.observe()))
    return batch


def play(
    config: Config, policy: Policy, seeds: Sequence[int] | np.ndarray, *, log: bool = False, edits: Sequence[Edit] = ()
) -> Batch:
    """Whole episodes, one per seed."""
    return finish(Batch(config, np.asarray(seeds), log=log, edits=edits), policy)
