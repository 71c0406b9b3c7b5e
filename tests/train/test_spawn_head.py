"""The spawn head: numbers by hand, laws of the advantage, features as soft buckets, and forks that fix missing coverage."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.errors import InputError
from counterpoint.train.jobs import play
from counterpoint.train.policies.features import ROLE
from counterpoint.train.policies.network import Network
from counterpoint.train.settings import settings_of
from counterpoint.train.spawn_head import (
    SpawnGradient,
    SpawnStats,
    advantages,
    forks,
    hats,
    natural_step,
    reinforce_step,
    shrink,
    softmax,
    target_logits,
)
from counterpoint.train.training import Training
from train.quick import TINY


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


def test_memberships_are_soft_buckets() -> None:
    assert hats([2.0, 3.0, 8.0, 1.0, 99.0], [2, 4, 8]).tolist() == [[1, 0, 0], [0.5, 0.5, 0], [0, 0, 1], [1, 0, 0], [0, 0, 1]]
    rng = np.random.default_rng(0)
    x, arm = rng.uniform(0, 4, 4000), rng.integers(0, 2, 4000)
    r = arm * (x - 2) + 0.1 * rng.standard_normal(4000)  # spawning pays beyond 2
    stats = SpawnStats.of(5).updated(hats(x, range(5)), arm, r)
    found = advantages(stats, hats([0.5, 3.5], range(5)), np.full((2, 2), 0.5))
    assert found.q_NA[:, 1] - found.q_NA[:, 0] == pytest.approx([-1.5, 1.5], abs=0.2)
    hard = SpawnStats.of(2).updated([0, 1, 1], [0, 1, 0], [1.0, 2.0, 3.0])
    soft = SpawnStats.of(2).updated([[1.0, 0], [0, 1.0], [0, 1.0]], [0, 1, 0], [1.0, 2.0, 3.0])
    assert all((getattr(hard, n) == getattr(soft, n)).all() for n in ("n_CA", "n2_CA", "sum_CA", "square_CA"))


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
        lambda: SpawnStats.of(2).updated([[0.5, 0.4]], [0], [1.0]),
        lambda: SpawnStats.of(2).updated([0], [0], [1.0], propensity=[1.5]),
        lambda: SpawnStats.of(2).updated([0], [0], [1.0], propensity=[0.0], fork_share=0.0),
        lambda: advantages(SpawnStats.of(2), [0], [[0.5, 0.6]]),
        lambda: target_logits([[0.0, 0.0]], advantages(SpawnStats.of(2), [0], [[0.5, 0.5]]), eta=0.0),
        lambda: forks(np.random.default_rng(0), [0, 1], 2, 3),
        lambda: hats([1.0], [3, 2]),
    ],
)
def test_bad_input(call: object) -> None:
    with pytest.raises(InputError):
        call()  # type: ignore[operator]


def test_the_flagship_may_learn_its_gate_by_classes() -> None:
    training = Training(settings_of({"preset": "counterpoint", "world": "W1", "set": TINY, "updates": 3, "change": {"loss": {"spawn": "classes"}}}))
    plain = Training(settings_of({"preset": "counterpoint", "world": "W1", "set": TINY, "updates": 3}))
    job = training.job(0, 0, training.weights())
    played = play(job.payload, job.weights)
    for one in (training, plain):
        one.learn([played])
    assert torch.equal(training.net.size.weight, plain.net.size.weight)
    assert not torch.equal(training.net.gate.weight, plain.net.gate.weight)
    again = Training(training.settings)
    again.restore(training.state(), "here")
    assert again.module is not None
    assert torch.equal(again.module.get_buffer("sums"), training.module.get_buffer("sums"))  # type: ignore[union-attr]
    assert float(again.module.get_buffer("sums")[0].sum()) > 0
    with pytest.raises(InputError, match=r"option spawn is 'clases'.*did you mean 'classes'"):
        Training(settings_of({"preset": "counterpoint", "world": "W1", "change": {"loss": {"spawn": "clases"}}}))


def _team_by_size(recent: bool, *, updates: int = 60, episodes: int = 24) -> tuple[float, float]:
    """The mean team that is learned for tasks of 16 and of 64 items, played in turn, where 5.5 and 11 agents are best."""
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    net, learned = Network(), SpawnGradient(recent=recent)

    def roles(items: int, count: int) -> np.ndarray:
        x = np.zeros((count, 2, ROLE), np.float32)
        x[:, :, 0], x[:, 1, 1], x[:, :, 2] = 1, 1, np.log1p(items) / 4
        return x

    for u in range(updates):
        items, spread = (16, 64)[u % 2], 0.6 * 0.25 ** (u / updates)
        x = roles(items, episodes)
        with torch.no_grad():
            gate, size = (v.numpy() for v in net.roles(torch.from_numpy(x)))
        p = 1 / (1 + np.exp(-gate))
        go, drawn = rng.random(p.shape) < p, size + spread * rng.standard_normal(size.shape)
        team = np.maximum((go * np.exp(drawn)).sum(axis=1), 0.5)
        y = -4 * np.log(team / (11 * np.sqrt(items / 64))) ** 2 + 0.5 * rng.standard_normal(episodes)
        ep = np.repeat(np.arange(episodes), 2)
        t = {"x": x.reshape(-1, ROLE), "choice": go.ravel(), "forced": np.zeros(len(ep), np.bool_), "size": drawn.ravel(), "ep": ep}
        t |= {"logp": np.log(np.where(go, p, 1 - p)).ravel(), "round": np.zeros_like(ep)}
        learned.add(net, t, np.repeat(y - y.mean(), 2))
        learned.step(net, t, 128, left=max(0.25, 1 - u / updates))
    with torch.no_grad():
        found = [net.roles(torch.from_numpy(roles(items, 1))) for items in (16, 64)]
    small, large = (float((torch.exp(size) * (gate > 0)).sum()) for gate, size in found)
    return small, large


def test_a_fit_over_recent_roles_learns_how_the_team_grows_with_the_task() -> None:
    small, large = _team_by_size(recent=False)
    assert large / small < 1.4, "a batch has tasks of one size, and its fit moves all teams alike"
    small, large = _team_by_size(recent=True)
    assert large / small == pytest.approx(2, abs=0.4)
    assert large == pytest.approx(11, rel=0.3)
