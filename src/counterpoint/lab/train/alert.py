"""What an alert is, and what every kind of run reads of its rows to raise one.

Always true: means are of the rows that have the column; NaN where none has.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Alert:
    """Something to look at."""

    code: str
    what: str
    fix: str
    episodes: tuple[int, ...] = ()
    """Of the present batch: those that show it."""
    is_held_out: bool = False
    """The traces of the last evaluation show it too."""

    def row(self, update: int, traces: Iterable[str]) -> dict[str, Any]:
        """The row of alerts.jsonl."""
        return {"update": update, "code": self.code, "what": self.what, "traces": list(traces), "fix": self.fix}


def number(row: Row, name: str) -> float:
    """A column of a row, "a.b" in a table within it; NaN where it is no number."""
    found: Any = row
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return float(found) if isinstance(found, (int, float)) else math.nan


def mean(rows: Sequence[Row], name: str) -> float:
    """The mean of a column."""
    numbers = [x for x in (number(r, name) for r in rows) if math.isfinite(x)]
    return math.fsum(numbers) / len(numbers) if numbers else math.nan


def recent_codes(alerts: Sequence[Row], update: int, again: int) -> set[str]:
    """Codes that were raised less than `again` updates ago."""
    return {a["code"] for a in alerts if update - a["update"] < again}
