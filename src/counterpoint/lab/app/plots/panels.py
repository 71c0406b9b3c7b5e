"""What the pictures of runs show, as plain arrays: learning curves, stop times, team sizes, differences.

Always true: nothing is drawn and nothing is written here; what a run does not hold is `Absent` with the reason, never a zero;
a value that is not a number is left out of its mean. Bands are 95 %: Student's over training seeds at equal calls spent; with
one seed over the held-out tasks, which the picture says.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from counterpoint.lab.bench.comparison import Difference, Group, compare, reasons, sides
from counterpoint.lab.bench.intervals import mean_interval

_POINTS = 200


@dataclass(frozen=True)
class Absent:
    """A picture that cannot be drawn."""

    why: str
    is_refused: bool = False
    """It could be drawn, but would mislead."""


@dataclass(frozen=True)
class Line:
    """One labelled line with its band; NaN where there is no band."""

    label: str
    x: np.ndarray
    y: np.ndarray
    low: np.ndarray
    high: np.ndarray


@dataclass(frozen=True)
class Curves:
    """Return by calls spent."""

    lines: list[Line]
    marks: list[tuple[str, float]]
    """Levels to compare with: the optimum first, then hand-made policies."""
    what: str
    band: str


@dataclass(frozen=True)
class Stops:
    """The round in which a team stopped, task by task, against another policy's."""

    label: str
    rounds: np.ndarray
    reference: np.ndarray | None
    reference_name: str


@dataclass(frozen=True)
class Widths:
    """Agents per episode by size of the task, or by its sort."""

    lines: list[Line]
    reference: tuple[np.ndarray, np.ndarray] | None
    tasks: tuple[str, ...] = ()
    """The sorts of tasks of runs that mix several, at x = 0, 1, ...; empty where x is a size."""


@dataclass(frozen=True)
class Forest:
    """Differences to a baseline."""

    against: str
    rows: list[Difference]
    tasks: int


Panel = Curves | list[Stops] | Widths | Forest


# -- learning curves -----------------------------------------------------------------------------------------------------


def curves(groups: Sequence[Group]) -> Curves | Absent:
    """Held-out return by calls spent; the reward in training where no run was evaluated."""
    held_out = [(group, [t for t in map(_evaluated, group.runs) if len(t[0])]) for group in groups]
    is_held_out = any(tracks for _, tracks in held_out)
    found = held_out if is_held_out else [(g, [t for t in map(_trained, g.runs) if len(t[0])]) for g in groups]
    lines = [_over_seeds(group.label, tracks) for group, tracks in found if tracks]
    if not lines:
        return Absent("no update and no evaluation has a number yet")
    counts = {len(tracks) for _, tracks in found if tracks}
    seeds = f"{min(counts)}" if len(counts) == 1 else f"{min(counts)} to {max(counts)}"
    band = f"mean of {seeds} seeds, band 95 %"
    if min(counts) == 1:
        band = "one seed: " if max(counts) == 1 else "where there is one seed: "
        band += "band 95 % over tasks" if is_held_out else "no band"
    what = "return on held-out tasks" if is_held_out else "reward in training (nothing held out yet)"
    # levels of different worlds cannot both be right, so the first run speaks
    return Curves(lines, levels(groups[0].runs[0].about), what, band)


BOUNDS = ("optimum", "upper bound")


