"""Train a team, and show it beside hand-made ones."""

from __future__ import annotations

import importlib.util
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from counterpoint.app.cli._demo_quick import command_name, quick_demo
from counterpoint.app.cli._demo_screen import decisions_screen, measures_screen, policies_screen
from counterpoint.app.cli._output import emit, json_option, note
from counterpoint.errors import InputError

_TASKS = 60
_SHOWN = ("random", "serial", "best_cap", "reference")


@click.command(
    epilog="\b\nExamples:\n  counterpoint demo\n  counterpoint demo --quick --to samples --seed 7",
)
@click.option("--to", "folder", default="counterpoint_demo", show_default=True, type=click.Path(path_type=Path), help="Where.")
@click.option("--seed", default=0, show_default=True, help="Another seed, other traces, another run.")
@click.option("--quick", is_flag=True, help="Train nothing: write and audit six sample traces, in seconds.")
@click.option("--world", default="M", show_default=True, help="The TeamWorld to train in.")
@click.option("--updates", default=50, show_default=True, help="Updates to train for.")
@click.option("--dry-run", "is_dry", is_flag=True, help="With --quick: check and audit, and write nothing.")
@json_option
def demo(folder: Path, seed: int, quick: bool, world: str, updates: int, is_dry: bool, as_json: bool) -> None:
    """Train an orchestrator whose five decisions are all learned; a few minutes on two cores, offline."""
    if quick:
        quick_demo(folder, seed, is_dry=is_dry, as_json=as_json)
        return
    if is_dry:
        raise InputError("--dry-run goes with --quick", fix="counterpoint demo --quick --dry-run")
    if importlib.util.find_spec("torch") is None:
        fix = "pip install 'counterpoint[train]', or counterpoint demo --quick"
        raise InputError("the demo trains a policy, and torch is not installed", fix=fix)
    run = folder / "run"
    if run.exists():
        shutil.rmtree(run)  # a run of an earlier demo, ours to replace
    begin = time.perf_counter()
    found = _trained(run, world, seed, updates)
    found["seconds"] = round(time.perf_counter() - begin, 1)
    if as_json:
        emit(found)
        return
    click.echo(_title(found, updates))
    click.echo(policies_screen(found))
    click.echo(measures_screen(found))
    click.echo(decisions_screen(found))
    _next_steps(run, found)


def _title(found: dict[str, Any], updates: int) -> str:
    spent = found["spent"]
    return (
        f"Trained preset counterpoint on {found['world']} for {updates} updates: {spent['episodes']:,} episodes, "
        f"{spent['calls']:,} worker calls, {found['seconds']:.0f} s in all\n"
    )


def _trained(run: Path, world: str, seed: int, updates: int) -> dict[str, Any]:
    """Train, evaluate, and look at what was learned."""
    from counterpoint.train.before_after import first_and_last
    from counterpoint.train.start import train_run

    config = {
        "preset": "counterpoint", "world": world, "seed": seed, "updates": updates, "budget_calls": 0,
        "eval_every": max(10, updates // 4), "runner": "processes", "workers": 2, "staleness": 1,
    }  # fmt: skip
    done = train_run(run, config, progress=_progress(updates))
    with done:
        return first_and_last(done, tasks=_TASKS, hand_made=_SHOWN)


def _progress(updates: int) -> Any:
    """A bar on a terminal, a line every ten seconds elsewhere."""
    begin = last = time.monotonic()
    is_terminal = os.isatty(2)

    def tell(kind: str, row: Mapping[str, Any]) -> None:
        nonlocal last
        now = time.monotonic()
        if kind != "update" or (now - last < (0.2 if is_terminal else 10.0) and row["update"] < updates):
            return
        last = now
        share = row["update"] / updates
        bar = "█" * round(24 * share) + "░" * (24 - round(24 * share))
        left = (now - begin) / max(share, 1e-9) * (1 - share)
        line = f"training {bar} {row['update']:>3}/{updates}  reward {row['reward']:7.1f}  team {row['agents']:4.1f}"
        line += f"  {left:4.0f} s left"
        if is_terminal:
            click.echo(f"\r{line}\x1b[K", nl=row["update"] >= updates, err=True)
        else:
            note(line)

    return tell


def _next_steps(run: Path, found: dict[str, Any]) -> None:
    command, place = command_name(), os.fspath(run)
    first = found["traces"][0] if found["traces"] else "TRACE"
    steps = [
        (f"show --store {place}/store {first}", "the learned team, event by event"),
        (f"credit --store {place}/store {first}", "who earned it"),
        (f"plot {place}", "learning curves, stop times, team sizes"),
        (f"train --preset grpo --world {found['short']}", "another method on the same world"),
        (f"compare --presets counterpoint,grpo --world {found['short']} --seeds 3", "paired, equal budget, intervals"),
    ]
    width = max(len(arguments) for arguments, _ in steps)
    click.echo(f"Run     {place} (settings, metrics, checkpoints)\nTraces  {place}/store")
    for i, (arguments, why) in enumerate(steps):
        click.echo(f"{'Next    ' if not i else '        '}{command} {arguments.ljust(width)}  {why}")
