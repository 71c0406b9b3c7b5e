"""The worlds behind the claims `balance` and `anneal`: exact shares, repeatability, and that the claims can fail."""

from __future__ import annotations

import numpy as np
import pytest

from counterpoint.errors import InputError
from counterpoint.lab.bench.claims.anneal import SpawnWorld, train_spawn
from counterpoint.lab.bench.claims.balance import METHODS, MixedWorld, _plain, train_mixed
from counterpoint.rewards.balance import normalised, variance_weights, variation_weights, weighted
from counterpoint.rewards.schedules import Scaffold, constant


def test_shares_are_exact() -> None:
    world = MixedWorld.of(np.random.default_rng(0), 3)
    best = world.mean_RKCA[:, 0].argmax(axis=-1)
    sure = np.where(np.arange(6) == best[..., None], 1e3, 0.0)
    assert world.share(sure) == pytest.approx(np.ones(3))
    assert world.share(np.zeros((3, 8, 6))) == pytest.approx(
        world.mean_RKCA[:, 0].mean(axis=(1, 2)) / world.mean_RKCA[:, 0].max(-1).mean(-1)
    )
    serial = SpawnWorld(np.array([[0.5, 0.25], [1.0, 0.5]]))
    assert serial.share(np.array([0.0, 0.0])) == 1.0
    assert serial.share(np.array([1.0, 1.0])) == 0.5
    assert serial.best_rate == 0.0


def test_draws_follow_the_policy_and_the_scales() -> None:
    world = MixedWorld.of(np.random.default_rng(0), 1)
    policy = np.tile([0.5, 0.2, 0.1, 0.1, 0.1, 0.0], (1, 8, 1))
    actions, rewards = world.play(policy, np.random.default_rng(1), 20_000)
    share = np.bincount(actions.ravel(), minlength=6) / actions.size
    assert share == pytest.approx(policy[0, 0], abs=0.01)
    mean = (policy[:, None] * world.mean_RKCA).sum(axis=-1) * world.scale_K[:, None]
    assert rewards.mean(axis=-1)[0] == pytest.approx(mean[0], rel=0.05, abs=0.05)


@pytest.mark.parametrize("method", METHODS)
def test_the_same_seed_gives_the_same_policy(method: str) -> None:
    world = MixedWorld.of(np.random.default_rng(0), 2)
    one, two = (train_mixed(world, method, np.random.default_rng(5), steps=4, marks=(4,)) for _ in range(2))
    assert one.policy_RCA.tobytes() == two.policy_RCA.tobytes()
    assert one.policy_RCA.sum(axis=-1) == pytest.approx(1.0)


def test_a_sum_of_raw_rewards_follows_the_large_misaligned_one() -> None:
    world = MixedWorld.of(np.random.default_rng(0), 4)
    found = {m: train_mixed(world, m, np.random.default_rng(1), steps=60, marks=(60,)) for m in ("raw_sum", "ours")}
    start = world.share(np.zeros((4, 8, 6)))
    assert (found["raw_sum"].share_RM[:, 0] < start + 0.05).all()
    assert (found["ours"].share_RM[:, 0] > start + 0.2).all()


def test_a_constant_scaffold_ruins_serial_tasks_and_the_indicator_does_not() -> None:
    world = SpawnWorld.of(np.random.default_rng(0), serial=True)
    kept = train_spawn(world, np.random.default_rng(1), constant(1.0), steps=400)
    ours = train_spawn(world, np.random.default_rng(1), Scaffold(1.0), steps=400)
    assert kept.rate > 0.9
    assert kept.steps_to_95 is None
    assert ours.rate < 0.05
    assert ours.steps_to_95 is not None
    with pytest.raises(InputError):
        train_spawn(world, np.random.default_rng(1), None, start=1.0)


def test_the_world_weighs_as_the_library_does() -> None:
    world = MixedWorld.of(np.random.default_rng(0), 1)
    _, reward = world.play(np.full((1, 8, 6), 1 / 6), np.random.default_rng(1), 8)
    flat, group = reward[0].reshape(4, -1), np.repeat(np.arange(8), 8)
    parts = normalised(flat, group)
    for method, weights in (
        ("gdpo", np.ones(4)),
        ("variance", variance_weights(flat, group)),
        ("variation", variation_weights(flat)),
    ):
        total = weighted(parts, weights)
        assert _plain(method, reward)[0].ravel() == pytest.approx(total / np.sqrt((total**2).mean()))
