"""`cpt.compare`: ways of training against each other, on the same tasks, seeds and budget.

Always true: what is not comparable is `Refused` with every reason, unless `ignore_mismatch`, and then the result carries the
reasons; runs are only read; the same call gives the same numbers.
"""

from __future__ import annotations

import dataclasses
import glob
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import counterpoint.registry as registry
from counterpoint.errors import InputError, NotFound, Refused, did_you_mean
from counterpoint.lab.app.api.train import train_one
from counterpoint.lab.bench.comparison import (
    DRAWS,
    Comparison,
    Difference,
    Group,
    Sides,
    budget_gap,
    reasons,
    sides,
)
from counterpoint.lab.bench.comparison import (
    compare as compared,
)
from counterpoint.lab.train.folder import RunFolder
from counterpoint.lab.worlds.world import world as world_named
from counterpoint.trace.tabular import Bar, Tabular

# -- Which runs are meant: `RUN` --------------------------------------------------------------------------------------
# A pattern, `LABEL=` before either, a run that is open, or a label with any of these.
#
# Always true: nothing is written; a name that matches no run is `NotFound`; the order is the order of the arguments, and inside
# a pattern the order of the paths. Runs of one label are its training seeds.

# Where `counterpoint train` puts runs; `compare plot NAME` finds runs/NAME.
_HOME = "runs"
_LABELLED = re.compile(r"([\w.+-]+)=(.+)", re.S)


def groups_of(runs: Iterable[Any]) -> list[Group]:
    """The named runs, opened and grouped: by the label given, else by the preset that each run states."""
    return grouped([pair for run in runs for pair in _folders(run)])


def _folders(run: Any) -> list[tuple[str | None, Path]]:
    """The label and the folders that something stands for: a name, a path, a run, several, or labels with these."""
    if isinstance(run, str):
        return _paths(run)
    if isinstance(run, os.PathLike):
        return [(None, Path(run))]
    if isinstance(run, Mapping):
        return [(label, path) for label, inside in run.items() for _, path in _folders(inside)]
    if isinstance(run, Iterable):
        return [pair for one in run for pair in _folders(one)]
    path = getattr(run, "path", None)
    if not isinstance(path, Path):
        raise InputError(f"a {type(run).__name__} is not a run", fix="name a folder of counterpoint train")
    return [(None, path)]


def grouped(found: Sequence[tuple[str | None, Path]]) -> list[Group]:
    """Runs of these folders; those of one label are one group, and no two of them have the same training seed."""
    from counterpoint.lab.bench.comparison import Group
    from counterpoint.lab.train.folder import RunFolder

    _one_format([path for _, path in found])
    groups: dict[str, Group] = {}
    seen: dict[Path, str] = {}
    unlabelled = {path.resolve() for label, path in found if label is None}
    for label, path in found:
        run = RunFolder.open(path)
        key = label or str(run.about["preset"])
        place = path.resolve()
        if seen.setdefault(place, key) != key:
            raise InputError(f"is on two sides, {seen[place]} and {key}", where=os.fspath(path), fix="name it once")
        group = groups.setdefault(key, Group(key))
        if all(run.path.resolve() != place for run in group.runs):
            group.runs.append(run)
    for group in groups.values():
        twice = [s for s in group.seeds if group.seeds.count(s) > 1]
        if twice:
            where = ", ".join(os.fspath(r.path) for r in group.runs if r.about["seed"] == twice[0])
            fix = "name one of them, or give each its own LABEL="
            raise InputError(f"several runs of {group.label} have training seed {twice[0]}", where=where, fix=fix)
        _check_alike(group, [run for run in group.runs if run.path.resolve() in unlabelled])
    return list(groups.values())


_APART = {
    "seed", "device", "runner", "workers", "slots", "tokens", "eval_every", "checkpoint_every", "keep_traces",
    "keep_episodes",
}  # fmt: skip
"""Settings in which the training seeds of one way may differ: they say where it runs and what is kept, not what is learned."""


