"""What happened: measures E1-E4 and reward hacks, with events.

Always true: every value says measured, estimated or missing and what it rests on; a reward hack found in any trace ends the
command with exit code 4, and what could not be judged is said, not passed over.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

import click
import msgspec

from counterpoint.app.cli._output import SCHEMA_VERSION, emit, json_option, note, number, table
from counterpoint.app.cli._store import store_option
from counterpoint.app.library import about, load
from counterpoint.audit.collusion import collusion_over
from counterpoint.audit.cost import Prices
from counterpoint.audit.facts import Facts
from counterpoint.audit.hacks import hacks
from counterpoint.audit.measures import measures, summary
from counterpoint.audit.records import DEFINITIONS, HACKS, Finding, Measure
from counterpoint.errors import InputError, did_you_mean
from counterpoint.trace import Trace
from counterpoint.trace.steered import is_steered

_FAMILIES = tuple(dict.fromkeys(d.family for d in DEFINITIONS.values()))
_ONLY = (*_FAMILIES, "hacks", *DEFINITIONS, *HACKS)


@click.command(
    epilog="\b\nExamples:\n  counterpoint audit run.trace.json\n  counterpoint audit t1 t2 --only hacks --json\n\n"
    "\b\nExit codes: 0 no reward hack found, 2 a trace could not be read, 3 no such trace, 4 a reward hack or, with --taint,\n"
    "an authority violation was found."
)
@click.argument("traces", nargs=-1, required=True, metavar="TRACE...")
@click.option("--only", multiple=True, metavar="WHAT", help="E1-E4, cost, scale, hacks, or one by name; may be repeated.")
@click.option("--price-token", type=click.FloatRange(min=0), metavar="USD", help="Price of a million tokens, for rollout_cost.")
@click.option("--price-tool", type=click.FloatRange(min=0), metavar="USD", help="Price of one tool call, for rollout_cost.")
@click.option("--alike", type=click.FloatRange(0, 1), default=0.8, show_default=True, help="Similarity of repeated messages.")
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
        from counterpoint.app.cli._taint import report

        raise SystemExit(4 if report(traces, store, as_json=as_json) else 0)
    chosen = _chosen(only)
    prices = Prices(token=None if price_token is None else price_token / 1e6, tool=price_tool)
    loaded: list[Trace] = []
    taken: list[list[Measure]] = []
    judged: list[list[Finding]] = []
    for k, ref in enumerate(traces):
        trace = load(ref, store=store)
        with about(ref):
            facts = Facts(trace)
        found = [f for f in hacks(trace, facts=facts) if f.hack in chosen] if chosen & set(HACKS) else []
        judged.append(found)
        values = measures(trace, prices=prices, threshold=alike, facts=facts) if chosen & set(DEFINITIONS) else []
        shown = [m for m in values if m.name in chosen]
        if is_summary:
            loaded.append(trace)
            taken.append(values)
        elif as_json:
            emit(_object(trace, shown, found))
        else:
            click.echo(("\n" if k else "") + _text(facts, shown, found))
    if is_summary:
        judged.append(_summary(loaded, taken, judged, chosen, as_json=as_json))
    raise SystemExit(4 if any(f.status == "found" for found in judged for f in found) else 0)


def _chosen(only: Sequence[str]) -> set[str]:
    """The measures and hacks that were asked for: all, or those of the families and names given."""
    out: set[str] = set()
    for word in only:
        match = next((known for known in _ONLY if known.lower() == word.lower().replace("-", "_")), None)
        if match is None:
            raise InputError(f"nothing to audit is called {word!r}", fix=did_you_mean(word, _ONLY))
        if match == "hacks":
            out |= set(HACKS)
        elif match in _FAMILIES:
            out |= {name for name, definition in DEFINITIONS.items() if definition.family == match}
        else:
            out.add(match)
    return out or {*DEFINITIONS, *HACKS}


def _dicts(records: Iterable[msgspec.Struct]) -> list[dict[str, Any]]:
    return [msgspec.to_builtins(record) for record in records]


def _object(trace: Trace, values: list[Measure], found: list[Finding]) -> dict[str, Any]:
    return {
        "schema": SCHEMA_VERSION,
        "trace_id": trace.trace_id,
        "task_id": trace.task_id,
        "steered": is_steered(trace),
        "found": sum(f.status == "found" for f in found),
        "measures": _dicts(values),
        "findings": _dicts(found),
    }


def _value(measure: Measure) -> str:
    if measure.value is None:
        return "-"
    bound = "" if measure.bound == "exact" else f"{measure.bound} "
    unit = "" if measure.unit in ("", "share") else f" {measure.unit}"
    return f"{bound}{number(measure.value)}{unit}"


def _text(facts: Facts, values: list[Measure], found: list[Finding]) -> str:
    trace, team = facts.trace, facts.team
    shape = f"{trace.topology or 'unknown'}, {facts.n:,} events, {int(team.is_member_A.sum()):,} agents"
    shape += ", steered by hand" if is_steered(trace) else ""
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


def _summary(
    traces: list[Trace], taken: list[list[Measure]], judged: list[list[Finding]], chosen: set[str], *, as_json: bool
) -> list[Finding]:
    """Print the batch; what the batch itself shows of collusion."""
    rows = [s for s in summary(taken) if s.name in chosen] if all(taken) else []
    batch = [collusion_over(traces)] if "verifier_collusion" in chosen else []
    counts: list[dict[str, Any]] = []
    for name in (name for name in HACKS if name in chosen):
        of = [next(f for f in found if f.hack == name) for found in judged]
        where = [trace.trace_id for trace, f in zip(traces, of, strict=True) if f.status == "found"]
        tally = {status: sum(f.status == status for f in of) for status in ("found", "clear", "missing")}
        counts.append({"hack": name, "family": HACKS[name].family, **tally, "traces": where})
    steered = [trace.trace_id for trace in traces if is_steered(trace)]
    if as_json:
        emit({"schema": SCHEMA_VERSION, "traces": len(traces), "steered": steered, "summary": _dicts(rows), "hacks": counts,
              "findings": _dicts(batch)})  # fmt: skip
        return batch
    if steered:
        names = ", ".join(steered[:5]) + (" and more" if len(steered) > 5 else "")
        note(f"warning: {len(steered)} of {len(traces)} traces were steered by hand, not what the team does alone: {names}")
    if rows:
        cells = [(s.family, s.name, s.n, s.mean, s.low, s.high, s.estimated, s.missing) for s in rows]
        head = ("", f"{len(traces)} traces", "n", "mean", "95 % low", "high", "estimated", "missing")
        click.echo(table(head, cells, right=range(2, 8)) + ("\n" if counts else ""))
    if counts:
        found_in = [(c["family"], c["hack"], c["found"], c["clear"], c["missing"], " ".join(c["traces"][:5])) for c in counts]
        click.echo(table(("", "reward hack", "found", "clear", "missing", "in"), found_in, right=(2, 3, 4)))
    for finding in batch:
        click.echo(f"verifiers over the batch: {finding.status}; {finding.why}")
    return batch
