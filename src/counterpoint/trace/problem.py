"""What is wrong with a trace: `Problem`, and `Findings` that shows the first of many and counts all.

Always true: an error makes a trace invalid, a warning does not; `Findings` never holds more than `limit` problems of a
severity, and its counts are of all that were found.
"""

from __future__ import annotations

from collections import Counter
from typing import Literal

from msgspec import Struct

# How many problems of each severity are kept for showing; the rest are counted.
DEFAULT_LIMIT = 50


class Problem(Struct, frozen=True):
    """One finding: a stable code, its severity, where it is, what is wrong, and what would work."""

    code: str
    severity: Literal["error", "warning"]
    where: str
    what: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.where}: {self.what}" + (f" ({self.hint})" if self.hint else "")


class Findings:
    """A collector of problems that survives a million of them."""

    def __init__(self, limit: int | None = DEFAULT_LIMIT) -> None:
        self.limit = limit
        self.problems: list[Problem] = []
        self.counts: Counter[tuple[str, str]] = Counter()
        self._shown: Counter[str] = Counter()

    def error(self, code: str, where: str, what: str, hint: str = "") -> None:
        """Note an error."""
        self._add(Problem(code, "error", where, what, hint))

    def warning(self, code: str, where: str, what: str, hint: str = "") -> None:
        """Note a warning."""
        self._add(Problem(code, "warning", where, what, hint))

    def _add(self, problem: Problem) -> None:
        self.counts[problem.severity, problem.code] += 1
        if self.limit is None or self._shown[problem.severity] < self.limit:
            self._shown[problem.severity] += 1
            self.problems.append(problem)

    def count(self, severity: str) -> int:
        """How many of a severity were found, shown or not."""
        return sum(n for (s, _), n in self.counts.items() if s == severity)

    @property
    def error_count(self) -> int:
        """How many errors were found, kept or not."""
        return self.count("error")

    @property
    def warning_count(self) -> int:
        """How many warnings were found, kept or not."""
        return self.count("warning")

    @property
    def errors(self) -> list[Problem]:
        """The errors that were kept, in the order in which they were found."""
        return [p for p in self.problems if p.severity == "error"]

    @property
    def warnings(self) -> list[Problem]:
        """The warnings that were kept, in the order in which they were found."""
        return [p for p in self.problems if p.severity == "warning"]

    def by_code(self, severity: str) -> dict[str, int]:
        """Counts per code, the commonest first."""
        rows = [(code, n) for (s, code), n in self.counts.items() if s == severity]
        return dict(sorted(rows, key=lambda row: (-row[1], row[0])))

    def headline(self) -> str:
        """The first error, and how many more there are."""
        first = next(iter(self.errors), None)
        if first is None:
            return "no errors"
        more = self.error_count - 1
        return str(first) + (f", and {more:,} more error{'s' if more > 1 else ''}" if more else "")
