"""Check the papers, and files of your own, against the vocabulary.

Always true: a file is only read; every wrong line is named.
"""

from __future__ import annotations

from pathlib import Path

import click

from counterpoint.app.terminal.output import json_option, note, table
from counterpoint.errors import InputError
from counterpoint.lab.app.cli.papers._text import as_dict, emit_object, examples
from counterpoint.lab.papers import load


@click.command(epilog=examples("check", "check papers.jsonl --json"))
@click.argument("paths", nargs=-1, metavar="[FILE]...", type=click.Path(path_type=Path))
@json_option
@click.pass_context
def check(ctx: click.Context, paths: tuple[Path, ...], as_json: bool) -> None:
    """Check the pool and your own files, one JSON object per line; a problem ends with exit code 4.

    `papers ls --with FILE` and `papers show --with FILE` then read them.
    """
    from counterpoint.lab.papers.validate import problems

    rows = list(load.papers())
    problems_ = [as_dict(p) for p in problems(rows, load.excluded())]
    for path in paths:
        good, bad = load.examine(path, rows)
        rows += good
        problems_ += [{"code": "line", "where": e.where, "what": e.what + _why(e), "hint": e.fix or ""} for e in bad]
        for paper in good:
            _note_exclusion(paper.arxiv_id)
    if as_json:
        emit_object(ok=not problems_, papers=len(rows), excluded=len(load.excluded()), problems=problems_)
    elif problems_:
        click.echo(table(["where", "problem"], [(p["where"], p["what"]) for p in problems_]))
    else:
        click.echo(f"{len(rows)} papers and {len(load.excluded())} exclusions: no problem")
    if problems_:
        ctx.exit(4)


def _why(error: InputError) -> str:
    return f" ({error.why})" if error.why else ""


def _note_exclusion(arxiv_id: str | None) -> None:
    for record in load.excluded():
        if arxiv_id is not None and record.identifier == f"arXiv:{arxiv_id}":
            note(f"the survey excluded this paper as {record.record_id}: {record.exclusion_reason}")
