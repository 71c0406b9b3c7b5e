"""The tasks of a team of a person's own: the lines of a file, which are held out, and in what order the others are learned.

Always true: a fifth of the cases is held out, chosen by their ids alone, so every run on a file holds out the same ones, whatever
its seed and the order of its lines. Of the rest each is played once before one is played again, in an order that
is drawn anew each time round.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from counterpoint.errors import InputError
from counterpoint.lab.tasks.cases import read_lines
from counterpoint.lab.train.lm.settings import HELD_OUT_END, TaskMix

_HELD_OUT = 5
"""Of so many cases one is held out."""


@dataclass(frozen=True)
class OwnTasks:
    """The cases of one file."""

    digest: str
    """Of the lines."""
    lines: Mapping[str, Mapping[str, Any]]
    held_out: tuple[str, ...]
    learned: tuple[str, ...]

    @classmethod
    def read(cls, mix: TaskMix) -> OwnTasks:
        """The cases that a run's settings name."""
        lines = read_lines(Path(mix.cases), has_scorer=bool(mix.reward))
        if len(lines) < 2:
            raise InputError("holds one case", where=mix.cases, fix="two or more: a fifth is held out, the rest is learned on")
        order = sorted(lines, key=lambda name: hashlib.sha256(name.encode()).digest())
        held_out = frozenset(order[: max(1, len(order) // _HELD_OUT)])
        digest = hashlib.sha256(repr([(name, sorted(line.items())) for name, line in lines.items()]).encode()).hexdigest()[:12]
        kept = tuple(name for name in order if name in held_out), tuple(name for name in lines if name not in held_out)
        return cls(digest, lines, *kept)

    def case(self, seed: int) -> str:
        """The case that a task's seed stands for: seeds below a million are of those that are held out."""
        if seed < HELD_OUT_END:
            return self.held_out[seed % len(self.held_out)]
        turn, place = divmod(seed - HELD_OUT_END, len(self.learned))
        return self.learned[np.random.default_rng((turn, 11)).permutation(len(self.learned))[place]]
