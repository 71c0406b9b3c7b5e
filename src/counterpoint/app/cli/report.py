"""A week of sessions on one page: spend, time, failures, waste.

Always true: the terminal and the HTML file say the same; secrets of known forms are masked in both unless masking is off.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace as changed
from pathlib import Path
from typing import Any

import click
import msgspec
from msgspec.structs import replace

import counterpoint
from counterpoint.answer import Answer, Section, page
from counterpoint.app.api.budgets import Budget, budgets, read_budgets
from counterpoint.app.api.issues import issues
from counterpoint.app.api.periods import WEEK_S, Comparing, periods_of
from counterpoint.app.api.report import Report, Reporting
from counterpoint.app.issue_answer import masked, needed, report_section
from counterpoint.app.load_save import store_path
from counterpoint.app.period_answer import budget_section, compared_answer
from counterpoint.app.report_answer import report_answer
from counterpoint.app.search import undated
from counterpoint.app.terminal.options import mask_option, output_option
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option, note, say
from counterpoint.app.terminal.selection import Selection, select
from counterpoint.app.terminal.store import open_store, prices_option, store_option
from counterpoint.errors import InputError
from counterpoint.files import put
from counterpoint.store.summary import Summary

HEADING = "Look"


@click.command(
    epilog="\b\nExamples:\n  counterpoint report last:7d\n  counterpoint report 'project:shop last:30d' -o report.html\n"
    "  counterpoint report last:7d --compare"
)
@click.argument("words", nargs=-1, metavar="[TRACE|QUERY]")
@output_option("Write it as one HTML file.")
@click.option("--compare", "is_compared", is_flag=True, help="Compare the time, or this week, with the same length before it.")
@mask_option
@prices_option
@store_option
@json_option
def report(
    words: tuple[str, ...],
    output: Path | None,
    is_compared: bool,
    mask: str,
    prices: Path | None,
    store: Path | None,
    as_json: bool,
) -> None:
    """Report on many traces: spend, time, failures, waste, what paid off, and how it changes.

    Without QUERY: all of the store. Waste is work that led to nothing: sub-agents whose return nobody used, work after the
    goal was met, repeated reads, results never read.
    """
    if is_compared:
        _compare(words, output, prices, store, as_json=as_json)
        return
    chosen = select(words, store, prices)
    whole = _report(chosen, quiet=as_json)
    board = issues(chosen.query, store=store) if chosen.is_query else None
    if mask != "off":
        whole = _masked(whole, is_personal=mask == "personal")
    spent = _budgets(store) if chosen.is_query else []
    answer = _with_budgets(report_answer(whole, [] if board is None else [report_section(board)]), spent)
    recurs = [] if board is None else msgspec.to_builtins(masked(needed(board)))
    held = [{**msgspec.to_builtins(one), "state": one.state} for one in spent]
    told = {**whole.as_dict(), "issues": recurs, "budgets": held}
    _tell(answer, told, output, f"{whole.total.traces:,} traces", as_json=as_json)


def _tell(answer: Answer, told: dict[str, Any], output: Path | None, what: str, *, as_json: bool) -> None:
    """Say it, as JSON or as text, or write it as a page."""
    if output is not None:
        put([(output, page(answer, f"counterpoint {counterpoint.__version__}").encode())], overwrite=True)
    if as_json:
        emit({"schema": SCHEMA_VERSION, **told, "file": None if output is None else str(output)})
    elif output is not None:
        click.echo(f"Wrote {output}: {what}")
    else:
        say(*answer.sections, heading=answer.heading)


def _budgets(store: Path | None) -> list[Budget]:
    """The budgets of the store, held against all that it holds."""
    asked = read_budgets(store_path(store))
    if not asked:
        return []
    with open_store(store, read_only=True) as opened:
        return budgets(opened.rows(), asked)


def _with_budgets(answer: Answer, spent: Sequence[Budget]) -> Answer:
    """Budgets come first where one is passed, or likely to be; else after the whole."""
    if not spent:
        return answer
    section: Section = budget_section(spent)
    first = 0 if spent[0].state in ("passed", "likely") else 1
    return answer._replace(sections=[*answer.sections[:first], section, *answer.sections[first:]])


def _compare(words: tuple[str, ...], output: Path | None, prices: Path | None, store: Path | None, *, as_json: bool) -> None:
    """What the query finds now and before; its dates say when now is."""
    query = " ".join(words)
    plain = undated(query)
    chosen = select([plain] if plain else [], store, prices)
    if not chosen.is_query:
        raise InputError("--compare takes a query, not single traces", fix="counterpoint report 'project:shop last:7d' --compare")
    newest = max((row.active for row in chosen.rows if row.started is not None), default=None)
    before, now = periods_of(query, newest)
    if plain == query and now[1] < time.time() - WEEK_S:
        note("nothing ran in the last two weeks: the week ends with the newest run")
    dated = [row for row in chosen.rows if row.started is not None or row.is_open]
    near = [row for row in dated if row.within(before[0], now[1])]
    listed = {row.id: row for row in near}
    making = Comparing(query, before, now, undated=len(chosen.rows) - len(dated))
    for trace in changed(chosen, rows=tuple(near)).traces(quiet=as_json):
        line = Summary.of_trace(trace)
        row = listed[trace.trace_id]
        making.take(trace, replace(line, added=row.added, is_open=row.is_open))
    told = making.done()
    runs = next((group.runs for group in told.groups if group.by == "all"), (0, 0))
    _tell(compared_answer(told), msgspec.to_builtins(told), output, f"{runs[1]:,} against {runs[0]:,} traces", as_json=as_json)


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
