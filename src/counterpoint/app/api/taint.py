"""What untrusted content may have reached in each trace, and the sinks that it decided: for `Audit.taint` and `audit --taint`.

Always true: a violation is only what untrusted content decided; what merely shares a context with it is told apart, as possible.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from counterpoint.audit.authority import Sink, authority
from counterpoint.audit.facts import Facts
from counterpoint.audit.taint import MayTaint, may_taint, suspects
from counterpoint.trace import Trace
from counterpoint.trace.tabular import Tabular


@dataclass(frozen=True)
class TraceTaint:
    """The three layers of one trace."""

    trace: Trace = field(repr=False)
    may: MayTaint = field(repr=False)
    """What untrusted content may have reached."""
    suspects: list[str]
    """Events that look wrong by what they say."""
    sinks: list[Sink]
    """What has an effect, with the content that decided it."""

    @property
    def violations(self) -> list[Sink]:
        """Sinks that untrusted content decided."""
        return [sink for sink in self.sinks if sink.status == "violation"]


@dataclass(frozen=True)
class TaintAudit(Tabular):
    """The taint of one trace or many: a table of sinks."""

    TABLE: ClassVar = {
        "trace_id": "string", "status": "string", "event": "string", "what": "string", "rule": "string", "strength": "string",
        "source": "string", "label": "list:string", "path": "list:string", "after": "int64",
    }  # fmt: skip

    traces: tuple[TraceTaint, ...]

    @property
    def violations(self) -> list[Sink]:
        """Sinks that untrusted content decided, in any trace."""
        return [sink for one in self.traces for sink in one.violations]

    def table_rows(self) -> Iterator[Sequence[Any]]:
        """A row per sink."""
        for one in self.traces:
            for s in one.sinks:
                yield (one.trace.trace_id, s.status, s.event, s.what, s.rule, s.strength, s.source, s.label, s.path, s.after)

    def caption(self) -> str:
        """How many violations in how many traces."""
        tainted = sum(int(one.may.tainted.sum()) for one in self.traces)
        return f"{len(self.traces):,} traces: {len(self.violations):,} violations, {tainted:,} events may be tainted"


def taint_of(trace: Trace, *, facts: Facts | None = None) -> TraceTaint:
    """Taint of one trace: what it may have reached, what looks wrong, what it decided."""
    facts = facts or Facts(trace)
    may = may_taint(trace, facts=facts)
    return TraceTaint(trace, may, suspects(trace), authority(trace, may, facts=facts))
