"""What a reward plug-in is: a function of a trace and its options, tagged with the survey's family.

Always true: a reward reads a trace and gives rows; what it cannot judge has no row. It reads no file, clock or network, and has
no state. A judge, rubric or process model is a callable among the options, so that an LLM judge plugs in; None from it means
not scored. Unknown options and amounts that are not numbers are one clear error each.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from counterpoint.errors import InputError, did_you_mean
from counterpoint.trace import Trace
from counterpoint.trace.example import Example
from counterpoint.trace.rows import Signal, Signals


@dataclass(frozen=True, kw_only=True)
class Reward:
    """One reward: `reward(trace, **options) -> list[Signal]`."""

    family: str
    """R1 to R8."""
    unit: str
    """The unit that is paid."""
    source: str
    """Paper or definition."""
    score: Callable[..., Iterable[Signal]]
    """(trace, **options) -> signals."""
    example: Callable[[], Example] | None = None
    """Small traces and options that it pays for; `counterpoint.testing.check_reward` runs on them, and needs them."""

    @property
    def options(self) -> list[str]:
        """The names of the options."""
        return [n for n in inspect.signature(self.score).parameters if n != "trace"]

    def __call__(self, trace: Trace, **options: Any) -> list[Signal]:
        """The signals of one trace."""
        for name in options:
            if name not in self.options:
                raise InputError(f"no option {name!r}", fix=did_you_mean(name, self.options))
        signals = list(self.score(trace, **options))
        for s in signals:
            if not math.isfinite(s.value):
                what = f"{s.channel} of {s.unit} {s.unit_id!r} is {s.value}"
                raise InputError(what, where=trace.trace_id, fix="leave out what was not scored")
        return signals

    def many(self, traces: Iterable[Trace], **options: Any) -> Signals:
        """The signals of many traces."""
        rows: dict[str, list[Signal]] = {}
        for trace in traces:
            if trace.trace_id in rows:
                raise InputError(f"two traces are named {trace.trace_id!r}", fix="give each its own trace_id")
            rows[trace.trace_id] = self(trace, **options)
        return Signals.of(rows)
