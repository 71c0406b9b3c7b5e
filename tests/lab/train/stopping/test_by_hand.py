"""Stop rules and their trainers in numbers: each kind of rule by hand, fits against plain ones, and what small data once gave."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from counterpoint import registry
from counterpoint.errors import InputError, NotIdentified, Refused
from counterpoint.guard.stop_basis import GRID, Basis, quadratic, ridge_cv
from counterpoint.guard.stop_paths import StopPaths, checked, draft_numbers, from_traces, subset
from counterpoint.guard.stop_rule import (
    FOLDS,
    Rule,
    best_cap,
    first_stop,
    folds_of,
    load_rule,
    paid_by_thresholds,
    payoff_at,
    threshold,
)
from counterpoint.lab.train.stopping.certificate import Bracket, bracket, dual
from counterpoint.lab.train.stopping.choice import (
    TRAINERS,
    Choice,
    _first_head,
    _mean_error,
    _sigmoid,
    _undecided,
    choose,
    sampled_score,
    vote_of,
)
from counterpoint.lab.train.stopping.expected import _best_split, _grow, _levels, calmest, expected, tree_cv
from counterpoint.lab.train.stopping.values import last_useful

RNG = np.random.default_rng


def rule(kind: str, horizon: int = 3, width: int = 1, **arrays: Any) -> Rule:
    return Rule(kind=kind, arrays={k: np.asarray(v) for k, v in arrays.items()}, horizon=horizon, width=width)


def column(*values: float) -> np.ndarray:
    return np.array(values, float)[:, None]


# -- rules


def test_a_cap() -> None:
    found = rule("cap", cap=2)
    assert [float(found.goes_on(t, column(9))[0]) for t in range(4)] == [2, 1, 0, -1]
    assert found.stop_times(np.zeros((2, 4, 1))).tolist() == [2, 2]
    assert found.stops(np.zeros((1, 4, 1))).tolist() == [[False, False, True, True]]
    late = rule("cap", cap=9)
    assert late.stop_times(np.zeros((1, 4, 1))).tolist() == [3]
    assert late.stops(np.zeros((1, 4, 1))).tolist() == [[False, False, False, True]]


def test_thresholds_stop_at_their_level_on_either_side() -> None:
    up = rule("threshold", feature=0, sign=1, level=2.0, per_round=False)
    assert up.goes_on(5, column(1.9, 2.0, 2.1)).tolist() == [1, -1, -1]
    down = rule("threshold", feature=0, sign=-1, level=2.0, per_round=False)
    assert down.goes_on(5, column(1.9, 2.0, 2.1)).tolist() == [-1, -1, 1]
    rate = rule("threshold", feature=0, sign=1, level=2.0, per_round=True)
    assert rate.goes_on(2, column(5.9, 6.0)).tolist() == [1, -1]
    second = rule("threshold", width=2, feature=1, sign=1, level=2.0, per_round=False)
    assert second.goes_on(0, np.array([[9.0, 1.0], [0.0, 3.0]])).tolist() == [1, -1]


def test_one_parabola_per_checkpoint_within_what_was_seen() -> None:
    found = rule(
        "per_time", mean=[[1.0], [0.0]], scale=[[2.0], [1.0]], low=[[-1.0], [0.0]], high=[[5.0], [1.0]], coef=[[1.0, 2.0, 3.0], [0.5, 0.0, 0.0]]
    )  # fmt: skip
    # z = (x - 1) / 2: 1 + 2 z + 3 z^2; beyond 5 it is read as 5, below -1 as -1
    assert found.goes_on(0, column(3, 5, 9, -7)).tolist() == [6, 1 + 4 + 12, 17, 1 - 2 + 3]
    assert found.goes_on(1, column(3)).tolist() == [0.5]
    assert found.goes_on(2, column(3)).tolist() == [-1]


def test_a_vote_is_by_weight() -> None:
    arrays = {"0.cap": 1, "1.cap": 3, "2.cap": 3, "kinds": ["cap", "cap", "cap"], "weights": [1.5, 1.0, 1.0]}
    found = rule("vote", horizon=4, **arrays)
    assert [float(found.goes_on(t, column(0))[0]) for t in range(5)] == [3.5, 2.0, 0.5, -1.5, -3.5]
    assert found.stop_times(np.zeros((1, 5, 1))).tolist() == [3]


def test_stop_times_payments_and_first_stops() -> None:
    found = rule("threshold", feature=0, sign=1, level=1.0, per_round=False)
    x = np.array([[0, 0, 0, 0], [0, 1, 0, 1], [1, 0, 0, 0]], float)[..., None]
    assert found.stop_times(x).tolist() == [3, 1, 0]
    y = np.arange(12.0).reshape(3, 4)
    assert found.value(y, x).tolist() == [3, 5, 8]
    assert payoff_at(y, np.array([0, 1, 2])).tolist() == [0, 5, 10]
    assert first_stop(np.array([[False, True, True], [False, False, False]])).tolist() == [1, 2]
    assert found.stop_times(np.zeros((0, 4, 1))).tolist() == []
    for shape in ((2, 4), (2, 3, 1), (2, 4, 2)):
        with pytest.raises(InputError, match=r"\(E, 4, 1\), as it was trained on"):
            found.stop_times(np.zeros(shape))


def test_a_rule_refuses_what_it_was_not_learned_in() -> None:
    s1 = registry.get("world", "s1").replace(horizon=5)
    config = {"horizon": 5, "price": s1.config.price}
    known = dataclasses.replace(rule("cap", cap=1), about={"world": "s1", "version": s1.version, "config": config})
    known.refuse_other(s1)
    rule("cap", cap=1).refuse_other(s1)
    for about, says in (
        ({"world": "s2"}, "learned in world s2, and this is s1"),
        ({"version": "0"}, f"learned in version 0, and this is {s1.version}"),
        ({"config": {"horizon": 6}}, "learned with horizon = 6, and here it is 5"),
        ({"config": {"odd": 1}}, "odd = 1, and here it is None"),
    ):
        with pytest.raises(Refused, match=says):
            dataclasses.replace(known, about=about).refuse_other(s1)


def test_files_that_are_no_rules(tmp_path: Path) -> None:
    path = tmp_path / "r.npz"
    saved = rule("cap", cap=2)
    saved.save(path)
    assert load_rule(str(path)).as_bytes() == saved.as_bytes()
    dataclasses.replace(saved, kind="odd").save(path)
    with pytest.raises(InputError, match="format 1, kind odd"):
        load_rule(path)
    rule("threshold", feature=3, sign=1, level=0.0, per_round=False).save(path)  # it reads a feature that is not there
    with pytest.raises(InputError, match="is not a stop rule"):
        load_rule(path)
    np.savez(path, cap=np.array(1))
    with pytest.raises(InputError, match="is not a stop rule"):
        load_rule(path)


# -- paths


def test_paths_are_checked_once() -> None:
    y, x = RNG(0).normal(size=(6, 3)), RNG(1).normal(size=(6, 3, 2))
    found = checked(StopPaths(payoffs=y, features=x))
    assert found.names == ("x0", "x1")
    named = checked(StopPaths(payoffs=y, features=x, names=("a", "b"), about={"world": "w"}))
    assert (named.names, named.about, found.about) == (("a", "b"), {"world": "w"}, {})
    assert checked(StopPaths(payoffs=y[:, :2], features=x[:, :2])).payoffs.shape == (6, 2)
    with pytest.raises(InputError, match="5 traces are too few to learn from; give 6 or more"):
        checked(StopPaths(payoffs=y[:5], features=x[:5]))
    with pytest.raises(InputError, match="6 traces are too few"):
        checked(StopPaths(payoffs=y, features=x), least=7)
    for wrong in (np.inf, np.nan):
        bad = x.copy()
        bad[4, 2, 0] = wrong
        with pytest.raises(InputError, match="trace 4, checkpoint 2: features hold a NaN or infinite value"):
            checked(StopPaths(payoffs=y, features=bad))
    flat = np.zeros((6, 3))
    flat[:, 2] = [1, 2, 3, 4, 5, 6]
    with pytest.raises(NotIdentified, match="degenerate to never"):
        checked(StopPaths(payoffs=flat, features=x))
    checked(StopPaths(payoffs=flat[:, 1:], features=x[:, 1:]))  # two checkpoints: the first is all there is before the last
    flat[0, 0] = 1e-3
    checked(StopPaths(payoffs=flat, features=x))
    some = subset(StopPaths(payoffs=y, features=x, names=("a", "b"), about={"k": 1}), np.array([4, 0]))
    assert np.array_equal(some.payoffs, y[[4, 0]])
    assert np.array_equal(some.features, x[[4, 0]])
    assert (some.names, some.about) == (("a", "b"), {"k": 1})


def test_features_of_what_the_drafts_said() -> None:
    s1 = registry.get("world", "s1").replace(horizon=4)
    traces = [s1.trace(seed) for seed in range(2)]
    evidence = {t.trace_id: np.array(v) for t, v in zip(traces, ([0, 2, 2, 1, 5], [3.0, 3, 3, 4, 4]), strict=True)}
    found = from_traces(traces, lambda t: evidence[t.trace_id])
    # round, evidence, last gain, rounds since the last rise, how far below the best
    assert found.features[0].tolist() == [[0, 0, 0, 0, 0], [1, 2, 2, 0, 0], [2, 2, 0, 1, 0], [3, 1, -1, 2, 1], [4, 5, 4, 0, 0]]
    assert found.features[1, :, 3].tolist() == [0, 1, 2, 0, 1]
    trace = traces[0]
    drafts = [i for i, e in enumerate(trace.events) if e.type == "aggregate" and e.reward]
    texts = ("no number", "2 of 7", "-1.5", "+3", "x4y")
    events, contents = list(trace.events), {}
    for i, text in zip(drafts, texts, strict=True):
        events[i] = replace(events[i], content_ref=f"draft {i}")
        contents[f"draft {i}"] = text
    assert draft_numbers(replace(trace, events=events[::-1], contents=contents)).tolist() == [0, 7, -1.5, 3, 4]


# -- simple trainers


def test_folds_are_equal_and_of_the_seed() -> None:
    assert np.bincount(folds_of(9, 0)).tolist() == [3, 3, 3] == [9 // FOLDS] * FOLDS
    assert np.bincount(folds_of(10, 5)).tolist() == [4, 3, 3]
    assert not np.array_equal(folds_of(30, 0), folds_of(30, 1))
    assert np.array_equal(folds_of(30, 2**63 + 1), folds_of(30, 1))


def test_what_thresholds_are_paid() -> None:
    # one trace whose feature goes 1, 3, 2; payoffs 10, 20, 30. Levels 1, 2, 3 from below and from above, then per round
    got = paid_by_thresholds(np.array([[10.0, 20.0, 30.0]]), np.array([[[1.0], [3.0], [2.0]]]))
    up, down = [10, 20, 20], [10, 10, 10]
    per_round = {1.0: (10, 10), 1.5: (20, 10), 2 / 3: (10, 30)}
    assert got[0].tolist() == [*up, *down, *(per_round[v][0] for v in (2 / 3, 1.0, 1.5)), *(per_round[v][1] for v in (2 / 3, 1.0, 1.5))]
    apart = paid_by_thresholds(np.array([[10.0, 20.0, 30.0], [10.0, 20.0, 30.0]]), np.array([[[1.0], [1.0], [1.0]], [[2.0], [2.0], [2.0]]]))
    assert apart[0, :2].tolist() == [10, 30]  # a level that is never reached pays the last checkpoint
    still = paid_by_thresholds(np.array([[10.0, 20.0, 30.0]]), np.full((1, 3, 1), 6.0))
    assert still[0].tolist() == [10, 10, 10, 30, 20, 10]  # the same everywhere, but not per round: 6, 3, 2


def test_a_threshold_says_where_it_comes_from() -> None:
    x = np.tile(np.array([[0, 5, 5, 5], [0, 1, 5, 5], [5, 5, 5, 5]], float)[..., None], (4, 1, 1))
    y = np.tile(np.array([[0, 3, 1, 0], [0, 1, 3, 0], [3, 1, 0, 0]], float), (4, 1))
    found = threshold(StopPaths(payoffs=y, features=x, about={"world": "w"}), 3)
    assert (found.kind, found.horizon, found.width) == ("threshold", 3, 1)
    assert found.about == {"world": "w", "trainer": "threshold", "seed": 3, "traces": 12}
    assert (int(found.arrays["sign"]), int(found.arrays["feature"]), bool(found.arrays["per_round"])) == (1, 0, False)
    below = threshold(StopPaths(payoffs=y, features=-x))
    assert (int(below.arrays["sign"]), float(below.arrays["level"])) == (-1, -5)
    assert threshold(StopPaths(payoffs=y, features=0 * x)).about["trainer"] == "best_cap"


# -- fits


def plain_ridge_cv(x: np.ndarray, y: np.ndarray, trace: np.ndarray, late: np.ndarray, w: np.ndarray, grid: Any, slack: float) -> Any:
    """The same, written row by row."""
    mean, y_mean = np.average(x, axis=0, weights=w), np.average(y, weights=w)
    scale = np.sqrt(np.average((x - mean) ** 2, axis=0, weights=w))
    z, v = (x - mean) / scale, y - y_mean

    def solve(rows: np.ndarray, light: float, heavy: float, share: float) -> np.ndarray:
        tie = np.diag(light * np.where(late, heavy, 1.0)) * w.sum() * share
        return np.linalg.solve((z[rows] * w[rows, None]).T @ z[rows] + tie, (z[rows] * w[rows, None]).T @ v[rows])

    saved = []
    for light, heavy in grid:
        total = 0.0
        for fold in range(3):
            held = trace % 3 == fold
            c = solve(~held, light, heavy, 2 / 3)
            total += float((w[held] * (v[held] ** 2 - (v[held] - z[held] @ c) ** 2)).sum())
        saved.append(total)
    best = int(np.argmax(saved))
    if slack:
        close = [i for i in range(len(grid)) if grid[i][0] <= grid[best][0] and saved[i] >= saved[best] * (1 - slack)]
        best = max(close, key=lambda i: (grid[i][1], grid[i][0]))
    coef = solve(np.ones(len(y), bool), *grid[best], 1.0) / scale
    return coef, y_mean - mean @ coef, grid[best], saved[best]


@pytest.mark.parametrize(("seed", "slack"), [(0, 0.0), (1, 0.0), (2, 0.05), (3, 0.3)])
def test_ridge_by_cross_validation_is_what_it_says(seed: int, slack: float) -> None:
    rng = RNG(seed)
    x = rng.normal(size=(60, 4)) * np.array([1, 5, 0.2, 1]) + np.array([0, 3, -1, 0])
    y = x[:, 0] - 0.2 * x[:, 1] + 0.3 * x[:, 3] + rng.normal(size=60)
    trace, late, w = np.repeat(np.arange(15), 4), np.array([False, False, True, True]), rng.uniform(0.5, 2, 60)
    found = ridge_cv(x, y, trace, late, w, GRID, slack)
    coef, intercept, penalty, saved = plain_ridge_cv(x, y, trace, late, w, GRID, slack)
    assert found.penalty == penalty
    assert found.coef == pytest.approx(coef, rel=1e-6)
    assert found.intercept == pytest.approx(intercept, rel=1e-6)
    assert found.explained == pytest.approx(saved, rel=1e-6)
    assert found(x[:2]) == pytest.approx(x[:2] @ coef + intercept)
    alone = ridge_cv(x, y, trace, late, grid=((0.1, 7.0),))
    assert alone.penalty == (0.1, 7.0)
    assert alone.explained == 0
    assert alone.coef == pytest.approx(plain_ridge_cv(x, y, trace, late, np.ones(60), ((0.1, 7.0),), 0.0)[0], rel=1e-6)
    two = ((1e-5, 1.0), (0.1, 1.0))
    assert ridge_cv(x, y, trace, late, w, two).penalty == plain_ridge_cv(x, y, trace, late, w, two, 0.0)[2]
    assert ridge_cv(x, y, trace, late, w, two).explained > 0
    constant = np.column_stack([x, np.full(60, 3.0)])
    assert ridge_cv(constant, y, trace, np.append(late, False), w, GRID, slack).coef[4] == 0


def test_cuts_lie_between_neighbours() -> None:
    assert _levels(np.array([3.0, 1.0, 1.0, 2.0])).tolist() == [1.5, 2.5]
    assert _levels(np.array([5.0, 5.0])).tolist() == []
    assert len(_levels(np.arange(25.0))) == 24
    many = _levels(np.arange(1000.0))
    assert len(many) == 24
    assert many[0] == pytest.approx((0 + 42) / 2, abs=1.5)


def test_the_best_split_saves_the_most_squared_error() -> None:
    rng = RNG(5)
    x, y = rng.integers(0, 4, (40, 3)).astype(float), rng.normal(size=40)
    levels = [_levels(x[:, j]) for j in range(3)]
    binned = np.stack([np.searchsorted(at, x[:, j]) for j, at in enumerate(levels)], axis=1)
    for least in (1, 8, 12):
        best = (0.0, 0, 0)
        for j in range(3):
            for k, at in enumerate(levels[j]):
                low, high = y[x[:, j] <= at], y[x[:, j] > at]
                if min(len(low), len(high)) >= least:
                    saved = ((y - y.mean()) ** 2).sum() - ((low - low.mean()) ** 2).sum() - ((high - high.mean()) ** 2).sum()
                    best = max(best, (saved, j, k), key=lambda s: s[0])
        found = _best_split(binned, y, levels, np.arange(40), least)
        assert found[0] == pytest.approx(best[0])
        assert found[1:] == best[1:]
    assert _best_split(binned, y, levels, np.arange(9), 5) == (0.0, 0, 0)
    assert _best_split(binned, y, [np.zeros(0)] * 3, np.arange(40), 1) == (0.0, 0, 0)


def test_a_tree_by_hand() -> None:
    # y = 0, 0, 10, 10, 13, 13 over 0..5: first between 1 and 2, then between 3 and 4
    x, y = np.arange(6.0)[:, None], np.array([0.0, 0, 10, 10, 13, 13])
    levels = [_levels(x[:, 0])]
    tree = _grow(np.searchsorted(levels[0], x), y, levels, 1)
    assert tree.first == pytest.approx(y.mean())
    assert (tree.at.tolist(), tree.column.tolist(), tree.level.tolist()) == ([0, 1], [0, 0], [1.5, 3.5])
    assert (tree.low.tolist(), tree.high.tolist()) == ([0, 10], [11.5, 13])
    assert tree.leaves(x).tolist() == [0, 0, 1, 1, 2, 2]
    errors, out = tree.sizes(x, y)
    assert errors == pytest.approx([((y - y.mean()) ** 2).sum(), 9.0, 0.0])
    assert out.tolist() == y.tolist()
    assert tree.sizes(x)[0] == []
    small = tree.cut(2, 7.0)
    assert (small(x).tolist(), small.explained) == ([0, 0, *[11.5] * 4], 7.0)
    big = _grow(np.searchsorted(levels[0], x), y, levels, 3)
    assert big.level.tolist() == [2.5]


def test_a_trees_size_is_what_held_out_traces_ask_for() -> None:
    x = np.tile(np.arange(4.0), 30)[:, None]
    y = np.where(x[:, 0] > 1, 2.0, 0.0) + np.where(x[:, 0] > 2, 0.1, 0.0)
    trace = np.repeat(np.arange(30), 4)
    assert len(tree_cv(x, y, trace, 0.0, 1).at) == 2
    found = tree_cv(x, y, trace, 0.05, 1)
    assert found.level.tolist() == [1.5]
    # saved on held-out traces: the whole, less what the two upper ones differ by
    assert found.explained == pytest.approx(((y - y.mean()) ** 2).sum() - 60 * 0.05**2, rel=1e-6)


# -- the basis


def test_quadratic_columns() -> None:
    assert quadratic(np.array([[2.0, 3.0]])).tolist() == [[1, 2, 3, 4, 6, 9]]


def test_pooled_columns_by_hand() -> None:
    # one feature with values 0, 2 (the second tells nothing apart): mean 1, scale 1, one knot at z = -1
    x = np.zeros((2, 3, 2))
    x[1, :, 0] = 2.0
    x[:, :, 1] = np.arange(3)
    basis = Basis.of(x)
    assert (basis.keep.tolist(), basis.mean.tolist(), basis.scale.tolist(), basis.knots.tolist()) == ([0], [1], [1], [[-1]])
    assert basis.horizon == 2
    row = basis.columns(np.array([1]), np.array([[2.0, 99.0]]))[0]
    log, inverse = np.log(2) / np.log(3), 0.5
    # time; z = 1; no kink beyond the first knot; one step; products with time, the step's, and z^2
    assert row == pytest.approx([0.5, 0.25, log, inverse, 1, 1, 0.5, log, inverse, log, inverse, 1])
    assert basis.late.tolist() == [False] * 6 + [True] * 6
    far = basis.columns(np.array([1]), np.array([[7.0, 0.0]]))[0]
    assert far == pytest.approx(row)  # read as the nearest that was seen
    low = basis.columns(np.array([2]), np.array([[0.0, 0.0]]))[0]
    assert low == pytest.approx([1, 1, 1, 1 / 3, -1, 0, -1, -1, -1 / 3, 0, 0, 1])
    again = Basis.load(basis.arrays)
    assert again.table(x) == pytest.approx(basis.table(x))
    assert basis.table(x).shape == (2, 3, 12)
    assert basis.columns(np.zeros(0, int), np.zeros((0, 2))).shape == (0, 12)


def test_kinks_steps_and_pairs() -> None:
    x = RNG(0).normal(size=(50, 2, 2))
    basis = Basis.of(x)
    finite = np.isfinite(basis.knots).sum(axis=1)
    assert (finite <= 6 + 2 + 3).all()
    assert np.all(np.diff(basis.knots[0, : finite[0]]) > 0)
    values = np.unique(x[:, :, 0])
    z = (values - basis.mean[0]) / basis.scale[0]
    assert basis.knots[0, :3] == pytest.approx(z[:3])
    rows = basis.columns(np.zeros(1, int), x[:1, 0])
    assert rows.shape[1] == len(basis.late) == 4 + sum(1 + n - 1 + 3 + 3 + 4 for n in finite) + 3
    z0 = (x[0, 0] - basis.mean) / basis.scale
    assert rows[0, -3:] == pytest.approx([z0[0] ** 2, z0[0] * z0[1], z0[1] ** 2])
    kinks = rows[0, 5 : 5 + finite[0] - 1]
    assert kinks == pytest.approx(np.maximum(z0[0] - basis.knots[0, 1 : finite[0]], 0))
    nine = Basis.of(np.tile(np.arange(9.0), 4).reshape(12, 3, 1))  # too many for a knot each: the lowest, and quantiles
    assert (nine.knots * nine.scale + nine.mean)[0] == pytest.approx([0, 1, 2, 3, 5, 6, 7])
    eight = Basis.of(np.tile(np.arange(8.0), 3).reshape(8, 3, 1))
    assert (eight.knots * eight.scale + eight.mean)[0] == pytest.approx(range(7))
    wide = RNG(1).normal(size=(20, 2, 13))
    assert len(Basis.of(wide)._pairs()[0]) == 13
    assert len(Basis.of(wide[:, :, :12])._pairs()[0]) == 78


# -- gradients


def test_a_sampled_stop_scores_what_it_did() -> None:
    class Drawn:
        def random(self, shape: tuple[int, int]) -> np.ndarray:
            return np.array([[0.9, 0.1], [0.9, 0.9]])

    # chances a half: the first stops at 1, the second at the end; paid 4 and 8 around a mean of 6
    found = sampled_score(np.zeros((2, 2)), np.array([[0.0, 4.0, 9.0], [0.0, 1.0, 8.0]]), Drawn())  # type: ignore[arg-type]
    assert found.tolist() == [[-2 * -0.5, -2 * 0.5], [2 * -0.5, 2 * -0.5]]
    assert _sigmoid(np.array([0.0, 1000.0, -1000.0])) == pytest.approx([0.5, 1.0, 0.0])


def test_the_first_head_stops_around_the_cap() -> None:
    x = RNG(0).normal(size=(10, 5, 1))
    basis = Basis.of(x)
    table = basis.table(x[:, :4])
    mean, scale = table.mean(axis=(0, 1)), table.std(axis=(0, 1))
    head = _first_head(basis, mean, scale, 2)
    f = ((table[0] - mean) / scale) @ head[:-1] + head[-1]
    assert f == pytest.approx([-1.5, -0.5, 0.5, 1.5])  # t - cap + 1/2
    still = _first_head(basis, mean, np.full(len(scale), np.inf), 2)
    assert still[0] == 0


def test_the_last_useful_checkpoint_is_bounded() -> None:
    y = np.zeros((5, 4))
    y[:, 3] = 1
    assert last_useful(y) == 3
    y[:, 0] = 2
    assert last_useful(y) == 1


# -- choosing


def test_means_and_errors() -> None:
    assert _mean_error(np.array([1.0, 3.0, 5.0, 7.0])) == (4.0, pytest.approx((20 / 3) ** 0.5 / 2))


def test_undecided_at_the_limits() -> None:
    noise = np.array([-1.0, 1.0, -1.0, 1.0])
    same = {"a": noise, "b": noise}
    assert _undecided(same, {"a": np.ones(4), "b": 2 * np.ones(4)}) == "b"
    assert _undecided(same, {"a": np.zeros(4), "b": -np.ones(4)}) == "best_cap"
    error = float(noise.std(ddof=1) / 2)
    for shift, wanted in ((-0.99 * error, "a"), (-1.01 * error, "best_cap")):
        assert _undecided({"a": noise + shift, "b": noise}, {"a": np.ones(4), "b": np.zeros(4)}) == wanted


def small(n: int = 36, seed: int = 0) -> StopPaths:
    """A walk that goes up while its feature is high, and down after it dropped."""
    rng = RNG(seed)
    alive = np.cumprod(rng.random((n, 5)) < 0.75, axis=1).astype(float)
    gain = np.where(alive, 1.0, -1.0) + 0.3 * rng.normal(size=(n, 5))
    y = np.concatenate([np.zeros((n, 1)), np.cumsum(gain, axis=1)], axis=1)
    level = np.concatenate([np.ones((n, 1)), alive], axis=1) + 0.1 * rng.normal(size=(n, 6))
    return StopPaths(payoffs=y, features=np.stack([level, rng.normal(size=(n, 6))], axis=2), about={"world": "w"})


def test_a_choice_of_several_votes_and_of_one_does_not() -> None:
    paths = small()
    one = vote_of(Choice(("threshold",), "raw", {}), paths, 2)
    assert (one.kind, one.about["trainer"], one.about["payoffs"], one.about["world"]) == ("threshold", "stacked: threshold", "raw", "w")
    cap = vote_of(Choice(("best_cap",), "raw", {}), paths, 2)
    assert cap.arrays["cap"] == best_cap(paths).arrays["cap"]
    both = vote_of(Choice(("threshold", "longstaff_schwartz"), "given now", {}), paths, 2)
    assert both.kind == "vote"
    assert both.arrays["weights"].tolist() == [1.5, 1.0]
    assert both.arrays["kinds"].tolist() == ["threshold", "per_time"]
    assert np.array_equal(both.stop_times(paths.features), one.stop_times(paths.features))  # the best decides where votes are even


RECORDED: dict[str, Any] = {
    "stacked": [3.5, 3.5, -3.5, 0.5, 2, 2, 1, 5, 1, 5, 4, 1],
    "longstaff_schwartz": [0.65168, 0.74625, -1.04901, 0.92105, 2, 2, 1, 5, 1, 4, 4, 1],
    "pooled": [0.4373, 0.28037, -1.04398, 0.21349, 2, 2, 1, 5, 1, 5, 4, 1],
    "all_stops": [29.33827, 10.52193, -28.93299, -7.66445, 2, 2, 1, 3, 1, 3, 3, 1],
    "threshold": [1.0, 1.0, -1.0, 1.0, 2, 2, 1, 5, 1, 5, 4, 1],
    "best_cap": [1.0, 0.0, -1.0, -2.0, 1, 1, 1, 1, 1, 1, 1, 1],
    "sampled_gradient": [18.93731, 6.48973, -16.48384, -5.20424, 2, 2, 1, 3, 1, 3, 3, 1],
    "hindsight": [0.24983, 0.13854, -0.41577, 0.03214, 2, 2, 1, 4, 1, 4, 2, 1],
    "choice": ["all_stops", "threshold", "pooled", "given now", 0.48282, 0.14542, 0.34698, 0.11065, 0.50202, 0.13441, 0.52492, 0.13673],
    "calm": ["given now", 0.0, 0.4274, 0.70363, 0.93686, 1.73684, 1.94358],
    "expected False": [0.0, 0.4274, 0.70363, 0.93686, 1.73684, 1.94358, 0.0, 0.82858, -0.22419, -1.24727, -2.26513, -3.28561],
    "expected True": [0.0, 0.99444, 1.94154, 2.87758, 3.81039, 2.77747, 0.0, -1.04785, -2.07798, -3.10688, -4.13744, -5.17036],
}  # fmt: skip


def seen() -> dict[str, Any]:
    """What every trainer makes of the small data: scores at two checkpoints, and stop times of fresh traces."""
    paths, fresh = small(), small(8, 1)
    out: dict[str, Any] = {}
    for name, trainer in TRAINERS.items():
        found = trainer(paths, 4)
        assert found.about["trainer"].split(":")[0] == name
        scores = [float(found.goes_on(t, fresh.features[e, t][None])[0]) for e, t in ((0, 0), (1, 1), (2, 2), (3, 3))]
        out[name] = [round(s, 5) for s in scores] + found.stop_times(fresh.features).tolist()
    choice, calm = choose(paths, 4)
    out["choice"] = [*choice.winners, choice.payoffs, *(round(v, 5) for pair in choice.gains.values() for v in pair)]
    given = checked(paths)
    out["calm"] = [calmest(given, 4)[0], *calm.payoffs[0].round(5).tolist()]
    for after in (False, True):
        out[f"expected {after}"] = expected(given, 4, after=after)[:2].round(5).ravel().tolist()
    return out


def test_what_the_small_data_gave() -> None:
    found = seen()
    assert found.keys() == RECORDED.keys()
    for name, values in RECORDED.items():
        assert found[name] == [pytest.approx(v, abs=2e-4) if isinstance(v, float) else v for v in values], name


# -- the bracket


class Coin:
    """A world of one feature, a walk whose next step is drawn again by `ahead`; a draft is worth its feature."""

    name, version = "coin", "1"

    def observed_scores(self, x: np.ndarray) -> np.ndarray:
        return x[..., 0]

    def ahead(self, t: int, x: np.ndarray, forks: int, seed: int) -> np.ndarray:
        steps = np.tile([1.0, -1.0], (len(x), forks // 2 + 1))[:, :forks, None]
        return x[:, None, :] + steps


def test_the_martingale_is_what_came_less_what_could_be_expected() -> None:
    x = np.array([[[0.0], [1.0], [2.0]], [[0.0], [-1.0], [0.0]]])
    # worth max(0, f) with f = x: W_1 = x + max(0, x), W_2 = x. E[W_1 | 0] = (2 - 1) / 2, E[W_2 | x_1] = x_1
    found = dual(Coin(), lambda t, rows: rows[:, 0], x, 2, 0)
    # first: M_1 = 2 - 0.5, M_2 = M_1 + 2 - 1; second: M_1 = -1 - 0.5, M_2 = M_1 + 0 + 1
    assert found.tolist() == [[0, 1 - 1.5, 2 - 2.5], [0, -1 + 1.5, 0 + 0.5]]
    assert dual(Coin(), lambda t, rows: rows[:, 0] - 99, x, 2, 0).tolist() == [[0, 0, 0], [0, 0, 0]]


def test_a_width() -> None:
    some = {"lower_error": 0.0, "upper_error": 0.0, "forks": 1}
    assert Bracket(lower=3.0, upper=4.0, **some).width == 0.25
    assert Bracket(lower=-5.0, upper=-4.0, **some).width == 0.25
    assert Bracket(lower=-5.0, upper=0.0, **some).width == np.inf


def test_a_bracket_of_small_data() -> None:
    world = registry.get("world", "s1").replace(horizon=5)
    train = world.paths(range(24))
    found = bracket(world, best_cap(train), train, seeds=range(100, 124), forks=3, seed=2)
    plain = bracket(world, best_cap(train), train, seeds=range(100, 124), forks=3, seed=2, calm=False)
    got = [round(v, 4) for f in (found, plain) for v in (f.lower, f.lower_error, f.upper, f.upper_error)] + [found.forks]
    assert got == [pytest.approx(v, abs=2e-3) for v in BRACKET]
    with pytest.raises(InputError, match="forks is at least 1, not 0"):
        bracket(world, best_cap(train), train, seeds=range(100, 124), forks=0)
    for n in (1, 2, 3):
        with pytest.raises(InputError, match=f"{n} fresh paths are too few"):
            bracket(world, best_cap(train), train, seeds=range(100, 100 + n))


BRACKET = [5.5556, 1.0263, 5.7667, 0.9717, 6.0076, 0.9239, 6.4285, 0.8564, 3]
