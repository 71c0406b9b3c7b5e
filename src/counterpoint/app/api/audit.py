"""`cpt.audit`: measures E1-E4, scale and cost, and the five reward hacks, of one trace or many.

Always true: what was not asked for is not computed; the order of the traces is kept; what could not be judged is `missing`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from counterpoint.app.api.inputs import each_trace, once
from counterpoint.audits.authority import Sink
from counterpoint.audits.collusion import collusion_over
from counterpoint.audits.cost import Prices
from counterpoint.audits.facts import facts_of
from counterpoint.audits.hacks import hacks
from counterpoint.audits.incidents import DONE, sinks_by_effect
from counterpoint.audits.injection import STATUSES, Injection, injections
from counterpoint.audits.measures import measures, summary
from counterpoint.audits.records import DEFINITIONS, HACKS, Finding, Measure, Summary
from counterpoint.audits.taint import MayTaint, may_taint, suspects
from counterpoint.display import counted
from counterpoint.errors import InputError, did_you_mean
from counterpoint.trace import Trace
from counterpoint.trace.steering import is_steered
from counterpoint.trace.tabular import Tabular

if TYPE_CHECKING:
    from counterpoint.app.api.inputs import Source, StorePlace


_FAMILIES = tuple(dict.fromkeys(d.family for d in DEFINITIONS.values()))
_ONLY = (*_FAMILIES, "hacks", *DEFINITIONS, *HACKS)
ALIKE = 0.8
"""Messages that are at least this similar repeat each other."""


@dataclass(frozen=True)
class TraceAudit:
    """What an audit says of one trace."""

    trace_id: str
    task_id: str
    is_steered: bool
    measures: tuple[Measure, ...]
    findings: tuple[Finding, ...]
    all_measures: tuple[Measure, ...] = field(repr=False)
    """Every measure, asked for or not, where any was: a summary needs them in order."""

    @property
    def hacks(self) -> tuple[Finding, ...]:
        """The reward hacks that were found."""
        return tuple(f for f in self.findings if f.status == "found")

    def as_dict(self) -> dict[str, Any]:
        """What `counterpoint audit --json` prints of a trace."""
        return {
            "trace_id": self.trace_id,
            "task_id": self.task_id,
            "steered": self.is_steered,
            "found": len(self.hacks),
            "measures": msgspec.to_builtins(self.measures),
            "findings": msgspec.to_builtins(self.findings),
        }


@dataclass(frozen=True)
class Audit(Tabular):
    """What an audit says of one trace or many: a table of measures and findings, and a summary over all."""

    TABLE: ClassVar = {
        "trace_id": "string", "kind": "string", "family": "string", "name": "string", "value": "double", "unit": "string",
        "status": "string", "bound": "string", "why": "string", "events": "list:string", "event_count": "int64",
    }  # fmt: skip

    traces: tuple[TraceAudit, ...]
    scope: frozenset[str] = field(repr=False)
    audited: tuple[Trace, ...] = field(repr=False)
    """The traces themselves: a summary looks at all verifiers together."""

    @property
    def hacks(self) -> tuple[Finding, ...]:
        """The reward hacks that were found, in any trace."""
        return tuple(f for one in self.traces for f in one.hacks)

    def values(self, measure: str) -> dict[str, float | int | None]:
        """Trace id to the value of one measure; None where it is missing."""
        if measure not in DEFINITIONS:
            raise InputError(f"there is no measure {measure!r}", fix=did_you_mean(measure, DEFINITIONS))
        return {one.trace_id: m.value for one in self.traces for m in one.measures if m.name == measure}

    def summary(self) -> AuditSummary:
        """Means and intervals over the traces, as `counterpoint audit --summary` prints them."""
        return summary_of(self.audited, self.traces, self.scope)

    def taint(self) -> TaintAudit:
        """What untrusted content may have reached and decided, as `counterpoint audit --taint` prints it."""
        return TaintAudit(tuple(taint_of(trace) for trace in self.audited))

    def table_rows(self) -> Iterator[Sequence[Any]]:
        """A row per measure, with what it rests on, and per reward hack, with its score and what was seen."""
        for one in self.traces:
            for m in one.measures:
                value = None if m.value is None else float(m.value)
                yield (one.trace_id, "measure", m.family, m.name, value, m.unit, m.status, m.bound, m.rests_on, m.events,
                       m.event_count)  # fmt: skip
            for f in one.findings:
                yield (one.trace_id, "hack", f.family, f.hack, f.score, "", f.status, None, f.why, f.events, f.event_count)

    def row_count(self) -> int:
        """How many measures and findings there are."""
        return sum(len(one.measures) + len(one.findings) for one in self.traces)

    def caption(self) -> str:
        """Which traces, and which reward hacks were found."""
        names = ", ".join(dict.fromkeys(f.hack for f in self.hacks)) or "no reward hack found"
        return (self.traces[0].trace_id if len(self.traces) == 1 else counted(len(self.traces), "trace")) + f": {names}"


@dataclass(frozen=True)
class AuditSummary(Tabular):
    """Measures and reward hacks over a batch of traces."""

    TABLE: ClassVar = {
        "family": "string", "name": "string", "unit": "string", "n": "int64", "mean": "double", "low": "double",
        "high": "double", "estimated": "int64", "missing": "int64",
    }  # fmt: skip

    trace_count: int
    steered: tuple[str, ...]
    """Traces with an intervention."""
    measures: tuple[Summary, ...]
    hacks: tuple[dict[str, Any], ...]
    """Of each reward hack in how many traces it was found, clear and missing, and which those are where it was found."""
    findings: tuple[Finding, ...]
    """What only the traces together show: verifiers that approve whatever comes."""

    def as_dict(self) -> dict[str, Any]:
        """What `counterpoint audit --summary --json` prints."""
        rows, found = msgspec.to_builtins(self.measures), msgspec.to_builtins(self.findings)
        about = {"traces": self.trace_count, "steered": list(self.steered)}
        return about | {"summary": rows, "hacks": list(self.hacks), "findings": found}

    def table_rows(self) -> Iterator[Sequence[Any]]:
        """A row per measure."""
        return ((s.family, s.name, s.unit, s.n, s.mean, s.low, s.high, s.estimated, s.missing) for s in self.measures)

    def caption(self) -> str:
        """How many traces, and how often each reward hack was found."""
        found = ", ".join(f"{h['hack']} in {h['found']:,}" for h in self.hacks if h["found"]) or "no reward hack found"
        return f"{self.trace_count:,} traces: {found}"


def audit(
    traces: Source,
    *,
    only: str | Sequence[str] = (),
    store: StorePlace = None,
    price_token: float | None = None,
    price_tool: float | None = None,
    alike: float = ALIKE,
) -> Audit:
    """Measure traces (E1-E4, scale, cost) and look for the five reward hacks.

    `only` names families (E1-E4, cost, scale, hacks), measures or hacks. `price_token` is in USD for a million tokens and
    `price_tool` for one call, both for `rollout_cost`; `alike` is the similarity at which a message repeats another.

    >>> import counterpoint as cpt
    >>> trace = cpt.world("W1", vote_items=12).run("reference", [0], log=True).trace(0)
    >>> said = cpt.audit(trace, only=["scale", "hacks"])
    >>> said.values("events") == {trace.trace_id: len(trace.events)}
    True
    >>> [finding.hack for finding in said.hacks]
    ['communication_padding', 'tool_spam']
    """
    scope = scope_of([only] if isinstance(only, str) else only)
    prices = prices_of(price_token, price_tool)
    kept = tuple(once(each_trace(traces, store)))
    if not kept:
        raise InputError("no traces", fix="give at least one")
    return Audit(tuple(audit_of(trace, scope, prices=prices, alike=alike) for trace in kept), scope, kept)


def prices_of(token: float | None, tool: float | None) -> Prices:
    """Prices as people give them: of a million tokens, and of one tool call."""
    return Prices(token=None if token is None else token / 1e6, tool=tool)


def audit_of(trace: Trace, scope: frozenset[str], *, prices: Prices, alike: float = ALIKE) -> TraceAudit:
    """One trace: the measures and hacks that were chosen."""
    _facts = facts_of(trace)  # one for both
    found = [f for f in hacks(trace) if f.hack in scope] if scope & set(HACKS) else []
    values = measures(trace, prices=prices, threshold=alike) if scope & set(DEFINITIONS) else []
    shown = tuple(m for m in values if m.name in scope)
    return TraceAudit(trace.trace_id, trace.task_id, is_steered(trace), shown, tuple(found), tuple(values))


def scope_of(only: Sequence[str]) -> frozenset[str]:
    """The measures and hacks that were asked for: all, or those of the families and names given."""
    out: set[str] = set()
    for word in only:
        match = next((known for known in _ONLY if known.lower() == word.lower().replace("-", "_")), None)
        if match is None:
            raise InputError(f"audit has no measure or check named {word!r}", fix=did_you_mean(word, _ONLY))
        if match == "hacks":
            out |= set(HACKS)
        elif match in _FAMILIES:
            out |= {name for name, definition in DEFINITIONS.items() if definition.family == match}
        else:
            out.add(match)
    return frozenset(out or {*DEFINITIONS, *HACKS})


def summary_of(traces: Sequence[Trace], audits: Iterable[TraceAudit], scope: frozenset[str]) -> AuditSummary:
    """What these audits say together, and what the batch itself shows of collusion."""
    audits = tuple(audits)
    taken = [one.all_measures for one in audits]
    rows = [s for s in summary(taken) if s.name in scope] if all(taken) else []
    batch = [collusion_over(traces)] if "verifier_collusion" in scope else []
    counts: list[dict[str, Any]] = []
    for name in (name for name in HACKS if name in scope):
        of = [next(f for f in one.findings if f.hack == name) for one in audits]
        where = [one.trace_id for one, f in zip(audits, of, strict=True) if f.status == "found"]
        tally = {status: sum(f.status == status for f in of) for status in ("found", "clear", "missing")}
        counts.append({"hack": name, "family": HACKS[name].family, **tally, "traces": where})
    steered = tuple(one.trace_id for one in audits if one.is_steered)
    return AuditSummary(len(audits), steered, tuple(rows), tuple(counts), tuple(batch))


# -- What untrusted content may have reached in each trace, and the sinks that it decided --------------------------------
# For `Audit.taint` and `counterpoint audit --taint`.
# Always true: a violation is an incident (`audit.incidents`); what merely shares a context or a word with content from outside is
# told apart, as possible.


@dataclass(frozen=True)
class TraceTaint:
    """The three layers of one trace."""

    trace: Trace = field(repr=False)
    may: MayTaint = field(repr=False)
    """What untrusted content may have reached."""
    suspects: list[str]
    """Events that look wrong by what they say."""
    injections: list[Injection]
    """Texts from outside that give the team orders, with what they reached."""
    sinks: list[Sink]
    """What has an effect, with the content that decided it."""

    @property
    def violations(self) -> list[Sink]:
        """The incidents: effects that content from outside had and nobody asked for."""
        return [sink for sink in self.sinks if sink.status == "violation"]

    @property
    def status(self) -> str:
        """What the run did with orders from outside, the worst first; `reported` where only its own monitor tells of an incident,
        `no orders` where no text from outside gives any."""
        worst = min((STATUSES.index(one.status) for one in self.injections), default=None)
        is_reported = bool(self.violations) and (worst is None or STATUSES[worst] not in DONE)
        return "reported" if is_reported else "no orders" if worst is None else STATUSES[worst]

    @property
    def is_obeyed(self) -> bool:
        """Whether orders from outside were carried out whole, or the run's own monitor tells of a violation."""
        return self.status in ("obeyed", "reported")

    @property
    def place(self) -> str:
        """Where the orders came in: the tool, or the source, of the text that went furthest."""
        return (self.injections[0].tool or self.injections[0].source or "unknown") if self.injections else "-"


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
        """The incidents of all traces."""
        return [sink for one in self.traces for sink in one.violations]

    def table_rows(self) -> Iterator[Sequence[Any]]:
        """A row per sink."""
        for one in self.traces:
            for s in one.sinks:
                yield (one.trace.trace_id, s.status, s.event, s.what, s.rule, s.strength, s.source, s.label, s.path, s.after)

    def summary(self) -> dict[str, Any]:
        """How many runs obeyed, attempted and resisted orders from outside, over all and by where the orders came in."""
        return taint_summary((one.status, one.place) for one in self.traces)

    def caption(self) -> str:
        """How many incidents in how many traces."""
        tainted = sum(int(one.may.tainted.sum()) for one in self.traces)
        count = f"{counted(len(self.traces), 'trace')}: {counted(len(self.violations), 'violation')}"
        return f"{count}, {counted(tainted, 'event')} may be tainted"


def taint_of(trace: Trace) -> TraceTaint:
    """Taint of one trace: what it may have reached, what looks wrong, what it decided."""
    _facts = facts_of(trace)  # one for all three
    may = may_taint(trace)
    found = injections(trace)
    return TraceTaint(trace, may, suspects(trace), found, sinks_by_effect(trace, may, found))


def taint_summary(runs: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Runs by status, over all and by where the orders came in; each run is its status and that place."""
    names = ("obeyed", "reported", *STATUSES[1:], "no orders")
    counts = dict.fromkeys(names, 0)
    places: dict[str, dict[str, int]] = {}
    for status, place in runs:
        counts[status] += 1
        if status != "no orders":
            own = places.setdefault(place, dict.fromkeys(names[:-1], 0))
            own[status] += 1
    by_place = dict(sorted(places.items(), key=lambda one: (-sum(one[1].values()), one[0])))
    return {"runs": sum(counts.values()), **counts, "by_source": by_place}
