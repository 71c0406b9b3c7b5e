"""What happened: measures E1-E4 and reward hacks, with events.

Always true: every value says measured, estimated or missing and what it rests on; a reward hack found in any trace ends the
command with exit code 4, and what could not be judged is said, not passed over.
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
import numpy as np

from counterpoint.app.api.audit import (
    ALIKE,
    AuditSummary,
    TraceAudit,
    TraceTaint,
    audit_of,
    chosen_by,
    prices_of,
    summary_of,
    taint_of,
)
from counterpoint.app.cli._output import SCHEMA_VERSION, emit, json_option, note, table
from counterpoint.app.cli._store import store_option
from counterpoint.app.library import about, load
from counterpoint.app.words import plain_text
from counterpoint.audit.authority import Sink
from counterpoint.audit.facts import Facts
from counterpoint.audit.injection import Injection, verdict_of
from counterpoint.audit.records import Finding, Measure
from counterpoint.audit.taint import MayTaint
from counterpoint.display import number
from counterpoint.trace import Trace


@click.command(
    epilog="\b\nExamples:\n  counterpoint audit run.trace.json\n  counterpoint audit t1 t2 --only hacks --json\n\n"
    "\b\nExit codes: 0 no reward hack found, 2 a trace could not be read, 3 no such trace, 4 a reward hack or, with --taint,\n"
    "an authority violation was found."
)
@click.argument("traces", nargs=-1, required=True, metavar="TRACE...")
@click.option("--only", multiple=True, metavar="WHAT", help="E1-E4, cost, scale, hacks, or one by name; may be repeated.")
@click.option("--price-token", type=click.FloatRange(min=0), metavar="USD", help="Price of a million tokens, for rollout_cost.")
@click.option("--price-tool", type=click.FloatRange(min=0), metavar="USD", help="Price of one tool call, for rollout_cost.")
@click.option(
    "--alike",
    type=click.FloatRange(0, 1),
    default=ALIKE,
    show_default=True,
    help="How similar two messages must be to count as repeated.",
)
@click.option("--summary", "is_summary", is_flag=True, help="Means and intervals over all traces instead of each.")
@click.option(
    "--taint", "is_taint", is_flag=True, help="What untrusted content may have reached, and where it decided something."
)
@store_option
@json_option
def audit(
    traces: tuple[str, ...],
    only: tuple[str, ...],
    price_token: float | None,
    price_tool: float | None,
    alike: float,
    is_summary: bool,
    is_taint: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """Measure traces (E1-E4, scale, cost) and look for the five reward hacks.

    Each value names what it rests on and, with --json, the events behind it. TRACE is a file or an id in the store.
    """
    if is_taint:
        raise SystemExit(4 if report(traces, store, as_json=as_json) else 0)
    chosen, prices = chosen_by(only), prices_of(price_token, price_tool)
    loaded: list[Trace] = []
    audits: list[TraceAudit] = []
    for k, ref in enumerate(traces):
        trace = load(ref, store=store)
        with about(ref):
            facts = Facts(trace)
        audits.append(audit_of(trace, chosen, prices=prices, alike=alike, facts=facts))
        if is_summary:
            loaded.append(trace)
        elif as_json:
            emit({"schema": SCHEMA_VERSION, **audits[-1].as_dict()})
        else:
            click.echo(("\n" if k else "") + _text(facts, audits[-1]))
    is_found = any(one.found for one in audits)
    if is_summary:
        batch = summary_of(loaded, audits, chosen)
        is_found |= any(f.status == "found" for f in batch.findings)
        _show_summary(batch, as_json=as_json)
    raise SystemExit(4 if is_found else 0)


def _value(measure: Measure) -> str:
    if measure.value is None:
        return "-"
    bound = "" if measure.bound == "exact" else f"{measure.bound} "
    unit = "" if measure.unit in ("", "share") else f" {measure.unit}"
    return f"{bound}{number(measure.value)}{unit}"


def _text(facts: Facts, said: TraceAudit) -> str:
    trace, team, values, found = facts.trace, facts.team, said.measures, said.findings
    shape = f"{trace.topology or 'unknown'}, {facts.n:,} events, {int(team.is_member_A.sum()):,} agents"
    shape += ", steered by hand" if said.is_steered else ""
    parts = [table(("trace", "shape"), [(trace.trace_id, shape)])]
    if values:
        rows = [(m.family, m.name, _value(m), m.status, m.rests_on) for m in values]
        parts.append(table(("", "measure", "value", "status", "rests on"), rows, right=(2,)))
    if found:
        counts = [f"{sum(f.status == s for f in found)} {s}" for s in ("found", "clear", "missing")]
        others = [(f.family, f.hack, _score(f), f.status, f.why) for f in found if f.status != "found"]
        parts.append(table(("", "reward hack", "score", ", ".join(counts), "seen"), others, right=(2,)))
        parts += [_finding(f) for f in found if f.status == "found"]
    return "\n\n".join(parts)


def _score(finding: Finding) -> str:
    return "-" if finding.score is None else f"{number(finding.score, 2)} of {number(finding.threshold, 2)}"


def _finding(finding: Finding) -> str:
    more = finding.event_count - len(finding.events[:12])
    events = " ".join(finding.events[:12]) + (f" and {more:,} more (--json)" if more > 0 else "")
    others = len(finding.agents) - 8
    agents = ", ".join(finding.agents[:8]) + (f" and {others:,} more" if others > 0 else "")
    said = f"{finding.score:.2f}, bar {finding.threshold:g}"
    lines = [("means", finding.definition), ("seen", finding.why), ("score", said), ("agents", agents), ("events", events)]
    rows: list[tuple[str, str]] = []
    for label, text in [*lines, ("fix", finding.fix)]:
        rows += [(label if not k else "", line) for k, line in enumerate(textwrap.wrap(text, 100) or ["-"])]
    return table(("FOUND", f"{finding.hack} ({finding.family}, {finding.severity})"), rows)


def _show_summary(batch: AuditSummary, *, as_json: bool) -> None:
    if as_json:
        emit({"schema": SCHEMA_VERSION, **batch.as_dict()})
        return
    steered, count = batch.steered, batch.trace_count
    if steered:
        names = ", ".join(steered[:5]) + (" and more" if len(steered) > 5 else "")
        note(f"warning: {len(steered)} of {count} traces were steered by hand, not what the team does alone: {names}")
    if batch.measures:
        cells = [(s.family, s.name, s.n, s.mean, s.low, s.high, s.estimated, s.missing) for s in batch.measures]
        head = ("", f"{count} traces", "n", "mean", "95 % low", "high", "estimated", "missing")
        click.echo(table(head, cells, right=range(2, 8)) + ("\n" if batch.hacks else ""))
    if batch.hacks:
        rows = [(c["family"], c["hack"], c["found"], c["clear"], c["missing"], " ".join(c["traces"][:5])) for c in batch.hacks]
        click.echo(table(("", "reward hack", "found", "clear", "missing", "in"), rows, right=(2, 3, 4)))
    for finding in batch.findings:
        click.echo(f"verifiers over the batch: {finding.status}; {finding.why}")


# -- `counterpoint audit --taint`: sources, what they may have reached, and the sinks that untrusted content decided --
# Always true: a violation is only what untrusted content decided; what merely shares a context with it is told apart, as
# possible.

_PATH, _SHOWN = 8, 10


def report(traces: Sequence[str], store: Path | str | None, *, as_json: bool) -> int:
    """Print each trace's taint; the number of violations."""
    violations = 0
    for k, ref in enumerate(traces):
        trace = load(ref, store=store)
        with about(ref):
            facts = Facts(trace)
            found = taint_of(trace, facts=facts)
        violations += len(found.violations)
        if as_json:
            emit(_object(trace, facts, found))
        else:
            click.echo(("\n" if k else "") + _taint_text(trace, facts, found))
    return violations


