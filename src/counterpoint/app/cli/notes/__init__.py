"""Notes, labels, outcomes and verdicts on traces; named collections.

Always true: a note is on disk, with author and time, before the command says so; the trace itself stays as it is.
"""

from __future__ import annotations

import click

from counterpoint.app.terminal.groups import Group

HEADING = "Judge"


@click.group(
    cls=Group,
    epilog="\b\nExamples:\n  counterpoint notes add run-1 --label verdict=wrong --note 'it never ran the tests'\n"
    "  counterpoint notes score run-1 team=1\n  counterpoint notes dataset save hard 'task:T1 reward<0.5'",
)
def notes() -> None:
    """Write down what you think of a trace: notes and labels, the outcome of a run, named collections of traces.

    The query language knows label:TEXT, notes>0, annotated and in:NAME.
    """
