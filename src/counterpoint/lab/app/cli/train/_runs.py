"""What the commands that train have in common: their options, the plan of runs, and one run after the other.

Always true: rows go to stdout, progress to stderr; an interrupted run prints the command that resumes it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

import counterpoint.registry as registry
from counterpoint.app.terminal.options import allow_option, dry_run_option, output_option, seed_option, set_option
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option, note, table
from counterpoint.app.words import plain_text
from counterpoint.display import counted
from counterpoint.lab.app.cli._options import runner_option, split_runner, workers_option

Planned = list[tuple[Path, dict[str, Any]]]
"""Every run to be trained: its folder and its settings."""

EXIT_CODES = (
    "Exit codes: 0 finished, 1 failed (NaN or infinite loss, a full disk), 2 a wrong option or setting,\n"
    "3 no such file, run, preset or world, 5 the world or machine lacks what is asked for,\n"
    "6 another process writes the run, 130 interrupted, or ended by SIGTERM (a checkpoint is kept)."
)

_TOLD = (
    runner_option,
    allow_option,
    click.option(
        "--tracker", "trackers", multiple=True, type=click.Choice(["tensorboard", "wandb", "mlflow"]), help="Also log there."
    ),
    click.option("--to", "push_to", metavar="URL", help="Send the traces that the run keeps to a collector (`serve`)."),
    click.option("--watch", is_flag=True, help="A live table, where there is a terminal."),
    json_option,
)
_RUNS = (
    set_option,
    seed_option(default=None),
    click.option("--seeds", type=click.IntRange(min=1), metavar="N", help="Train N runs, of seed, seed + 1, ..."),
    output_option("The run's folder; of several seeds, DIR-seedS each.", metavar="DIR"),
    workers_option,
    dry_run_option,
)


def run_options(command: Any) -> Any:
    """The options of every command that trains runs."""
    for option in reversed((*_RUNS, *_TOLD)):
        command = option(command)
    return command


def session_options(command: Any) -> Any:
    """Those of them that a resumed run takes too."""
    for option in reversed(_TOLD):
        command = option(command)
    return command


def set_value(config: dict[str, Any], pair: str) -> None:
    """Put one NAME=VALUE into a table of settings; dots lead into tables."""
    name, _, text = pair.partition("=")
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    *path, last = name.split(".")
    inner = config
    for part in path:
        inner[part] = dict(inner.get(part) or {})
        inner = inner[part]
    inner[last] = value


def by_torchrun(train: Callable[[], None], runner: str | None, *, is_dry: bool = False) -> None:
    """Train here; of processes that torchrun started together the first one does, and the others learn with it.

    Where $WORLD_SIZE alone says how many there are, and teams are played on a Ray cluster, the cluster starts the others.
    """
    from counterpoint.lab.train.lm.torchrun import own_rank, world_size

    rank, size = own_rank(), world_size()
    if is_dry:
        return None if rank else train()
    if size == 1:
        return train()
    from counterpoint.lab.train.lm.followers import follow, leading

    if rank:
        return follow()
    kind, address = split_runner(runner)
    with ExitStack() as opened:
        if kind == "ray" and "RANK" not in os.environ:
            from counterpoint.lab.train.runner import check_ray

            check_ray()
            from counterpoint.lab.train.lm.ray_ranks import RayRanks  # ray is optional

            opened.enter_context(RayRanks(size, address=address))
        opened.enter_context(leading())
        train()
    return None


def train_planned(planned: Planned, options: Mapping[str, Any], estimate: Mapping[str, Any] | None = None) -> None:
    """Train every run of a plan, or print the plan, and what it takes, where that is asked for."""
    from counterpoint.lab.app.api.train import is_run

    if options["is_dry"]:
        return show_plan(planned, as_json=options["as_json"], estimate=estimate)
    for folder, config in planned:
        train_folder(folder, config, options, is_resumed=len(planned) > 1 and is_run(folder))
    if len(planned) > 1 and not options["as_json"]:
        first = planned[0][0].name.rsplit("-seed", 1)[0]
        plot = f"counterpoint compare plot {first}={planned[0][0].parent / first}-seed*"
        click.echo(plain_text(f"{counted(len(planned), 'run')}: {plot}"))
    return None


def show_plan(planned: Planned, *, as_json: bool, estimate: Mapping[str, Any] | None = None) -> None:
    """Print what would be trained, and what one of these runs takes."""
    if as_json:
        would = {"would_train": [{"folder": str(folder), **config} for folder, config in planned]}
        return emit({"schema": SCHEMA_VERSION, **would, **({} if estimate is None else {"estimate": estimate})})
    for folder, config in planned:
        rows = [(k, json.dumps(v, default=str)) for k, v in config.items()]
        click.echo(f"would train {plain_text(str(folder))}\n" + table(("setting", "value"), rows))
    if estimate is not None:
        from counterpoint.lab.app.api.estimate import estimate_lines

        head, parts, told = estimate_lines(estimate)
        click.echo("\n" + table(head, parts) + "\n" + told)
    return None


def train_folder(folder: Path, config: dict[str, Any], options: Mapping[str, Any], *, is_resumed: bool) -> None:
    """Train one run, or resume it, and print how it goes."""
    from counterpoint.lab.app.api.train import is_run, train_one
    from counterpoint.lab.app.cli.train._table import ending, printer
    from counterpoint.lab.train.folder import RunFolder

    if is_resumed:
        opened = RunFolder.open(folder)
        for line in [f"{folder} is finished already"] if opened.about["status"] == "finished" else opened.notes():
            note(plain_text(line))
    table_ = printer(as_json=options["as_json"], watch=options["watch"])
    _, address = split_runner(options["runner"])
    where = {"allow": options["allow"], "address": address, "log": options["trackers"], "push": options["push_to"]}
    try:
        run = train_one(folder, config, progress=table_, resume=is_resumed, **where)
    except KeyboardInterrupt:
        table_.close()
        if is_run(folder) and (about := RunFolder.open(folder).about)["status"] != "finished":
            note(f"resume it with: counterpoint train resume {folder}" + registry.allowing([about["preset"], about["world"]]))
        raise
    finally:
        table_.close()
    if not options["as_json"]:
        click.echo("\n".join(ending(run)))
