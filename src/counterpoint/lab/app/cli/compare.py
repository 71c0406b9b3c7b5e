"""Compare ways of training: paired, equal budgets, intervals.

Always true: what is not comparable ends with exit code 5 and every reason, unless --anyway, which says so above the table;
runs that are named are only read; the same call prints the same bytes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from counterpoint.app.search import remarks
from counterpoint.app.terminal.options import set_option
from counterpoint.app.terminal.output import SCHEMA_VERSION, emit, fitted, json_option, note, table
from counterpoint.app.terminal.progress import progress
from counterpoint.app.terminal.store import store_option
from counterpoint.app.words import plain_text
from counterpoint.display import at_least, compact, duration, money, number
from counterpoint.errors import InputError
from counterpoint.lab.app.cli._compare_all import compare_all

if TYPE_CHECKING:
    from counterpoint.app.api.compare_traces import TraceComparison
    from counterpoint.app.api.sums import Sum
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
    epilog="\b\nExamples:\n  counterpoint compare grpo=runs/a* c3=runs/b* --metric agents\n"
    "  counterpoint compare --presets grpo,counterpoint --world wide_verify --seeds 5 --budget 200000\n"
    "  counterpoint compare --all --plan small --out runs/methods --shard 1/4\n"
    "  counterpoint compare --traces 'since:14d until:7d' last:7d\n\n"
    "Exit codes: 0 compared, 2 a wrong option or an unreadable run, 3 no such run, preset or world, 5 not comparable."
)
@click.argument("runs", nargs=-1, metavar="[[LABEL=]RUN|QUERY]...")
@click.option("--traces", "is_traces", is_flag=True, help="Compare traces of a store instead: what each QUERY of `ls` finds.")
@store_option
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
def compare(
    runs: tuple[str, ...], metric: str, baseline: str | None, anyway: bool, presets: str | None, is_all: bool, is_traces: bool,
    store: Path | None, as_json: bool, **training: Any,
) -> None:  # fmt: skip
    """Compare ways of training on the same tasks, seeds and budget.

    RUN is a folder of counterpoint train, a pattern, or a name in ./runs. Runs of one label are its training seeds; without a
    label it is the run's preset. The last evaluation on held-out tasks counts. With --all every method that learns networks is
    tuned and run alike, row by row into --out: the same command goes on where it was cut off, and several may share a folder.
    """
    from counterpoint.lab.app.api.compare import compare_groups, groups_of, trained_groups

    if is_traces:
        if presets or is_all:
            raise InputError("--traces compares what is stored and trains nothing", fix="leave --presets and --all out")
        _refuse_unused(training, _OF_ALL | _OF_BOTH | _OF_PRESETS, "--presets or --all")
        return _compare_traces(runs, store, as_json)
    if bool(runs) + bool(presets) + is_all != 1:
        fix = "counterpoint compare runs/a* runs/b*"
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
        groups = groups_of(runs)
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


def _compare_traces(queries: tuple[str, ...], store: Path | None, as_json: bool) -> None:
    from counterpoint.app.api.compare_traces import compare_traces

    for said in dict.fromkeys(one for query in queries for one in remarks(query)):
        note(said)
    found = compare_traces(*queries, store=store)
    if as_json:
        sides = dict(zip(found.labels, found.counts, strict=True))
        return emit({"schema": SCHEMA_VERSION, "sides": sides, "shared": found.shared, **_traces_told(found)})
    click.echo("\n\n".join(plain_text(part, keep_lines=True) for part in _traces_text(found)))
    if remark := found.remark():
        note(remark)
    return None


def _traces_told(found: TraceComparison) -> dict[str, Any]:
    """What stands in the JSON beside the sides."""
    groups = {"projects": found.projects, "models": found.models}
    by = {name: {one: msgspec.to_builtins(sums) for one, sums in rows} for name, rows in groups.items()}
    changes = [{"label": label, "figure": name, **msgspec.to_builtins(change)} for label, name, change in found.changes]
    rows = [dataclasses.asdict(row) for row in found.rows]
    return {"totals": msgspec.to_builtins(found.totals), **by, "changes": changes, "rows": rows}


def _traces_text(found: TraceComparison) -> list[str]:
    """Totals, of what their change is made, by project and by model, then means with intervals."""
    from counterpoint.app.report_page import MIX_HEAD, change_words, changed, mix_words, written

    head = ("total of", "traces", "tokens", "cost", "time", "errors")
    sides = [(label, *_sum_cells(total)) for label, total in zip(found.labels, found.totals, strict=True)]
    parts = [table(head, sides, right=range(1, 6))]
    if found.changes:
        first = (f"change from {found.labels[0]}", "", "before", "after", "change", *MIX_HEAD)
        made = [(label, name, *changed(change, name)) for label, name, change in found.changes]
        parts.append(
            "\n".join([table(first, made, right=range(2, 8)), *fitted(mix_words(c for *_, c in found.changes), most=130)])
        )
    for what, rows in (("project", found.projects), ("model", found.models)):
        cells = [
            (one if k == 0 else "", label, *_sum_cells(total))
            for one, sums in rows[:_GROUPS_SHOWN]
            for k, (label, total) in enumerate(zip(found.labels, sums, strict=True))
        ]
        more = [f"… {len(rows) - _GROUPS_SHOWN:,} more (--json)"] if len(rows) > _GROUPS_SHOWN else []
        parts.append("\n".join([table((what, "traces of", "traces", *head[2:]), cells, right=range(2, 7)), *more]))
    means = [
        (r.figure, r.label, r.traces, *(written(r.figure, x) for x in (r.mean, r.low, r.high)),
         *(change_words(r.figure, x) for x in (r.diff, r.diff_low, r.diff_high)), r.tasks or "")
        for r in found.rows
    ]  # fmt: skip
    header = ("", "traces of", "n", "mean", "95 % low", "high", f"minus {found.labels[0]}", "95 % low", "high", "tasks")
    parts.append("\n".join([*fitted(f"Means per trace: {found.caption()}", most=130), table(header, means, right=range(2, 10))]))
    return parts


_GROUPS_SHOWN = 8


def _sum_cells(s: Sum) -> list[str]:
    cost = at_least(money(s.cost_usd), s.unpriced or s.uncounted)
    return [number(s.traces), at_least(compact(s.tokens), s.uncounted), cost, duration(s.seconds), number(s.errors)]


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
