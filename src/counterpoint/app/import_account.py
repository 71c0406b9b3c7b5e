"""What became of the sessions that were imported: of each, and of all together."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from counterpoint.formats.importing.report import ODD_COUNTS, Report
from counterpoint.formats.masking import Seen
from counterpoint.trace.quantities import NO_TRANSCRIPT, PLACEHOLDER

_NO_USAGE = "the tokens of a model call"


@dataclass
class Outcome:
    """What became of one session."""

    importer: str
    session: str
    status: str
    """added, updated, unchanged, kept (the store has more of it), removed (and stays out), empty or failed."""
    traces: list[str] = field(default_factory=list)
    removed: int = 0
    """How many of them were removed from the store, and stay out."""
    agents: int = 0
    events: int = 0
    tokens: int = 0
    stated: int = 0
    """Tokens of agents whose transcript is not there, as others state them."""
    report: Report = field(default_factory=Report)
    secrets: Seen = field(default_factory=dict)
    """Those of what was stored together: told with the last session of it."""
    error: str | None = None
    seconds: float = 0.0
    is_reread: bool = False
    """Whether its files are those of the import before: what is found less is then no loss of theirs."""
    before: list[str] = field(default_factory=list)
    """The traces that these very files gave before."""

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        plain = {"importer": self.importer, "session": self.session, "status": self.status, "traces": self.traces}
        secrets = {kind: len(found) for kind, found in self.secrets.items()}
        counts = {"removed": self.removed, "agents": self.agents, "events": self.events, "tokens": self.tokens}
        return {**plain, **counts, "secrets": secrets, "report": self.report.as_dict(), "error": self.error}


@dataclass
class Account:
    """All outcomes together: what the summary says."""

    by_importer: dict[str, Counter[str]] = field(default_factory=dict)
    """Importer to counts: sessions, traces, agents, events, and sessions by status."""
    seconds: dict[str, float] = field(default_factory=dict)
    report: Report = field(default_factory=Report)
    tokens: int = 0
    stated: int = 0
    traces: int = 0
    """Traces that were stored, or were there already."""
    removed: int = 0
    """Traces that were removed from the store, and stay out."""
    secrets: Seen = field(default_factory=dict)
    failed: list[Outcome] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        """Count an outcome in."""
        counts = self.by_importer.setdefault(outcome.importer, Counter())
        traces = len(outcome.traces) - outcome.removed if outcome.status != "failed" else 0
        counts.update(sessions=1, traces=traces, agents=outcome.agents, events=outcome.events)
        counts[outcome.status] += 1
        self.seconds[outcome.importer] = self.seconds.get(outcome.importer, 0.0) + outcome.seconds
        self.report.add(outcome.report)
        self.tokens += outcome.tokens
        self.stated += outcome.stated
        self.traces += traces
        self.removed += outcome.removed
        for kind, found in outcome.secrets.items():
            self.secrets.setdefault(kind, set()).update(found)
        if outcome.status == "failed":
            self.failed.append(outcome)

    def different(self) -> dict[str, int]:
        """Kind of secret to how many different ones were seen."""
        return {kind: len(found) for kind, found in self.secrets.items()}

    @property
    def without_usage(self) -> int:
        """Model calls whose tokens the source does not say."""
        return self.report.lacks.get(_NO_USAGE, 0)

    @property
    def odd_counts(self) -> int:
        """Counts of tokens that are stated and cannot be read."""
        return self.report.lacks.get(ODD_COUNTS, 0)

    @property
    def without_transcript(self) -> int:
        """Agents that are known and whose records are not there."""
        return self.report.lacks.get(NO_TRANSCRIPT, 0)

    @property
    def placeholders(self) -> int:
        """Model calls that state a placeholder for the tokens of their output."""
        return self.report.lacks.get(PLACEHOLDER, 0)

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "sources": {name: dict(counts) for name, counts in self.by_importer.items()},
            "traces": self.traces,
            "removed": self.removed,
            **self.report.as_dict(),
            "tokens": {
                "accounted": self.tokens,
                "stated": self.stated,
                "model_calls_without_usage": self.without_usage,
                "agents_without_transcript": self.without_transcript,
                "model_calls_with_placeholder_output": self.placeholders,
                "counts_left_out": self.odd_counts,
            },
            "secrets": self.different(),
            "failed": [o.as_dict() for o in self.failed],
        }
