"""Playing episodes: one loop, any policy, any number of seeds at once.

Always true: the loop asks the policy, steps the batch, and ends when every episode has stopped or run out of rounds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from counterpoint.envs.teamworld.config import Config
from counterpoint.envs.teamworld.edits import Edit
from counterpoint.envs.teamworld.engine import Batch
from counterpoint.envs.teamworld.policy import Policy


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
