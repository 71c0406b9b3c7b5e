"""Stopping worlds as plug-ins: parameters, keyed paths, policies, the environment by hand, and agreement with the exact values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoint import registry
from counterpoint.errors import InputError, NotFound, Refused
from counterpoint.guard.stop_paths import FEATURES
from counterpoint.lab.bench.claims.stopping_worlds import stopping_worlds
from counterpoint.lab.testing import check_world
from counterpoint.lab.worlds.stopping.world import StoppingWorld
from counterpoint.lab.worlds.world import World, parameters

WORLDS: list[StoppingWorld] = [registry.get("world", name) for name in ("s0", "s1", "s1b", "s2", "s3")]
each_world = pytest.mark.parametrize("world", WORLDS, ids=[w.name for w in WORLDS])


@each_world
def test_it_is_a_world(world: StoppingWorld) -> None:
    assert isinstance(world, World)
    assert set(world.silent) == {"spawn", "delegate", "communicate", "aggregate"}
    assert all(p.unit and p.doc.endswith(".") for p in parameters(world.config))
    check_world(world, episodes=60)


@each_world
def test_other_parameters_are_another_world(world: StoppingWorld) -> None:
    other = world.replace(horizon=7, price=0.2)
    assert (other.config.horizon, other.config.price, world.config.horizon) == (7, 0.2, 40)
    assert other.paths(range(3)).payoffs.shape == (3, 8)
    assert other.solution().value != world.solution().value


@pytest.mark.parametrize(
    ("name", "changes", "says"),
    [
        ("s1", {"price": -0.1}, "price cannot be -0.1"),
        ("s1", {"price": float("nan")}, "price cannot be nan"),
        ("s1", {"horizon": 0}, "horizon cannot be 0"),
        ("s1", {"horizon": 2.5}, "horizon cannot be 2.5"),
        ("s1", {"find": 1.2}, "find cannot be 1.2"),
        ("s1", {"shape": 0}, "shape cannot be 0"),
        ("s1", {"rate": 1e-4}, "items are likely enough"),
        ("s0", {"mean": -1}, "mean cannot be -1"),
        ("s2", {"weights": (0.5, 0.2, 0.2, 0.2)}, "weights sum to 1.1"),
        ("s2", {"weights": (1.0,)}, "4 reliabilities and 1 weights"),
        ("s2", {"reliabilities": 0.7}, "reliabilities cannot be 0.7"),
        ("s3", {"hazard": -0.5}, "hazard cannot be -0.5"),
        ("s3", {"hazzard": 0.5}, "did you mean 'hazard'"),
    ],
)
def test_impossible_parameters_are_one_clear_error(name: str, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        registry.get("world", name).replace(**changes)


@each_world
def test_many_paths_are_the_same_as_one_by_one(world: StoppingWorld) -> None:
    seeds = [5, 2**62, 0, 77, 123456789]
    many = world.paths(seeds)
    for i, seed in enumerate(seeds):
        one = world.paths([seed])
        assert np.array_equal(one.payoffs[0], many.payoffs[i])
        assert np.array_equal(one.features[0], many.features[i])


@each_world
def test_a_shorter_horizon_is_the_beginning_of_a_longer_one(world: StoppingWorld) -> None:
    """No draw depends on how many others are made, and no feature looks ahead."""
    short, long = world.replace(horizon=9).paths(range(50)), world.paths(range(50))
    assert np.array_equal(short.payoffs, long.payoffs[:, :10])
    assert np.array_equal(short.features, long.features[:, :10])


def test_features_by_hand() -> None:
    paths = registry.get("world", "s3").paths([3])
    assert paths.names == FEATURES == ("round", "evidence", "last_gain", "quiet_rounds", "drop")
    level = paths.features[0, :, 1]
    assert np.array_equal(paths.payoffs[0], level - 0.12 * np.arange(41))
    quiet, best = 0, 0.0
    for t in range(1, 41):
        quiet = 0 if level[t] > level[t - 1] else quiet + 1
        best = max(best, level[t])
        assert paths.features[0, t].tolist() == [t, level[t], level[t] - level[t - 1], quiet, best - level[t]]


@each_world
def test_simulation_agrees_with_the_exact_values(world: StoppingWorld) -> None:
    solved, seeds = world.solution(), range(10_000)
    paths = world.paths(seeds)
    found = {
        "value": world.run("optimum", seeds).values,
        "cap": world.run("best_cap", seeds).values,
        "prophet": paths.payoffs.max(axis=1),
    }
    for name, values in found.items():
        assert abs(values.mean() - getattr(solved, name)) < 4.5 * values.std() / 100, name
    rounds = world.run("optimum", seeds).columns["rounds"]
    assert abs(rounds.mean() - solved.mean_round) < 4.5 * rounds.std() / 100 + 1e-9


def test_named_rules_do_what_they_say() -> None:
    world = registry.get("world", "s1")
    assert (world.run("never", range(20)).columns["rounds"] == 40).all()
    assert (world.run("first", range(20)).columns["rounds"] == 1).all()
    assert (world.run("cap:7", range(20)).columns["rounds"] == 7).all()
    assert (world.run("best_cap", range(20)).columns["rounds"] == 8).all()
    rounds, paths = world.run("patience:2", range(20)).columns["rounds"], world.paths(range(20))
    assert (paths.features[np.arange(20), rounds, 3] >= 2).all()
    assert abs(world.run("random", range(20_000)).columns["rounds"].mean() - 0.9 * (1 - 0.9**40) / 0.1) < 0.3


def test_a_function_can_be_the_policy() -> None:
    world = registry.get("world", "s1")
    cap = world.run("cap:5", range(100))
    assert np.array_equal(world.run(lambda t, x: x[:, 0] >= 5, range(100)).values, cap.values)
    coin = world.run(lambda t, x: np.full(len(x), 0.1), range(100))
    assert np.array_equal(coin.values, world.run("random", range(100)).values)


@pytest.mark.parametrize(
    "bad",
    [
        lambda t, x: True,
        lambda t, x: np.full(len(x), 1.5),
        lambda t, x: np.full(len(x), np.nan),
        lambda t, x: np.array(["no"] * len(x)),
    ],
)
def test_a_function_that_does_not_answer_is_told(bad: Any) -> None:
    with pytest.raises(InputError, match="the policy gave"):
        registry.get("world", "s1").run(bad, range(3))


@pytest.mark.parametrize("name", ["optimun", "cap:x", "by hand", ":7", "cap:"])
def test_an_unknown_policy_is_not_found(name: str) -> None:
    with pytest.raises(NotFound, match="no policy named"):
        registry.get("world", "s1").run(name, range(3))


@each_world
def test_no_episodes_are_no_error(world: StoppingWorld) -> None:
    assert world.run("optimum", []).values.shape == (0,)


@pytest.mark.parametrize("seeds", [[0.5], [[1]], [2**63]])
def test_seeds_are_whole_numbers(seeds: Any) -> None:
    with pytest.raises(InputError, match="seeds are whole numbers"):
        registry.get("world", "s1").paths(seeds)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(WORLDS), st.integers(0, 2**40), st.lists(st.booleans(), max_size=45))
def test_rewards_by_hand_sum_to_the_payoff(world: StoppingWorld, seed: int, actions: list[bool]) -> None:
    env, path = world.env(), world.paths([seed])
    seen, _ = env.reset(seed)
    total, is_over = 0.0, False
    for action in actions:
        if is_over:
            break
        seen, reward, is_over, truncated, _ = env.step(action)
        total += reward
        assert not truncated
    t = int(seen[0])
    assert total == pytest.approx(path.payoffs[0, t], abs=1e-9)
    assert np.array_equal(seen, path.features[0, t])
    assert env.trace().rewards["team"] == path.payoffs[0, t]
    assert (len(env.agents) == 1) == is_over


def test_the_environment_refuses_and_changes_nothing() -> None:
    env = registry.get("world", "s2").env()
    with pytest.raises(InputError, match="no episode has begun"):
        env.step(False)
    env.reset(4)
    for bad in (1, "stop", None, {"spawn": 1}):
        with pytest.raises(InputError, match="no action"):
            env.step(bad)
    assert env.observe()[0] == 0
    env.step({"stop": False})
    saved = env.snapshot()
    with pytest.raises(Refused, match="other parameters"):
        registry.get("world", "s2").replace(price=0.1).env().restore(saved)
    with pytest.raises(InputError, match="not a snapshot"):
        env.restore((1, 2))
    assert env.observe()[0] == 1


def test_the_claim_holds() -> None:
    rows = list(stopping_worlds(seed=31, seeds=1))
    assert len(rows) == 20
    assert all(row["ok"] is True for row in rows), [row for row in rows if not row["ok"]]
    assert all(set(row) == {"name", "value", "low", "high", "target", "ok"} for row in rows)
    assert all(type(row["value"]) is float for row in rows)
