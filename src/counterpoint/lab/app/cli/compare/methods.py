"""Run every method that learns networks, tuned alike, and rank them.

Always true: what is done is kept whatever ends it, and the same command continues; several may share a folder.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from counterpoint.app.terminal.options import cap_option, dry_run_option, output_option
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, json_option, note, table
from counterpoint.app.terminal.progress import Bar, progress
from counterpoint.app.words import plain_text
from counterpoint.errors import InputError, install
from counterpoint.lab.app.cli._options import counts_of, names_of, runner_option, split_runner, workers_option
from counterpoint.lab.app.cli.compare._race import HOME, print_race

if TYPE_CHECKING:
    from counterpoint.lab.bench.race.plan import Race
    from counterpoint.lab.bench.race.running import RaceProgress
    from counterpoint.lab.train.runner import Runner


@click.command(
    epilog="\b\nExamples:\n  counterpoint compare methods --plan small -o runs/methods --shard 1/4\n"
    "  counterpoint compare methods grpo c3 --world wide_verify --seeds 3 --cap calls=200000 --workers 4\n\n"
    "Exit codes: 0 done, 2 a wrong option, 3 no such method or world, 130 interrupted (the same command continues)."
)
@click.argument("names", nargs=-1, metavar="[METHOD]...")
@click.option("--suite", default="core", show_default=True, metavar="NAME", help="The worlds: core, full, or random:SEED.")
@click.option("--plan", default="screening", show_default=True, metavar="NAME", help="How much is run: screening, small or full.")
@click.option("--world", metavar="NAME[,NAME]|all", help="Worlds of the suite.  [default: as many as the plan says]")
@click.option("--shard", metavar="I/N", help="Every N-th method from the I-th on.")
@click.option("--seeds", type=click.IntRange(min=1), metavar="N", help="Training seeds.  [default: the plan's]")
@cap_option("calls")
@runner_option
@workers_option
@output_option(f"The folder of the rows.  [default: {HOME}]", metavar="DIR")
@dry_run_option
@json_option
def methods(names: tuple[str, ...], output: Path | None, is_dry: bool, as_json: bool, **options: Any) -> None:
    """Run every METHOD (default: every preset that learns networks), tuned alike, and print the standings.

    Rows go to the folder one by one; `counterpoint compare standings` prints them again.
    """
    split_runner(options["runner"])  # a wrong one is an error before anything is written
    race, out = _race(names, options), output or HOME
    if is_dry:
        return _print_plan(race, out, as_json=as_json)
    finished = _run(race, out, options, as_json=as_json)
    from counterpoint.lab.bench.race.result import result_of

    print_race(result_of(out), as_json=as_json)
    if finished.failed:
        note(f"{finished.failed} rows failed; their errors stand under the table")
    return None


def _race(names: tuple[str, ...], options: Mapping[str, Any]) -> Race:
    from counterpoint.lab.bench.race.plan import planned_race

    worlds = names_of(options["world"])
    every = worlds == ("all",)
    race = planned_race(
        options["plan"], options["suite"], only=names, worlds=() if every else worlds, every_world=every,
        seeds=options["seeds"], budget=counts_of(options["caps"], "calls").get("calls"), shard=_shard(options["shard"]),
    )  # fmt: skip
    if not race.methods:
        raise InputError("this shard has no method", where="--shard", fix="use at most as many shards as there are methods")
    return race


def _shard(text: str | None) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,4})/(\d{1,4})", text or "1/1")
    if match is None:
        raise InputError(f"{text!r} is not a shard", where="--shard", fix="as in 1/4, up to 4/4")
    return int(match[1]), int(match[2])


# -- running -----------------------------------------------------------------------------------------------------------


def _run(race: Race, out: Path, options: Mapping[str, Any], *, as_json: bool) -> RaceProgress:
    try:
        from counterpoint.lab.bench.race.rows import RaceFolder
        from counterpoint.lab.bench.race.running import RaceSession

        folder = RaceFolder.begin(out, race.head())
        with ExitStack() as stack:
            bar = stack.enter_context(progress("rows", quiet=as_json))
            session = RaceSession(race, folder, lambda kind, row: _tell(kind, row, bar, as_json=as_json))
            workers = options["workers"] or 1
            return session.go(_runner(options, workers, stack), workers)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "torch":
            raise
        raise InputError("training needs torch, which is not installed", fix=install("train")) from error
    except KeyboardInterrupt:
        note(f"what is done is kept in {out}; the same command continues")
        raise


def _runner(options: Mapping[str, Any], workers: int, stack: ExitStack) -> Runner | None:
    """What computes rows: this process, processes of this machine, or a Ray cluster."""
    from counterpoint.lab.train.runner import check_ray

    named, address = split_runner(options["runner"])
    kind = named or ("here" if workers == 1 else "processes")
    if kind == "ray":
        check_ray()
        from counterpoint.lab.train.runners.ray_actors import RayActors  # ray is optional

        return stack.enter_context(RayActors(workers, address=address, tell=note))
    if kind == "processes":
        from counterpoint.lab.train.runners.processes import Processes

        return stack.enter_context(Processes(workers))
    return None


def _tell(kind: str, row: Mapping[str, Any], bar: Bar, *, as_json: bool) -> None:
    if kind == "start" and "rows_done" in row:
        bar.begin_at(row["rows_done"])
    if "rows_done" in row:
        bar.at(row["rows_done"], row["rows_total"], row.get("method", ""))
    if as_json:
        return emit({"schema": SCHEMA_VERSION, "event": kind, **row})
    left = "" if row.get("left_s") is None else f", {_time(row['left_s'])} left"
    if kind == "row":
        what = f"{row['method']}" + (
            "" if "seed" not in row else f" {row['point']}, {row['world']}, seed {row['seed']} ({row['phase']})"
        )
        done = f"{row['rows_done']:,}/{row['rows_total']:,} " if "rows_done" in row else ""
        came = (
            f"{row['value'] / row['bound']:.1%} of the bound" if row["status"] == "done" else f"{row['status']}: {row['error']}"
        )
        note(plain_text(f"{done}{what}: {came}{left}"))
    elif kind == "start":
        note(f"{row['rows_done']:,} of {row['rows_total']:,} rows are there")
    elif kind == "wait":
        note("the rows that are left are being computed by other processes; waiting for them")
    return None


def _time(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _print_plan(race: Race, out: Path, *, as_json: bool) -> None:
    """Print what would run."""
    from counterpoint.lab.bench.race.rows import RaceFolder

    folder = RaceFolder(out) if RaceFolder.is_at(out) else None
    runs = race.most_runs()
    done = [run for run in runs if folder is not None and folder.row(run) is not None]
    rows = []
    for phase in ("tune", "confirm", "final"):
        some = [run for run in runs if run.phase == phase]
        if some:
            worlds = ", ".join(dict.fromkeys(run.world.name for run in some))
            rows.append((phase, worlds, len({run.seed for run in some}), len(some), sum(run in done for run in some),
                         sum(run.budget for run in some)))  # fmt: skip
    names = [method.name for method in race.methods]
    if as_json:
        keys = ("phase", "worlds", "seeds", "runs", "done", "calls")
        found = [dict(zip(keys, row, strict=True)) for row in rows]
        return emit({"schema": SCHEMA_VERSION, "methods": names, "would_run": found, "head": race.head()})
    click.echo(table(("phase", "worlds", "seeds", "runs", "done", "calls"), rows, right=(2, 3, 4, 5)))
    click.echo(f"\n{len(names)} methods: {', '.join(names)}")
    return None
