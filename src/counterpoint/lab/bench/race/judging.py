"""What the rows of a race show: quality, sample efficiency, ranks, and which differences are established.

Always true: pure functions of rows; methods are compared on the training seeds and tasks that both have; fewer than 12 such seeds
are a screening and establish nothing. Values are shares of the world's bound.

    area         mean of the held-out curve over what was charged, from 0 to the budget (trapezoids, linear at the budget; flat
                 after the last point)
    calls to q   what was charged when the curve first reaches q times the best known value, linear between points
    sign flips   p = share of the 2^n sign patterns of the paired differences d_s whose |sum| is at least that of d
                 (Fisher 1935, The Design of Experiments, section 21); Holm (1979) over the rows of a world, for each baseline
    equal        the whole 95 % interval of the paired difference lies within 2 % of the bound
    rank         [1 + methods established above, n - methods established below], by paired t-tests with Holm over all pairs
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from counterpoint.lab.bench.comparison import holm
from counterpoint.lab.bench.intervals import mean_interval
from counterpoint.lab.bench.race.plan import CURVE, PUBLISHED
from counterpoint.trace.statistics import student_two_sided

Row = Mapping[str, Any]
CLAIM_SEEDS = 12
MARGIN = 0.02
LEVEL = 0.05
SHARES = (50, 80, 90)
_EXACT = 20
"""Up to so many differences every sign pattern is counted; beyond, some are drawn."""
_BEST = 1e-12
_DIGITS = 9
"""In which means are equal."""
_OVER = 1.1
"""A run that was charged more than so many budgets is held to what it had at its budget."""


def final_of(row: Row) -> float:
    """The value when the budget was spent: the last one. Of a run whose last update went far beyond, what its curve has there."""
    if row["spent"]["charged"] <= _OVER * row["budget"]:
        return float(row["value"])
    spent, value = zip(*(point[:2] for point in row["curve"]), strict=True)
    return float(np.interp(row["budget"], spent, value))


def area(row: Row) -> float:
    """The mean height of a run's curve over its budget, as a share of the bound."""
    spent, value = zip(*(point[:2] for point in row["curve"]), strict=True)
    budget = max(row["budget"], 1)
    inside = [(x, y) for x, y in zip(spent, value, strict=True) if x < budget]
    x, y = zip(*inside, (budget, float(np.interp(budget, spent, value))), strict=True)
    return float(np.trapezoid(y, x) / budget / row["bound"])


def calls_to(row: Row, level: float) -> float | None:
    """What was charged when the curve first reaches a value; None where it never does, or far beyond the budget."""
    before: tuple[float, float] | None = None
    for spent, value, *_ in row["curve"]:
        if value >= level:
            if before is not None and value != before[1]:
                spent = before[0] + (spent - before[0]) * (level - before[1]) / (value - before[1])
            return float(spent) if spent <= _OVER * row["budget"] else None
        before = spent, value
    return None


def best_points(rows: Iterable[Row]) -> list[str]:
    """Points of a method's grid, the one with the largest mean area first; a point with a failed run comes last."""
    found: dict[str, list[float]] = {}
    for row in rows:
        found.setdefault(row["point"], []).append(area(row) if row["status"] == "done" else -math.inf)
    score = {point: statistics.fmean(areas) for point, areas in found.items()}
    return sorted(score, key=lambda point: (-score[point], point != PUBLISHED, point))


def chosen_point(rows: Iterable[Row]) -> str:
    """The point that a method's tuning rows choose: by its confirming runs where there are some; as published without any."""
    by_phase: dict[str, list[Row]] = {"tune": [], "confirm": []}
    for row in rows:
        by_phase.setdefault(row["phase"], []).append(row)
    ranked = best_points(by_phase["confirm"] or by_phase["tune"])
    return ranked[0] if ranked else PUBLISHED


_DRAWS = 1 << 16


def sign_flips(differences: Sequence[float]) -> float:
    """The two-sided p of the sign-flip test that paired differences are symmetric around zero."""
    d = np.asarray(differences, float)
    if not len(d):
        return 1.0
    least = abs(d.sum()) * (1 - 1e-9) - 1e-15  # sums of the same numbers in another order
    if len(d) > _EXACT:
        signs = np.random.default_rng(0).integers(0, 2, (_DRAWS, len(d)), dtype=np.int8) * 2 - 1
        return float((1 + (abs(signs @ d) >= least).sum()) / (_DRAWS + 1))
    sums = np.zeros(1)
    for x in d[1:]:  # the first sign stays: patterns come in pairs of opposite ones
        sums = np.concatenate([sums + x, sums - x])
    return float((abs(sums + d[0]) >= least).mean())


