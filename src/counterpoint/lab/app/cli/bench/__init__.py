"""Measure a team over ten to ten thousand steps, and under attack.

Always true: what was played is kept row by row and is not played again; a team that breaks scores what it did; nothing is
written outside the folder that -o names.
"""

from __future__ import annotations

import click

from counterpoint.app.terminal.groups import Group

HEADING = "Learn"


@click.group(
    cls=Group,
    epilog="\b\nExamples:\n  counterpoint bench run short --team policy:reference\n"
    "  counterpoint bench card bench/policy-reference-short",
)
def bench() -> None:
    """Measure a team: success, parallelism, collaboration, overhead, by length and under attack."""
