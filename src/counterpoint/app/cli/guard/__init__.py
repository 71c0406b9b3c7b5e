"""Limits for running agents: a hook refuses calls past them.

Always true: only `install` and `uninstall` change settings of other programs; the hook never blocks when it cannot read.
"""

from __future__ import annotations

import click

from counterpoint.app.terminal.groups import Group

HEADING = "Keep"


@click.group(
    cls=Group,
    epilog="\b\nExamples:\n  counterpoint guard install --cap agents=40 --cap dollars=20\n"
    "  counterpoint guard check SESSION.jsonl\n  counterpoint guard status",
)
def guard() -> None:
    """Refuse further spawns and calls of running agents past limits that you set."""
