"""A policy with one habit changed: what a piece of advice looks like when a whole family of episodes follows it.

Always true: outside its rounds, and in all that the habit does not name, it decides as the policy below it; a habit of nothing is
that policy. Log-probabilities of what it changes are those of the policy below and say nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from counterpoint.errors import InputError, did_you_mean
from counterpoint.lab.worlds.teamworld.action import Action, Calls, Spawns, rule
from counterpoint.lab.worlds.teamworld.observation import Observation
from counterpoint.lab.worlds.teamworld.policies import Policy

HABITS = ("width", "family", "brief", "rule", "stop")
ALWAYS = 1 << 40


@dataclass
class Standing:
    """`base` with a habit, from round `first` to round `last`."""

    base: Policy
    habit: Mapping[str, Any]
    """`width`: a factor on spawn orders; `family`: the other one; `brief`: its size; `rule`: of merging; `stop`: yes or no."""
    first: int = 0
    last: int = ALWAYS
    name: str = field(init=False)
    """The policy's name, and what is changed."""

    def __post_init__(self) -> None:
        for name in self.habit:
            if name not in HABITS:
                raise InputError(f"no habit {name!r}", fix=did_you_mean(name, HABITS))
        self.name = f"{self.base.name} with " + ", ".join(f"{k} {v}" for k, v in self.habit.items())

    def act(self, obs: Observation) -> Action:
        """The base's action with the habit."""
        action = self.base.act(obs)
        if not self.first <= obs.round <= self.last:
            return action
        for name, value in self.habit.items():
            action = getattr(self, f"_{name}")(obs, action, value)
        return action

    def _width(self, obs: Observation, action: Action, factor: float) -> Action:
        s = action.spawns
        room = obs.config.max_agents - obs.spawned[s.ep]
        number = np.where(s.number > 0, np.maximum(1, np.rint(factor * s.number)), 0).astype(np.int64)
        total = np.bincount(s.ep, number, obs.episodes)[s.ep] if len(s) else number
        number = np.where(total > room, s.number, number)  # where not all fit, the order stays as it was
        return replace(action, spawns=Spawns(s.ep, number, s.family, s.type, s.parent))

    def _family(self, obs: Observation, action: Action, value: Any) -> Action:
        s = action.spawns
        return replace(action, spawns=Spawns(s.ep, s.number, 1 - s.family, s.type, s.parent))

    def _brief(self, obs: Observation, action: Action, size: int) -> Action:
        c = action.calls
        return replace(action, calls=Calls(c.ep, c.item, c.agent, np.full(len(c), int(size)), c.purpose))

    def _rule(self, obs: Observation, action: Action, name: str) -> Action:
        return replace(action, rule=np.full(obs.episodes, rule(name)))

    def _stop(self, obs: Observation, action: Action, halts: bool) -> Action:
        if not halts:
            return replace(action, stop=np.zeros(obs.episodes, np.bool_))
        return Action(stop=obs.running.copy(), rule=action.rule)
