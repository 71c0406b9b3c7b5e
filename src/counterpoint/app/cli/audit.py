"""What happened: a verdict, measures E1-E4 and reward hacks.

Always true: every value says measured, estimated or missing and what it rests on; a reward hack found in any trace ends the
command with exit code 4, and what could not be judged is said, not passed over.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click
import msgspec

from counterpoint.answer import Section, some
from counterpoint.app.api.audit import (
    ALIKE,
    AuditSummary,
    TraceAudit,
    audit_of,
    prices_of,
    scope_of,
    summary_of,
)
from counterpoint.app.api.audit_lines import AUDIT_GROUPS, AuditLines
from counterpoint.app.cli._failures import GROUPS, print_failures
from counterpoint.app.cli._orders import taint_report
from counterpoint.app.load_save import about
from counterpoint.app.terminal.options import (
    NumberRange,
    full_option,
    group_option,
    most_rows,
    numbers_of,
    rows_option,
    summary_option,
)
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option, note, say
from counterpoint.app.terminal.selection import Selection, select
from counterpoint.app.terminal.store import prices_option, store_option
from counterpoint.app.viewer.trace_view import is_dear, sinks, view_of
from counterpoint.audits.facts import Facts, facts_of
from counterpoint.audits.records import Finding, Measure
from counterpoint.audits.verdict import Verdict, verdict
from counterpoint.display import counted, number
from counterpoint.errors import InputError, did_you_mean
from counterpoint.trace import Trace
from counterpoint.trace.ending import is_unfinished
from counterpoint.trace.naming import title_of

HEADING = "Judge"

_LINES = 10


@click.command(
    epilog="\b\nExamples:\n  counterpoint audit run.trace.json\n"
    "  counterpoint audit 'project:shop since:7d' --group day --json\n"
    "  counterpoint audit 3f2a --failures\n\n"
    "Exit codes: 0 no reward hack, 2 a trace could not be read, 3 no such trace, 4 a reward hack or, for --taint, obeyed orders."
)
@click.argument("words", nargs=-1, metavar="[TRACE...|QUERY]")
@full_option("Print every measure and check, with its evidence.")
@click.option("--only", multiple=True, metavar="WHAT", help="E1-E4, cost, scale, hacks, or one by name; may be repeated.")
@group_option(f"One line for each {', '.join(AUDIT_GROUPS)}; count failures by {', '.join(GROUPS)}.")
@rows_option(None)
@click.option(
    "--set", "pairs", multiple=True, metavar="NAME=VALUE",
    help="A price for rollout_cost: price_token (dollars per million tokens) or price_tool (dollars per tool call).",
)  # fmt: skip
@click.option(
    "--similarity",
    type=NumberRange(0, 1),
    default=ALIKE,
    show_default=True,
    help="Count two messages as repeated from this similarity on.",
)
@summary_option("Print means and intervals over all traces.")
@click.option("--taint", "is_taint", is_flag=True, help="Trace orders from outside and their effects.")
@click.option("--failures", "is_failures", is_flag=True, help="List failures: who tried what, why it failed, what worked later.")
@prices_option
@store_option
@json_option
def audit(words: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Judge traces: one gets a verdict and three sentences; of many, which ones to look at.

    --full shows every measure (E1-E4, scale, cost) and the five reward hacks, each with its evidence and, in --json, the events
    behind it. Without TRACE: all of the store.
    """
    group = options["group"]
    if options["is_failures"]:
        if options["is_taint"]:
            raise InputError("--failures and --taint exclude each other", fix="run the command once for each")
        return print_failures(select(words, options["store"]), group, options["rows"], as_json=as_json)
    if group is not None and group not in AUDIT_GROUPS:
        raise InputError(f"cannot audit by {group!r}", fix=did_you_mean(group, AUDIT_GROUPS))
    which = select(words, options["store"], options["prices"])
    if options["is_taint"]:
        raise SystemExit(4 if taint_report(which, options, as_json=as_json) else 0)
    is_each = not options["is_summary"] and group is None and (not which.is_query or as_json)
    raise SystemExit(4 if (_each if is_each else _together)(which, options, as_json=as_json) else 0)


