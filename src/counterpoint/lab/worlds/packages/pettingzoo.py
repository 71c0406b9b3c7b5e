"""PettingZoo: any environment by its module, at once where it has a `parallel_env`, else one by one.

A name is the module that makes the environment, with keyword arguments after a question mark:

    mpe2.simple_spread_v3    mpe2.simple_spread_v3?N=5&max_cycles=50    pettingzoo.classic.tictactoe_v3

or the path of a file of one's own, with the same after it.

An action is a number of the agent's `Discrete` space, written as text; what the environment's `action_mask` leaves is what is
legal. Numbers of an observation are rounded to two places in its words, boards of bits are drawn with one sign for each plane,
and its array is the observation itself, flat as Gymnasium flattens it. Rewards, seeds and the order of agents are the package's.
A text that is no number of the space cannot reach the package: the lowest legal action is taken for it (in MPE: stay), and it is
counted. A `bound` in the environment's `metadata` is what no policy's mean reward of its agents passes.

Environments with continuous actions are refused. The file of somebody else may name modules of `pettingzoo` and `mpe2` alone.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

import counterpoint.registry as registry
from counterpoint.errors import CounterpointError, InputError, NotFound
from counterpoint.lab.worlds.packages import Episode, missing

TRUSTED = "pettingzoo. mpe2."
_SEEDS = 2**31
_SIGNS = "0123456789abcdefghijklmnopqrstuvwxyz"
_AT_MOST_ZERO = ("simple_spread", "simple_speaker_listener", "simple_reference")
"""Environments of MPE that pay nothing but less than 0: distances and collisions."""


class Zoo(Episode):
    """One environment, whichever of the two interfaces it has."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = f"pettingzoo:{name}"
        module, _, query = name.partition("?")
        self.env, self.is_parallel = _made(module, _keywords(query, self.name), self.name)
        self.agents = tuple(self.env.possible_agents)
        numbers = {agent: self._numbers(agent) for agent in self.agents}
        self.own = {agent: tuple(map(str, those)) for agent, those in numbers.items()}
        every = numbers.values()
        self.actions = tuple(map(str, range(min(those.start for those in every), max(those.stop for those in every))))
        self.version = f"{_version(module)}/1"
        self.width = max(self._length(agent) for agent in self.agents)
        title = str(self.env.metadata.get("name", module))
        self.rules = f"World {title} with the agents {', '.join(self.agents)}. An action is one number of those listed."
        own = self.env.metadata.get("bound")
        known = 0.0 if title.startswith(_AT_MOST_ZERO) else 1.0 if ".classic." in module else None
        self.bound = known if own is None else float(own)
        try:
            self.reset(0)
        except Exception as error:
            what = f"cannot begin: {type(error).__name__}: {error}"
            raise InputError(what, where=self.name, fix="keyword arguments of the environment") from error

    def _numbers(self, agent: str) -> range:
        """The actions of an agent as its space numbers them: from 0 on, or from where it starts."""
        space = self.env.action_space(agent)
        if not hasattr(space, "n") or np.ndim(space.n):
            fix = "an environment with Discrete actions; of MPE, leave continuous_actions out"
            raise InputError(f"{agent} acts in {space}", where=self.name, fix=fix)
        first = int(getattr(space, "start", 0))
        return range(first, first + int(space.n))

    def _space(self, agent: str) -> Any:
        """The space of what an agent sees, without a mask beside it."""
        space = self.env.observation_space(agent)
        return space["observation"] if hasattr(space, "spaces") and "observation" in space.spaces else space

    def _length(self, agent: str) -> int:
        """Numbers of an observation, without those that say which agent it is."""
        from gymnasium.spaces import flatdim

        try:
            return int(flatdim(self._space(agent)))
        except (ValueError, NotImplementedError) as error:
            fix = "observations of Box, Discrete, MultiBinary, MultiDiscrete, or of these in Dict and Tuple"
            raise InputError(f"{agent} sees {self._space(agent)}: {error}", where=self.name, fix=fix) from None

    def reset(self, seed: int) -> None:
        """The environment's own reset."""
        self.illegal, self.steps, self.seed = 0, 0, seed
        self.past: list[dict[str, str]] = []
        self.sums = dict.fromkeys(self.agents, 0.0)
        first = self.env.reset(seed=seed % _SEEDS)
        self.seen: dict[str, Any] = dict(first[0]) if self.is_parallel else {}
        self.info: dict[str, Any] = dict(first[1]) if self.is_parallel else {}

    def turn(self) -> tuple[str, ...]:
        """All that are alive, or the one that is selected."""
        if self.is_parallel:
            return tuple(self.env.agents)
        return (self.env.agent_selection,) if self.env.agents else ()

    def copy(self) -> Zoo:
        """The same steps again from the seed: many environments give a new one where they are copied."""
        new = Zoo(self.name.partition(":")[2])
        new.replay(self.seed, self.past)
        return new

    def _observation(self, agent: str) -> Any:
        if self.is_parallel:
            return self.seen.get(agent)
        return self.env.observe(agent)

    def _mask(self, agent: str) -> np.ndarray | None:
        seen = self._observation(agent)
        info = (self.info if self.is_parallel else getattr(self.env, "infos", {})).get(agent, {})
        mask = seen.get("action_mask") if isinstance(seen, Mapping) else None
        return info.get("action_mask") if mask is None else mask

    def legal(self, agent: str) -> tuple[str, ...]:
        """The numbers that the environment's mask leaves; all of the agent's where it has none."""
        mine, mask = self.own[agent], self._mask(agent)
        return mine if mask is None or not np.any(mask) else tuple(mine[i] for i in np.flatnonzero(mask))

    def take(self, actions: Mapping[str, str], words: Mapping[str, str]) -> None:
        """The environment's own step; agents that have ended are taken out as the package asks."""
        self.steps += 1
        self.past.append(dict(actions))
        numbers = {agent: self._number(agent, text) for agent, text in actions.items()}
        if self.is_parallel:
            self.seen, rewards, _, _, self.info = self.env.step(numbers)
            self._pay(rewards)
            return
        for number in numbers.values():
            self.env.step(number)
            self._pay(self.env.rewards)
        while self.env.agents and (
            self.env.terminations[self.env.agent_selection] or self.env.truncations[self.env.agent_selection]
        ):
            self.env.step(None)

    def _number(self, agent: str, text: str) -> int:
        return int(text if text in self.own[agent] else self.legal(agent)[0])

    def _pay(self, rewards: Mapping[str, Any]) -> None:
        for agent, reward in rewards.items():
            self.sums[agent] += float(reward)

    def observe(self, agent: str) -> str:
        """Who it is, and the observation in numbers or signs."""
        return f"You are {agent}.\n{_words(_plain(self._observation(agent)))}"

    def array(self, agent: str) -> np.ndarray:
        """The observation, flat, with zeros up to the longest of any agent, then which agent it is."""
        from gymnasium.spaces import flatten

        seen, out = _plain(self._observation(agent)), np.zeros(self.width + len(self.agents), np.float32)
        if seen is not None:
            try:
                flat = np.asarray(flatten(self._space(agent), seen), np.float32)
                out[: self.width][: len(flat)] = flat
            except (ValueError, IndexError, KeyError, TypeError) as error:
                what = f"{agent} sees what its space does not hold ({self._space(agent)}): {error}"
                raise InputError(what, where=self.name, fix="mend the environment's observation_space") from error
        out[self.width + self.agents.index(agent)] = 1.0
        return out

    @property
    def rewards(self) -> dict[str, float]:
        """The sums of what the environment has paid."""
        return dict(self.sums)

    def measures(self) -> dict[str, float]:
        """Steps, and the sum over all agents, which papers call the episode's return."""
        return {"steps": float(self.steps), "return": float(sum(self.sums.values()))}


