"""`counterpoint compare --all`: every method that learns networks, run or shown.

Always true: reading (`--show`, `--released`, `--table`, `--export`) runs nothing; what is done is kept whatever ends it, and the
same command goes on; the numbers printed are those of the rows.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, note, table
from counterpoint.app.terminal.progress import Bar, progress
from counterpoint.app.words import plain_text
from counterpoint.display import counted
from counterpoint.errors import InputError, NotFound, did_you_mean, install

if TYPE_CHECKING:
    from counterpoint.lab.bench.race.page import RaceResult
    from counterpoint.lab.bench.race.plan import Race
    from counterpoint.lab.bench.race.running import RaceProgress
    from counterpoint.lab.train.runner import Runner

HOME = Path("runs/methods")


def compare_all(asked: Mapping[str, Any], *, as_json: bool) -> None:
    """Run what is missing, or show what is there."""
    if asked["table_file"] or asked["export"] or asked["show"] or asked["released"]:
        return _shown(asked, as_json=as_json)
    race, out = _race(asked), asked["out"] or HOME
    if asked["is_dry"]:
        return _planned(race, out, as_json=as_json)
    progress = _run(race, out, asked, as_json=as_json)
    from counterpoint.lab.bench.race.page import result_of

    _print(result_of(out), as_json=as_json)
    if progress.failed:
        note(f"{progress.failed} rows failed; their errors stand under the table")
    return None


def _race(asked: Mapping[str, Any]) -> Race:
    from counterpoint.lab.bench.race.plan import planned_race

    worlds = () if asked["worlds"] is None else _names(asked["worlds"])
    every = worlds == ("all",)
    found = planned_race(
        asked["plan"] or "screening", asked["suite"] or "core", only=_names(asked["only"]), worlds=() if every else worlds,
        every_world=every, seeds=asked["seeds"], budget=asked["budget"], shard=_shard(asked["shard"]),
    )  # fmt: skip
    if not found.methods:
        raise InputError("this shard has no method", where="--shard", fix="use at most as many shards as there are methods")
    return found


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(word.strip() for word in (text or "").split(",") if word.strip())


def _shard(text: str | None) -> tuple[int, int]:
    found = re.fullmatch(r"(\d{1,4})/(\d{1,4})", text or "1/1")
    if found is None:
        raise InputError(f"{text!r} is not a shard", where="--shard", fix="as in 1/4, up to 4/4")
    return int(found[1]), int(found[2])


# -- running -----------------------------------------------------------------------------------------------------------


def _run(race: Race, out: Path, asked: Mapping[str, Any], *, as_json: bool) -> RaceProgress:
    try:
        from counterpoint.lab.bench.race.rows import RaceFolder
        from counterpoint.lab.bench.race.running import RaceSession

        folder = RaceFolder.begin(out, race.head())
        with ExitStack() as stack:
            bar = stack.enter_context(progress("rows", quiet=as_json))
            session = RaceSession(race, folder, lambda kind, row: _tell(kind, row, bar, as_json=as_json))
            workers = asked["workers"] or 1
            return session.go(_runner(asked, workers, stack), workers)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != "torch":
            raise
        raise InputError("training needs torch, which is not installed", fix=install("train")) from error
    except KeyboardInterrupt:
        note(f"what is done is kept in {out}; the same command goes on")
        raise


def _runner(asked: Mapping[str, Any], workers: int, stack: ExitStack) -> Runner | None:
    """What computes rows: this process, processes of this machine, or a Ray cluster."""
    from counterpoint.lab.train.runner import check_ray

    kind = asked["runner"] or ("here" if workers == 1 else "processes")
    if kind == "ray":
        check_ray()
        from counterpoint.lab.train.runners.ray_actors import RayActors  # ray is optional

        return stack.enter_context(RayActors(workers, address=asked["address"], tell=note))
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


def _planned(race: Race, out: Path, *, as_json: bool) -> None:
    """What would run."""
    from counterpoint.lab.bench.race.rows import RaceFolder, is_race

    folder = RaceFolder(out) if is_race(out) else None
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


# -- showing -----------------------------------------------------------------------------------------------------------


def _shown(asked: Mapping[str, Any], *, as_json: bool) -> None:
    from counterpoint.files import put
    from counterpoint.lab.bench.race.page import markdown, result_of
    from counterpoint.lab.bench.race.rows import write_rows

    result = result_of(_released(asked) if asked["released"] else asked["out"] or HOME)
    if asked["export"]:
        write_rows(asked["export"], result.head, result.rows)
        note(f"wrote {asked['export']}: {counted(len(result.rows), 'row')}")
    if asked["table_file"]:
        put([(asked["table_file"], markdown(result).encode())])
        note(f"wrote {asked['table_file']}")
    if asked["export"] or asked["table_file"]:
        return
    worlds = _names(asked["worlds"])
    _print(result.only(_names(asked["only"]), () if worlds == ("all",) else worlds), as_json=as_json)


def _released(asked: Mapping[str, Any]) -> Path:
    from counterpoint.lab.bench.race.rows import RELEASED

    plan = asked["plan"] or "screening"
    if asked["out"]:
        raise InputError("--released and --out name two sets of rows", fix="leave one of them out")
    if plan not in RELEASED:
        raise NotFound(f"no rows of plan {plan!r} come with Counterpoint", where="--plan", fix=did_you_mean(plan, RELEASED))
    return RELEASED[plan]


def _print(result: RaceResult, *, as_json: bool) -> None:
    from counterpoint.lab.bench.race.page import HEADER, cells, notes, overview_cells, overview_header

    over = result.overall if len(result.worlds) > 1 else ()
    if as_json:
        told = {
            "worlds": [dataclasses.asdict(world) for world in result.worlds],
            "overall": [dataclasses.asdict(o) for o in over],
        }
        return emit({"schema": SCHEMA_VERSION, "event": "result", "head": result.head, **told, "failures": result.failures})
    parts = []
    for world in result.worlds:
        lines = [cells(one, result.head["methods"]) for one in world.standings]
        best = f"best known {world.best_known / world.bound:.1%} of it"
        title = f"{world.world}: bound {world.bound:.4g}, {best}, budget {world.budget:,}"
        parts += [title, table(HEADER, lines, right=range(3, 11)), "\n".join(notes(result, world))]
    if over:
        lines = [overview_cells(one, result.head["methods"]) for one in over]
        header = overview_header(result.worlds)
        parts += ["all worlds, by the mean of the ranks", table(header, lines, right=[0, *range(2, len(header))])]
    click.echo("\n\n".join(plain_text(part, keep_lines=True) for part in parts if part) or "there is no final row yet")
    return None
