"""The claims about learning: their worlds are what they say, and their parts can fail."""

from __future__ import annotations

import numpy as np
import pytest

from counterpoint import registry
from counterpoint.errors import InputError
from counterpoint.lab.bench.claims import async_, spawn_exploration
from counterpoint.lab.bench.claims.spawn_exploration import learn_gate, table_world, team_world
from counterpoint.lab.train.runners.here import Here
from counterpoint.lab.train.runners.processes import Processes


def test_their_names() -> None:
    assert {"async", "spawn_exploration"} <= set(registry.ids("claim"))
    for name in ("async", "spawn_exploration"):
        with pytest.raises(InputError, match="seeds"):
            next(registry.get("claim", name)(seed=0, seeds=0))


def test_the_true_effect_of_late_rollouts() -> None:
    mean = np.array(
        [[np.mean([async_.rollouts((s, a, u, 0.0), None) for s in range(60)]) for u in range(async_.LEVELS)] for a in (0, 1)]
    )
    assert (mean[1] - mean[0]).mean() == pytest.approx(async_.EFFECT, abs=0.003)
    assert mean[:, 0] == pytest.approx([0.3, 0.32], abs=0.005)
    assert async_.rollouts((1, 1, 2, 0.0), {"scale": 2.0}) == 2 * async_.rollouts((1, 1, 2, 0.0), None)


def test_launch_order_gives_the_same_bytes_and_another_seed_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(async_, "_UPDATES", 4)
    with Processes(2) as pool:
        there, _ = async_._learnt(pool, 3, 2, pace_s=0.001, update_s=0.0)
    here, _ = async_._learnt(Here(), 3, 2, pace_s=0.0, update_s=0.0)
    assert there == here != async_._learnt(Here(), 4, 2, pace_s=0.0, update_s=0.0)[0]


def test_a_gate_that_starts_shut_opens_only_with_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spawn_exploration, "UPDATES", 120)
    world = table_world(np.array([[0.5, 0.9], [0.5, 0.2]]), 0.2, 16)
    assert world.share(np.array([1.0, 0.0])) == 1
    assert world.share(np.zeros(2)) == pytest.approx(1.0 / 1.4)
    opened, shut, plain = (
        learn_gate(world, np.random.default_rng(0), start=1e-6, fork_share=f, how=how)
        for f, how in ((1 / 16, "natural"), (0.0, "natural"), (0.0, "reinforce"))
    )
    assert opened.reached is not None
    assert shut.reached is None
    assert plain.reached is None
    assert opened.rollouts == shut.rollouts == plain.rollouts == 120 * 32


def test_team_world_is_coupled_and_counts_sizes_alike() -> None:
    world = team_world(1, (2, 16), width=8, episodes=200, group=4)
    assert world.worth_CA.max(axis=1) == pytest.approx([1, 1])
    assert world.worth_CA[0, 0] > world.worth_CA[0, 1], "two items need no team of eight"
    assert world.worth_CA[1, 1] > world.worth_CA[1, 0], "sixteen do"
    play = world.play(np.random.default_rng(0), np.array([1, 1, 1]))
    one, again = play(np.array([0, 1]), np.array([0, 0])), play(np.array([0, 1]), np.array([0, 0]))
    assert (one == again).all(), "a fork into the same arm is the same episode"
