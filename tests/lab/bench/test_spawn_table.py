"""A table of spawn logits: numbers by hand, laws of the advantage, and forks that fix missing coverage."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.errors import InputError
from counterpoint.lab.bench.spawn_table import (
    SpawnStats,
    advantages,
    forks,
    natural_step,
    reinforce_step,
    shrink,
    softmax,
    target_logits,
)


def test_shrink_by_hand() -> None:
    assert shrink([2.0, -2.0, 0.5, 0.0, 3.0], [1.0, 1.0, 1.0, 1.0, 0.0]).tolist() == [1.5, -1.5, 0.0, 0.0, 3.0]


def test_one_bucket_by_hand() -> None:
    # noop: 0, 2 (mean 1); spawn: 4, 6 (mean 5). Sums of squares 2 + 2 over 2 free rows: pooled variance 2, in every cell too:
    # by class (4 + 4*2) / (2 + 4) = 2, by arm (2 + 4*2) / (1 + 4) = 2; se of a mean = 1
    stats = SpawnStats.of(1).updated([0, 0, 0, 0], [0, 0, 1, 1], [0.0, 2.0, 4.0, 6.0])
    mean, se, scale = stats.moments()
    assert mean.tolist() == [[1, 5]]
    assert se == pytest.approx(np.ones((1, 2)))
    assert scale == pytest.approx([2**0.5])
    # pi = (3/4, 1/4): V = 2, A = (-1, 3), se of A = (1/4, 3/4) sqrt(2)
    found = advantages(stats, [0], [[0.75, 0.25]])
    assert found.v_N == pytest.approx([2.0])
    assert found.se_NA == pytest.approx(np.array([[0.25, 0.75]]) * 2**0.5)
    assert found.shrunk_NA == pytest.approx(np.array([[-1 + 0.125, 3 * (1 - 0.125)]]))
    assert found.z_NA == pytest.approx(found.shrunk_NA / np.sqrt(2 + (3 * 0.875) ** 2))
    stepped = natural_step([[0.0, np.log(1 / 3)]], stats, eta=1.0)
    gap = np.log(1 / 3) + found.z_NA[0, 1] - found.z_NA[0, 0]
    assert stepped == pytest.approx(np.array([[-gap / 2, gap / 2]]))


def test_decay_by_hand() -> None:
    stats = SpawnStats.of(1).updated([0], [0], [1.0]).updated([0], [0], [4.0], decay=0.5)
    assert stats.n_CA[0, 0] == 1.5
    assert stats.n2_CA[0, 0] == 1.25
    assert stats.moments()[0][0, 0] == pytest.approx((0.5 * 1 + 4) / 1.5)


# hundredths: a difference of 1e-60 between two arms is gone once a shift is added, and no law says otherwise
returns = st.integers(-500, 500).map(lambda n: n / 100)
rows = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), returns), min_size=1, max_size=40)


@given(rows, st.lists(st.floats(-3, 3), min_size=9, max_size=9), st.floats(0.1, 100), st.floats(-50, 50))
def test_laws(data: list[tuple[int, int, float]], logits: list[float], unit: float, shift: float) -> None:
    bucket, arm, r = (np.array(c) for c in zip(*data, strict=True))
    theta = np.array(logits).reshape(3, 3)
    stats = SpawnStats.of(3, 3).updated(bucket, arm, r)
    found = advantages(stats, np.arange(3), softmax(theta))
    seen = np.isfinite(found.se_NA)
    has_spread = (stats.n_CA > 1).any()  # one row each says nothing about noise, so nothing is believed
    assert (seen == ((stats.n_CA > 0) & has_spread)).all()
    assert (found.z_NA[~seen] == 0).all(), "an arm never seen does not move"
    share = np.where(seen, softmax(theta), 0)
    total = share.sum(axis=1)
    centred = (share * (found.q_NA - found.v_N[:, None])).sum(axis=1)[total > 0] / total[total > 0]
    assert np.abs(centred).max(initial=0) < 1e-9, "advantages average to nothing under the policy"
    assert (np.abs(found.z_NA) <= 1).all()
    # Another unit and origin of returns change nothing, except in what rounding leaves where no noise was seen at all.
    if np.ptp(r) > 1e-3 and found.se_NA[seen].min(initial=np.inf) > 1e-6:
        moved = advantages(SpawnStats.of(3, 3).updated(bucket, arm, unit * r + shift), np.arange(3), softmax(theta))
        assert moved.z_NA == pytest.approx(found.z_NA, abs=1e-4)


def test_propensities_undo_confounding_inside_a_bucket() -> None:
    """Two kinds of prefix in one bucket: the good kind spawns often. Arms are worth the same."""
    rng = np.random.default_rng(1)
    good = rng.random(20_000) < 0.5
    p = np.where(good, 0.8, 0.2)
    arm = (rng.random(20_000) < p).astype(np.int64)
    rows_, other = forks(rng, arm, 2, 1000)
    kind, played = np.append(good, good[rows_]), np.append(arm, other)
    chance = np.where(played == 1, np.append(p, p[rows_]), 1 - np.append(p, p[rows_]))
    r = kind + 0.1 * rng.standard_normal(len(kind))
    bucket = np.zeros(len(kind), np.int64)
    naive = SpawnStats.of(1).updated(bucket, played, r).moments()[0][0]
    weighed = SpawnStats.of(1).updated(bucket, played, r, propensity=chance, fork_share=0.05).moments()[0][0]
    assert naive[1] - naive[0] > 0.3
    assert abs(weighed[1] - weighed[0]) < 0.03


def test_equal_propensities_weigh_nothing() -> None:
    data = ([0, 0, 1, 1], [0, 1, 1, 1], [1.0, 2.0, 3.0, 5.0])
    assert SpawnStats.of(2).updated(*data).n_CA == pytest.approx(
        SpawnStats.of(2).updated(*data, propensity=[0.9, 0.1, 0.2, 0.2]).n_CA
    )


def test_forks_force_another_arm_of_different_rows() -> None:
    arm = np.array([0, 1, 2, 0, 1, 2])
    hits = np.zeros((3, 3))
    for s in range(300):
        at, other = forks(np.random.default_rng(s), arm, 3, 4)
        assert len(set(at.tolist())) == 4
        np.add.at(hits, (arm[at], other), 1)
    assert (np.diag(hits) == 0).all()
    off = hits[~np.eye(3, dtype=bool)] / hits.sum()
    assert off == pytest.approx(np.full(6, 1 / 6), abs=0.05)
    assert len(forks(np.random.default_rng(0), arm, 3, 0)[0]) == 0


def test_reinforce_by_hand() -> None:
    # returns 1, 3 for arms 0, 1 at even odds: A = (-1, 1); theta_1 += lr ((-1)(0 - 1/2) + (1)(1 - 1/2)) / 2 = lr / 2
    assert reinforce_step(np.zeros((1, 2)), [0, 0], [0, 1], [1.0, 3.0], lr=1.0) == pytest.approx(np.array([[-0.5, 0.5]]))
    assert reinforce_step(np.zeros((1, 2)), [0, 0], [0, 1], [1.0, 1.0]).tolist() == [[0, 0]]


def test_only_forks_find_an_arm_that_is_never_played() -> None:
    def learn(forced: int) -> float:
        rng, theta, stats = np.random.default_rng(5), np.array([[0.0, -12.0]]), SpawnStats.of(1)
        for _ in range(150):
            arm = (rng.random(16 - forced) < softmax(theta)[0, 1]).astype(np.int64)
            played = np.append(arm, forks(rng, arm, 2, forced)[1])
            r = 0.3 * played + 0.3 * rng.standard_normal(16)
            stats = stats.updated(np.zeros(16, np.int64), played, r)
            theta = natural_step(theta, stats)
        return float(softmax(theta)[0, 1])

    assert learn(1) > 0.95
    assert learn(0) < 1e-3


def test_the_cap_keeps_a_way_back() -> None:
    stats = SpawnStats.of(1).updated([0] * 40, [0, 1] * 20, [0.0, 1.0] * 20)
    theta = np.zeros((1, 2))
    for _ in range(500):
        theta = natural_step(theta, stats, cap=6.0)
    assert theta == pytest.approx(np.array([[-3.0, 3.0]]))


@pytest.mark.parametrize(
    "call",
    [
        lambda: SpawnStats.of(0),
        lambda: SpawnStats.of(2, 1),
        lambda: SpawnStats.of(2).updated([2], [0], [1.0]),
        lambda: SpawnStats.of(2).updated([0.5], [0], [1.0]),
        lambda: SpawnStats.of(2).updated([0], [2], [1.0]),
        lambda: SpawnStats.of(2).updated([0], [0], [np.nan]),
        lambda: SpawnStats.of(2).updated([0, 1], [0], [1.0]),
        lambda: SpawnStats.of(2).updated([0], [0], [1.0], propensity=[1.5]),
        lambda: SpawnStats.of(2).updated([0], [0], [1.0], propensity=[0.0], fork_share=0.0),
        lambda: advantages(SpawnStats.of(2), [0], [[0.5, 0.6]]),
        lambda: target_logits([[0.0, 0.0]], advantages(SpawnStats.of(2), [0], [[0.5, 0.5]]), eta=0.0),
        lambda: forks(np.random.default_rng(0), [0, 1], 2, 3),
    ],
)
def test_bad_input(call: object) -> None:
    with pytest.raises(InputError):
        call()  # type: ignore[operator]
