"""Check trace files: schema, references, cycles, times, contradictions."""

from __future__ import annotations

import os
import sys

import click

from counterpoint.app.file_check import FileReport, check_file, check_trace
from counterpoint.app.load_save import load, names_file
from counterpoint.app.terminal.options import rows_option
from counterpoint.app.terminal.output import emit, json_option
from counterpoint.app.terminal.progress import track
from counterpoint.app.terminal.store import store_option
from counterpoint.app.words import os_error
from counterpoint.display import counted
from counterpoint.errors import CounterpointError
from counterpoint.trace import Findings

# Which exit code wins when files differ: unreadable before missing before wrong.
_WORST = (2, 3, 1, 4, 0)


@click.command(
    epilog="\b\nExamples:\n  counterpoint store check run.trace.json\n"
    "  counterpoint store check traces/*.json --json | jq .ok\n\n"
    "Exit codes: 0 all valid, 2 a file could not be read, 3 no such file, 4 a trace is invalid."
)
@click.argument("files", nargs=-1, required=True, metavar="FILE|ID...")
@rows_option(50, "Print this many errors and warnings of each file; 0 for all. All are counted.")
@click.option("-q", "--quiet", is_flag=True, help="Print only files with errors.")
@store_option
@json_option
def check(files: tuple[str, ...], rows: int, quiet: bool, store: str | None, as_json: bool) -> None:
    """Check trace files, logs of other tools, or traces in a store, against the survey's schema and against themselves.

    Errors make a trace invalid: broken schema, repeated ids, edges to nowhere, cycles, effects before causes. Warnings say
    what the source left out or contradicts.
    """
    codes = {0}
    for name in track(files, "checking", quiet=quiet or as_json):
        report, code = _report(name, rows or sys.maxsize, store)
        codes.add(code)
        if as_json:
            emit(report.as_dict())
        elif not (quiet and report.ok):
            _print(report)
    raise SystemExit(next(code for code in _WORST if code in codes))


def _report(name: str, limit: int, store: str | None) -> tuple[FileReport, int]:
    try:
        if names_file(name, store):
            report = check_file(name, limit)
        else:
            report = check_trace(load(name, store=store), name=name, format_="store", limit=limit)
        return report, report.exit_code
    except (CounterpointError, OSError) as error:
        mended = error if isinstance(error, CounterpointError) else os_error(error)
        findings = Findings(limit)
        findings.error("unreadable" if mended.exit_code == 2 else "not-found", name, mended.what, mended.fix or "")
        return FileReport(file=name, format=None, findings=findings), mended.exit_code


def _print(report: FileReport) -> None:
    findings = report.findings
    verdict = "ok" if report.ok else "INVALID"
    shape = ", ".join(counted(n, one) for n, one in ((report.events, "event"), (report.edges, "edge"), (report.agents, "agent")))
    counts = f"{counted(findings.error_count, 'error')}, {counted(findings.warning_count, 'warning')}"
    click.echo(f"{os.fspath(report.file)}: {verdict}  ({report.format or 'unknown format'}; {shape}; {counts})")
    for severity, problems in (("error", findings.errors), ("warning", findings.warnings)):
        for problem in problems:
            click.echo(f"  {severity:7} {problem.code:17} {problem}")
        hidden = findings.count(severity) - len(problems)
        if hidden > 0:
            by_code = ", ".join(f"{code} {n:,}" for code, n in findings.by_code(severity).items())
            click.echo(f"  ... and {hidden:,} more {severity}s (in all: {by_code})")
