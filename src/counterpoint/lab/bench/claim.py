"""Rows of a claim: a number, its 95 % interval, the target it is held to, and whether it is met.

Always true: a row holds plain Python numbers and has exactly the six fields of `ClaimRow`; what is not a number meets no target.

The interval of samples x_1..x_n (one per seed) is Student's, for their mean: m ± t(0.975, n - 1) · s / √n, with s the standard
deviation over n - 1. It is meant for the few seeds of a claim, where the normal interval is too narrow. One sample has no
interval (`None`); a single number that is not a list of samples is taken as exact, and its interval is itself.

The rule: `at_least` holds where the lower end of the interval meets the target, and where there is one sample and so no
interval, where that does (`end`). Elsewhere the value (the `mean`) must meet it. `by` names what must meet it instead: the `low`
end, the `high` end (the strict one for `at_most`), or both, the whole `interval`. What has no interval then meets nothing.
What is `Measured` brings its own interval, and the row's target says what that one varies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, SupportsFloat

from counterpoint.errors import InputError
from counterpoint.lab.bench.intervals import mean_interval

By = Literal["mean", "end", "low", "high", "interval"]
NO_TARGET = "none: as it is"


@dataclass(frozen=True)
class Measured:
    """A mean with an interval of its own, and what this varies."""

    value: float
    low: float | None
    high: float | None
    over: str
    """Behind the target, for reading: `3 starts by 4 runs, 512 tasks`."""


Samples = SupportsFloat | Iterable[SupportsFloat] | Measured


@dataclass(frozen=True)
class ClaimRow:
    """One line of a claim."""

    name: str
    """What was measured."""
    value: float
    """The mean over the seeds, or the one number."""
    low: float | None
    """The lower end of its 95 % interval; None where there is none."""
    high: float | None
    """The upper end."""
    target: str
    """What it is held to, for reading: `>= 0.99`."""
    ok: bool
    """Whether the target is met; True where there is none."""

    @property
    def has_target(self) -> bool:
        """Whether it is held to anything; a row that is not counts neither as met nor as missed."""
        return not self.target.startswith("none:")

    def as_dict(self) -> dict[str, Any]:
        """The row as `reproduce --json` prints it; `ok` is None where there is no target to meet."""
        return asdict(self) | {"ok": self.ok if self.has_target else None}


def at_least(name: str, samples: Samples, target: float, *, by: By = "end") -> ClaimRow:
    """A row that holds when the value is at least `target`, at the lower end of its interval where there is one."""
    return _row(name, samples, f">= {target:.6g}", lambda x: x >= target, by)


def at_most(name: str, samples: Samples, target: float, *, by: By = "mean") -> ClaimRow:
    """A row that holds when the value is at most `target`."""
    return _row(name, samples, f"<= {target:.6g}", lambda x: x <= target, by)


def equal_within(name: str, samples: Samples, target: float, tolerance: float, *, by: By = "mean") -> ClaimRow:
    """A row that holds when the value is within `tolerance` of `target`."""
    if not tolerance >= 0:
        raise InputError(f"a tolerance is at least 0, not {tolerance}")
    return _row(name, samples, f"{target:.6g} ± {tolerance:.6g}", lambda x: abs(x - target) <= tolerance, by)


def reported(name: str, samples: Samples) -> ClaimRow:
    """A row without a target: what came out, with its interval."""
    if isinstance(samples, Measured):
        return ClaimRow(name, samples.value, samples.low, samples.high, f"{NO_TARGET}; {samples.over}", True)
    mean, low, high = mean_interval(samples if _are_many(samples) else [float(samples)])  # type: ignore[arg-type]
    return ClaimRow(name, mean, low, high, NO_TARGET, True)


def _are_many(samples: Samples) -> bool:
    """Whether these are samples and not one number: an array has `float` too, and one without axes is a number."""
    return isinstance(samples, Iterable) and getattr(samples, "ndim", None) != 0


def _row(name: str, samples: Samples, target: str, meets: Callable[[float], bool], by: By) -> ClaimRow:
    value: float
    low: float | None
    high: float | None
    if isinstance(samples, Measured):
        value, low, high, target = samples.value, samples.low, samples.high, f"{target}; {samples.over}"
    elif _are_many(samples):
        value, low, high = mean_interval(samples)  # type: ignore[arg-type]
    else:
        value = low = high = float(samples)  # type: ignore[arg-type]
    held: dict[str, list[float | None]] = {"mean": [value], "low": [low], "high": [high], "interval": [low, high]}
    held["end"] = [value if low is None else low]
    if by not in held:
        raise InputError(f"no rule {by!r}", fix="by is one of " + ", ".join(held))
    # A target is one-sided or a band around a number, so both ends meet it exactly when every point between does.
    return ClaimRow(name, value, low, high, target, all(x is not None and math.isfinite(x) and meets(x) for x in held[by]))


_FIELDS = tuple(f.name for f in fields(ClaimRow))


def as_row(given: ClaimRow | Mapping[str, Any]) -> ClaimRow:
    """What a claim yielded, as a row: a `ClaimRow`, or a mapping with exactly its six keys."""
    if isinstance(given, ClaimRow):
        return given
    if not isinstance(given, Mapping) or set(given) != set(_FIELDS):
        keys = f"the keys {', '.join(map(str, given))}" if isinstance(given, Mapping) else type(given).__name__
        raise InputError(f"a claim yields rows with the keys {', '.join(_FIELDS)}, not {keys}")
    low, high = (None if given[end] is None else float(given[end]) for end in ("low", "high"))
    return ClaimRow(str(given["name"]), float(given["value"]), low, high, str(given["target"]), bool(given["ok"]))
