"""Look after stored traces: size, damage, removal, sending, checks.

Always true: `info` and `verify` write nothing; `repair` deletes nothing; each works while others use the store.
"""

from __future__ import annotations

import click

from counterpoint.app.terminal.groups import Group

HEADING = "Keep"


@click.group(
    cls=Group,
    epilog="\b\nExamples:\n  counterpoint store info\n  counterpoint store rm 'task:demo reward<0.1'\n"
    "  counterpoint store check run.trace.json",
)
def store() -> None:
    """Look after a store and what is in it: size, damage and repair, removal, sending it elsewhere, checks of traces."""
