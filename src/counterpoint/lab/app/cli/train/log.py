"""Train an orchestrator network from recorded traces.

Always true: nothing is played but evaluations; what the traces do not cover is refused, with what would help.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from counterpoint.app.load_save import store_path
from counterpoint.app.terminal.options import cap_option
from counterpoint.app.terminal.store import store_option
from counterpoint.errors import InputError
from counterpoint.lab.app.cli._options import preset_option
from counterpoint.lab.app.cli.train._runs import EXIT_CODES, run_options, train_planned
from counterpoint.lab.app.cli.train.net import CAPS, net_plan


@click.command(
    epilog="\b\nExamples:\n  counterpoint train log 'reward>10' --store traces --preset clone\n"
    "  counterpoint train log --store runs/a/store --set clone=20 --cap updates=100 -o runs/from-a\n\n" + EXIT_CODES
)
@click.argument("words", nargs=-1, metavar="[RUN.toml] [QUERY]...")
@preset_option
@click.option("--world", metavar="NAME", help="The world to evaluate in.  [default: the world of the traces]")
@cap_option(*CAPS)
@run_options
@store_option
def log(words: tuple[str, ...], store: Path | None, **options: Any) -> None:
    """Train an orchestrator network from the recorded traces that QUERY (the language of `counterpoint ls`) selects.

    --preset clone imitates what was recorded; other presets learn from it off-policy, after --set clone=N updates of cloning.
    """
    source = Path(words[0]) if words and words[0].endswith(".toml") else None
    query = " ".join(words[1:] if source else words) or None
    place = os.fspath(store_path(store)) if store is not None or source is None else None
    planned = net_plan(source, options, store=place, where=query)
    if not planned[0][1]["store"]:
        raise InputError("this file names no store", where=str(source), fix="--store DIR, or counterpoint train net")
    train_planned(planned, options)