@dataclass(frozen=True)
class Against:
    """A method minus a baseline, as shares of the bound."""

    baseline: str
    seeds: int
    mean: float
    low: float | None
    high: float | None
    p: float
    p_holm: float
    verdict: str
    """"better", "worse", "equal" (within 2 % of the bound), "not established", or "screening": too few seeds to say."""


@dataclass(frozen=True)
class Standing:
    """One method in one world, over its training seeds."""

    method: str
    point: str
    """Of the grid; "published" as the source says."""
    is_ranked: bool
    """False for the untuned numbers of a method that was tuned to others."""
    seeds: tuple[int, ...]
    share: tuple[float, float | None, float | None]
    """The final value as a share of the bound, with its 95 % interval."""
    area: tuple[float, float | None, float | None]
    calls: Mapping[int, tuple[float | None, int]]
    """By share of the best known in percent: the median of what was charged, over the seeds that got there; and how many did."""
    cpu_s: float
    collapsed: float
    """Share of the seeds."""
    rank: float = 0
    """By the mean; equal ones share the mean of their ranks."""
    rank_low: int = 0
    rank_high: int = 0
    against: Mapping[str, Against] = field(default_factory=dict)


@dataclass(frozen=True)
class WorldResult:
    """All methods in one world."""

    world: str
    bound: float
    budget: int
    best_known: float
    standings: tuple[Standing, ...]
    """Ranked, best first; then the untuned ones."""
    problems: Mapping[str, str]
    """Methods without a final row, and why: the error, or that it does not suit this world."""
    curves: Mapping[str, list[tuple[float, float]]]
    """The mean curve of each ranked method: what was charged, share of the bound."""

    @property
    def is_screening(self) -> bool:
        """Whether no method has the seeds of a claim."""
        return all(len(s.seeds) < CLAIM_SEEDS for s in self.standings)


def judged(
    rows: Sequence[Row], rules: Mapping[str, Mapping[str, float]] | None = None, baselines: Sequence[str] = ()
) -> list[WorldResult]:
    """Every world's result, in the order of its first row; `rules` are the values of hand-made rules by world."""
    worlds = dict.fromkeys(row["world"] for row in rows if row["phase"] == "final")
    return [_world(world, rows, (rules or {}).get(world, {}), baselines) for world in worlds]


@dataclass(frozen=True)
class Overall:
    """One method over all worlds of a race."""

    method: str
    rank: float
    """The mean of its ranks."""
    share: float
    """The mean of its final values as shares of the bounds."""
    worlds: Mapping[str, tuple[float, float]]
    """By world: rank and share."""


def overall(worlds: Sequence[WorldResult], among: Collection[str] | None = None) -> list[Overall]:
    """Methods (or those `among` them) with a final value in every world, by the mean of their ranks among each other; ties by the
    mean share."""
    shares = {
        w.world: {s.method: s.share[0] for s in w.standings if s.is_ranked and (among is None or s.method in among)}
        for w in worlds
    }
    names = [m for m in next(iter(shares.values()), {}) if all(m in found for found in shares.values())]
    places = {w: places_of({m: found[m] for m in names}) for w, found in shares.items()}
    out = [
        Overall(
            m, statistics.fmean(p[m] for p in places.values()), statistics.fmean(f[m] for f in shares.values()),
            {w: (places[w][m], shares[w][m]) for w in shares},
        )
        for m in names
    ]  # fmt: skip
    return sorted(out, key=lambda one: (one.rank, -one.share, one.method))


def _world(world: str, rows: Sequence[Row], rules: Mapping[str, float], baselines: Sequence[str]) -> WorldResult:
    finals = [row for row in rows if row["phase"] == "final" and row["world"] == world]
    sides: dict[tuple[str, str], dict[int, Row]] = {}
    for row in finals:
        if row["status"] == "done":
            sides.setdefault((row["method"], row["point"]), {})[row["seed"]] = row
    chosen = {name: chosen_point(r for r in rows if r["method"] == name) for name, _ in sides}
    main = {name: (name, chosen[name] if (name, chosen[name]) in sides else PUBLISHED) for name in chosen}
    main = {name: key for name, key in main.items() if key in sides}
    values = {key: statistics.fmean(final_of(r) for r in side.values()) for key, side in sides.items()}
    best = max([*(values[key] for key in main.values()), *rules.values(), _BEST])
    standings = {key: _standing(key, side, best, is_ranked=key in main.values()) for key, side in sides.items()}
    shares = {name: {s: final_of(r) / r["bound"] for s, r in sides[key].items()} for name, key in main.items()}
    ranks, tests = ranked(shares), {b: against(shares, b) for b in baselines if b in shares}
    placed = []
    for one in standings.values():
        held = {b: found[one.method] for b, found in tests.items() if one.is_ranked and one.method in found}
        rank, low, high = ranks[one.method] if one.is_ranked else (0, 0, 0)
        placed.append(replace(one, rank=rank, rank_low=low, rank_high=high, against=held))
    order = sorted(placed, key=lambda s: (not s.is_ranked, s.rank, s.method))
    problems = {r["method"]: r["error"] for r in finals if r["status"] != "done" and r["method"] not in main}
    first = finals[0]
    curves = {name: _curve(list(sides[key].values())) for name, key in main.items()}
    return WorldResult(world, first["bound"], first["budget"], best, tuple(order), problems, curves)


