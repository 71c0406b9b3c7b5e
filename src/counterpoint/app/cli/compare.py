"""Compare ways of training: paired, equal budgets, intervals.

Always true: what is not comparable ends with exit code 5 and every reason, unless --anyway, which says so above the table;
runs that are named are only read; the same call prints the same bytes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from counterpoint import registry
from counterpoint.app.cli._dials import set_option
from counterpoint.app.cli._output import SCHEMA_VERSION, emit, json_option, note, number, plain_text, table
from counterpoint.app.cli._runs import grouped, groups_of
from counterpoint.errors import InputError, NotFound, Refused, did_you_mean

if TYPE_CHECKING:
    from counterpoint.bench.comparable import Group, Sides
    from counterpoint.bench.comparison import Comparison, Difference
    from counterpoint.train.folder import RunFolder

_REASONS_SHOWN, _LOSSES_SHOWN = 4, 3


@click.command(
    epilog="\b\nExamples:\n  counterpoint compare grpo=runs/a* c3=runs/b* --metric agents\n"
    "  counterpoint compare --presets grpo,counterpoint --world wide_verify --seeds 5 --budget 200000\n\n"
    "\b\nExit codes: 0 compared, 2 a wrong option or an unreadable run, 3 no such run, preset or world, 5 not comparable."
)
@click.argument("runs", nargs=-1, metavar="[[LABEL=]RUN]...")
@click.option(
    "--metric", default="value", show_default=True, help="value, agents, rounds, calls, or any list of the evaluations."
)
@click.option("--baseline", metavar="LABEL", help="The side the others are held against (default: the first).")
@click.option("--anyway", is_flag=True, help="Print what is not comparable, with a warning.")
@click.option("--presets", metavar="A,B,...", help="Train these first, each with every seed.")
@click.option("--world", metavar="W", help="With --presets: the world to train in.")
@click.option("--seeds", type=click.IntRange(min=1), help="With --presets: how many training seeds.  [default: 5]")
@click.option("--seed", type=click.IntRange(min=0), help="With --presets: the first training seed.  [default: 0]")
@click.option("--budget", type=click.IntRange(min=1), metavar="CALLS", help="With --presets: calls each run may make, forks too.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="With --presets: where runs go.  [default: runs]")
@click.option("--dry-run", "is_dry", is_flag=True, help="With --presets: print what would be trained.")
@set_option
@json_option
def compare(
    runs: tuple[str, ...], metric: str, baseline: str | None, anyway: bool, presets: str | None, as_json: bool, **training: Any
) -> None:
    """Compare ways of training on the same tasks, seeds and budget.

    RUN is a folder of counterpoint train, a pattern, or a name in ./runs. Runs of one label are its training seeds; without a
    label it is the run's preset. The last evaluation on held-out tasks counts.
    """
    if bool(runs) == bool(presets):
        raise InputError("name runs, or give --presets, one of the two", fix="counterpoint compare runs/a* runs/b*")
    if presets:
        planned = _plan(presets, training)
        if training["is_dry"]:
            return _show_plan(planned, as_json)
        groups = grouped(
            [(config["preset"], _trained(folder, config, k, len(planned))) for k, (folder, config) in enumerate(planned)]
        )
    else:
        _refuse_unused(training)
        groups = groups_of(runs)
    _report(groups, metric, baseline, anyway=anyway, as_json=as_json)
    return None


# -- training first ------------------------------------------------------------------------------------------------------


def _refuse_unused(training: dict[str, Any]) -> None:
    flags = {
        "is_dry": "--dry-run",
        "pairs": "--set",
        **{name: f"--{name}" for name in ("world", "seeds", "seed", "budget", "out")},
    }
    unused = [flag for name, flag in flags.items() if training[name]]
    if unused:
        raise InputError(f"{unused[0]} goes with --presets", fix="runs that are named are compared as they are")


def _plan(presets: str, training: dict[str, Any]) -> list[tuple[Path, dict[str, Any]]]:
    """Every run to be trained: its folder and its settings; all names are looked up before the first one trains."""
    from counterpoint.app.cli.world import _find

    names = [name.strip() if ":" in name else name.strip().replace("-", "_") for name in presets.split(",") if name.strip()]
    for name in names:
        if ":" not in name and name not in registry.ids("preset"):
            raise NotFound(f"no preset named {name!r}", where="--presets", fix=did_you_mean(name, registry.ids("preset")))
    if len(set(names)) < 2 or len(set(names)) < len(names):
        raise InputError("name two presets or more, each once", where="--presets", fix="as in --presets grpo,counterpoint")
    if not training["world"]:
        raise InputError("--presets needs --world", fix="counterpoint world ls")
    given, plain = _find(training["world"], training["pairs"]).config, _find(training["world"])
    changes = {k: v for k, v in _fields(given).items() if v != _fields(plain.config)[k]}
    world = training["world"] if ":" in training["world"] else plain.name
    first, out = training["seed"] or 0, training["out"] or Path("runs")
    planned = []
    for seed in range(first, first + (training["seeds"] or 5)):
        for name in names:
            config: dict[str, Any] = {"preset": name, "world": world, "seed": seed, "set": changes}
            if training["budget"]:
                config["budget_calls"] = training["budget"]
            planned.append((out / re.sub(r"[^\w.-]+", "-", f"{name}-{world}-{seed}"), config))
    return planned


def _fields(config: Any) -> dict[str, Any]:
    import dataclasses

    return {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}


def _show_plan(planned: list[tuple[Path, dict[str, Any]]], as_json: bool) -> None:
    if as_json:
        return emit({"schema": SCHEMA_VERSION, "would_train": [{"folder": str(folder), **config} for folder, config in planned]})
    rows = [(str(folder), c["preset"], c["world"], c["seed"], c.get("budget_calls")) for folder, c in planned]
    click.echo(table(("would train", "preset", "world", "seed", "calls"), rows, right=(3, 4)))
    return None


def _trained(folder: Path, config: dict[str, Any], k: int, of: int) -> Path:
    """The folder of a finished run of these settings: one that is there already, or a new one."""
    from counterpoint.train.folder import RunFolder

    if folder.exists() and any(folder.iterdir()):
        run = RunFolder.open(folder)
        if not _is_of(run, config):
            raise InputError("is a run of other settings", where=str(folder), fix="another --out DIR")
        if run.about["status"] != "finished":
            fix = f"counterpoint train --resume {folder}, then this again"
            raise InputError(f"is {run.about['status']}, not finished", where=str(folder), fix=fix)
        note(f"{folder} is there already and is finished")
        return folder
    try:
        from counterpoint.train.start import train_run
    except ImportError as error:
        raise InputError(f"cannot train: {error}", fix="pip install 'counterpoint[train]'") from error
    note(f"training {config['preset']}, seed {config['seed']} ({k + 1} of {of}) in {folder}")
    try:
        train_run(folder, config)
    except KeyboardInterrupt:
        note(f"go on with: counterpoint train --resume {folder}, then this again")
        raise
    return folder


def _is_of(run: RunFolder, config: dict[str, Any]) -> bool:
    import json

    about, asked = run.about, json.loads(json.dumps(config["set"], default=str))
    is_same = all(about[key] == config[key] for key in ("preset", "world", "seed"))
    is_set = all(about["world_config"].get(key) == value for key, value in asked.items())
    return is_same and is_set and run.config().get("budget_calls", config.get("budget_calls")) == config.get("budget_calls")


# -- the comparison ------------------------------------------------------------------------------------------------------


def _report(groups: list[Group], metric: str, baseline: str | None, *, anyway: bool, as_json: bool) -> None:
    from counterpoint.bench.comparable import reasons, sides
    from counterpoint.bench.comparison import compare as compared

    labels = [group.label for group in groups]
    if len(groups) < 2:
        fix = "name runs of another preset too, or give them labels: a=runs/x* b=runs/y*"
        raise InputError(f"all runs are of {labels[0]}: there is nothing to compare", fix=fix)
    if baseline is not None and baseline not in labels:
        raise NotFound(f"no side named {baseline!r}", where="--baseline", fix=did_you_mean(baseline, labels))
    base = labels.index(baseline) if baseline else 0
    against = reasons(groups, base)
    if against and not anyway:
        raise Refused("not comparable: " + joined_reasons(against), fix="--anyway prints the table with a warning")
    found = sides(groups, metric)
    result = compared(found.sides, baseline=base)
    if as_json:
        emit(_as_dict(groups, metric, base, against, found, result))
    else:
        click.echo(_text(groups, metric, base, against, found, result))


def joined_reasons(against: Sequence[str]) -> str:
    """The first reasons against a comparison, and how many more there are."""
    more = len(against) - _REASONS_SHOWN
    return "; ".join(against[:_REASONS_SHOWN]) + (f"; and {more} more" if more > 0 else "")


def _share(group: Group, mean: float | None, metric: str) -> float | None:
    best = group.optimum.get("value")
    return mean / best if metric == "value" and best and best > 0 and mean is not None else None


def _as_dict(groups: list[Group], metric: str, base: int, against: list[str], found: Sides, result: Comparison) -> dict[str, Any]:
    from counterpoint.bench.comparable import budget_gap
    from counterpoint.bench.comparison import DRAWS

    about = groups[base].runs[0].about
    per_side = [
        {"label": g.label, "runs": [str(r.path) for r in g.runs], "seeds": g.seeds, "mean": e.mean, "low": e.low, "high": e.high}
        | {"over_seeds": e.over_seeds, "share_of_optimum": _share(g, e.mean, metric), "calls_per_episode": g.mean_of("calls")}
        | {"agents_per_episode": g.mean_of("agents"), "rounds_per_episode": g.mean_of("rounds"), "spent_per_run": g.spent}
        for g, e in zip(groups, result.means, strict=True)
    ]
    return {
        "schema": SCHEMA_VERSION,
        "comparable": not against,
        "reasons": against,
        "metric": metric,
        "world": {"name": about["world"], "version": about["world_version"], "optimum": groups[base].optimum or None},
        "tasks": {"first": found.tasks[0], "last": found.tasks[-1], "count": len(found.tasks), "left_out": found.left_out},
        "draws": DRAWS,
        "bootstrap_seed": 0,
        "budget_gap": budget_gap(groups, base),
        "baseline": groups[base].label,
        "sides": per_side,
        "differences": [difference_row(d, found.tasks) for d in result.differences],
    }


def difference_row(d: Difference, tasks: list[int]) -> dict[str, Any]:
    """One side less another, as `--json` prints it and the page is told."""
    better, worse, same = d.counts()
    e = d.estimate
    numbers = {"diff": e.mean, "low": e.low, "high": e.high, "p": e.p, "p_holm": d.p_holm, "df": e.df, "over_seeds": e.over_seeds}
    counts = {"better": better, "worse": worse, "same": same, "paired_seeds": list(d.paired_seeds)}
    losses = [{"task": tasks[i], "diff": float(d.by_task_T[i])} for i in d.losses(_LOSSES_SHOWN)]
    return {"label": d.label, "against": d.against, **numbers, **counts, "losses": losses}


def _text(groups: list[Group], metric: str, base: int, against: list[str], found: Sides, result: Comparison) -> str:
    header = (metric, "runs", "mean", "95 % low", "high", "of optimum", "calls/episode", "agents/episode", "calls spent/run")
    rows = [
        (g.label, len(g.runs), *map(number, (e.mean, e.low, e.high)), _percent(_share(g, e.mean, metric)), *_means(g))
        for g, e in zip(groups, result.means, strict=True)
    ]
    words = ("better", "worse") if metric == "value" else ("higher", "lower")
    differ = (f"less {groups[base].label}", "difference", "95 % low", "high", "p", "p (Holm)", *words, "same")
    cells = [
        [d.label, *(_signed(x) for x in (d.estimate.mean, d.estimate.low, d.estimate.high)), _p(d.estimate.p), _p(d.p_holm)]
        + [str(count) for count in d.counts()]
        for d in result.differences
    ]
    parts = [f"warning: not comparable: {joined_reasons(against)}"] if against else []
    parts += [_head(groups, base, found, result), table(header, rows, right=range(1, 9)), table(differ, cells, right=range(1, 9))]
    return "\n\n".join(plain_text(part, keep_lines=True) for part in (*parts, *_remarks(metric, found, result)))


def _means(group: Group) -> tuple[str, str, str]:
    return number(group.mean_of("calls"), 3), number(group.mean_of("agents"), 3), f"{group.spent['calls']:,.0f}"


def _head(groups: list[Group], base: int, found: Sides, result: Comparison) -> str:
    from counterpoint.bench.comparable import budget_gap
    from counterpoint.bench.comparison import DRAWS

    counts = [len(group.runs) for group in groups]
    seeds = "training seeds differ in number"
    if len(set(counts)) == 1:
        seeds = f"{counts[0]} training seed{'s' if counts[0] > 1 else ''} each"
    paired = all(d.paired_seeds for d in result.differences)
    about = groups[base].runs[0].about
    tasks = f"paired on {len(found.tasks):,} tasks of {about['world']}" + (" and on training seeds" if paired else "")
    return f"{seeds} · {tasks} · {DRAWS:,} bootstrap draws · budgets within {budget_gap(groups, base):.1%} in calls"


def _remarks(metric: str, found: Sides, result: Comparison) -> list[str]:
    """What to know beside the numbers."""
    out = []
    for d in result.differences:
        losses = [f"{found.tasks[i]} ({_signed(float(d.by_task_T[i]))})" for i in d.losses(_LOSSES_SHOWN)]
        if losses and metric == "value":
            out.append(f"largest losses of {d.label}: tasks {', '.join(losses)}")
    if not all(d.estimate.over_seeds for d in result.differences):
        out.append("one training seed on a side: intervals are over tasks only, there is none over training seeds")
    if found.left_out:
        out.append(f"{found.left_out:,} tasks are left out: some run has no number for them")
    return ["\n".join(out)] if out else []


def _signed(value: float | None) -> str:
    return "-" if value is None else f"{value:+.4g}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _p(value: float | None) -> str:
    return "-" if value is None else "<0.0001" if value < 1e-4 else f"{value:.4f}"
