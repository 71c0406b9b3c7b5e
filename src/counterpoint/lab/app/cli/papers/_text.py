"""What the commands of `counterpoint papers` share: options, JSON objects and wrapped lines."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import click
import msgspec

from counterpoint.app.terminal.output import SCHEMA_VERSION, emit
from counterpoint.lab.papers.records import Paper, family

with_option = click.option(
    "--with", "extra", multiple=True, metavar="FILE", type=click.Path(path_type=Path), help="Also read this file of your papers."
)


def examples(*lines: str) -> str:
    """The examples of one command."""
    return "\b\nExamples:\n" + "\n".join(f"  counterpoint papers {line}" for line in lines)


def emit_object(**fields: Any) -> None:
    """One JSON object with the version of the output."""
    emit({"schema": SCHEMA_VERSION, **fields})


def as_dict(record: msgspec.Struct) -> dict[str, Any]:
    """A record as plain data."""
    plain: dict[str, Any] = msgspec.to_builtins(record)
    return plain


def wrapped(label: str, text: str) -> str:
    """A label and its text, which goes on below itself."""
    lead = f"{label:<19}" if len(label) < 19 else f"{label} "
    return textwrap.fill(text, 100, initial_indent=lead, subsequent_indent=" " * 19, break_on_hyphens=False)


def reward_text(paper: Paper) -> str:
    """The family of a paper's reward and its tag."""
    return f"{family(paper.reward_type)} {paper.reward_type}" if paper.reward_type != "NA" else "NA"
