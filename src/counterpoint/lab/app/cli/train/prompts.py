"""Let a method rewrite a team's prompts; no weights are trained.

Always true: no weights change and no gain is claimed; a run prints the scores of the teams that it played, on other tasks in
every iteration, and what that cost in calls and tokens.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from counterpoint.app.terminal.options import output_option, overrides, seed_option, set_option
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option, table
from counterpoint.errors import InputError

if TYPE_CHECKING:
    from counterpoint.lab.train.text_method import TextLog, TextSettings

METHODS = ("langmarl", "hera", "mas_zero")
_SETTINGS = ("reviewer", "iterations", "batch", "width")
"""Settings of the method that --set takes beside dials of the task."""


@click.command(
    epilog="\b\nExamples:\n  counterpoint train prompts langmarl --set parts=2 --set iterations=2\n"
    "  counterpoint train prompts hera --model local:smollm2-135m --set reviewer=local:smollm2-135m --set batch=1 -o words\n\n"
    "Exit codes: 0 done, 2 a value that does not fit, 3 no such task or model."
)
@click.argument("method", type=click.Choice(METHODS))
@click.option("--task", default="ledger_hunt", show_default=True, help="The text task that teams play.")
@click.option("--topology", default="centralized", show_default=True, help="The team's shape, unless the method chooses it.")
@click.option("--model", default="fake", show_default=True, help="Who plays: openai:NAME, local:NAME; fake is a test double.")
@seed_option("Seed of the tasks and of every draw.")
@output_option("Write log, prompts and library here.", metavar="FOLDER")
@set_option
@json_option
def prompts(
    method: str, task: str, topology: str, model: str, seed: int, output: Path | None, pairs: tuple[str, ...], as_json: bool
) -> None:
    """Let a method rewrite the prompts of a team, and log the scores.

    langmarl rewrites the roles' prompts by a critic's advice, hera keeps a library of insights from teams that did well and
    badly, mas_zero designs a new team for every task. They train no weights. --set takes settings (iterations=2, batch=2 tasks
    each, width=3 workers of an agent, reviewer=MODEL that judges and rewrites; fake is a test double) and dials of the task.
    """
    from counterpoint.lab.tasks.task import task as find_task
    from counterpoint.lab.train.text_method import TextSettings

    own = [pair for pair in pairs if pair.partition("=")[0] in _SETTINGS]
    settings = TextSettings(
        task=task, config=overrides(find_task(task).config, [pair for pair in pairs if pair not in own]), topology=topology,
        model=model, seed=seed, **overrides(TextSettings(), own),
    )  # fmt: skip
    settings.spec(seed).make_task()  # dials that do not exist are an error before anything is played
    if output is not None and output.exists() and any(output.iterdir()):
        raise InputError("exists already", where=str(output), fix="name another folder with -o")
    log = asyncio.run(_method(method)(settings))
    if output is not None:
        _write(output, settings, log)
    for row in log.rows if as_json else ():
        emit({"schema_version": SCHEMA_VERSION, "method": method, **row})
    if not as_json:
        names = list(dict.fromkeys(name for row in log.rows for name in row))
        click.echo(f"{method} on {task}: {model} plays, {settings.reviewer} reviews; scores are logged, no gain is claimed\n")
        click.echo(table(names, [[_cell(row.get(name)) for name in names] for row in log.rows]))


def _method(name: str) -> Callable[[TextSettings], Coroutine[Any, Any, TextLog]]:
    from counterpoint.lab.train.text_methods import hera, langmarl, mas_zero

    return {"langmarl": langmarl.run, "hera": hera.run, "mas_zero": mas_zero.run}[name]


def _cell(value: object) -> object:
    return ", ".join(f"{v:g}" if isinstance(v, float) else str(v) for v in value) if isinstance(value, list) else value


def _write(folder: Path, settings: TextSettings, log: TextLog) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(row) + "\n" for row in log.rows)
    for name, text in (
        ("log.jsonl", lines),
        ("prompts.json", json.dumps(log.prompts, indent=1, ensure_ascii=False)),
        ("library.json", json.dumps(log.library, indent=1, ensure_ascii=False)),
        ("settings.json", json.dumps(asdict(settings), indent=1, default=dict)),
    ):
        (folder / name).write_text(text, encoding="utf-8")
