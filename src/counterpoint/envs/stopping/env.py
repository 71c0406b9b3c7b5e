"""One stopping episode by hand: at every checkpoint, stop or go on.

Always true: rewards are differences of payoffs, so they sum to Y at the stop (Y_0 = 0); an observation is the row of features at
this checkpoint, and nothing later; a refused action changes nothing. The episode ends by stopping or by reaching the horizon.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from counterpoint.envs.stopping.policies import BY_HAND
from counterpoint.envs.stopping.sample import FEATURES, Paths
from counterpoint.envs.stopping.traces import LEAD, worker_of
from counterpoint.errors import InputError, Refused
from counterpoint.trace import Trace

_STOP_CHANCE = 0.1  # of a sampled action


class Played(Protocol):
    """What an episode asks of its world."""

    @property
    def config(self) -> Any:
        """The world's parameters."""

    def paths(self, seeds: Sequence[int]) -> Paths:
        """The paths of some seeds."""

    def trace(self, seed: int, policy: str, *, forced: bool, open_at: int | None) -> Trace:
        """An episode as a trace."""


@dataclass(frozen=True)
class _Snapshot:
    world: Played
    seed: int
    t: int
    is_over: bool


class StoppingEnv:
    """Gymnasium's habits over one path."""

    def __init__(self, world: Played) -> None:
        self._world = world
        self._path: Paths | None = None
        self._seed, self._t, self._is_over = 0, 0, False

    @property
    def agents(self) -> list[str]:
        """The orchestrator, and its worker until the stop."""
        return [LEAD] if self._is_over else [LEAD, worker_of(self._world.config)[0]]

    def reset(self, seed: int) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin the episode of this seed."""
        self._path, self._seed, self._t, self._is_over = self._world.paths([seed]), seed, 0, False
        return self.observe(), {"features": FEATURES}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Stop (True) or play one more round (False); `{"stop": ...}` says the same."""
        path, stop = self._playing(), self._read(action)
        if self._is_over:
            raise InputError("the episode is over", fix="reset(seed) begins another")
        before = path.payoffs[0, self._t]
        self._t += not stop
        self._is_over = stop or self._t == self._world.config.horizon
        return self.observe(), float(path.payoffs[0, self._t] - before), self._is_over, False, {"round": self._t}

    def observe(self) -> np.ndarray:
        """(d,) the features at this checkpoint."""
        return self._playing().features[0, self._t].copy()

    def sample(self, rng: np.random.Generator) -> bool:
        """Stop now and then."""
        return bool(rng.random() < _STOP_CHANCE)

    def snapshot(self) -> _Snapshot:
        """The whole state: the seed decides the rest."""
        self._playing()
        return _Snapshot(self._world, self._seed, self._t, self._is_over)

    def restore(self, snapshot: Any) -> None:
        """Go back to a snapshot of this world."""
        if not isinstance(snapshot, _Snapshot):
            raise InputError(f"a {type(snapshot).__name__} is no snapshot of a stopping world")
        if snapshot.world != self._world:
            raise Refused("the snapshot is of another world or of other parameters", fix="restore it where it was taken")
        self.reset(snapshot.seed)
        self._t, self._is_over = snapshot.t, snapshot.is_over

    def trace(self) -> Trace:
        """What has happened since `reset`; an unfinished episode has no decision yet at its last checkpoint."""
        self._playing()
        return self._world.trace(self._seed, f"{BY_HAND}:{self._t}", forced=False, open_at=None if self._is_over else self._t)

    def _playing(self) -> Paths:
        if self._path is None:
            raise InputError("no episode has begun", fix="reset(seed) begins one")
        return self._path

    @staticmethod
    def _read(action: Any) -> bool:
        if isinstance(action, Mapping) and set(action) == {"stop"}:
            action = action["stop"]
        if isinstance(action, bool | np.bool_):
            return bool(action)
        raise InputError(f"no action {action!r}", fix="True stops, False goes on")
