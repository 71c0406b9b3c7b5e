"""Runs for the page: the list, one run with its curves, and comparisons with their refusals.

Always true: runs are only read, through the functions of `compare runs` and `compare plot`; what they refuse is refused
here with the same words; a run that cannot be read is left out of the list, and says why when it is opened. A curve's name is
`chart/curve`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from counterpoint.app.viewer.collection import Collection
from counterpoint.app.viewer.shapes import Alert
from counterpoint.errors import CounterpointError, InputError, NotFound, Refused, did_you_mean
from counterpoint.lab.app.pages import folders
from counterpoint.lab.app.pages.run_shapes import Compare, CompareRow, Level, Run, RunRow, Series
from counterpoint.trace.steering import STEERED

if TYPE_CHECKING:
    from counterpoint.lab.bench.comparison import Comparison, Group
    from counterpoint.lab.train.folder import RunFolder

_POINTS = 1_000
_SAMPLES = 60
_MOVED = 12
_LIVE_S = 600.0
"""A run that says it is running and has written nothing for so long is not."""
_NOT_CURVES = frozenset({"update"})
_LAST = ("episodes", "forks", "calls", "decisions", "reward_se", "lr", "tau", "stale", "seconds", "play_s", "learn_s", "profile")
"""Book-keeping, shown after what was learned."""


def runs(collection: Collection) -> list[RunRow]:
    """Every run that can be read, the one written last first."""
    from counterpoint.lab.train.folder import RunFolder

    found: list[tuple[float, RunRow]] = []
    for run_id, path in folders.runs(collection).items():
        try:
            folder = RunFolder.open(path)
            found.append((_written(path), _row(run_id, folder)))
        except (CounterpointError, OSError):  # it says why when it is opened
            continue
    return [row for _, row in sorted(found, key=lambda pair: -pair[0])]


def _folder(collection: Collection, run_id: str) -> Path:
    return folders.folder_of(folders.runs(collection), run_id, "run")


def version(collection: Collection, run_id: str) -> str:
    """Another one when the run has written something."""
    path = _folder(collection, run_id)
    return f"{_written(path)}-{_written(path / 'store' / 'log')}"


def run(collection: Collection, run_id: str) -> Run:
    """One run: its curves, its alerts, the traces it kept."""
    from counterpoint.lab.train.folder import RunFolder

    folder = RunFolder.open(_folder(collection, run_id))
    alerts = folder.alerts()
    kept = dict.fromkeys(reversed(_samples(collection, run_id)))
    shown = [f"{run_id}:{name}" for row in reversed(alerts) for name in row.get("traces") or ()]
    samples = list(dict.fromkeys([*(name for name in shown if name in kept), *kept]))[:_SAMPLES]
    told = [_alert(row) for row in alerts]
    return Run(row=_row(run_id, folder), series=_curves(folder), alerts=told, samples=samples, levels=_levels(folder))


def _samples(collection: Collection, run_id: str) -> list[str]:
    """The names under which the traces that a run kept are asked for."""
    store = collection.store_named(run_id)
    return [] if store is None else [f"{run_id}:{name}" for name in store.ids()]


def _levels(folder: RunFolder) -> list[Level]:
    """The bound that the run states, then what hand-made policies get on its held-out tasks, as the pictures show them."""
    from counterpoint.lab.app.plots.panels import BOUNDS, levels

    return [Level(name=name, value=value, is_bound=name in BOUNDS) for name, value in levels(folder.about)]


def _written(path: Path) -> float:
    latest = 0.0
    for name in ("metrics.jsonl", "evals.jsonl", "alerts.jsonl", "about.json", ""):
        try:
            latest = max(latest, (path / name).stat().st_mtime)
        except OSError:
            continue
    return latest


def _row(run_id: str, folder: RunFolder) -> RunRow:
    about, metrics, evals = folder.about, folder.metrics(), folder.evals()
    tested = [x for x in (evals[-1]["values"] if evals else ()) if x is not None]
    trained = metrics[-1].get("reward") if metrics else None
    seed = about.get("seed")
    return RunRow(
        id=run_id,
        folder=run_id,
        preset=_word(about.get("preset")),
        world=_word(about.get("world")),
        seed=seed if isinstance(seed, int) else None,
        updates=int(metrics[-1]["update"]) if metrics else 0,
        reward=math.fsum(tested) / len(tested) if tested else trained,
        is_live=about.get("status") == "running" and time.time() - _written(folder.path) < _LIVE_S,
        bound=next((one.value for one in _levels(folder) if one.is_bound), None),
        written=_written(folder.path),
        is_steered=bool(about.get(STEERED)),
    )


def _word(value: Any) -> str | None:
    return None if value is None else str(value)


def _alert(row: Mapping[str, Any]) -> Alert:
    fix = f"; {row['fix']}" if row.get("fix") else ""
    return Alert(kind=str(row["code"]), severity="warning", text=f"update {row['update']}: {row['what']}{fix}", events=[])


def _curves(folder: RunFolder) -> list[Series]:
    """Held-out return first, with its band over tasks; then every number of the metrics, by update."""
    from counterpoint.lab.bench.intervals import mean_interval

    out, held = [], []
    for row in folder.evals():
        values = [x for x in row["values"] if x is not None]
        if values:
            held.append((row["update"], *mean_interval(values)))
    if held:
        x, y, low, high = (list(column) for column in zip(*held, strict=True))
        out.append(Series(name="reward/held out", x=[float(u) for u in x], y=y, low=low, high=high))
    rows = folder.metrics()
    if len(rows) > _POINTS:
        rows = [rows[i] for i in np.unique(np.linspace(0, len(rows) - 1, _POINTS).astype(int))]
    flat = [_flat(row) for row in rows]
    x_all = [float(row["update"]) for row in rows]
    names = list(dict.fromkeys(name for row in flat for name in row))
    for name in sorted(names, key=lambda name: (name != "reward", name.partition("/")[0] in _LAST)):
        shown = "reward/in training" if name == "reward" else name
        out.append(Series(name=shown, x=x_all, y=[row.get(name) for row in flat]))
    return out


def _flat(row: Mapping[str, Any]) -> dict[str, float | None]:
    out: dict[str, float | None] = {}
    for name, value in row.items():
        if isinstance(value, Mapping):
            out |= {f"{name}/{inner}": x for inner, x in _flat(value).items()}
        elif isinstance(value, (int, float)) and not isinstance(value, bool) and name not in _NOT_CURVES:
            out[name] = float(value) if math.isfinite(value) else None
    return out


# -- comparing -------------------------------------------------------------------------------------------------------------


def compared(collection: Collection, spec: str, metric: str = "value", *, anyway: bool = False) -> Compare:
    """Groups of runs side by side; `spec` is like `a=runs/x,runs/y b=runs/z`. What may not be compared says why."""
    from counterpoint.lab.app.api.compare import grouped, joined_reasons
    from counterpoint.lab.bench.comparison import reasons

    try:
        groups = grouped([pair for word in spec.split() for pair in _sides(collection, word)])
        if len(groups) < 2:
            raise Refused("there are not two sides to compare", fix="name runs of two presets, or give labels: a=runs/x b=runs/y")
        against = reasons(groups)
        if against and not anyway:
            return _refused(metric, f"not comparable: {joined_reasons(against)}", groups)
        return _compare(collection, groups, metric)
    except Refused as error:
        return _refused(metric, error.one_line(), [])


def _sides(collection: Collection, word: str) -> list[tuple[str | None, Path]]:
    """The runs of one word, among those on view only; a pattern is matched against their ids."""
    known = folders.runs(collection)
    label, is_labelled, rest = word.partition("=")
    names = (rest if is_labelled else word).split(",")
    out = []
    for name in filter(None, names):
        found = [name] if name in known else [one for one in known if fnmatchcase(one, name)]
        if not found:
            raise NotFound(f"no run {name!r} here", fix=did_you_mean(name, known))
        out += [(label if is_labelled else None, known[one]) for one in found]
    if not out:
        raise InputError(f"{word!r} names no run", fix="as in a=runs/x,runs/y b=runs/z")
    return out


def _refused(metric: str, why: str, groups: Sequence[Group]) -> Compare:
    levels = _levels(groups[0].runs[0]) if groups else []
    return Compare(
        metric=metric, heading="", rows=[], differences=[], moved=[], remarks=[], levels=levels, curves=_lines(groups),
        refusal=why,
    )  # fmt: skip


def _compare(collection: Collection, groups: list[Group], metric: str) -> Compare:
    from counterpoint.lab.app.api.compare import compare_groups, difference_row, joined_reasons
    from counterpoint.lab.bench.comparison import is_steered

    found = compare_groups(groups, metric, None, ignore_mismatch=True)
    rows = [
        CompareRow(
            name=group.label,
            mean=one.mean,
            low=one.low,
            high=one.high,
            share_of_optimum=found.share_of_optimum(i),
            seeds=len(group.runs),
            tokens=group.mean_of("tokens"),
            agents=group.mean_of("agents"),
            calls=group.mean_of("calls"),
            spent=group.spending["calls"],
            steered=sum(is_steered(one) for one in group.runs),
        )
        for i, (group, one) in enumerate(zip(groups, found.result.means, strict=True))
    ]
    return Compare(
        metric=metric,
        heading=found.heading(),
        rows=rows,
        differences=[difference_row(d, found.sides.tasks) for d in found.result.differences],
        curves=_lines(groups),
        moved=_moved(found.result, found.sides.tasks, {group.label: _kept(collection, group) for group in groups}),
        levels=_levels(groups[0].runs[0]) if metric == "value" else [],
        remarks=found.remarks(),
        refusal=f"not comparable: {joined_reasons(found.reasons)}" if found.reasons else None,
    )


def _moved(result: Comparison, tasks: Sequence[int], kept: Mapping[str, Mapping[int, str]]) -> list[dict[str, Any]]:
    """The tasks on which a side differs most from the first, with a trace of each side where both kept one."""
    rows: list[dict[str, Any]] = []
    for d in result.differences:
        for i in np.argsort(-np.abs(d.by_task_T), kind="stable")[:_MOVED].tolist():
            row = {"task": tasks[i], "label": d.label, "against": d.against, "diff": float(d.by_task_T[i])}
            a, b = kept[d.against].get(tasks[i]), kept[d.label].get(tasks[i])
            rows.append(row | ({"a": a, "b": b} if a and b else {}))
    return sorted(rows, key=lambda row: -abs(row["diff"]))[:_MOVED]


def _kept(collection: Collection, group: Group) -> dict[int, str]:
    """Number of a task to the last trace of it that a run of this side kept; worlds name a task `world-NUMBER`."""
    names = {path.resolve(): run_id for run_id, path in folders.runs(collection).items()}
    out: dict[int, str] = {}
    for one in group.runs:
        run_id = names[one.path.resolve()]
        store = collection.store_named(run_id)
        last = {} if store is None else {row.task_id: f"{run_id}:{row.id}" for row in store.rows() if not row.is_open}
        for task, trace in last.items():
            number = task.rpartition("-")[2]
            if number.isascii() and number.isdigit():
                out.setdefault(int(number), trace)
    return out


def _lines(groups: Sequence[Group]) -> list[Series]:
    """Return by calls spent, a curve for each side."""
    from counterpoint.lab.app.plots.panels import Absent, curves

    drawn = curves(groups) if groups else Absent("nothing to draw")
    if isinstance(drawn, Absent):
        return []
    return [
        Series(name=f"{drawn.what}/{one.label}", x=one.x.tolist(), **{k: _gaps(getattr(one, k)) for k in ("y", "low", "high")})
        for one in drawn.lines
    ]


def _gaps(values: np.ndarray) -> list[float | None]:
    return [float(v) if math.isfinite(v) else None for v in values.tolist()]
