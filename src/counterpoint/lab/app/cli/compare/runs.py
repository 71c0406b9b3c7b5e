"""Compare ways of training: paired, equal budgets, intervals.

Always true: what is not comparable ends with exit code 5 and every reason, unless --anyway, which says so above the table;
runs that are named are only read; the same call prints the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from counterpoint.app.terminal.options import set_option
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, fitted, json_option, note, table
from counterpoint.app.terminal.progress import progress
from counterpoint.app.words import plain_text
from counterpoint.display import number
from counterpoint.errors import InputError
from counterpoint.lab.app.cli.compare._all import compare_all

if TYPE_CHECKING:
    from counterpoint.lab.app.api.compare import RunComparison
    from counterpoint.lab.bench.comparison import Group

_FILE = click.Path(path_type=Path, dir_okay=False)
_FOLDER = click.Path(path_type=Path, file_okay=False)
_OF_PRESETS = {"world": "--world", "seed": "--seed", "pairs": "--set"}
_OF_ALL = {
    "table_file": "--table",
    **{
        name: f"--{name}"
        for name in ("suite", "plan", "only", "worlds", "shard", "runner", "workers", "address", "show", "released")
    },
    "export": "--export",
}
_OF_BOTH = {"is_dry": "--dry-run", **{name: f"--{name}" for name in ("seeds", "budget", "out")}}


@click.command(
    epilog="\b\nExamples:\n  counterpoint compare runs grpo=runs/a* c3=runs/b* --metric agents\n"
    "  counterpoint compare runs --presets grpo,counterpoint --world wide_verify --seeds 5 --budget 200000\n"
    "  counterpoint compare runs --all --plan small --out runs/methods --shard 1/4\n\n"
    "Exit codes: 0 compared, 2 a wrong option or an unreadable run, 3 no such run, preset or world, 5 not comparable."
)
@click.argument("folders", nargs=-1, metavar="[[LABEL=]RUN]...")
@click.option(
    "--metric", default="value", show_default=True, help="value, agents, rounds, calls, or any list of the evaluations."
)
@click.option("--baseline", metavar="LABEL", help="The side that the others are compared with (default: the first).")
@click.option("--anyway", is_flag=True, help="Print what is not comparable, with a warning.")
@click.option("--presets", metavar="A,B,...", help="Train these first, each with every seed.")
@click.option("--world", metavar="W", help="With --presets: the world to train in.")
@click.option("--seed", type=click.IntRange(min=0), help="With --presets: the first training seed.  [default: 0]")
@click.option("--all", "is_all", is_flag=True, help="Run every preset that learns networks, tuned alike, and rank them.")
@click.option("--suite", metavar="NAME", help="With --all: the worlds, core or full.  [default: core]")
@click.option("--plan", metavar="NAME", help="With --all: how much is run: screening, small or full.  [default: screening]")
@click.option("--only", metavar="A,B,...", help="With --all: these methods.")
@click.option(
    "--worlds", metavar="A,B,...|all", help="With --all: these worlds of the suite.  [default: as many as the plan says]"
)
@click.option("--shard", metavar="I/N", help="With --all: every N-th method from the I-th on.")
@click.option("--runner", type=click.Choice(["here", "processes", "ray"]), help="With --all: where runs go.")
@click.option("--workers", type=click.IntRange(min=1), help="With --all: runs at once.  [default: 1]")
@click.option("--address", metavar="HOST:PORT", help="With --runner ray: the cluster.")
@click.option("--show", is_flag=True, help="With --all: print what the rows in --out show, and run nothing.")
@click.option("--released", is_flag=True, help="With --all: the same for the rows that come with Counterpoint.")
@click.option("--table", "table_file", type=_FILE, help="With --all: write the rows' tables as Markdown.")
@click.option("--export", type=_FILE, help="With --all: write the rows as one file.")
@click.option(
    "--seeds", type=click.IntRange(min=1), help="With --presets, --all: how many training seeds.  [default: 5, or the plan's]"
)
@click.option("--budget", type=click.IntRange(min=1), metavar="N", help="With --presets, --all: calls and rounds of each run.")
@click.option("--out", type=_FOLDER, help="With --presets, --all: where runs, or rows, go.  [default: runs, or runs/methods]")
@click.option("--dry-run", "is_dry", is_flag=True, help="With --presets, --all: print what would be trained.")
@set_option
@json_option
def runs(
    folders: tuple[str, ...], metric: str, baseline: str | None, anyway: bool, presets: str | None, is_all: bool,
    as_json: bool, **training: Any,
) -> None:  # fmt: skip
    """Compare ways of training on the same tasks, seeds and budget.

    RUN is a folder of counterpoint train, a pattern, or a name in ./runs. Runs of one label are its training seeds; without a
    label it is the run's preset. The last evaluation on held-out tasks counts. With --all every method that learns networks is
    tuned and run alike, row by row into --out: the same command goes on where it was cut off, and several may share a folder.
    """
    from counterpoint.lab.app.api.compare import compare_groups, groups_of, trained_groups

    if bool(folders) + bool(presets) + is_all != 1:
        fix = "counterpoint compare runs runs/a* runs/b*"
        raise InputError("name runs, or give --presets, or --all: one of the three", fix=fix)
    if is_all:
        _refuse_unused(training, _OF_PRESETS, "--presets")
        return compare_all(training, as_json=as_json)
    _refuse_unused(training, _OF_ALL, "--all")
    if presets:
        planned = _plan(presets, training)
        if training["is_dry"]:
            return _show_plan(planned, as_json)
        with progress("training", len(planned), quiet=as_json) as bar:
            groups = trained_groups(planned, note, lambda done, about: bar.at(done, about=about))
    else:
        _refuse_unused(training, _OF_BOTH | _OF_PRESETS, "--presets")
        groups = groups_of(folders)
    found = compare_groups(groups, metric, baseline, anyway=anyway)
    if as_json:
        return emit({"schema": SCHEMA_VERSION, **found.as_dict()})
    return click.echo(_text(found))


# -- training first ------------------------------------------------------------------------------------------------------


def _refuse_unused(training: dict[str, Any], flags: Mapping[str, str], goes_with: str) -> None:
    unused = [flag for name, flag in flags.items() if training[name]]
    if unused:
        raise InputError(f"{unused[0]} goes with {goes_with}", fix="runs that are named are compared as they are")


def _plan(presets: str, training: dict[str, Any]) -> list[tuple[Path, dict[str, Any]]]:
    """Every run to be trained: its folder and its settings; all names are looked up before the first one trains."""
    from counterpoint.lab.app.api.compare import plan_presets
    from counterpoint.lab.app.cli.world import _find

    names = [name.strip() for name in presets.split(",") if name.strip()]
    given = {"seeds": training["seeds"], "seed": training["seed"], "budget": training["budget"], "out": training["out"]}
    return plan_presets(names, training["world"], lambda name: _find(name, training["pairs"]), **given)


def _show_plan(planned: list[tuple[Path, dict[str, Any]]], as_json: bool) -> None:
    if as_json:
        return emit({"schema": SCHEMA_VERSION, "would_train": [{"folder": str(folder), **config} for folder, config in planned]})
    rows = [(str(folder), c["preset"], c["world"], c["seed"], c.get("budget_calls")) for folder, c in planned]
    click.echo(table(("would train", "preset", "world", "seed", "budget"), rows, right=(3, 4)))
    return None


# -- the comparison ------------------------------------------------------------------------------------------------------


def _text(found: RunComparison) -> str:
    from counterpoint.lab.app.api.compare import joined_reasons

    metric, groups, result = found.metric, found.groups, found.result
    header = (metric, "runs", "mean", "95 % low", "high", "of optimum", "calls/episode", "agents/episode", "calls spent/run")
    rows = [
        (g.label, len(g.runs), *map(number, (e.mean, e.low, e.high)), _percent(found.share_of_optimum(i)), *_means(g))
        for i, (g, e) in enumerate(zip(groups, result.means, strict=True))
    ]
    words = ("better", "worse") if metric == "value" else ("higher", "lower")
    differ = (f"minus {found.baseline.label}", "difference", "95 % low", "high", "p", "p (Holm)", *words, "same")
    cells = [
        [d.label, *(_signed(x) for x in (d.estimate.mean, d.estimate.low, d.estimate.high)), _p(d.estimate.p), _p(d.p_holm)]
        + [str(count) for count in d.counts()]
        for d in result.differences
    ]
    parts = ["\n".join(fitted(f"warning: not comparable: {joined_reasons(found.reasons)}", most=200))] if found.reasons else []
    parts.append("\n".join(fitted(found.heading(), most=200)))
    parts.append(table(header, rows, right=range(1, 9), drop=("agents/episode", "calls/episode", "of optimum")))
    parts.append(table(differ, cells, right=range(1, 9), drop=("same", "p")))
    parts += ["\n".join(line for one in said for line in fitted(one, most=200))] if (said := found.remarks()) else []
    return "\n\n".join(plain_text(part, keep_lines=True) for part in parts)


def _means(group: Group) -> tuple[str, str, str]:
    return number(group.mean_of("calls"), 3), number(group.mean_of("agents"), 3), f"{group.spent['calls']:,.0f}"


def _signed(value: float | None) -> str:
    return "-" if value is None else f"{value:+.4g}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _p(value: float | None) -> str:
    return "-" if value is None else "<0.0001" if value < 1e-4 else f"{value:.4f}"