def _audits(which: Selection, options: dict[str, Any], *, quiet: bool) -> Iterator[tuple[Facts, TraceAudit]]:
    scope, prices = scope_of(options["only"]), prices_of(*_prices(options["pairs"]))
    for name, trace in which.named(quiet=quiet):
        with about(name):
            facts = facts_of(trace)
        yield facts, audit_of(trace, scope, prices=prices, alike=options["similarity"])


def _each(which: Selection, options: dict[str, Any], *, as_json: bool) -> bool:
    """Every trace by itself; whether a reward hack was found."""
    has_hack, is_asked = False, bool(options["only"])
    for k, (facts, one) in enumerate(_audits(which, options, quiet=True)):
        has_hack |= bool(one.hacks)
        if as_json:
            words = {} if is_asked else {"verdict": msgspec.to_builtins(_verdict_of(facts, one))}
            emit({"schema": SCHEMA_VERSION, **one.as_dict(), **words})
            continue
        parts = [] if is_asked else [_verdict_section(facts, one)]
        parts += _full(facts, one) if options["is_full"] or is_asked else [_finding(f) for f in one.hacks]
        say(*parts, is_next=k > 0)
    return has_hack


def _verdict_of(facts: Facts, one: TraceAudit) -> Verdict:
    """The words for a trace; incidents are left out where looking for them takes long."""
    return verdict(facts, one.all_measures, one.findings, incidents=_incidents(facts.trace))


def _incidents(trace: Trace) -> int | None:
    """How many incidents there are (`audit.incidents`); None where finding that out takes long."""
    look = view_of(trace)
    return None if is_dear(look) else sum(sink.status == "violation" for sink in sinks(look)[1])


def _verdict_section(facts: Facts, one: TraceAudit) -> Section:
    words, title = _verdict_of(facts, one), title_of(facts.trace)
    name = facts.trace.trace_id if title in (None, facts.trace.trace_id) else f"{title} ({facts.trace.trace_id})"
    name += ", not finished" * is_unfinished(facts.trace.meta) + ", steered by hand" * one.is_steered
    more = "--full shows every measure; --failures and --taint show more"
    return Section(lines=[("TRACE", name), ("VERDICT", words.line), *(("", line) for line in (*words.sentences, more))])


def _together(which: Selection, options: dict[str, Any], *, as_json: bool) -> bool:
    """Many traces at once: a summary, a line for each group, or what to look at; whether a reward hack was found."""
    scope, group = scope_of(options["only"]), options["group"]
    traces: list[Trace] = []
    audits: list[TraceAudit] = []
    lines = AuditLines(group or "trace")
    dates = {row.id: row.added for row in which.rows}
    for facts, one in _audits(which, options, quiet=as_json):
        audits.append(one)
        incidents = None if options["only"] else _incidents(facts.trace)
        lines.take(facts, one, added=dates.get(one.trace_id, 0.0), incidents=incidents)
        if options["is_summary"]:
            traces.append(facts.trace)
    has_hack = any(one.hacks for one in audits)
    if options["is_summary"]:
        batch = summary_of(traces, audits, scope)
        _show_summary(batch, as_json=as_json)
        return has_hack or any(f.status == "found" for f in batch.findings)
    if as_json:
        emit({"schema": SCHEMA_VERSION, **lines.as_dict()})
    else:
        say(*_lines(lines, most_rows(options["rows"], None if options["is_full"] or group is not None else _LINES)))
    return has_hack


def _prices(pairs: tuple[str, ...]) -> tuple[float | None, float | None]:
    """The price of a million tokens, and of a tool call."""
    numbers = numbers_of(pairs, ("price_token", "price_tool"))
    return numbers.get("price_token"), numbers.get("price_tool")


