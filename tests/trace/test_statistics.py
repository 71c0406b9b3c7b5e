"""Student's intervals: by hand, and how often they hold the truth."""

from __future__ import annotations

import math

import numpy as np
import pytest

from counterpoint.trace.statistics import difference_ends, mean_ends


def test_the_interval_of_a_mean_by_hand() -> None:
    # 1, 2, 3: mean 2, s = 1, t(0.975, 2) = 4.302653
    half = 4.302653 / math.sqrt(3)
    assert mean_ends([1, 2, 3]) == pytest.approx((2 - half, 2 + half), abs=1e-6)
    assert mean_ends([5.0, 5.0]) == (5.0, 5.0)
    assert mean_ends([5.0]) == mean_ends([]) == (None, None)


def test_welch_by_hand() -> None:
    # a: 0, 2: v = 2 / 2 = 1, df 1. b: 0, 1, 2: v = 1 / 3, df 2. Together (4/3)^2 / (1 + 1/18) = 32/19
    # equal sides: 1, 2, 3 twice: v = 1/3 each, df = 4, t(0.975, 4) = 2.776445
    half = 2.776445 * math.sqrt(2 / 3)
    assert difference_ends([1, 2, 3], [1, 2, 3]) == pytest.approx((-half, half), abs=1e-6)
    low, high = difference_ends([0, 2], [0, 1, 2])
    assert low is not None
    assert high is not None
    assert low + high == pytest.approx(0)
    t = high / math.sqrt(4 / 3)
    assert 4.302653 < t < 12.706205  # df 32/19 is between 1 and 2
    assert difference_ends([1, 1], [0, 0]) == (1, 1)
    assert difference_ends([1], [0, 0]) == (None, None)


@pytest.mark.parametrize("n", [2, 3, 5, 10])
def test_95_percent_is_95_percent(n: int) -> None:
    rng = np.random.default_rng(17)
    ends = [mean_ends(rng.standard_normal(n).tolist()) for _ in range(600)]
    held = sum(low <= 0 <= high for low, high in ends if low is not None and high is not None) / 600
    assert 0.92 < held < 0.98  # the percentiles of bootstrap draws hold 51, 73, 82 and 90 %
