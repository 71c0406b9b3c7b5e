"""What a policy is: it sees an observation of a batch and gives an action.

Always true: a policy keeps no state between rounds and takes its noise from the observation, so that a fork can ask it again.
"""

from __future__ import annotations

from typing import Protocol

from counterpoint.envs.teamworld.action import Action
from counterpoint.envs.teamworld.observation import Observation


class Policy(Protocol):
    """Decides for every episode of a batch at once."""

    name: str

    def act(self, obs: Observation) -> Action:
        """This round's action."""
