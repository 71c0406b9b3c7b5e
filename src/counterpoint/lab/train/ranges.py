"""What numbers a setting takes: whole or not, and between which ends.

Always true: what is outside, of another type or no number is one `InputError` with the setting, its value and what it takes.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from counterpoint.errors import InputError

MOST_SEED = 2**62
"""Seeds are 64-bit numbers, and others are counted on from them."""


class Range(NamedTuple):
    """The numbers that a setting takes."""

    least: float = 0.0
    most: float = math.inf
    whole: bool = False
    above: bool = False
    """`least` itself is too small."""
    below: bool = False
    """`most` itself is too large."""
    optional: bool = False
    """None is taken, too."""

    def words(self) -> str:
        """What it takes, in words."""
        kind = "a whole number" if self.whole else "a number"
        if math.isinf(self.most):
            return f"{kind} above {self.least:g}" if self.above else f"{kind} of {self.least:g} or more"
        low, top = "above " if self.above else "", "below " if self.below else ""
        return f"{kind} from {low}{self.least:g} to {top}{self.most:g}"

    def holds(self, value: Any) -> bool:
        """Whether it takes this value."""
        if value is None:
            return self.optional
        if isinstance(value, bool) or not isinstance(value, int if self.whole else (int, float)):
            return False
        low = value > self.least if self.above else value >= self.least
        return low and (value < self.most if self.below else value <= self.most)

    def check(self, name: str, value: Any, *, where: str | None = None) -> None:
        """Raise where it does not take this value."""
        if not self.holds(value):
            raise InputError(f"{name} is {value!r}", where=where, fix=f"{name} takes {self.words()}")


SHARE = Range(0, 1)
COUNT = Range(1, whole=True)
MAYBE = Range(0, whole=True)
POSITIVE = Range(0, above=True)
NOT_NEGATIVE = Range(0)
OF_PRESETS = {
    "group": COUNT, "episodes": COUNT, "trial_every": MAYBE, "alternate": MAYBE, "forks": SHARE, "keeps": SHARE, "tries": SHARE,
    "averaging": Range(0, 1, below=True),
}  # fmt: skip
"""Fields of a preset."""
RATE = Range(0, below=True)
"""A learning rate, below infinity; 0: nothing moves."""
OF_LOSSES = {
    "epochs": COUNT, "parts": COUNT, "steps": COUNT, "orders": COUNT, "keep": COUNT, "most": COUNT, "warm": MAYBE,
    "anchor_every": MAYBE, "clip": POSITIVE, "clip_high": Range(0, above=True, optional=True),
    "dual": Range(1, above=True, optional=True), "entropy": NOT_NEGATIVE, "max_norm": POSITIVE, "log_max": POSITIVE,
    "pull": NOT_NEGATIVE, "kl_weight": NOT_NEGATIVE, "kl_most": Range(0, optional=True), "veto": Range(0, optional=True),
    "gamma": SHARE, "lam": SHARE, "polyak": SHARE, "penalty": NOT_NEGATIVE, "beta": POSITIVE, "tau_from": POSITIVE,
    "tau_to": POSITIVE,
}  # fmt: skip
"""Options of the losses that are shipped."""
