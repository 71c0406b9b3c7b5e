"""What an importer has to say about its source: broken records, unknown kinds, links, what was mended, what is missing.

Always true: every count is of all that was found, the examples beside it are the first few; two reports can be added.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

_SHOWN = 20
ODD_COUNTS = "token counts that are no whole number of tokens: left out of the sums"


class Report:
    """Counts, and the first few of each with where they are."""

    def __init__(self) -> None:
        self.records = 0
        """Records read and understood."""
        self.broken: list[dict[str, Any]] = []
        """The first records that could not be read: file, line, what."""
        self.broken_count = 0
        self.unknown: Counter[str] = Counter()
        """Records of a kind we do not know, by kind: kept out of the graph, never fatal."""
        self.exact: Counter[str] = Counter()
        """Links that the source states, by the rule that read them."""
        self.inferred: Counter[str] = Counter()
        """Links that we infer, by rule."""
        self.unlinked: list[str] = []
        """Agents whose spawn was not found, and spawns whose agent was not."""
        self.unlinked_count = 0
        self.mended: Counter[str] = Counter()
        """What had to be changed so that the records form a graph in time."""
        self.lacks: Counter[str] = Counter()
        """What the source does not say, as a sentence, with how often it was missed."""

    def broke(self, file: str, line: int | None, what: str) -> None:
        """A record that could not be read."""
        self.broken_count += 1
        if len(self.broken) < _SHOWN:
            self.broken.append({"file": file, "line": line, "what": what[:200]})

    def note_odd_counts(self, odd: int) -> None:
        """Counts of tokens that are stated and cannot be read."""
        if odd:
            self.lacks[ODD_COUNTS] += odd

    def linked(self, rule: str, *, exact: bool = True) -> None:
        """A sub-agent is linked to its spawn: because the source says so (exact), or by a rule of ours (inferred)."""
        (self.exact if exact else self.inferred)[rule] += 1

    def loose(self, what: str) -> None:
        """A sub-agent whose spawn was not found, or a spawn whose sub-agent was not."""
        self.unlinked_count += 1
        if len(self.unlinked) < _SHOWN:
            self.unlinked.append(what[:200])

    def add(self, other: Report) -> None:
        """Add another report's findings."""
        self.records += other.records
        self.broken_count += other.broken_count
        self.broken = (self.broken + other.broken)[:_SHOWN]
        self.unlinked_count += other.unlinked_count
        self.unlinked = (self.unlinked + other.unlinked)[:_SHOWN]
        for name in ("unknown", "exact", "inferred", "mended", "lacks"):
            getattr(self, name).update(getattr(other, name))

    def as_dict(self, *, short: bool = False) -> dict[str, Any]:
        """As plain data, without what is empty. `short` leaves folders out, so that a file that was moved says the same."""
        broken = [{**row, "file": row["file"].rsplit("/", 1)[-1]} for row in self.broken] if short else self.broken
        links = {"exact": dict(self.exact), "inferred": dict(self.inferred), "unlinked": self.unlinked_count}
        whole: dict[str, Any] = {
            "records": self.records,
            "broken": self.broken_count,
            "broken_first": broken,
            "unknown": dict(self.unknown),
            "links": {name: links_here for name, links_here in links.items() if links_here},
            "unlinked_first": self.unlinked,
            "mended": dict(self.mended),
            "lacks": dict(self.lacks),
        }
        return {name: value for name, value in whole.items() if value}

    @classmethod
    def of(cls, data: dict[str, Any]) -> Report:
        """The report that `as_dict` wrote."""
        report = cls()
        links = data.get("links", {})
        report.records, report.broken_count = data.get("records", 0), data.get("broken", 0)
        report.broken, report.unlinked = list(data.get("broken_first", ())), list(data.get("unlinked_first", ()))
        report.unlinked_count = links.get("unlinked", 0)
        report.exact, report.inferred = Counter(links.get("exact", {})), Counter(links.get("inferred", {}))
        report.unknown, report.mended = Counter(data.get("unknown", {})), Counter(data.get("mended", {}))
        report.lacks = Counter(data.get("lacks", {}))
        return report
