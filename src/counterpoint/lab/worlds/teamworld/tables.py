"""A configuration's lists as arrays, and what a round works out of them again and again.

Always true: tables are read-only and a function of the configuration alone; the same object gives the same tables.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from counterpoint.lab.worlds.teamworld.config import KINDS, Config


@dataclass(frozen=True)
class Tables:
    """Axes: 2 families, difficulties, N items."""

    price: np.ndarray
    """By family."""
    brief_factor: np.ndarray
    """By size of brief."""
    skill: np.ndarray
    """(family, difficulty)"""
    mean_skill: np.ndarray
    """By family, over questions as they are drawn."""
    drift: np.ndarray | None
    """By family; None where nobody drifts."""
    kind: np.ndarray
    """(N,) the kind of each item."""
    leans: dict[bool, np.ndarray] = field(default_factory=dict)
    """What tallies of votes say, of the naive rule and of the other; filled where they are first asked for."""


_MOST = 64
_MADE: dict[int, tuple[Config, Tables]] = {}


def tables_of(config: Config) -> Tables:
    """The tables of a configuration; by its identity, because its hash is that of all its fields."""
    found = _MADE.get(id(config))
    if found is None or found[0] is not config:
        while len(_MADE) >= _MOST:
            _MADE.pop(next(iter(_MADE)), None)
        found = _MADE[id(config)] = config, _made(config)
    return found[1]


def _made(config: Config) -> Tables:
    skill = np.array(config.skill)
    made = Tables(
        price=np.array(config.price),
        brief_factor=np.array(config.brief_factor),
        skill=skill,
        mean_skill=skill @ np.array(config.difficulty_shares),
        drift=np.array(config.drift) if any(config.drift) else None,
        kind=np.repeat(np.arange(len(KINDS)), config.counts),
    )
    for array in vars(made).values():
        if isinstance(array, np.ndarray):
            array.setflags(write=False)
    return made