def _check_alike(group: Group, runs: Sequence[RunFolder]) -> None:
    """Runs that nobody put under one label are seeds of one way only where they were made alike."""
    from counterpoint.lab.train.folder import flat_settings

    settings = [flat_settings(run.config()) for run in runs]
    for run, own in zip(runs[1:], settings[1:], strict=True):
        differ = [n for n in sorted({*own, *settings[0]}) if own.get(n) != settings[0].get(n) and n.split(".")[0] not in _APART]
        if differ:
            what = f"is {group.label} like {runs[0].path}, with another {', '.join(differ[:3])}"
            fix = "give each way its own LABEL=, as in a=runs/x* b=runs/y*; one label for all takes them for seeds of one way"
            raise InputError(what + (" ..." if len(differ) > 3 else ""), where=os.fspath(run.path), fix=fix)


def _paths(name: str) -> list[tuple[str | None, Path]]:
    """The label and the folders that an argument stands for."""
    label, text = None, name
    labelled = _LABELLED.fullmatch(name)
    if labelled and not Path(name).exists():
        label, text = labelled[1], labelled[2]
    text = os.path.expanduser(text)
    for candidate in (text, os.path.join(_HOME, text)):
        if Path(candidate).exists():
            return [(label, Path(candidate))]
    matches = sorted(p for p in glob.glob(text) if os.path.isdir(p))
    if not matches:
        raise NotFound("there is no run here", where=text, fix="counterpoint train makes runs, in ./runs without -o")
    return [(label, Path(match)) for match in matches]


def _one_format(paths: Sequence[Path]) -> None:
    from counterpoint.lab.train.folder import format_of

    formats = {path: format_of(path) for path in paths}
    if len(set(map(str, formats.values()))) > 1:
        first, other = next((a, b) for a in paths for b in paths if formats[a] != formats[b])
        what = f"not comparable: {first} is a run of format {formats[first]}, {other} of format {formats[other]}"
        raise Refused(what, fix="train both with one version of Counterpoint")


_REASONS_SHOWN, _LOSSES_SHOWN = 4, 3


