"""What a world is: parameters with units, policies by name, a known optimum, and episodes that a seed decides.

Always true: a world is frozen; other parameters are another world (`replace`). An episode is a function of (world, policy,
seed): the same three give the same bytes, one at a time or thousands at once. What a number of a world means, and its
unit, is said by the field that declares it. `testing.check_env` calls all of this over any world.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np

import counterpoint.registry as registry
from counterpoint.errors import InputError, did_you_mean
from counterpoint.lab.worlds.packages import is_episode, is_package_world
from counterpoint.trace import Trace


def parameter(default: Any, unit: str, doc: str) -> Any:
    """A field of a world's frozen config: its default, its unit (`1` for a pure number or share), and a sentence."""
    return field(default=default, metadata={"unit": unit, "doc": doc})


@dataclass(frozen=True)
class Parameter:
    """One number of a world, as `counterpoint train worlds` prints it."""

    name: str
    value: Any
    unit: str
    doc: str


def parameters(config: Any) -> list[Parameter]:
    """Every number of a config, in the order of its fields."""
    return [Parameter(f.name, getattr(config, f.name), f.metadata["unit"], f.metadata["doc"]) for f in dataclasses.fields(config)]


def changed(config: Any, changes: Mapping[str, Any]) -> Any:
    """The config with some fields changed; a name that is no field is one clear error. (The config checks its own values.)"""
    known = [f.name for f in dataclasses.fields(config)]
    for name in changes:
        if name not in known:
            raise InputError(f"no parameter named {name!r}", fix=did_you_mean(name, known))
    return dataclasses.replace(config, **changes)


@dataclass(frozen=True, kw_only=True)
class Optimum:
    """The best that any policy of a stated class can expect in one episode."""

    value: float
    """Points per episode."""
    kind: Literal["exact", "upper bound"]
    """Exact: some policy of the class attains it. Upper bound: none exceeds it."""
    over: str
    """The policies for which it holds."""
    how: str
    """How it was computed."""
    prophet: float | None = None
    """What somebody who sees the future would get, where that is defined; no policy can."""


@dataclass(frozen=True, kw_only=True)
class Runs:
    """The results of one policy over many episodes, one number per episode in every column."""

    seeds: np.ndarray
    """The seed of each episode."""
    values: np.ndarray
    """The return of each episode, in points: what `Optimum.value` is compared with."""
    columns: Mapping[str, np.ndarray]
    """Further numbers per episode (rounds, calls, agents, quality, ...), each of length E."""
    make_trace: Callable[[int], Trace] | None = None
    """The trace of episode i, where the run was logged."""

    def trace(self, i: int) -> Trace:
        """The orchestration trace of episode i; needs a run with `log=True`."""
        if self.make_trace is None:
            raise InputError("this run was not logged", fix="run it with log=True")
        if not 0 <= i < len(self.values):
            raise InputError(f"no episode {i}", fix=f"0 to {len(self.values) - 1}")
        return self.make_trace(i)


class Env(Protocol):
    """One episode at a time, after Gymnasium's habits, with an open agent set and exact snapshots."""

    @property
    def agents(self) -> list[str]:
        """The agents alive now; the set changes while the episode runs."""

    def reset(self, seed: int) -> tuple[Any, dict[str, Any]]:
        """Begin the episode of this seed: the first observation, and an info dictionary."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Act once: observation, reward, terminated, truncated, info. A refused action changes nothing."""

    def observe(self) -> Any:
        """The present observation again; looking changes nothing."""

    def sample(self, rng: np.random.Generator) -> Any:
        """Some legal action in the present state."""

    def snapshot(self) -> Any:
        """The whole state, detached from what comes after."""

    def restore(self, snapshot: Any) -> None:
        """Go back to a snapshot of this world."""

    def trace(self) -> Trace:
        """What has happened since `reset`, as a trace."""


@runtime_checkable
class World(Protocol):
    """One environment plug-in (`lab/worlds/NAME.py` defines an object NAME that follows this)."""

    @property
    def name(self) -> str:
        """The id: the file's name."""

    @property
    def short(self) -> str:
        """A short name, such as W1 or S1b."""

    @property
    def version(self) -> str:
        """Changes whenever the same seed would give another episode; a trace carries it."""

    @property
    def config(self) -> Any:
        """A frozen dataclass whose fields are made by `parameter`."""

    @property
    def silent(self) -> Mapping[str, str]:
        """Sub-decisions (spawn, delegate, communicate, aggregate, stop) that do not matter here, each with the reason."""

    def replace(self, **changes: Any) -> World:
        """The same world with other parameters; impossible ones raise `InputError`."""

    def policies(self) -> list[str]:
        """The names of the hand-made policies that can play here."""

    def optimum(self) -> Optimum:
        """The best that can be expected, exact or a certified bound."""

    def run(self, policy: Any, seeds: Sequence[int], *, log: bool = False) -> Runs:
        """Play one episode per seed with a policy, named or given; all at once."""

    def env(self) -> Env:
        """A single environment to step by hand."""


# -- worlds by name ----------------------------------------------------------------------------------------------------


def world(name: str, **parameters: Any) -> Any:
    """A world by id (`wide_verify`), short name (`W1`), `"package.module:object"` or a package's (`dpbench:sim_n5_nocomm`).

    Finding a world computes nothing.

    >>> import counterpoint as cpt
    >>> small = cpt.world("W1", vote_items=8)
    >>> runs = small.run("reference", seeds=range(4), log=True)
    >>> len(runs.values), runs.trace(0).topology
    (4, 'centralized')
    """
    if is_package_world(name) or (":" in name and is_episode(registry.get("world", name))):
        made = registry.get("world/arrays", "array_world")(name)
        return made.replace(**parameters) if parameters else made
    named = registry.named("world", name, World, "counterpoint.lab.testing.check_world says what a world needs")
    return named.replace(**parameters) if parameters else named
