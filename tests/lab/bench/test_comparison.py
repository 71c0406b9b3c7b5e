"""The statistics of comparison: hand-computed numbers, laws, and the coverage that the intervals claim."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoint.errors import InputError
from counterpoint.lab.bench.comparison import Side, compare, difference, estimate, holm, student_quantile, student_two_sided

ps = st.lists(st.none() | st.floats(0, 1), max_size=8)
matrices = st.integers(0, 2**32 - 1).map(
    lambda s: np.random.default_rng(s).normal(size=tuple(np.random.default_rng(s).integers(1, 6, 2)))
)


def side(label: str, values: np.ndarray, first: int = 0) -> Side:
    return Side(label, tuple(range(first, first + len(values))), values)


def test_student_against_the_tables() -> None:
    for df, t in [(1, 12.706), (2, 4.303), (4, 2.776), (9, 2.262), (29, 2.045)]:
        assert student_quantile(df) == pytest.approx(t, abs=5e-4)
        assert student_two_sided(student_quantile(df), df) == pytest.approx(0.05, abs=1e-9)
    assert student_quantile(1e7) == pytest.approx(1.959964, abs=1e-5)
    # df = 1 is Cauchy's: P(|T| >= t) = 1 - 2 atan(t) / pi; df = 2 has F(t) = 1/2 + t / (2 sqrt(2 + t^2))
    assert student_two_sided(3.0, 1) == pytest.approx(1 - 2 * math.atan(3) / math.pi, abs=1e-12)
    assert student_two_sided(-1.5, 2) == pytest.approx(1 - 1.5 / math.sqrt(2 + 1.5**2), abs=1e-12)
    assert student_two_sided(0.0, 5) == 1.0
    assert student_quantile(3, 0.95) == pytest.approx(2.353, abs=5e-4)


def test_holm_by_hand() -> None:
    # 0.01 * 3, then 0.02 * 2 = 0.04, then 0.03 * 1 raised to 0.04
    assert holm([0.03, 0.01, 0.02]) == pytest.approx([0.04, 0.03, 0.04])
    assert holm([0.5, None, 0.4]) == pytest.approx([0.8, None, 0.8])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


@given(ps)
def test_holm_is_monotone_and_never_below_the_raw_p(given_: list[float | None]) -> None:
    adjusted = holm(given_)
    pairs = sorted((p, q) for p, q in zip(given_, adjusted, strict=True) if p is not None and q is not None)
    assert [p is None for p in given_] == [q is None for q in adjusted]
    assert all(p <= q <= 1 for p, q in pairs)
    assert [q for _, q in pairs] == sorted(q for _, q in pairs)


def test_one_row_and_many_rows_by_hand() -> None:
    # One row 0, 1, ..., 9: the bootstrap's se is the population's, sqrt(8.25 / 10); df = 9
    one = estimate([(1, np.arange(10.0)[None])], draws=40_000)
    assert one.mean == 4.5
    assert one.df == pytest.approx(9)
    assert one.low is not None
    assert not one.over_seeds
    assert 4.5 - one.low == pytest.approx(2.262 * math.sqrt(8.25 / 10), rel=0.02)
    # Three rows that are constant over tasks: exactly Student's interval of 0, 1, 5: s^2 = 7, se = sqrt(7/3), df = 2
    rows = estimate([(1, np.repeat(np.array([[0.0], [1.0], [5.0]]), 4, axis=1))], draws=40_000)
    assert rows.over_seeds
    assert rows.df == pytest.approx(2)
    assert rows.high is not None
    assert rows.high - 2.0 == pytest.approx(4.303 * math.sqrt(7 / 3), rel=0.02)
    assert rows.p == pytest.approx(student_two_sided(2 / math.sqrt(7 / 3), 2), rel=0.05)


def test_nothing_to_be_sure_by_is_none_and_no_doubt_is_exact() -> None:
    alone = estimate([(1, np.array([[2.0]]))])
    assert (alone.mean, alone.low, alone.high, alone.p) == (2.0, None, None, None)
    flat = estimate([(1, np.full((3, 4), 2.0))])
    assert (flat.low, flat.high, flat.p) == (2.0, 2.0, 0.0)
    assert estimate([(1, np.zeros((3, 4)))]).p == 1.0


def test_what_two_sides_share_cancels() -> None:
    rng = np.random.default_rng(1)
    common = 10 * rng.normal(size=(5, 1)) + 10 * rng.normal(size=(1, 40))
    a, b = common + 0.1 * rng.normal(size=(5, 40)), common + 0.5 + 0.1 * rng.normal(size=(5, 40))
    paired = difference(side("b", b), side("a", a))
    apart = difference(side("b", b, first=100), side("a", a))
    assert paired.paired_seeds == (0, 1, 2, 3, 4)
    assert apart.paired_seeds == ()
    assert paired.estimate.mean == pytest.approx(apart.estimate.mean) == pytest.approx(0.5, abs=0.05)
    assert paired.estimate.p is not None
    assert apart.estimate.p is not None
    assert paired.estimate.p < 1e-4
    assert apart.estimate.p > 0.5


def test_seeds_are_paired_where_most_are_shared() -> None:
    rng = np.random.default_rng(2)
    a = Side("a", (0, 1, 2, 3, 4), rng.normal(size=(5, 7)))
    b = Side("b", (3, 2, 1, 0), a.values_ST[[3, 2, 1, 0]] + 1.0)
    found = difference(b, a)
    assert found.paired_seeds == (3, 2, 1, 0)
    assert found.estimate.mean == pytest.approx(1.0)
    assert difference(Side("c", (4, 9, 8), rng.normal(size=(3, 7))), a).paired_seeds == ()


def test_counts_and_losses() -> None:
    a = side("a", np.zeros((2, 6)))
    b = side("b", np.array([[1, -1, 0, -3, 1e-12, 2.0], [1, -1, 0, -1, 0, -2.0]]))
    found = difference(b, a)
    assert found.counts() == (1, 2, 3)
    assert found.losses() == [3, 1]
    assert found.losses(1) == [3]


def test_all_sides_against_the_baseline_with_holm() -> None:
    rng = np.random.default_rng(3)
    base = rng.normal(size=(5, 30))
    noise = [0.3 * rng.normal(size=(5, 30)) for _ in range(3)]
    sides = [side("a", base), side("b", base + noise[0] + 0.3), side("c", base + noise[1]), side("d", base + noise[2] - 1)]
    found = compare(sides, baseline=1)
    assert [(d.label, d.against) for d in found.differences] == [("a", "b"), ("c", "b"), ("d", "b")]
    assert [d.p_holm for d in found.differences] == holm([d.estimate.p for d in found.differences])
    assert len(found.means) == 4
    again = compare(sides, baseline=1)
    assert [d.estimate for d in again.differences] == [d.estimate for d in found.differences]


@settings(max_examples=30)
@given(matrices, st.integers(0, 2**32 - 1), st.sampled_from([0, 50]))
def test_swapping_the_sides_flips_the_sign_and_nothing_else(a: np.ndarray, seed: int, shift: int) -> None:
    b = np.random.default_rng(seed).normal(size=a.shape)
    there = difference(side("a", a), side("b", b, shift), draws=200)
    back = difference(side("b", b, shift), side("a", a), draws=200)
    assert back.estimate.mean == -there.estimate.mean
    assert back.estimate.p == there.estimate.p
    if there.estimate.low is not None and there.estimate.high is not None:
        assert back.estimate.low == pytest.approx(-there.estimate.high, abs=1e-12)
    assert back.counts()[:2] == there.counts()[:2][::-1]


# Where the variance is: in seeds, in tasks, in both, in neither but the noise. The last is known to be covered too often.
@pytest.mark.parametrize(
    ("seeds", "of_seed", "of_task", "noise", "most"),
    [
        (3, 1.0, 0.0, 0.1, 0.975),
        (5, 1.0, 0.0, 0.1, 0.975),
        (10, 0.5, 2.0, 0.5, 0.98),
        (5, 0.2, 1.0, 0.5, 0.99),
        (5, 0.0, 0.0, 1.0, 1.0),
    ],
)
def test_the_interval_holds_the_truth_as_often_as_it_says(
    seeds: int, of_seed: float, of_task: float, noise: float, most: float
) -> None:
    rng, runs, held = np.random.default_rng([seeds, int(10 * of_task)]), 250, 0
    for _ in range(runs):
        y = of_seed * rng.normal(size=(seeds, 1)) + of_task * rng.normal(size=(1, 50)) + noise * rng.normal(size=(seeds, 50))
        found = estimate([(1, y)], seed=int(rng.integers(2**32)), draws=500)
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 0 <= found.high
    assert 0.92 <= held / runs <= most


def test_unpaired_sides_are_covered_too() -> None:
    rng, runs, held = np.random.default_rng(4), 300, 0
    for _ in range(runs):
        tasks = rng.normal(size=(1, 30))
        a = rng.normal(size=(4, 1)) + tasks + 0.2 * rng.normal(size=(4, 30))
        b = 0.5 * rng.normal(size=(7, 1)) + tasks + 0.2 * rng.normal(size=(7, 30))
        found = difference(side("a", a), side("b", b, 100), seed=int(rng.integers(2**32)), draws=500).estimate
        assert found.low is not None
        assert found.high is not None
        held += found.low <= 0 <= found.high
    assert 0.92 <= held / runs <= 0.985


def test_what_is_not_a_side_is_refused() -> None:
    for values, seeds in [
        (np.zeros(3), (0,)),
        (np.zeros((2, 3)), (0,)),
        (np.zeros((2, 0)), (0, 1)),
        (np.full((1, 2), np.nan), (0,)),
    ]:
        with pytest.raises(InputError):
            Side("x", seeds, values)
    with pytest.raises(InputError, match="seed 4 comes twice"):
        Side("x", (4, 4), np.zeros((2, 3)))
    with pytest.raises(InputError, match="different numbers of tasks"):
        compare([side("a", np.zeros((1, 2))), side("b", np.zeros((1, 3)))])