@dataclass(frozen=True)
class RunComparison(Tabular):
    """Every side of a comparison, and every other one less the baseline."""

    TABLE: ClassVar = {
        "label": "string", "runs": "int64", "mean": "double", "low": "double", "high": "double", "share_of_optimum": "double",
        "calls_per_episode": "double", "agents_per_episode": "double", "calls_per_run": "double", "charged_per_run": "double",
        "collapsed": "int64", "diff": "double",
        "diff_low": "double", "diff_high": "double", "p": "double", "p_holm": "double", "better": "int64", "worse": "int64",
        "same": "int64",
    }  # fmt: skip

    metric: str
    groups: tuple[Group, ...] = field(repr=False)
    base: int
    """The place of the baseline among the groups."""
    reasons: tuple[str, ...]
    """Why these runs are not comparable; empty when they are."""
    sides: Sides = field(repr=False)
    result: Comparison

    @property
    def baseline(self) -> Group:
        """The side that the others are held against."""
        return self.groups[self.base]

    @property
    def budget_gap(self) -> float:
        """The largest share by which what a side's runs were charged differs from the baseline's."""
        return budget_gap(self.groups, self.base)

    def share_of_optimum(self, i: int) -> float | None:
        """The mean of a side as a share of its world's optimum, where the metric is the value."""
        best, mean = self.groups[i].optimum.get("value"), self.result.means[i].mean
        return mean / best if self.metric == "value" and best and best > 0 and mean is not None else None

    def as_dict(self) -> dict[str, Any]:
        """What `counterpoint compare runs --json` prints."""
        about, tasks = self.baseline.runs[0].about, self.sides.tasks
        per_side = [
            {"label": g.label, "runs": [str(r.path) for r in g.runs], "seeds": g.seeds, "mean": e.mean, "low": e.low}
            | {"high": e.high, "over_seeds": e.over_seeds, "share_of_optimum": self.share_of_optimum(i)}
            | {"calls_per_episode": g.mean_of("calls"), "agents_per_episode": g.mean_of("agents")}
            | {"rounds_per_episode": g.mean_of("rounds"), "spent_per_run": g.spending, "collapsed": g.collapsed}
            for i, (g, e) in enumerate(zip(self.groups, self.result.means, strict=True))
        ]
        return {
            "comparable": not self.reasons,
            "reasons": list(self.reasons),
            "metric": self.metric,
            "world": {"name": about["world"], "version": about["world_version"], "optimum": self.baseline.optimum or None},
            "tasks": {"first": tasks[0], "last": tasks[-1], "count": len(tasks), "left_out": self.sides.left_out},
            "draws": DRAWS,
            "bootstrap_seed": 0,
            "budget_gap": self.budget_gap,
            "baseline": self.baseline.label,
            "sides": per_side,
            "differences": [difference_row(d, tasks) for d in self.result.differences],
        }

    def picture(self) -> list[Bar]:
        """The mean of each side with its interval."""
        return [(g.label, e.mean, e.low, e.high) for g, e in zip(self.groups, self.result.means, strict=True)]

    def table_rows(self) -> Iterator[Sequence[Any]]:
        """A row per side: its mean, and what it is less the baseline, which has no difference of its own."""
        differences = {d.label: d for d in self.result.differences}
        for i, (g, e) in enumerate(zip(self.groups, self.result.means, strict=True)):
            means = (self.share_of_optimum(i), g.mean_of("calls"), g.mean_of("agents"))
            spent = (g.spending["calls"], g.spending["charged"], g.collapsed)
            d = differences.get(g.label)
            less: Sequence[Any] = [None] * 8
            if d is not None:
                less = (d.estimate.mean, d.estimate.low, d.estimate.high, d.estimate.p, d.p_holm, *d.counts())
            yield (g.label, len(g.runs), e.mean, e.low, e.high, *means, *spent, *less)

    def heading(self) -> str:
        """On what the sides were compared, in a line."""
        counts = [len(group.runs) for group in self.groups]
        seeds = "training seeds differ in number"
        if len(set(counts)) == 1:
            seeds = f"{counts[0]} training seed{'s' if counts[0] > 1 else ''} each"
        about = self.baseline.runs[0].about
        tasks = f"paired on {len(self.sides.tasks):,} tasks of {about['world']}" + self._paired_on()
        return f"{seeds} · {tasks} · {DRAWS:,} bootstrap draws · budgets within {self.budget_gap:.1%} in calls and rounds"

    def _paired_on(self) -> str:
        """How training seeds were paired: all of them, some of them, or none."""
        differences = self.result.differences
        if not all(d.paired_seeds for d in differences):
            return ""
        partial = any(d.left_out or d.left_out_against for d in differences)
        if not partial:
            return " and on training seeds"
        shared = {d.paired_seeds for d in differences}
        if len(shared) > 1:
            return " and on the training seeds that two sides share"
        return f" and on training seeds {', '.join(map(str, shared.pop()))} only"

    def _unpaired(self) -> list[str]:
        """Which training seeds entered no difference."""
        out = []
        for d in self.result.differences:
            alone = ((d.label, d.left_out), (d.against, d.left_out_against))
            left = [f"{', '.join(map(str, seeds))} of {label}" for label, seeds in alone if seeds]
            if left:
                what = f"{d.label} minus {d.against} is over training seeds {', '.join(map(str, d.paired_seeds))}"
                out.append(f"{what}, which both have; left out of it, not of the means: {' and '.join(left)}")
        return out

    def remarks(self) -> list[str]:
        """What to know beside the numbers."""
        out, tasks, differences = [], self.sides.tasks, self.result.differences
        fallen = [f"{g.collapsed} of {len(g.runs)} runs of {g.label}" for g in self.groups if g.collapsed]
        if fallen:
            out.append(f"collapsed (the team stopped calling anybody; the final value counts): {', '.join(fallen)}")
        lucky = [g.label for i, g in enumerate(self.groups) if (self.share_of_optimum(i) or 0.0) > 1]
        if lucky:
            what = f"above its bound, which is of the mean over all tasks, on these {len(tasks):,}: {', '.join(lucky)}"
            out.append(f"{what}; the interval says how far luck reaches")
        out += self._unpaired()
        for d in differences:
            losses = [f"{tasks[i]} ({float(d.by_task_T[i]):+.4g})" for i in d.losses(_LOSSES_SHOWN)]
            if losses and self.metric == "value":
                out.append(f"largest losses of {d.label}: tasks {', '.join(losses)}")
        if not all(d.estimate.over_seeds for d in differences):
            out.append("one training seed on a side: intervals are over tasks only, there is none over training seeds")
        if self.sides.left_out:
            out.append(f"{self.sides.left_out:,} tasks are left out: some run has no number for them")
        return out

    def row_count(self) -> int:
        """How many sides there are."""
        return len(self.groups)

    def caption(self) -> str:
        """What is compared on what, and the warning where it should not be."""
        about = self.baseline.runs[0].about
        text = f"{self.metric} on {len(self.sides.tasks):,} tasks of {about['world']}; differences are from {self.baseline.label}"
        return text + (f"; not comparable: {joined_reasons(self.reasons)}" if self.reasons else "")


