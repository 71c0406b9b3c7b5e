"""Train networks, language models and stop rules.

Always true: everything named is looked up before anything is played or written; a run stays whole however it ends, and `train
resume` continues it.
"""

from __future__ import annotations

import click

from counterpoint.app.terminal.groups import Group

HEADING = "Learn"


@click.group(
    cls=Group,
    epilog="\b\nExamples:\n  counterpoint train net --preset counterpoint --world W1 --cap calls=100000 --watch\n"
    "  counterpoint train lm --model smollm2-135m --task T1 --demos fake:0.7\n"
    "  counterpoint train resume runs/mine-seed3",
)
def train() -> None:
    """Train networks, language models and stop rules, from play or from recorded traces."""
