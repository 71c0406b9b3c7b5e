"""One episode to step by hand, after Gymnasium's habits: `reset`, `step`, `observe`, with exact snapshots and a trace.

Always true: the agent set is open: `agents` is who is alive now. A refused action raises and changes nothing. The rewards of an
episode sum to its return.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from counterpoint.errors import InputError
from counterpoint.lab.worlds.teamworld.action import Action, as_action, as_data
from counterpoint.lab.worlds.teamworld.engine import Batch, Snapshot
from counterpoint.lab.worlds.teamworld.observation import Observation, detached
from counterpoint.lab.worlds.teamworld.policies import named
from counterpoint.lab.worlds.teamworld.setting import Setting, columns, traced
from counterpoint.lab.worlds.teamworld.traces import agent_names
from counterpoint.trace import Trace


@dataclass(frozen=True)
class EnvSnapshot:
    """A state of an environment, detached."""

    world: str
    version: str
    seed: int
    batch: Snapshot
    actions: tuple[dict[str, Any], ...]


class TeamEnv:
    """A single TeamWorld episode."""

    def __init__(self, world: Setting, *, log: bool = True) -> None:
        self.world, self._log = world, log
        self._batch: Batch | None = None
        self._seed = 0
        self._actions: tuple[dict[str, Any], ...] = ()

    @property
    def batch(self) -> Batch:
        """The engine underneath."""
        if self._batch is None:
            raise InputError("the episode has not begun", fix="call reset(seed) first")
        return self._batch

    @property
    def agents(self) -> list[str]:
        """Who is alive now, the orchestrator first."""
        s = self.batch.state
        names = agent_names(s.parent[0], s.ordinal[0], int(s.spawned[0]))
        return [name for slot, name in enumerate(names) if s.alive[0, slot]]

    def reset(self, seed: int) -> tuple[Observation, dict[str, Any]]:
        """Begin the episode of this seed."""
        self._seed, self._actions = int(seed), ()
        self._batch = self.world.batch([seed], log=self._log)
        return self.observe(), {"seed": self._seed}

    def observe(self) -> Observation:
        """What the orchestrator sees: a batch of one episode."""
        return detached(self.batch.observe())

    def step(
        self, action: Action | Mapping[str, Any], answers: Any = None
    ) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """One round. An action is an `Action` of one episode or plain data (`action.as_action`); `answers` as in `Batch.step`."""
        batch = self.batch
        if batch.state.done[0]:
            raise InputError("the episode is over", fix="call reset(seed)")
        chosen = as_action(self.world.config, action)
        reward = float(batch.step(chosen, answers)[0])
        self._actions = (*self._actions, as_data(chosen))
        ended, cut = bool(batch.state.done[0]), bool(batch.state.truncated[0])
        info = {name: column[0].item() for name, column in columns(batch).items() if name != "quality"}
        return self.observe(), reward, ended and not cut, cut, info

    def sample(self, rng: np.random.Generator) -> Action:
        """Some legal action: the random policy's, with noise from `rng`."""
        obs = self.observe()
        draws: dict[Any, np.ndarray] = {}

        def noise(place: int, keys: tuple[Any, ...]) -> np.ndarray:
            shape = np.broadcast_shapes((1,), *(np.shape(k) for k in keys))
            return draws.setdefault((place, str(keys)), rng.random(shape))

        object.__setattr__(obs, "noise", noise)
        return named("random", self.world.config).act(obs)

    def snapshot(self) -> EnvSnapshot:
        """The whole state now."""
        return EnvSnapshot(self.world.name, self.world.version, self._seed, self.batch.snapshot(), self._actions)

    def restore(self, snapshot: EnvSnapshot) -> None:
        """Go back to a snapshot of this world."""
        mine = (self.world.name, self.world.version, self.world.config)
        if (snapshot.world, snapshot.version, snapshot.batch.config) != mine:
            raise InputError(
                f"a snapshot of {snapshot.world} version {snapshot.version}, or of other parameters",
                fix=f"one of {self.world.name} version {self.world.version}, same parameters",
            )
        if self._batch is None:
            self.reset(snapshot.seed)
        self._seed, self._actions = snapshot.seed, snapshot.actions
        self.batch.restore(snapshot.batch)

    def trace(self) -> Trace:
        """What has happened since `reset`; it carries the actions, so that it can be forked."""
        if not self._log:
            raise InputError("this environment does not log", fix="make it with log=True")
        trace = traced(self.world, self.batch, np.array([self._seed]), None)(0)
        trace.meta["actions"] = list(self._actions)
        return trace