def _plain(seen: Any) -> Any:
    return seen.get("observation", seen) if isinstance(seen, Mapping) else seen


def _words(seen: Any) -> str:
    """An observation in words: a number, rounded numbers, or a board with a sign for the plane of each cell."""
    if seen is None:
        return "You see nothing."
    if isinstance(seen, Mapping):
        return "\n".join(f"{key}: {_words(part)}" for key, part in seen.items())
    if isinstance(seen, tuple):
        return "\n".join(map(_words, seen))
    array = np.asarray(seen)
    if array.ndim == 3 and array.shape[2] <= len(_SIGNS) and np.isin(array, (0, 1)).all():
        rows = [
            "".join(_SIGNS[int(np.argmax(cell))] if cell.any() else "." for cell in row)  # the first plane that is set
            for row in array
        ]
        return "Board (the number is the plane, . is free):\n" + "\n".join(rows)
    if array.dtype.kind in "iub":
        return f"You see: {' '.join(str(int(x)) for x in array.ravel())}"
    return f"You see: {' '.join(f'{x:.2f}' for x in array.ravel())}"


def _keywords(query: str, where: str) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for part in filter(None, query.split("&")):
        key, is_pair, value = part.partition("=")
        if not is_pair or not key.isidentifier():
            raise InputError(f"{part!r} is no keyword argument", where=where, fix="MODULE?N=5&max_cycles=50")
        try:
            out[key] = json.loads(value)
        except ValueError:
            out[key] = value
    return out


def _made(module: str, keywords: Mapping[str, Any], where: str) -> tuple[Any, bool]:
    """The environment of a module, and whether all act at once in it."""
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    try:
        import pettingzoo  # noqa: F401
    except ImportError as error:
        raise missing("pettingzoo", error) from None
    found = _module(module, where)
    is_parallel = hasattr(found, "parallel_env")
    maker = getattr(found, "parallel_env" if is_parallel else "env", None)
    if maker is None:
        raise InputError("has neither `env` nor `parallel_env`", where=where, fix="a module of an environment of PettingZoo")
    try:
        return maker(**keywords), is_parallel
    except Exception as error:
        what = f"cannot be made: {type(error).__name__}: {error}"
        raise InputError(what, where=where, fix="keyword arguments of the environment") from error


def _module(module: str, where: str) -> Any:
    """A module by its name, or one's own by its file."""
    if module.endswith(".py"):
        if not os.path.isfile(module):
            raise NotFound(f"no such file: {module}", where=where, fix="path/to/file.py, which has `env` or `parallel_env`")
        return sys.modules[registry.get("world", f"{module}:__name__")]
    fix = "a module with `env` or `parallel_env`, such as mpe2.simple_spread_v3 or pettingzoo.classic.tictactoe_v3"
    if os.path.isfile(beside := module.replace(".", "/") + ".py"):
        fix = f"name the file: pettingzoo:{beside}"
    if not all(part.isidentifier() for part in module.split(".")):
        raise NotFound(f"no module of an environment: {module!r}", where=where, fix=fix)
    try:
        return importlib.import_module(module)
    except CounterpointError:
        raise
    except Exception as error:
        raise NotFound(f"no module of an environment: {error}", where=where, fix=fix) from error


def _version(module: str) -> str:
    from importlib import metadata

    package = "own" if module.endswith(".py") else module.partition(".")[0]
    try:
        return f"{package} {metadata.version(package)}"
    except metadata.PackageNotFoundError:
        return package


def pettingzoo(name: str) -> Episode:
    """An environment by the module that makes it, such as `mpe2.simple_spread_v3`, or by its file."""
    return Zoo(name)