def _lines(lines: AuditLines, most: int | None) -> list[Section]:
    """What to look at among many traces."""
    rows = lines.rows()
    total = counted(lines.traces, "trace")
    reasons = [f"{name.replace('_', ' ')} in {n:,}" for name, n in lines.hacks.most_common()]
    reasons += [counted(lines.incidents, "incident")] if lines.incidents else []
    words = f"nothing wrong was found in {total}"
    if reasons:
        words = f"{lines.suspects:,} of {total} to look at: {', '.join(reasons)}"
    first = rows if most is None else [row for row in rows if row.suspects][:most]
    head, cells = lines.table(first)
    groups = "|".join(AUDIT_GROUPS)
    more = f"{len(rows) - len(first):,} more: --full lists all; --group {groups} adds them up" if len(first) < len(rows) else ""
    drop = ("traces", "useful", "errors", "cost", "parallel")
    return [
        Section(lines=[("VERDICT", words), *(("", sentence) for sentence in lines.sentences())]),
        Section(head=head, rows=cells, right=range(1, len(head)), drop=drop, more=more),
    ]


def _value(measure: Measure) -> str:
    if measure.value is None:
        return "-"
    bound = "" if measure.bound == "exact" else f"{measure.bound} "
    unit = "" if measure.unit in ("", "share") else f" {measure.unit}"
    return f"{bound}{number(measure.value)}{unit}"


def _full(facts: Facts, one: TraceAudit) -> list[Section]:
    """Every measure and check."""
    trace, team, hacks = facts.trace, facts.team, one.findings
    shape = f"{trace.topology or 'unknown'}, {facts.n:,} events, {int(team.is_member_A.sum()):,} agents"
    shape += ", steered by hand" if one.is_steered else ""
    counts = [f"{sum(f.status == s for f in hacks)} {s}" for s in ("found", "clear", "missing")]
    rows = [(m.family, m.name, _value(m), m.status, m.rests_on) for m in one.measures]
    others = [(f.family, f.hack, _score(f), f.status, f.why) for f in hacks if f.status != "found"]
    return [
        Section(head=("trace", "shape"), rows=[(trace.trace_id, shape)]),
        Section(head=("", "measure", "value", "status", "rests on"), rows=rows, right=(2,)),
        Section(head=("", "reward hack", "score", ", ".join(counts), "seen"), rows=others, right=(2,)),
        *(_finding(f) for f in hacks if f.status == "found"),
    ]


def _score(finding: Finding) -> str:
    if finding.score is None:
        return "-"
    relation = "<" if finding.score < finding.threshold else ">="  # a score past the bar can be clear: `why` says what lacked
    return f"{number(finding.score, 2)} {relation} {number(finding.threshold, 2)}"


def _finding(finding: Finding) -> Section:
    more = finding.event_count - len(finding.events[:12])
    events = " ".join(finding.events[:12]) + (f" and {more:,} more (--json)" if more > 0 else "")
    score = f"{finding.score:.2f}, threshold {finding.threshold:g}"
    lines = [("FOUND", f"{finding.hack} ({finding.family}, {finding.severity})"), ("means", finding.definition)]
    lines += [("seen", finding.why), ("score", score), ("agents", some(finding.agents, 8)), ("events", events)]
    return Section(lines=[*lines, ("fix", finding.fix)])


def _show_summary(batch: AuditSummary, *, as_json: bool) -> None:
    if as_json:
        emit({"schema": SCHEMA_VERSION, **batch.as_dict()})
        return
    steered, count = batch.steered, batch.trace_count
    if steered:
        names = ", ".join(steered[:5]) + (" and more" if len(steered) > 5 else "")
        note(f"warning: {len(steered)} of {count} traces were steered by hand, not what the team does alone: {names}")
    cells = [(s.family, s.name, s.n, s.mean, s.low, s.high, s.estimated, s.missing) for s in batch.measures]
    head = ("", f"{count} traces", "n", "mean", "95 % low", "high", "estimated", "missing")
    rows = [(c["family"], c["hack"], c["found"], c["clear"], c["missing"], " ".join(c["traces"][:5])) for c in batch.hacks]
    words = [f"verifiers over the batch: {finding.status}; {finding.why}" for finding in batch.findings]
    say(
        Section(head=head, rows=cells, right=range(2, 8)),
        Section(head=("", "reward hack", "found", "clear", "missing", "in"), rows=rows, right=(2, 3, 4)),
        *(Section(words=line) for line in words),
    )
