"""Put a note, labels or scores on a trace, an event or a query's traces."""

from __future__ import annotations

from pathlib import Path

import click

from counterpoint.app.cli.notes._rows import print_annotations
from counterpoint.app.terminal.options import author_option
from counterpoint.app.terminal.output import json_option, note
from counterpoint.app.terminal.store import store_option
from counterpoint.errors import InputError


@click.command(
    epilog="\b\nExamples:\n  counterpoint notes add run-1 --label verdict=wrong --note 'it never ran the tests'\n"
    "  counterpoint notes add run-1 e12 --note 'here it guesses'\n"
    "  counterpoint notes add 'task:T1 reward<0.5' --label hard --author ann\n\n"
    "Exit codes: 0 fine, 2 no annotation, 3 no such trace or event."
)
@click.argument("trace", metavar="TRACE|QUERY")
@click.argument("event", required=False)
@click.option("--note", "text", metavar="TEXT", help="A note; beside a label or a score, the reason for it.")
@click.option("--label", "labels", multiple=True, metavar="[NAME=]LABEL", help="A label, such as hard or verdict=wrong.")
@click.option("--score", "scores", multiple=True, metavar="NAME=NUMBER", help="A score, such as helpful=3.")
@author_option
@store_option
@json_option
def add(
    trace: str,
    event: str | None,
    text: str | None,
    labels: tuple[str, ...],
    scores: tuple[str, ...],
    author: str | None,
    store: Path | None,
    as_json: bool,
) -> None:
    """Put a note, labels or scores on a trace, on one event of it, or on every trace of a query.

    They are for people and for judging judges; `notes score` sets the reward. `export --to jsonl` writes them with the trace
    and `import` reads them back.
    """
    from counterpoint.app.api.annotate import annotate
    from counterpoint.app.load_save import names_file

    if Path(trace).exists() and names_file(trace, store):
        raise InputError("annotations go to a store, and this is a file", where=trace, fix=f"counterpoint import {trace}")
    if text is None and not labels and not scores:
        raise InputError("there is nothing to add", fix="--note TEXT, --label LABEL or --score NAME=NUMBER")
    label, score = dict(map(_label, labels)) or None, dict(map(_score, scores)) or None
    added = annotate(trace, event, note=text, label=label, score=score, by=author, store=store)
    print_annotations(added.rows, as_json=as_json)
    note(f"{len(added):,} added", quiet=as_json)


def _label(word: str) -> tuple[str, str]:
    name, sign, value = word.partition("=")
    return (name, value) if sign else ("", name)


def _score(word: str) -> tuple[str, float]:
    name, _, value = word.partition("=")
    try:
        return name, float(value)
    except ValueError:
        raise InputError(f"{word!r} is not a score", where="--score", fix="NAME=NUMBER, such as helpful=3") from None
