"""Annotations as a table or as JSON lines."""

from __future__ import annotations

from collections.abc import Sequence

import click
import msgspec

from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, table
from counterpoint.app.words import plain_text
from counterpoint.display import moment, number
from counterpoint.trace.annotation import Annotation, author_of

_ID_WIDTH = 6


def print_annotations(annotations: Sequence[Annotation], *, as_json: bool) -> None:
    """One row for each."""
    if as_json:
        for one in annotations:
            emit({"schema": SCHEMA_VERSION, **msgspec.to_builtins(one)})
        return
    if annotations:
        rows = [
            (a.id[:_ID_WIDTH], a.trace_id, a.event or "", a.name, a.label or "", number(a.score) if a.score is not None else "",
             author_of(a), moment(a.at), plain_text(a.text or ""))
            for a in annotations
        ]  # fmt: skip
        click.echo(table(("id", "trace", "event", "name", "label", "score", "author", "when", "text"), rows, right=(5,)))
