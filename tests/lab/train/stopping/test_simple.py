"""Caps, thresholds and hindsight labels on examples small enough to see the answer."""

from __future__ import annotations

import numpy as np

from counterpoint.guard.stop_paths import StopPaths
from counterpoint.guard.stop_rule import best_cap, hindsight, threshold
from counterpoint.lab.train.stopping.values import longstaff_schwartz


def paths(y: list[list[float]], x: list[list[float]], times: int = 4) -> StopPaths:
    """The same few traces several times, so that every fold has them."""
    return StopPaths(payoffs=np.array(y * times, float), features=np.array(x * times, float)[..., None])


def test_the_best_cap_is_the_highest_mean() -> None:
    # means 0, 1.5, 1.5: the earlier of equals
    rule = best_cap(paths([[0, 1, 3], [0, 2, 0]], [[0, 0, 0], [0, 0, 0]]))
    assert rule.kind == "cap"
    assert rule.stop_times(np.zeros((2, 3, 1))).tolist() == [1, 1]


def test_a_threshold_stops_where_the_feature_reaches_its_level() -> None:
    # the feature jumps to 5 when the payoff is at its peak: stop there in each trace, and get 3
    y = [[0, 3, 1, 0], [0, 1, 3, 0], [3, 1, 0, 0]]
    x = [[0, 5, 5, 5], [0, 1, 5, 5], [5, 5, 5, 5]]
    rule = threshold(paths(y, x))
    assert rule.stop_times(np.array(x, float)[..., None]).tolist() == [1, 2, 0]
    assert float(rule.arrays["level"]) == 5
    assert rule.value(np.array(y, float), np.array(x, float)[..., None]).tolist() == [3, 3, 3]


def test_patience_is_a_threshold_and_so_is_a_rate() -> None:
    # the value per round falls to 1 where the peak is: 2.5/2 then 3/3, and 2/2; no level of the value itself does both
    y = [[0, 1, 2, 0], [0, 3, 0, 0]]
    x = [[9, 2.5, 3, 3], [9, 2, 6, 8]]
    rule = threshold(paths(y, x))
    assert bool(rule.arrays["per_round"])
    assert rule.value(np.array(y, float), np.array(x, float)[..., None]).mean() == 2.5


def test_no_feature_that_tells_traces_apart_is_a_cap() -> None:
    y = [[0, 1, 3], [0, 2, 0]]
    assert threshold(paths(y, [[0, 0, 0], [0, 0, 0]])).kind == "cap"


def test_hindsight_waits_for_luck() -> None:
    # after a sure 0 a coin: +1 seven times in ten, else −4. Hindsight says "wait" seven times in ten; payoffs say stop
    rng = np.random.default_rng(0)
    luck = rng.random(400) < 0.7
    y = np.stack([np.zeros(400), np.where(luck, 1.0, -4.0)], axis=1)
    x = rng.normal(size=(400, 2, 1))
    given = StopPaths(payoffs=y, features=x)
    assert hindsight(given).value(y, x).mean() < -0.4
    assert longstaff_schwartz(given).value(y, x).mean() > -0.1
