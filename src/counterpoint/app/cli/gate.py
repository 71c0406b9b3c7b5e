"""Limits for a set of runs, with an exit code: for a build that must not make a team worse.

Always true: the files are written whole, whether the gate passes or not; what was not measured does not pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree as xml

import click

from counterpoint.answer import Section
from counterpoint.app.api.gate import Check, Gate
from counterpoint.app.api.gate import gate as gate_of
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option, say
from counterpoint.app.terminal.store import store_option
from counterpoint.app.words import plain_text
from counterpoint.display import counted
from counterpoint.errors import InputError
from counterpoint.files import put

HEADING = "Judge"

_FINDING = 4


@click.command(
    epilog="\b\nExamples:\n  counterpoint gate --query 'project:shop last:1d' --max-cost 5 --min-score 0.8\n"
    "  counterpoint gate --query in:pull-request --against in:main --no-new-issues -o gate.md -o junit.xml\n\n"
    "Exit codes: 0 all hold, 2 not a query or limit, 3 no such run, 4 a limit is broken or was not measured."
)
@click.option("--query", default="", metavar="QUERY", help="The runs, as `counterpoint ls` finds them (default: all).")
@click.option("--max-cost", type=float, metavar="DOLLARS", help="The most that the runs may cost together.")
@click.option("--max-failures", type=float, metavar="N", help="The most calls that may fail in the runs together.")
@click.option("--min-score", type=float, metavar="REWARD", help="The least mean team reward.")
@click.option("--no-new-issues", is_flag=True, help="Allow no issue that the base does not have, and none that came back.")
@click.option("--against", metavar="BASE", help="Runs to be no worse than: a query, another store's folder, or a file.")
@click.option("-o", "--output", "outputs", multiple=True, type=click.Path(path_type=Path), metavar="FILE",
              help="Write a summary: Markdown (.md), JUnit XML (.xml); may be repeated.")  # fmt: skip
@store_option
@json_option
def gate(
    query: str,
    max_cost: float | None,
    max_failures: float | None,
    min_score: float | None,
    no_new_issues: bool,
    against: str | None,
    outputs: Sequence[Path],
    store: Path | None,
    as_json: bool,
) -> None:
    """Hold runs to limits, and to the runs of a base: exit 4 where one is broken.

    Against a base, score, cost and failures are compared task by task where tasks are shared; runs that are as the base fail with
    a chance of at most 5 %.
    """
    strange = [path for path in outputs if path.suffix not in _WRITERS]
    if strange:
        raise InputError(f"no form for {strange[0].name}", fix=f"a name that ends in {' or '.join(_WRITERS)}")
    found = gate_of(
        query, against=against, max_cost=max_cost, max_failures=max_failures, min_score=min_score, no_new_issues=no_new_issues,
        store=store,
    )  # fmt: skip
    put([(path, _WRITERS[path.suffix](found).encode()) for path in outputs], overwrite=True)
    if as_json:
        emit({"schema": SCHEMA_VERSION, **found.as_dict(), "files": [str(path) for path in outputs]})
    else:
        _print(found)
    if not found.passed:
        raise click.exceptions.Exit(_FINDING)


def _print(found: Gate) -> None:
    rows = [(_mark(c), c.name, c.words) for c in found.checks]
    look = next((c.runs for c in found.checks if not c.passed and c.runs), ())
    more = f"look at: {' '.join(look)}" if look else ""
    say(Section(head=("", "check", "what was found"), rows=rows, more=more), heading=f"Gate: {found.caption()}")


def _mark(check: Check) -> str:
    return "pass" if check.passed else "not measured" if check.ok is None else "FAIL"


def _markdown(found: Gate) -> str:
    """A summary for a pull request."""
    verdict = "passes" if found.passed else "fails"
    against = f" against {counted(found.base_runs, 'run')} of `{_code(found.base)}`" if found.base is not None else ""
    lines = [f"### Counterpoint gate {verdict}", "", f"{counted(found.runs, 'run')} of `{_code(found.query)}`{against}", ""]
    lines += ["| | check | what was found |", "|---|---|---|"]
    lines += [f"| {_mark(c)} | {c.name} | {_cell(c.words)} |" for c in found.checks]
    look = [f"- {c.name}: " + ", ".join(f"`{_code(run)}`" for run in c.runs) for c in found.checks if not c.passed and c.runs]
    return "\n".join([*lines, *(["", "Runs to look at (`counterpoint show ID`):", "", *look] if look else []), ""])


def _cell(text: str) -> str:
    """A text in a cell of a table: on one line, no bar, nothing that a page would read as markup, or as the name of somebody."""
    plain = plain_text(" ".join(text.split()))
    for sign in "\\|<>`[]*_":
        plain = plain.replace(sign, f"\\{sign}" if sign not in "<>`" else {"<": "&lt;", ">": "&gt;", "`": "'"}[sign])
    return plain.replace("@", "@\u200b")


def _code(text: str) -> str:
    """A text between backticks, where nothing else is markup."""
    return plain_text(" ".join(text.split())).replace("`", "'")


def _junit(found: Gate) -> str:
    """JUnit XML: a case for each check."""
    broken = [c for c in found.checks if not c.passed]
    counts = {"tests": str(len(found.checks)), "failures": str(len(broken)), "errors": "0"}
    suite = xml.Element("testsuite", {"name": "counterpoint gate", **counts})
    for c in found.checks:
        case = xml.SubElement(suite, "testcase", classname="counterpoint.gate", name=c.name)
        words = plain_text(c.words)
        if not c.passed:
            kind = "not measured" if c.ok is None else "limit broken"
            xml.SubElement(case, "failure", message=words, type=kind).text = "\n".join((words, *c.runs))
        else:
            xml.SubElement(case, "system-out").text = words
    xml.indent(suite)
    return xml.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


_WRITERS = {".md": _markdown, ".xml": _junit}
