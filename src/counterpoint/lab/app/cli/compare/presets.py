"""Train presets alike, then compare their runs.

Always true: all names are looked up before the first run trains; finished runs of the same settings are not trained again.
"""

from __future__ import annotations

from pathlib import Path

import click

from counterpoint.app.terminal.options import cap_option, dry_run_option, output_option, seed_option, set_option
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option, note, table
from counterpoint.app.terminal.progress import progress
from counterpoint.lab.app.api.compare import compare_groups, plan_presets, trained_groups
from counterpoint.lab.app.cli._options import counts_of
from counterpoint.lab.app.cli._worlds import find_world
from counterpoint.lab.app.cli.compare._result import comparison_options, print_comparison


@click.command(
    epilog="\b\nExamples:\n  counterpoint compare presets grpo counterpoint --world wide_verify --seeds 5 --cap calls=200000\n"
    "  counterpoint compare presets grpo c3 --world W1 --set vote_items=8 --dry-run --json\n\n"
    "Exit codes: 0 compared, 2 a wrong option or an unreadable run, 3 no such preset or world, 5 not comparable."
)
@click.argument("names", nargs=-1, metavar="PRESET PRESET...")
@click.option("--world", metavar="NAME", help="The world to train in: a name of `train worlds` or of a suite.")
@click.option("--seeds", default=5, show_default=True, type=click.IntRange(min=1), metavar="N", help="Training seeds of each.")
@seed_option("The first training seed.")
@cap_option("calls")
@set_option
@output_option("The folder of the runs.  [default: runs]", metavar="DIR")
@dry_run_option
@comparison_options
@json_option
def presets(
    names: tuple[str, ...], world: str | None, seeds: int, seed: int, caps: tuple[str, ...], pairs: tuple[str, ...],
    output: Path | None, is_dry: bool, metric: str, baseline: str | None, ignore_mismatch: bool, as_json: bool,
) -> None:  # fmt: skip
    """Train presets in one world with equal seeds and budgets, and compare their runs.

    Where the runs of one preset end before the budget is spent, the others get what those were charged.
    """
    budget = counts_of(caps, "calls").get("calls")
    planned = plan_presets(names, world, lambda name: find_world(name, pairs), seeds=seeds, seed=seed, budget=budget, out=output)
    if is_dry:
        return _show_plan(planned, as_json=as_json)
    with progress("training", len(planned), quiet=as_json) as bar:
        groups = trained_groups(planned, note, lambda done, about: bar.at(done, about=about))
    return print_comparison(compare_groups(groups, metric, baseline, ignore_mismatch=ignore_mismatch), as_json=as_json)


def _show_plan(planned: list[tuple[Path, dict[str, object]]], *, as_json: bool) -> None:
    if as_json:
        return emit({"schema": SCHEMA_VERSION, "would_train": [{"folder": str(folder), **config} for folder, config in planned]})
    rows = [(str(folder), c["preset"], c["world"], c["seed"], c.get("budget_calls")) for folder, c in planned]
    return click.echo(table(("would train", "preset", "world", "seed", "budget"), rows, right=(3, 4)))
