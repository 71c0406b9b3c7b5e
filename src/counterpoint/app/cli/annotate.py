"""Notes, labels and scores on traces and events.

Always true: what was added is on disk, with author and time, before the command says so; nothing of the trace itself changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option, note, table
from counterpoint.app.terminal.store import open_store, store_option
from counterpoint.app.words import plain_text
from counterpoint.display import moment, number
from counterpoint.errors import InputError
from counterpoint.trace.annotation import Annotation, author_of

_SHOWN_ID = 6


@click.command(
    epilog="\b\nExamples:\n  counterpoint annotate run-1 --label verdict=wrong --note 'it never ran the tests'\n"
    "  counterpoint annotate run-1 e12 --note 'here it guesses'\n"
    "  counterpoint annotate 'task:T1 reward<0.5' --label hard --by ann\n"
    "  counterpoint annotate run-1                    what is said about it\n\n"
    "Exit codes: 0 fine, 2 no annotation, 3 no such trace, event or annotation."
)
@click.argument("trace", required=False, metavar="[TRACE|QUERY]")
@click.argument("event", required=False)
@click.option("--note", "remark", metavar="TEXT", help="A note; beside a label or a score, the reason for it.")
@click.option("--label", "labels", multiple=True, metavar="[NAME=]LABEL", help="A label, such as hard or verdict=wrong.")
@click.option("--score", "scores", multiple=True, metavar="NAME=NUMBER", help="A score, such as helpful=3.")
@click.option("--by", metavar="NAME", help="Who says so (default: $COUNTERPOINT_AUTHOR, or who is logged in).")
@click.option("--remove", "gone", multiple=True, metavar="ID", help="Take an annotation back; the list shows the ids.")
@store_option
@json_option
def annotate(
    trace: str | None,
    event: str | None,
    remark: str | None,
    labels: tuple[str, ...],
    scores: tuple[str, ...],
    by: str | None,
    gone: tuple[str, ...],
    store: Path | None,
    as_json: bool,
) -> None:
    """Put notes, labels and scores on a trace, on an event, or on all that a query finds; or list them.

    They are for people and for judging judges: a reward is given by `counterpoint score`. They leave with the trace in `export
    --to jsonl` and come back with `import`; the query language knows label:TEXT, notes>0 and annotated.
    """
    from counterpoint.app.api.annotate import annotate as put_on
    from counterpoint.app.api.annotate import notes
    from counterpoint.app.load_save import names_file

    if trace is not None and Path(trace).exists() and names_file(trace, store):
        raise InputError("annotations go to a store, and this is a file", where=trace, fix=f"counterpoint import {trace}")
    if remark is not None or labels or scores:
        if trace is None:
            raise InputError("no trace was named", fix="counterpoint annotate TRACE --note TEXT")
        named = {"label": dict(map(_label, labels)) or None, "score": dict(map(_score, scores)) or None}
        added = put_on(trace, event, note=remark, by=by, store=store, **named)  # type: ignore[arg-type]
        _show(added.rows, as_json=as_json)
        note(f"{len(added):,} added", quiet=as_json)
        return
    if gone:
        with open_store(store) as opened:
            taken = [opened.withdraw(one) for one in gone]
        _show(taken, as_json=as_json)
        note(f"{len(taken):,} removed", quiet=as_json)
        return
    found = [one for one in notes(trace, store=store).rows if event is None or one.event == event]
    _show(found, as_json=as_json)
    if not found:
        note("nothing is said yet: --note, --label and --score add something", quiet=as_json)


def _label(word: str) -> tuple[str, str]:
    name, sign, value = word.partition("=")
    return (name, value) if sign else ("", name)


def _score(word: str) -> tuple[str, float]:
    name, _, value = word.partition("=")
    try:
        return name, float(value)
    except ValueError:
        raise InputError(f"{word!r} is not a score", where="--score", fix="NAME=NUMBER, such as helpful=3") from None


def _show(found: Sequence[Annotation], *, as_json: bool) -> None:
    if as_json:
        for one in found:
            emit({"schema": SCHEMA_VERSION, **msgspec.to_builtins(one)})
        return
    if found:
        rows = [
            (a.id[:_SHOWN_ID], a.trace_id, a.event or "", a.name, a.label or "", number(a.score) if a.score is not None else "",
             author_of(a), moment(a.at), plain_text(a.text or ""))
            for a in found
        ]  # fmt: skip
        click.echo(table(("id", "trace", "event", "name", "label", "score", "by", "when", "text"), rows, right=(5,)))
