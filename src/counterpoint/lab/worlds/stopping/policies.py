"""When to stop: rules by name, or anybody's function of what is known.

Always true: a rule gives the chance of stopping at a checkpoint from its round and features alone (a plain yes or no is chance 1
or 0); the coin is keyed by seed and round, so the same rule decides the same way alone, among thousands, and in a fork.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from counterpoint.errors import InputError, NotFound, did_you_mean
from counterpoint.lab.worlds.stopping.config import Config
from counterpoint.lab.worlds.stopping.optimum import solve, state_of
from counterpoint.lab.worlds.stopping.sample import Paths
from counterpoint.trace.keyed import purpose, uniform

Rule = Callable[[int, np.ndarray], np.ndarray]
"""(round, features (E, d)) to (E,) booleans or chances of stopping."""

NAMES = ("optimum", "best_cap", "never", "first", "random", "patience")
"""The optimal rule; the best fixed round; the horizon; round 1; a coin; a number of rounds without a rise of the evidence.

`cap:7` stops at round 7, `patience:3` after three quiet rounds; `patience` alone means `patience:4`.
"""
BY_HAND = "by hand"
"""How an episode that was stepped by hand names its rule: `by hand:7` stops at round 7, as was chosen, with unknown chances."""

_PATIENCE, _RANDOM = 4, 0.1
_COIN = purpose("stopping decision")


def rule(config: Config, policy: Any) -> Rule:
    """The rule of a name, or the given function itself."""
    if callable(policy):
        return policy
    kind, _, number = str(policy).rpartition(":")
    if number.isdecimal() and kind in ("cap", BY_HAND):
        return _fixed(int(number))
    if number.isdecimal() and kind == "patience":
        return _patience(int(number))
    match policy:
        case "optimum":
            table = solve(config).stop
            return lambda t, x: table[t][state_of(config, x)]
        case "best_cap":
            return _fixed(solve(config).cap_round)
        case "never":
            return _fixed(config.horizon)
        case "first":
            return _fixed(1)
        case "random":
            return lambda t, x: np.full(len(x), _RANDOM)
        case "patience":
            return _patience(_PATIENCE)
    raise NotFound(f"no policy named {policy!r}", fix=did_you_mean(str(policy), [*NAMES, "cap:7", "patience:3"]))


def _fixed(last: int) -> Rule:
    return lambda t, x: np.full(len(x), t >= last)


def _patience(rounds: int) -> Rule:
    return lambda t, x: x[:, 3] >= rounds


def label(policy: Any) -> str:
    """How a trace names a policy: its name, or `given` for a function."""
    return policy if isinstance(policy, str) else "given"


def chances(decide: Rule, paths: Paths) -> np.ndarray:
    """(E, H+1) the chance of stopping at each checkpoint; 1 at the horizon, where there is no choice."""
    episodes, checkpoints, _ = paths.features.shape
    out = np.ones((episodes, checkpoints))
    for t in range(checkpoints - 1):
        answers = np.asarray(decide(t, paths.features[:, t]))
        if answers.shape != (episodes,) or answers.dtype.kind not in "bfiu":
            raise InputError(
                f"the policy gave {answers.dtype} of shape {answers.shape}", fix=f"one boolean or chance for each of {episodes}"
            )
        out[:, t] = answers
    if not ((out >= 0) & (out <= 1)).all():
        raise InputError("the policy gave a chance of stopping outside 0 to 1")
    return out


def stops(seeds: np.ndarray, chance: np.ndarray) -> np.ndarray:
    """(E, H+1) whether the rule stops at each checkpoint; seeds are (E, 1), or (E, H+1) where a fork made some fresh."""
    return uniform(seeds, _COIN, np.arange(chance.shape[1])) < chance
