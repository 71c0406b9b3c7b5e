"""The calls of a round on one kind of items, and what comes back from them.

Always true: what a call says and whether that is so are apart; nobody in the team is shown the second.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from counterpoint.lab.worlds.teamworld.config import Config


def add_at(array: np.ndarray, at: tuple[np.ndarray, ...], value: Any) -> None:
    """`np.add.at`, which is many times faster with one flat index."""
    if array.flags.c_contiguous:
        place = at[0]
        for size, other in zip(array.shape[1:], at[1:], strict=True):
            place = place * size + other
        np.add.at(array.reshape(-1), place, value)
    else:
        np.add.at(array, at, value)


@dataclass
class Work:
    """This round's calls on one kind of items; `item` counts within the kind. Axis: calls."""

    config: Config
    ep: np.ndarray
    item: np.ndarray
    agent: np.ndarray
    family: np.ndarray
    know: np.ndarray
    """g: what the call knows, 0 to 1."""
    brief: np.ndarray
    purpose: np.ndarray
    draw: Callable[[int], np.ndarray]
    """One uniform number per call for a purpose."""
    again: np.ndarray | None = None
    """Whether it is a second look at a question (`acts.py`)."""


@dataclass
class Returns:
    """What comes back from calls on one kind. `claim` is what is said; `right` whether it is so, which nobody is shown."""

    claim: np.ndarray
    right: np.ndarray
    finds: np.ndarray | None = None
    """(calls, slots) for pools: which finds a call found."""
