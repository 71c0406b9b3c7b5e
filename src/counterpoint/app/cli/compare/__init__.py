"""Compare traces, runs or methods: differences with intervals."""

from __future__ import annotations

import click

from counterpoint.app.terminal.groups import Group

HEADING = "Judge"


@click.group(
    cls=Group,
    epilog="\b\nExamples:\n  counterpoint compare traces run-1 fork-1\n"
    "  counterpoint compare traces 'since:14d until:7d' last:7d",
)
def compare() -> None:
    """Compare two traces, two collections of traces, training runs or training methods."""
