"""What a world with rules of its own asks: who decides, what it sees as numbers, and what can be done, each option as numbers.

Always true: all decisions of a world have equally many numbers of state, and all options equally many; options may be any number.
An environment that asks in this form (`DecisionEnv`) can be trained in: a network scores each option by its numbers and those of
the state, so that it needs to know nothing else of the world. What does not hold is one error that names seed and decision.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from counterpoint.errors import InputError, did_you_mean
from counterpoint.lab.worlds.world import Env
from counterpoint.trace.vocabulary import SUB_DECISIONS

LEAD = "orchestrator"
KINDS = tuple(SUB_DECISIONS.values())
_SAYS = "docs/plugins.md says what a decision is"


@dataclass(frozen=True, kw_only=True)
class Decision:
    """One decision that is due."""

    kind: str
    """What is decided: spawn, delegate, communicate, aggregate or stop."""
    state: Sequence[float]
    """What the agent sees."""
    options: Sequence[Sequence[float]]
    """What it can do, each option as numbers."""
    names: Sequence[str]
    """The options in a word or two."""
    agent: str = LEAD
    """Who decides."""
    role: str = ""
    """In which role; empty: the agent's name."""


class DecisionEnv(Env, Protocol):
    """An environment that asks decision by decision; `step` takes the number of an option."""

    def decision(self) -> Decision | None:
        """The decision that is due; None once the episode is over."""


def asks_decisions(env: Any) -> bool:
    """Whether an environment is a `DecisionEnv`; nothing is asked of it."""
    return callable(getattr(env, "decision", None))


@dataclass(frozen=True)
class Sizes:
    """How many numbers the decisions of a world have."""

    state: int
    option: int


@dataclass(frozen=True)
class Place:
    """Where something does not hold."""

    world: str
    seed: int
    number: int
    """Decisions made before it."""

    def error(self, what: str, fix: str = _SAYS) -> InputError:
        """The error that says so."""
        return InputError(what, where=f"world {self.world}, seed {self.seed}, decision {self.number}", fix=fix)


@dataclass(frozen=True)
class Arrays:
    """A decision as a network reads it."""

    decision: Decision
    state: np.ndarray
    """(S,)"""
    options: np.ndarray
    """(K, D)"""

    @property
    def sizes(self) -> Sizes:
        """How many numbers it has."""
        return Sizes(len(self.state), self.options.shape[1])


def checked(asked: Any, place: Place, sizes: Sizes | None = None) -> Arrays:
    """A decision as arrays, after everything that it promises was looked at; `sizes` are those of the decisions before."""
    if not isinstance(asked, Decision):
        raise place.error(f"decision() gives a {type(asked).__name__}, not a Decision, nor None for the end")
    if asked.kind not in KINDS:
        raise place.error(f"no kind of decision named {asked.kind!r}", fix=did_you_mean(str(asked.kind), KINDS))
    if not (isinstance(asked.agent, str) and asked.agent):
        raise place.error(f"the agent's name is {asked.agent!r}", fix="a text that is not empty")
    if not len(asked.options):
        raise place.error("the decision has no option", fix="at least one; decision() gives None once the episode is over")
    state, options = _numbers(asked.state, 1, "the state", place), _numbers(asked.options, 2, "the options", place)
    if len(asked.names) != len(options) or not all(isinstance(name, str) and name for name in asked.names):
        raise place.error(f"{len(options)} options have the names {list(asked.names)!r}", fix="one name for each option")
    out = Arrays(asked, state, options)
    if sizes is not None and out.sizes != sizes:
        said = f"the state has {len(state)} numbers and an option {options.shape[1]}; before it was "
        said += f"{sizes.state} and {sizes.option}"
        raise place.error(said, fix="equally many in all decisions of the world; 0 stands for what does not apply")
    return out


def _numbers(given: Any, axes: int, what: str, place: Place) -> np.ndarray:
    shape = "a list of numbers" if axes == 1 else "lists of numbers, one for each option and all of one length"
    try:
        out = np.array(given, np.float32)
    except (TypeError, ValueError, OverflowError):
        raise place.error(f"{what} cannot be read as numbers: {given!r:.80}", fix=shape) from None
    if out.ndim != axes or not out.size:
        raise place.error(f"the shape of {what} is {out.shape}", fix=shape)
    if not np.isfinite(out).all():
        raise place.error(f"a number of {what} is not finite: {given!r:.80}", fix="finite numbers")
    return out


def finite_reward(reward: Any, place: Place) -> float:
    """What a step paid, which is one finite number."""
    try:
        out = float(reward)
    except (TypeError, ValueError):
        raise place.error(f"the reward is {reward!r:.80}, not a number", fix="points as one number") from None
    if not math.isfinite(out):
        raise place.error(f"the reward is {out}", fix="a finite number of points")
    return out
