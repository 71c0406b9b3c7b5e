"""Rows of claims: means and intervals by hand, the rules by which a target is met, and what is no row."""

from __future__ import annotations

import math

import numpy as np
import pytest

from counterpoint.errors import InputError
from counterpoint.lab.bench.claim import ClaimRow, as_row, at_least, at_most, equal_within, reported
from counterpoint.lab.bench.intervals import mean_interval


def test_the_interval_is_students() -> None:
    # 1, 2, 3: mean 2, s = 1, t(0.975, 2) = 4.303, half width 4.303 / sqrt(3) = 2.4843
    assert mean_interval([1, 2, 3]) == pytest.approx((2, 2 - 2.48413771, 2 + 2.48413771), abs=1e-4)
    # 0 and 1 in turn, 101 of them with mean 50/101: df 100, t = 1.984
    mean, low, high = mean_interval([k % 2 for k in range(101)])
    s = math.sqrt(101 / 100 * mean * (1 - mean))
    assert high is not None
    assert low is not None
    assert high - mean == pytest.approx(1.984 * s / math.sqrt(101), rel=1e-4)
    assert mean - low == pytest.approx(high - mean)


def test_the_interval_covers_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    ends = [mean_interval(rng.normal(size=5))[1:] for _ in range(2000)]
    covered = sum(low is not None and high is not None and low <= 0 <= high for low, high in ends)
    assert 0.94 <= covered / 2000 <= 0.96


def test_one_sample_has_no_interval_and_none_no_mean() -> None:
    assert mean_interval([3]) == (3, None, None)
    with pytest.raises(InputError, match="no samples"):
        mean_interval([])


def test_what_is_not_finite_meets_nothing() -> None:
    for bad in (math.nan, math.inf):
        assert not at_least("x", [1, bad], 0).ok
        assert not at_least("x", bad, 0).ok
        assert not at_most("x", -bad, 0).ok


def test_a_single_number_is_exact() -> None:
    for one in (0.5, np.float64(0.5), np.array(0.5)):
        row = at_least("x", one, 0.5, by="interval")  # type: ignore[arg-type]
        assert row == ClaimRow("x", 0.5, 0.5, 0.5, ">= 0.5", True)
        assert [type(v) for v in row.as_dict().values()] == [str, float, float, float, str, bool]


@pytest.mark.parametrize(
    ("row", "ok"),
    [
        (at_least("x", [1, 2, 3], 2), False),  # the interval's end is held to it, and not the mean
        (at_least("x", [1, 2, 3], -0.48), False),
        (at_least("x", [1, 2, 3], -0.49), True),
        (at_least("x", [1, 2, 3], 2, by="mean"), True),
        (at_least("x", [1, 2, 3], 2.1, by="mean"), False),
        (at_least("x", [1, 2, 3], 2, by="low"), False),
        (at_least("x", [1, 2, 3], -0.48, by="low"), False),
        (at_least("x", [1, 2, 3], -0.49, by="low"), True),
        (at_least("x", [3], 2), True),
        (at_least("x", [3], 2, by="low"), False),
        (at_most("x", [1, 2, 3], 2), True),
        (at_most("x", [1, 2, 3], 1.9), False),
        (at_most("x", [1, 2, 3], 4.4, by="high"), False),
        (at_most("x", [1, 2, 3], 4.5, by="high"), True),
        (equal_within("x", [1, 2, 3], 2.5, 0.5), True),
        (equal_within("x", [1, 2, 3], 2.6, 0.5), False),
        (equal_within("x", [1, 2, 3], 2, 2.4, by="interval"), False),
        (equal_within("x", [1, 2, 3], 2, 2.5, by="interval"), True),
    ],
)
def test_the_rules(row: ClaimRow, ok: bool) -> None:
    assert row.ok is ok


def test_targets_are_readable() -> None:
    assert at_least("x", 1, 0.99).target == ">= 0.99"
    assert at_most("x", 1, 2).target == "<= 2"
    assert equal_within("x", 1, 1, 0.01).target == "1 ± 0.01"


def test_wrong_rules_and_rows_are_refused() -> None:
    with pytest.raises(InputError, match="median"):
        at_least("x", 1, 0, by="median")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="tolerance"):
        equal_within("x", 1, 1, -1)
    with pytest.raises(InputError, match="half"):
        as_row({"half": 1})
    with pytest.raises(InputError, match="tuple"):
        as_row(("x", 1))  # type: ignore[arg-type]
    row = at_least("x", [1, 2], 0)
    assert as_row(row) is row
    assert as_row(row.as_dict()) == row


def test_samples_may_be_an_array_with_or_without_a_target() -> None:
    samples = np.array([1.0, 2.0, 3.0])
    assert reported("array", samples) == reported("array", [1, 2, 3])
    assert reported("array", samples).low == at_least("array", samples, 0).low
    assert reported("one", np.float64(2)) == reported("one", np.array(2.0)) == reported("one", 2)
