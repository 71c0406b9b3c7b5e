"""Edges of mechanisms, by hand: equal groups, ablations, groups of one, numbers that are none, judges from outside, one pair."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from counterpoint.credits.groups import Convention, group_advantages
from counterpoint.credits.mechanisms.c3 import sibling_advantages
from counterpoint.credits.mechanisms.difference import difference
from counterpoint.credits.mechanisms.gae import gae
from counterpoint.credits.mechanisms.peer_split import peer_split, split_weights
from counterpoint.credits.mechanisms.remerge import remerge
from counterpoint.credits.mechanisms.sharp import normalised
from counterpoint.errors import InputError, NotIdentified
from counterpoint.trace.example import rollouts


def test_a_group_in_which_nobody_differs_gets_nothing() -> None:
    for ddof, eps in ((0, 0.0), (1, 0.0), (1, 1e-6)):
        assert normalised([0.1] * 3, ddof, eps).tolist() == [0.0, 0.0, 0.0]  # their mean is not 0.1 in floating point
    assert normalised([1.0, 3.0], 0, 0.0).tolist() == [-1.0, 1.0]


def test_the_mean_as_baseline_listens_to_the_critic() -> None:
    r, q, one = [1.0, 3.0, 5.0], [0.0, 3.0, 9.0], [0, 0, 1]
    found = sibling_advantages(r, one, q=q, alpha=0.25, mode="value_assisted", baseline="mean")
    assert found[:2] == pytest.approx([1 - (0.75 * 2 + 0.25 * 1.5), 3 - (0.75 * 2 + 0.25 * 1.5)])
    assert math.isnan(found[2])
    plain = sibling_advantages(r, one, q=q, alpha=0.0, mode="value_assisted", baseline="mean")
    assert plain[:2] == pytest.approx([-1.0, 1.0])


def test_a_scale_of_one_row_is_a_group_of_one_too() -> None:
    def alone(singleton: Any, **how: Any) -> list[float]:
        said = Convention(**{"baseline": "none", "scale": "std", "eps": 0.0, "singleton": singleton, **how})
        return group_advantages([4.0, 1.0, 3.0], [0, 1, 1], said).tolist()

    both = [1 / 2**0.5, 3 / 2**0.5]  # the std of 1 and 3, ddof 1, is the root of 2
    assert alone("keep") == pytest.approx([4.0, *both])
    assert alone("zero") == pytest.approx([0.0, *both])
    assert math.isnan(alone("refuse")[0])
    assert alone("refuse", scale="none") == [4.0, 1.0, 3.0]  # nothing is compared: nobody is alone
    with pytest.raises(NotIdentified, match="groups of one"):
        alone("error")


def test_what_is_not_a_number_is_said_to_be_none() -> None:
    trace = rollouts()[0]
    some = difference(trace, counterfactual=lambda t, name: math.nan if name == "w1" else 0.5)
    assert some.unidentified == {(0, "w1"): "the team's reward without it is NaN"}
    with pytest.raises(NotIdentified, match="NaN") as error:
        difference(trace, counterfactual=lambda t, name: math.nan)
    assert "counterfactual=" in str(error.value.fix)
    with pytest.raises((NotIdentified, InputError), match=r"NaN|finite"):
        gae(trace, value=lambda t: dict.fromkeys(t.index, math.nan))


def test_a_judge_from_outside_is_a_peer_of_everybody() -> None:
    # shares of 2 / 2: a keeps all (1, 0), b splits (1/2, 1/2), the judge gives a 1/4 and b 3/4
    w = split_weights([[1.0, 0.0], [1.0, 1.0], [1.0, 3.0]], self_weight=0.3)
    assert w == pytest.approx([0.3 * 1 + 0.7 * (0.5 + 0.25) / 2, 0.3 * 0.5 + 0.7 * (0 + 0.75) / 2])
    trace = rollouts()[0]  # its team reward is 1: the verdict is 1

    def told(judge: float) -> dict[str, float]:
        given = {(a, b): 1.0 for a in ("w1", "w2") for b in ("w1", "w2")} | {("judge", "w1"): judge, ("judge", "w2"): 1.0}
        return peer_split(trace, give="reward", lam=0.2, ratings=lambda t: given).of(0)

    assert told(1.0)["w1"] == pytest.approx(1.0)
    # shares of 2 / 2: the judge gives w1 3/4 and w2 1/4, all others 1/2: peer 5/8 and 3/8
    assert told(3.0)["w1"] - told(3.0)["w2"] == pytest.approx(0.2 * 0.7 * (5 / 8 - 3 / 8))
    with pytest.raises(InputError, match="rater by rated"):
        split_weights([[1.0, 0.0]])


class _Nine:
    """Nine workers; the answer is worth how many of them are there, squared."""

    def __init__(self, trace: object) -> None:
        self.workers = [f"v{n}" for n in range(9)]

    def score(self, absent: Any) -> float:
        return float(9 - len(list(absent))) ** 2


def test_one_pair_of_orders_has_no_standard_error() -> None:
    found = remerge(rollouts()[:1], merged=_Nine, orders=2)
    assert [r.se for r in found.rows] == [None] * 9
    assert all(r.se is not None and np.isfinite(r.se) for r in remerge(rollouts()[:1], merged=_Nine, orders=8).rows)
    assert sum(r.value for r in found.rows) == pytest.approx(81.0)