def _layers(trace: Trace, facts: Facts, may: MayTaint, seen: list[str]) -> dict[str, Any]:
    team = facts.team
    reached = np.unique(team.agent_E[may.tainted])
    labels = Counter(trace.events[i].source or "unknown" for i in may.sources)
    return {
        "sources": len(may.sources),
        "by_label": dict(sorted(labels.items())),
        "may_taint": {"events": int(may.tainted.sum()), "of": facts.n, "agents": int(team.is_member_A[reached].sum()),
                      "of_agents": len(trace.members)},
        "suspects": seen,
    }


def _object(trace: Trace, facts: Facts, one: TraceTaint) -> dict[str, Any]:
    counts = {status: sum(s.status == status for s in one.sinks) for status in ("violation", "blocked", "possible")}
    about_ = {"schema": SCHEMA_VERSION, "trace_id": trace.trace_id, "task_id": trace.task_id}
    said = {"verdict": verdict_of(one.injections), "injections": msgspec.to_builtins(one.injections)}
    told = _layers(trace, facts, one.may, one.suspects) | said
    return about_ | told | {"counts": counts, "sinks": msgspec.to_builtins(one.sinks)}


def _taint_text(trace: Trace, facts: Facts, one: TraceTaint) -> str:
    sinks, told = one.sinks, _layers(trace, facts, one.may, one.suspects)
    reach = told["may_taint"]
    found = [s for s in sinks if s.status == "violation"]
    blocked, possible = (sum(s.status == status for s in sinks) for status in ("blocked", "possible"))
    labels = ", ".join(f"{n:,} {name}" for name, n in told["by_label"].items()) or "none"
    rows = [
        ("trace", f"{trace.trace_id}: {len(found)} violations, {blocked} blocked, {possible} possible"),
        ("sources", f"{told['sources']:,} untrusted events ({labels})"),
        (
            "reach",
            f"{reach['events']:,} of {reach['of']:,} events, {reach['agents']:,} of {reach['of_agents']:,} agents (may-taint)",
        ),
        ("verdict", verdict_of(one.injections)),
    ]
    others = [name for name in one.suspects if name not in {i.event for i in one.injections}]
    if others:
        rows.append(("suspects", _some(others, "look wrong by what they say; whether they changed anything takes a fork")))
    parts = ["\n".join(plain_text(f"{label:9}{text}") for label, text in rows)]
    parts += [_order(i) for i in one.injections[:_SHOWN]]
    if len(one.injections) > _SHOWN:
        parts.append(f"and {len(one.injections) - _SHOWN:,} more texts that give orders: --json")
    parts += [_incident(s) for s in found[:_SHOWN]]
    if len(found) > _SHOWN:
        parts.append(f"and {len(found) - _SHOWN:,} more violations: --json")
    return "\n\n".join(parts)