def compare(
    *runs: Any,
    metric: str = "value",
    baseline: str | None = None,
    ignore_mismatch: bool = False,
    presets: Sequence[str] = (),
    world: str | None = None,
    seeds: int | None = None,
    seed: int | None = None,
    budget: int | None = None,
    out: str | os.PathLike[str] | None = None,
    set: Mapping[str, Any] | None = None,
) -> RunComparison:
    """Compare ways of training on the same tasks, seeds and budget, by the last evaluation on held-out tasks.

    A run is what `cpt.train` gave, a folder, a name in ./runs or a pattern, with `label=` before it where wanted; a mapping of
    labels to these will do as well. Runs of one label are its training seeds; without a label it is the run's preset.
    `metric` is value, agents, rounds, calls or any list of the evaluations; `baseline` a label, the first unless named.

    With `presets` instead of runs, each is trained first in `world`, with every one of `seeds` training seeds (5) and an equal
    `budget` of calls and rounds, in folders of `out` (./runs): where runs of one preset end before it is spent, the others get
    what those were charged. Runs that are finished there already are taken as they are.

    >>> import counterpoint as cpt
    >>> short = {"updates": 1, "episodes": 16, "eval_episodes": 4, "set": {"vote_items": 8}}
    >>> ways = {preset: cpt.train("W1", preset=preset, **short) for preset in ("grpo", "mappo")}
    >>> found = cpt.compare(ways, ignore_mismatch=True)
    >>> found.to_arrow().column("label").to_pylist()
    ['grpo', 'mappo']
    """
    if bool(runs) == bool(presets):
        raise InputError("name runs, or give presets, one of the two", fix='cpt.compare("runs/a*", "runs/b*")')
    given = {"world": world, "seeds": seeds, "seed": seed, "budget": budget, "out": out, "set": set}
    unused = [name for name, value in given.items() if value is not None]
    if runs and unused:
        raise InputError(f"{unused[0]} goes with presets", fix="runs that are named are compared as they are")
    if runs:
        return compare_groups(groups_of(runs), metric, baseline, ignore_mismatch=ignore_mismatch)
    changes = dict(set or {})
    planned = plan_presets(
        presets, world, lambda name: world_named(name, **changes), seeds=seeds, seed=seed, budget=budget, out=out
    )
    return compare_groups(trained_groups(planned), metric, baseline, ignore_mismatch=ignore_mismatch)


