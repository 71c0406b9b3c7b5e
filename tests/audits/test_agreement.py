"""Agreement between judges: by hand, and at its edges."""

from __future__ import annotations

import numpy as np
import pytest

from counterpoint.audits.agreement import correlation, kappa, of_labels, of_scores


def test_kappa_by_hand() -> None:
    # 20 both yes, 5 a yes b no, 10 a no b yes, 15 both no: p_o = 0.7, p_e = 0.5*0.6 + 0.5*0.4 = 0.5, kappa = 0.4
    a = ["y"] * 25 + ["n"] * 25
    b = ["y"] * 20 + ["n"] * 5 + ["y"] * 10 + ["n"] * 15
    found = of_labels(a, b)
    share, k = found.figures
    assert (share.value, found.confusion) == (0.7, {"n": {"n": 15, "y": 10}, "y": {"n": 5, "y": 20}})
    assert k.value == pytest.approx(0.4)
    assert k.low is not None
    assert k.high is not None
    assert 0.1 < k.low < 0.4 < k.high < 0.7
    assert of_labels(a, b) == found  # the same call, the same numbers


def test_what_cannot_be_said_is_none() -> None:
    assert kappa(np.array([0, 0]), np.array([0, 0]), 1) is None  # chance alone explains it all
    assert correlation(np.array([1.0, 1.0]), np.array([1.0, 2.0])) is None
    assert [f.low for f in of_labels(["a", "b"], ["a", "b"]).figures] == [None, None]
    assert of_labels([], []).figures[0].value is None


def test_scores_by_hand() -> None:
    pearson, spearman, bias, gap = of_scores([1, 2, 3, 4], [1, 2, 3, 14]).figures
    assert spearman.value == pytest.approx(1.0)
    assert pearson.value == pytest.approx(20 / 550**0.5)
    assert (bias.value, gap.value) == (-2.5, 2.5)
    assert of_scores([1, 1, 2, 3], [4, 4, 5, 6]).figures[1].value == pytest.approx(1.0)  # ties share a rank
