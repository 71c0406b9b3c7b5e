"""Resume an interrupted training run.

Always true: the run continues with its own run.toml, from its last checkpoint.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from counterpoint.lab.app.cli.train._runs import EXIT_CODES, by_torchrun, session_options, train_folder


@click.command(
    epilog="\b\nExamples:\n  counterpoint train resume runs/mine-seed3\n"
    "  counterpoint train resume mine-seed3 --runner ray:NEW_HEAD:6379 --json\n\n" + EXIT_CODES
)
@click.argument("run", type=click.Path(path_type=Path))
@session_options
def resume(run: Path, **options: Any) -> None:
    """Resume an interrupted run, of a network or of a language model; RUN is its folder, or its name in ./runs.

    --runner ray:HOST:PORT names another address of the cluster; the kind of runner stays.
    """
    from counterpoint.lab.app.api.train import run_folder

    by_torchrun(lambda: train_folder(run_folder(run), {}, options, is_resumed=True), options["runner"])
