"""A week of sessions on one page: spend, time, failures, waste.

Always true: the terminal and the HTML file say the same; secrets of known forms are masked in both unless masking is off.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec.structs import replace

import counterpoint
from counterpoint.answer import page
from counterpoint.app.api.issues import issues
from counterpoint.app.api.report import Report, Reporting
from counterpoint.app.issue_answer import masked, needed, report_section
from counterpoint.app.report_answer import report_answer
from counterpoint.app.terminal.options import mask_option, output_option
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option, note, say
from counterpoint.app.terminal.selection import Selection, select
from counterpoint.app.terminal.store import prices_option, store_option
from counterpoint.files import put
from counterpoint.store.summary import Summary

HEADING = "Look"


@click.command(
    epilog="\b\nExamples:\n  counterpoint report last:7d\n  counterpoint report 'project:shop last:30d' -o report.html"
)
@click.argument("words", nargs=-1, metavar="[TRACE|QUERY]")
@output_option("Write it as one HTML file.")
@mask_option
@prices_option
@store_option
@json_option
def report(
    words: tuple[str, ...], output: Path | None, mask: str, prices: Path | None, store: Path | None, as_json: bool
) -> None:
    """Report on many traces: spend, time, failures, waste, what paid off, and how it changes.

    Without QUERY: all of the store. Waste is work that led to nothing: sub-agents whose return nobody used, work after the
    goal was met, repeated reads, results never read.
    """
    chosen = select(words, store, prices)
    whole = _report(chosen, quiet=as_json)
    board = issues(chosen.query, store=store) if chosen.is_query else None
    if mask != "off":
        whole = _masked(whole, is_personal=mask == "personal")
    answer = report_answer(whole, [] if board is None else [report_section(board)])
    if output is not None:
        put([(output, page(answer, f"counterpoint {counterpoint.__version__}").encode())], overwrite=True)
    if as_json:
        recurs = [] if board is None else msgspec.to_builtins(masked(needed(board)))
        emit({"schema": SCHEMA_VERSION, **whole.as_dict(), "issues": recurs, "file": None if output is None else str(output)})
    elif output is not None:
        click.echo(f"Wrote {output}: {whole.total.traces:,} traces")
    else:
        say(*answer.sections, heading=answer.heading)


def _report(which: Selection, *, quiet: bool) -> Report:
    making = Reporting(which.query if which.is_query else " ".join(which.refs), which.period)
    listed = {row.id: row for row in which.rows}
    for trace in which.traces(quiet=quiet):
        line = Summary.of_trace(trace)
        if trace.trace_id in listed:
            line = replace(line, added=listed[trace.trace_id].added, is_open=listed[trace.trace_id].is_open)
        making.take(trace, line)
    return making.done()


def _masked(report: Report, *, is_personal: bool) -> Report:
    """The same with secrets masked in every text."""
    from counterpoint.formats.masking import mask

    secrets = 0

    def clean(value: Any) -> Any:
        nonlocal secrets
        if isinstance(value, str):
            text, kinds = mask(value, is_personal=is_personal)
            secrets += sum(kinds.values())
            return text
        if isinstance(value, list):
            return [clean(one) for one in value]
        if isinstance(value, dict):
            return {key: clean(one) for key, one in value.items()}
        return value

    costliest = [replace(s, label=clean(s.label)) for s in report.costliest]
    failures = [replace(f, reason=clean(f.reason)) for f in report.failures]
    waste = [replace(w, examples=clean(w.examples)) for w in report.waste]
    waiting = [replace(h, title=clean(h.title), what=clean(h.what)) for h in report.waiting]
    if secrets:
        note(f"masked {secrets:,} secrets in titles and errors; --mask off shows them")
    return replace(report, costliest=costliest, failures=failures, waste=waste, waiting=waiting)