def plan_presets(
    presets: Sequence[str],
    world: str | None,
    changed: Callable[[str], Any],
    *,
    seeds: int | None,
    seed: int | None,
    budget: int | None,
    out: str | os.PathLike[str] | None,
) -> list[tuple[Path, dict[str, Any]]]:
    """Every run to be trained: its folder and its settings; all names are looked up before the first one trains.

    `changed` gives the world of a name with the parameters that were asked for.
    """
    names = [name if ":" in name else name.replace("-", "_") for name in presets]
    for name in names:
        if ":" not in name and name not in registry.ids("preset"):
            raise NotFound(f"no preset named {name!r}", where="presets", fix=did_you_mean(name, registry.ids("preset")))
    if len({*names}) < 2 or len({*names}) < len(names):
        raise InputError("name two presets or more, each once", where="presets", fix="as in grpo counterpoint")
    if not world:
        raise InputError("presets need a world", fix="--world W1; counterpoint train worlds lists them")
    shown, of_world = _world_settings(world, changed)
    planned = []
    for one in range(seed or 0, (seed or 0) + (seeds or 5)):
        for name in names:
            config: dict[str, Any] = {"preset": name, "seed": one, **of_world}
            config |= {"budget_calls": budget} if budget else {}
            planned.append((Path(out or "runs") / re.sub(r"[^\w.-]+", "-", f"{name}-{shown}-{one}"), config))
    return planned


def _world_settings(name: str, changed: Callable[[str], Any]) -> tuple[str, dict[str, Any]]:
    """What the folders of runs in a world are called, and what their settings say of it; worlds of the suites are worlds too."""
    from counterpoint.lab.worlds.teamworld.suites import suite_worlds

    suites = suite_worlds()
    made: dict[str, Any] = suites[name].settings() if name in suites else {"world": name, "set": {}}
    try:
        plain, asked = world_named(made["world"]), changed(made["world"]).config
    except NotFound as error:
        known = {*suites, *registry.ids("world")}
        raise NotFound(error.what, fix=did_you_mean(name, known)) if ":" not in name else error from None
    fields = [f.name for f in dataclasses.fields(asked)]
    changes = {key: getattr(asked, key) for key in fields if getattr(asked, key) != getattr(plain.config, key)}
    base = made["world"] if ":" in made["world"] else plain.name
    return (name if name in suites else base), {**made, "world": base, "set": {**made["set"], **changes}}


def trained_groups(
    planned: Sequence[tuple[Path, dict[str, Any]]],
    tell: Callable[[str], None] = lambda line: None,
    at: Callable[[float, str], None] = lambda done, about: None,
) -> list[Group]:
    """The runs of a plan, trained where they are not there yet, by preset; those that end early first, so that budgets are equal.

    `tell` is called with a line about each; `at` often, with how many runs are done, the share of the present one added.
    """
    found: list[tuple[str | None, Path]] = []
    charged: list[int] = []
    for k, (folder, config) in enumerate(sorted(planned, key=lambda one: not _ends_early(one[1]["preset"]))):
        if _ends_early(config["preset"]):
            charged = [*charged, _trained(folder, config, k, len(planned), tell, at)]
        else:
            alike = {"budget_calls": round(sum(charged) / len(charged))} if charged else {}
            _trained(folder, {**config, **alike}, k, len(planned), tell, at)
        found.append((config["preset"], folder))
    places = {folder: place for place, (folder, _) in enumerate(planned)}
    return grouped(sorted(found, key=lambda one: places[one[1]]))


def _ends_early(preset: str) -> bool:
    """Whether runs of a preset end with trials, which leave some of the budget: the others are given what these were charged."""
    return ":" not in preset and bool(registry.get("preset", preset).trial_every)


