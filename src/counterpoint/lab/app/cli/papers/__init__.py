"""The papers behind the survey: list, show, check.

Always true: a filter is checked before anything is searched; an empty answer to a valid question is an answer (exit 0).
"""

from __future__ import annotations

import click

from counterpoint.app.terminal.groups import Group

HEADING = ""


@click.group(
    hidden=True,
    cls=Group,
    epilog="\b\nExamples:\n  counterpoint papers ls reward:R7 credit:orchestrator\n  counterpoint papers show message-credit",
)
def papers() -> None:
    """The papers behind the survey: 84 retained, 32 excluded, counted and corrected."""