def levels(about: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Levels that a run states: its bound first, by one of the names in `BOUNDS`, then the hand-made policies, the best first."""
    best = about.get("optimum") or {}
    marks = [(BOUNDS[0] if best.get("kind") == "exact" else BOUNDS[1], best.get("value"))] if best else []
    marks += sorted((about.get("hand_made") or {}).items(), key=lambda pair: -(pair[1] or 0))
    return [(str(name), float(value)) for name, value in marks if isinstance(value, (int, float)) and math.isfinite(value)]


Track = tuple[np.ndarray, np.ndarray, np.ndarray]


def _evaluated(run: Any) -> Track:
    """(calls, mean, half a band over tasks) of every evaluation that has a number."""
    rows = []
    for row in run.evals():
        values = [x for x in row["values"] if x is not None]
        if values:
            mean, low, _ = mean_interval(values)
            rows.append((row.get("calls") or 0, mean, math.nan if low is None else mean - low))
    return _columns(rows)


def _trained(run: Any) -> Track:
    """The same from the metrics, averaged over stretches of updates: single updates are noise."""
    found = run.columns("calls", "reward")
    keep = np.isfinite(found["calls"]) & np.isfinite(found["reward"])
    calls, reward = found["calls"][keep], found["reward"][keep]
    parts = np.array_split(np.arange(len(calls)), min(len(calls), _POINTS // 2) or 1)
    return _columns([(calls[p[-1]], float(reward[p].mean()), math.nan) for p in parts if len(p)])


def _columns(rows: list[tuple[float, float, float]]) -> Track:
    table = np.array(sorted(rows), dtype=np.float64).reshape(-1, 3)
    if len(table) > 2 * _POINTS:
        table = table[np.unique(np.linspace(0, len(table) - 1, 2 * _POINTS).astype(int))]
    return table[:, 0], table[:, 1], table[:, 2]


def _over_seeds(label: str, tracks: list[Track]) -> Line:
    """The mean over seeds at equal calls, as far as every seed goes; one seed is shown as it is."""
    if len(tracks) == 1:
        x, y, half = tracks[0]
        return Line(label, x, y, y - half, y + half)
    begin, end = max(x[0] for x, _, _ in tracks), min(x[-1] for x, _, _ in tracks)
    size = min(_POINTS, max(len(x) for x, _, _ in tracks))
    x = np.linspace(begin, end, size) if end > begin else np.array([min(begin, end)])
    rows = [mean_interval(column) for column in zip(*(np.interp(x, *track[:2]) for track in tracks), strict=True)]
    y, low, high = (np.array([math.nan if r[i] is None else r[i] for r in rows], dtype=np.float64) for i in range(3))
    return Line(label, x, y, low, high)


# -- stop times ----------------------------------------------------------------------------------------------------------


def stops(groups: Sequence[Group]) -> list[Stops] | Absent:
    """The last evaluation's stop rounds, all seeds together; beside the reference's where the runs carry one."""
    out = []
    for group in groups:
        finals = [rows[-1] for rows in (run.evals() for run in group.runs) if rows and rows[-1].get("rounds")]
        pairs = [pair for final in finals for pair in _paired(final)]
        if pairs:
            rounds, reference = np.array(pairs, dtype=np.float64).T
            name = next((str(f["stops"].get("name", "reference")) for f in finals if f.get("stops")), "")
            out.append(Stops(group.label, rounds, reference if name else None, name))
    if not out:
        return Absent("no evaluation says in which round an episode stopped")
    named = [one for one in out if one.reference is not None]
    return named or out


def _paired(final: dict[str, Any]) -> list[tuple[float, float]]:
    rounds = (final.get("stops") or {}).get("rounds") or final["rounds"]
    reference = (final.get("stops") or {}).get("reference")
    if reference is None:
        return [(r, math.nan) for r in rounds if r is not None]
    return [(r, s) for r, s in zip(rounds, reference, strict=False) if r is not None and s is not None]


# -- team sizes ----------------------------------------------------------------------------------------------------------


def widths(groups: Sequence[Group]) -> Widths | Absent:
    """Agents per episode by task size in the last evaluation; bands over seeds, or over episodes with one seed.

    Of runs that mix sorts of tasks: those of each sort, on the held-out tasks that the evaluation's return is of.
    """
    sizes = [(group, [_sizes(run) for run in group.runs]) for group in groups]
    every = [rows for _, some in sizes for rows in some if rows]
    if not every:
        return Absent("no evaluation carries team sizes by task size")
    tasks = {tuple(str(row["task"]) for row in rows if "task" in row) for rows in every}
    if len(tasks) > 1:
        return Absent("the runs are of different sorts of tasks")
    sorts, lines, reference = tasks.pop(), [], {}
    for group, some in sizes:
        by_size: dict[float, list[list[float]]] = defaultdict(list)
        for place, one in ((k, one) for rows in some for k, one in enumerate(rows)):
            x = place if sorts else one["size"]
            agents = [a for a in one["agents"] if a is not None]
            if agents:
                by_size[x].append(agents)
            if one.get("reference") is not None:
                reference[x] = float(one["reference"])
        if by_size:
            lines.append(_by_size(group.label, by_size))
    if not lines:
        return Absent("no evaluation carries team sizes by task size")
    at = sorted(reference)
    return Widths(lines, (np.array(at, float), np.array([reference[x] for x in at])) if at else None, sorts)


def _sizes(run: Any) -> list[dict[str, Any]]:
    """Team sizes of a run's last evaluation; not those of one sort of tasks, scaled, that older versions wrote for a mix."""
    evals = run.evals()
    rows = list(evals[-1].get("width") or ()) if evals else []
    is_mixed = len(run.about.get("world_config", {}).get("mix") or ()) > 1
    return [] if is_mixed and any("task" not in row for row in rows) else rows


def _by_size(label: str, by_size: dict[float, list[list[float]]]) -> Line:
    rows = []
    for size in sorted(by_size):
        seeds = by_size[size]
        mean, low, high = mean_interval([float(np.mean(s)) for s in seeds] if len(seeds) > 1 else seeds[0])
        rows.append((size, mean, math.nan if low is None else low, math.nan if high is None else high))
    x, y, low_, high_ = np.array(rows, dtype=np.float64).T
    return Line(label, x, y, low_, high_)


# -- comparison ----------------------------------------------------------------------------------------------------------


def differences(groups: Sequence[Group]) -> Forest | Absent:
    """Every side against the first, where they may be compared."""
    if len(groups) < 2:
        return Absent("all runs are of one label: there is nothing to compare")
    if any(not rows or not rows[-1]["values"] for group in groups for rows in (run.evals() for run in group.runs)):
        return Absent("some run has no evaluation on held-out tasks yet")
    against = reasons(groups)
    if against:
        return Absent(f"not comparable: {against[0]}" + (f"; and {len(against) - 1} more" if len(against) > 1 else ""), True)
    found = sides(groups)
    return Forest(groups[0].label, list(compare(found.sides).differences), len(found.tasks))