def _trained(
    folder: Path, config: Mapping[str, Any], k: int, runs: int, tell: Callable[[str], None], at: Callable[[float, str], None]
) -> int:
    """Train the k-th run, unless it is there; what it was charged."""
    if folder.exists() and any(folder.iterdir()):
        _check_finished(folder, config)
        tell(f"{folder} is finished already")
    else:
        tell(f"training {config['preset']}, seed {config['seed']} ({k + 1} of {runs}) in {folder}")
        try:
            about = f"{config['preset']}, seed {config['seed']}"
            at(k, about)
            share = lambda kind, row: at(k + float(row["progress"]), about) if kind == "update" else None  # noqa: E731
            train_one(folder, config, resume=False, allow=(), progress=share)
        except KeyboardInterrupt:
            tell(f"resume it with: counterpoint train resume {folder}, then run this again")
            raise
    return int(RunFolder.open(folder).spending()["charged"])


def _check_finished(folder: Path, config: Mapping[str, Any]) -> None:
    """Raise unless this is a finished run of these settings."""
    run = RunFolder.open(folder)
    about, asked = run.about, json.loads(json.dumps(config["set"], default=str))
    is_same = all(about[key] == config[key] for key in ("preset", "world", "seed"))
    is_same &= all(about["world_config"].get(key) == value for key, value in asked.items())
    if not is_same or run.config().get("budget_calls", config.get("budget_calls")) != config.get("budget_calls"):
        raise InputError("holds a run with other settings", where=str(folder), fix="name another folder: -o DIR")
    if about["status"] != "finished":
        fix = f"counterpoint train resume {folder}, then run this again"
        raise InputError(f"is {about['status']}, not finished", where=str(folder), fix=fix)


def compare_groups(groups: Sequence[Group], metric: str, baseline: str | None, *, ignore_mismatch: bool) -> RunComparison:
    """Compare runs that are open, by label."""
    labels = [group.label for group in groups]
    if not groups:
        raise InputError("no runs to compare", fix="name runs of two presets, or give them labels: a=runs/x* b=runs/y*")
    if len(groups) < 2:
        fix = "name runs of another preset too, or give them labels: a=runs/x* b=runs/y*"
        raise InputError(f"all runs are of {labels[0]}: there is nothing to compare", fix=fix)
    if baseline is not None and baseline not in labels:
        raise NotFound(f"no side named {baseline!r}", where="baseline", fix=did_you_mean(baseline, labels))
    base = labels.index(baseline) if baseline else 0
    against = reasons(groups, base)
    if against and not ignore_mismatch:
        fix = "train them alike, with one --cap calls of many updates (language models: updates); or --ignore-mismatch"
        raise Refused("not comparable: " + joined_reasons(against), fix=fix)
    found = sides(groups, metric)
    return RunComparison(metric, tuple(groups), base, tuple(against), found, compared(found.sides, baseline=base))


def joined_reasons(against: Sequence[str]) -> str:
    """The first reasons against a comparison, and how many more there are."""
    more = len(against) - _REASONS_SHOWN
    return "; ".join(against[:_REASONS_SHOWN]) + (f"; and {more} more" if more > 0 else "")


def difference_row(d: Difference, tasks: Sequence[int]) -> dict[str, Any]:
    """One side minus another, as `--json` prints it and the page is told."""
    better, worse, same = d.counts()
    e = d.estimate
    numbers = {"diff": e.mean, "low": e.low, "high": e.high, "p": e.p, "p_holm": d.p_holm, "df": e.df, "over_seeds": e.over_seeds}
    counts: dict[str, Any] = {"better": better, "worse": worse, "same": same, "paired_seeds": list(d.paired_seeds)}
    counts |= {"left_out_seeds": {d.label: list(d.left_out), d.against: list(d.left_out_against)}}
    losses = [{"task": tasks[i], "diff": float(d.by_task_T[i])} for i in d.losses(_LOSSES_SHOWN)]
    return {"label": d.label, "against": d.against, **numbers, **counts, "losses": losses}