def _standing(key: tuple[str, str], side: Mapping[int, Row], best: float, *, is_ranked: bool) -> Standing:
    rows = [side[seed] for seed in sorted(side)]
    calls: dict[int, tuple[float | None, int]] = {}
    for share in SHARES:
        got = [x for x in (calls_to(row, best * share / 100) for row in rows) if x is not None]
        calls[share] = (statistics.median(got) if got else None, len(got))
    return Standing(
        *key, is_ranked, tuple(sorted(side)), mean_interval([final_of(r) / r["bound"] for r in rows]),
        mean_interval([area(r) for r in rows]), calls, statistics.fmean(r["cpu_s"] for r in rows),
        statistics.fmean(bool(r["collapsed"]) for r in rows),
    )  # fmt: skip


def _curve(rows: Sequence[Row]) -> list[tuple[float, float]]:
    """The mean over seeds at shares of the budget, linear between evaluations."""
    at = [share * rows[0]["budget"] for share in CURVE]
    curves = [np.array([point[:2] for point in row["curve"]], float).T for row in rows]
    heights = [np.interp(at, spent, value) / row["bound"] for (spent, value), row in zip(curves, rows, strict=True)]
    return [(x, float(y)) for x, y in zip(at, np.mean(heights, axis=0), strict=True)]


def _paired(a: Mapping[int, float], b: Mapping[int, float]) -> list[float]:
    return [a[seed] - b[seed] for seed in sorted(a.keys() & b.keys())]


def against(shares: Mapping[str, Mapping[int, float]], baseline: str) -> dict[str, Against]:
    """Every method minus a baseline, by method; Holm over them."""
    names = [name for name in shares if name != baseline and shares[name].keys() & shares[baseline].keys()]
    pairs = {name: _paired(shares[name], shares[baseline]) for name in names}
    ps = {name: sign_flips(pairs[name]) for name in names}
    adjusted = dict(zip(names, holm([ps[name] for name in names]), strict=True))
    out = {}
    for name in names:
        mean, low, high = mean_interval(pairs[name])
        p_holm = adjusted[name] or 0.0
        verdict = _verdict(len(pairs[name]), mean, low, high, p_holm)
        out[name] = Against(baseline, len(pairs[name]), mean, low, high, ps[name], p_holm, verdict)
    return out


def _verdict(seeds: int, mean: float, low: float | None, high: float | None, p_holm: float) -> str:
    if seeds < CLAIM_SEEDS or low is None or high is None:
        return "screening"
    if low >= -MARGIN and high <= MARGIN:
        return "equal"
    return ("better" if mean > 0 else "worse") if p_holm <= LEVEL else "not established"


def places_of(values: Mapping[str, float]) -> dict[str, float]:
    """Ranks, the largest first; values that are equal, but for what sums in another order change, share the mean of theirs."""
    at = [round(value, _DIGITS) for value in values.values()]
    return {name: sum(x > mine for x in at) + (at.count(mine) + 1) / 2 for name, mine in zip(values, at, strict=True)}


def ranked(shares: Mapping[str, Mapping[int, float]]) -> dict[str, tuple[float, int, int]]:
    """Rank by the mean, and the lowest and highest rank that pairs of methods leave open."""
    means = {name: statistics.fmean(held.values()) for name, held in shares.items()}
    places, names = places_of(means), sorted(shares, key=lambda name: (-means[name], name))
    pairs = list(itertools.combinations(names, 2))
    adjusted = holm([_paired_p(shares[a], shares[b]) for a, b in pairs])
    low, high = dict.fromkeys(names, 1), dict.fromkeys(names, len(names))
    for (a, b), p in zip(pairs, adjusted, strict=True):
        if p is not None and p <= LEVEL:
            above, below = (a, b) if statistics.fmean(_paired(shares[a], shares[b])) > 0 else (b, a)
            low[below] += 1
            high[above] -= 1
    return {name: (places[name], low[name], high[name]) for name in names}


def _paired_p(a: Mapping[int, float], b: Mapping[int, float]) -> float | None:
    """Of the paired t-test; None with fewer than two seeds in common."""
    d = _paired(a, b)
    if len(d) < 2:
        return None
    mean, spread = statistics.fmean(d), statistics.stdev(d)
    if spread <= 1e-12 * max(1.0, abs(mean)):
        return 1.0 if abs(mean) <= 1e-12 else 0.0
    return student_two_sided(mean / (spread / math.sqrt(len(d))), len(d) - 1)
