"""`RulesWorld`: a world from rules of one's own: how an episode begins, what is decided next, and what an option pays.

Always true: an episode is a function of (world, policy, seed), as long as the rules draw by the seed (`trace/keyed.py`) and keep
all that changes in the episode. Many at once, one by hand, snapshots, traces and the policy `random` are made from them here.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from counterpoint.errors import CounterpointError, InputError, NotFound, Refused, did_you_mean
from counterpoint.lab.worlds.rules.decision import Arrays, Decision, Place, checked, finite_reward
from counterpoint.lab.worlds.rules.episodes import Choose, Due, Step, Steps, columns_of, play_episodes, trace_of, value_of
from counterpoint.lab.worlds.world import Optimum, Runs, changed
from counterpoint.trace import Trace
from counterpoint.trace.keyed import purpose, uniform

Rule = Callable[[Decision], int]
"""A policy: the number of an option of the decision that is due."""
RANDOM = "random"
_RANDOM = purpose("random option")


class Episode(Protocol):
    """One episode of the rules."""

    def decision(self) -> Decision | None:
        """The decision that is due; None once the episode is over. Looking changes nothing."""

    def act(self, option: int) -> float:
        """Carry out an option of it; the points that it pays at once."""


@dataclass(frozen=True, kw_only=True)
class RulesWorld:
    """One world of rules of one's own."""

    name: str
    """The id: the file's name."""
    config: Any
    """A frozen dataclass whose fields are made by `parameter`."""
    begin: Callable[[Any, int], Episode]
    """The episode of (config, seed)."""
    best: Callable[[Any], Optimum]
    """The optimum, of the config."""
    rules: Mapping[str, Rule] = field(default_factory=dict)
    """Policies by hand, by name; `random` is always there."""
    silent: Mapping[str, str] = field(default_factory=dict)
    """Sub-decisions that do not matter here, each with the reason."""
    version: str = "1"
    """Changes whenever the same seed would give another episode."""

    @property
    def short(self) -> str:
        """It has no shorter name."""
        return self.name

    def replace(self, **changes: Any) -> RulesWorld:
        """The same world with other parameters."""
        return dataclasses.replace(self, config=changed(self.config, changes))

    def policies(self) -> list[str]:
        """The names of the policies by hand."""
        return [*self.rules, RANDOM]

    def optimum(self) -> Optimum:
        """The best that can be expected, as `best` says."""
        where, fix = f"world {self.name}", "best(config) gives an Optimum with a finite value"
        try:
            found = self.best(self.config)
        except CounterpointError:
            raise
        except Exception as error:
            raise InputError(f"best() raises {type(error).__name__}: {error}", where=where, fix=fix) from error
        if not isinstance(found, Optimum) or not math.isfinite(found.value):
            raise InputError(f"best() gives {found!r:.80}", where=where, fix=fix)
        return found

    def run(self, policy: Any, seeds: Sequence[int] | np.ndarray, *, log: bool = False) -> Runs:
        """Play one episode per seed; a policy is a name or a function of a decision to the number of an option."""
        played = play_episodes(self, seeds, self._choose(policy))
        numbers = np.array([int(seed) for seed in seeds], np.int64)
        name = policy if isinstance(policy, str) else str(getattr(policy, "name", "given"))
        return Runs(
            seeds=numbers,
            values=np.array([value_of(steps) for steps in played]),
            columns=columns_of(played),
            make_trace=(lambda i: trace_of(self, int(numbers[i]), name, played[i])) if log else None,
        )

    def env(self) -> RulesEnv:
        """A single environment to step by hand."""
        return RulesEnv(self)

    def _choose(self, policy: Any) -> Choose:
        if isinstance(policy, str) and policy == RANDOM:
            return _at_random
        rule = policy if callable(policy) else self.rules.get(policy) if isinstance(policy, str) else None
        if rule is None:
            raise NotFound(f"no policy named {policy!r}", fix=did_you_mean(str(policy), self.policies()))
        return lambda due: (np.array([rule(row.decision) for row in due.rows], object), None)


def _at_random(due: Due) -> tuple[np.ndarray, np.ndarray]:
    count = np.array([len(row.options) for row in due.rows])
    return (uniform(due.seeds, _RANDOM, due.now) * count).astype(np.int64), -np.log(count)


# -- one episode by hand -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Snapshot:
    world: RulesWorld
    seed: int
    episode: Any
    steps: tuple[Step, ...]


class RulesEnv:
    """One episode by hand, after Gymnasium's habits: an observation is the decision that is due (None after the end), an action
    the number of an option.
    """

    def __init__(self, world: RulesWorld) -> None:
        self._world, self._seed = world, 0
        self._episode: Episode | None = None
        self._steps: Steps = []

    @property
    def agents(self) -> list[str]:
        """Those who have decided so far, and who is to decide now."""
        due = self.decision()
        names = [step.arrays.decision.agent for step in self._steps] + ([due.agent] if due is not None else [])
        return [*dict.fromkeys(names)]

    def reset(self, seed: int) -> tuple[Decision | None, dict[str, Any]]:
        """Begin the episode of this seed."""
        self._episode, self._seed, self._steps = self._world.begin(self._world.config, seed), seed, []
        return self.observe(), {}

    def decision(self) -> Decision | None:
        """The decision that is due; None once the episode is over."""
        return self._playing().decision()

    def observe(self) -> Decision | None:
        """The same."""
        return self.decision()

    def step(self, action: Any) -> tuple[Decision | None, float, bool, bool, dict[str, Any]]:
        """Carry out an option, by its number or its name."""
        row = self._due()
        choice = self._read(action, row.decision)
        reward = finite_reward(self._playing().act(choice), self._place)
        self._steps.append(Step(row, choice, None, reward))
        due = self.observe()
        return due, reward, due is None, False, {}

    def sample(self, rng: np.random.Generator) -> int:
        """Some option."""
        return int(rng.integers(len(self._due().options)))

    def snapshot(self) -> _Snapshot:
        """The whole state."""
        return _Snapshot(self._world, self._seed, copy.deepcopy(self._playing()), tuple(self._steps))

    def restore(self, snapshot: Any) -> None:
        """Go back to a snapshot of this world."""
        if not isinstance(snapshot, _Snapshot):
            raise InputError(f"a {type(snapshot).__name__} is not a snapshot of a world with rules of its own")
        if snapshot.world != self._world:
            raise Refused("the snapshot is of another world or of other parameters", fix="restore it where it was taken")
        self._seed, self._episode, self._steps = snapshot.seed, copy.deepcopy(snapshot.episode), list(snapshot.steps)

    def trace(self) -> Trace:
        """What has happened since `reset`."""
        self._playing()
        return trace_of(self._world, self._seed, "by hand", self._steps)

    @property
    def _place(self) -> Place:
        return Place(self._world.name, self._seed, len(self._steps))

    def _due(self) -> Arrays:
        due = self.decision()
        if due is None:
            raise InputError("the episode is over", fix="reset(seed) begins another")
        return checked(due, self._place, self._steps[0].arrays.sizes if self._steps else None)

    def _playing(self) -> Episode:
        if self._episode is None:
            raise InputError("no episode has begun", fix="reset(seed) begins one")
        return self._episode

    @staticmethod
    def _read(action: Any, due: Decision) -> int:
        if isinstance(action, str) and action in due.names:
            return list(due.names).index(action)
        if isinstance(action, int | np.integer) and not isinstance(action, bool) and 0 <= action < len(due.options):
            return int(action)
        raise InputError(f"no action {action!r}", fix=f"0 to {len(due.options) - 1}, or one of {', '.join(due.names)}")