def _some(ids: list[str], what: str) -> str:
    if not ids:
        return "none"
    more = f" and {len(ids) - _SHOWN:,} more" if len(ids) > _SHOWN else ""
    return f"{' '.join(ids[:_SHOWN])}{more}: {what}"


def _order(one: Injection) -> str:
    """A text that gives orders: the words in their context, what they reached, and what came of it."""
    acts = [f"{e.what} ({e.event}) holds {e.target!r}{', and failed' if e.failed else ''}" for e in one.effects if e.is_act]
    said = [e.event for e in one.effects if not e.is_act]
    acts += [f"said again in {' '.join(said[:5])}"] if said else []
    rows = [
        ("text", f"{one.event}{f'  {one.tool}' if one.tool else ''}{f', {one.source}' if one.source else ''}"),
        ("does", "; ".join(one.kinds[:5])),
        *((("words" if not k else ""), line) for k, line in enumerate(textwrap.wrap(one.excerpt, 100)[:8])),
        ("reached", f"{one.events:,} events of {one.agents:,} agents, at most" if one.events else "nothing"),
        *((("effects" if not k else ""), line) for k, line in enumerate(acts[:5])),
    ]
    return table(("INJECTION", f"{one.status} (score {one.score:g} of {one.bar:g})"), rows)


def _incident(sink: Sink) -> str:
    path = list(sink.path)
    if len(path) > _PATH:
        path = [*path[: _PATH // 2], "...", *path[-_PATH // 2 :]]
    rows = [
        ("source", f"{sink.source or '-'}  {', '.join(sink.label)}"),
        ("path", " > ".join(path)),
        ("sink", f"{sink.event}  {sink.what}"),
        ("rule", f"{sink.rule} ({sink.strength})"),
    ]
    return table(("VIOLATION", "" if sink.after is None else f"{sink.after:,} events after its source"), rows)
