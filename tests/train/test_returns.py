"""Credit of rollout rows: hand-made chains, the all-stops recursion, and spawns whose effect is not taken for luck."""

from __future__ import annotations

import numpy as np
import torch

import counterpoint as cpt
from counterpoint.train.policy.features import ROLE
from counterpoint.train.policy.network import Network
from counterpoint.train.returns import going_on, lesson, measure, row_advantages
from counterpoint.train.rollouts import Rollout, along, play_out
from counterpoint.train.spawn_gradient import SpawnGradient


def rollout(tables: dict, values: np.ndarray, value_TE: np.ndarray) -> Rollout:
    config = cpt.world("W1", vote_items=2).config
    return Rollout(config, np.arange(len(values)), np.arange(len(values)), tables, value_TE, values, {})


def test_going_on_by_hand() -> None:
    # One episode, Y = 0, 1, 3, 2 before rounds 0..3; chances of stopping at rounds 1 and 2: 0.5 and 0.25.
    value = np.array([[0.0], [1.0], [3.0], [2.0]])
    stop = {"ep": np.array([0, 0]), "round": np.array([1, 2]), "chance": np.array([0.5, 0.25])}
    # C_2 = 2 - 3 = -1;  C_1 = 3 - 1 + 0.75 * -1 = 1.25
    assert np.allclose(going_on(rollout({"stop": stop}, np.array([2.0]), value)), [1.25, -1.0])


def test_sums_run_along_one_items_chain_only() -> None:
    t = {"order": np.array([0, 2, 1, 3]), "chain": np.array([0, 1, 0, 1])}
    assert np.allclose(along(t, np.array([1.0, 10.0, 2.0, 20.0])), [3.0, 30.0, 2.0, 20.0])


def test_leaving_has_no_return_and_a_perfect_critic_no_surprise() -> None:
    world = cpt.world("W1", vote_items=6)
    torch.manual_seed(1)
    net = Network()
    out = play_out(world.config, net, np.arange(8), np.arange(8), goes_on=True)
    measure(net, out)
    taught = lesson(net, out, lam=1.0)
    assert taught is not None
    t = out.tables["item"]
    unit = net.scale.numpy()[0]
    to_go = along(t, t["reward"])
    assert np.allclose(taught.worth * unit, to_go, atol=1e-4)  # with lambda 1 the target of V is the plain return
    assert (to_go[t["choice"] == 0] == 0).all()
    advantages = row_advantages(net, out, taught)
    assert set(advantages) == {"item", "brief", "point", "rule", "talk", "stop", "spawn"}
    assert all(np.isfinite(a).all() for a in advantages.values())
    stop, chance = out.tables["stop"]["choice"], out.tables["stop"]["chance"]
    assert np.array_equal(advantages["stop"] > 0, np.where(stop, taught.team < 0, taught.team > 0) & (chance > 0))


def _gate(net: Network) -> float:
    return float(net.roles(torch.eye(ROLE)[:1])[0].detach())


def _spawn_rows(rng: np.random.Generator, n: int, effect: float) -> tuple[dict, np.ndarray]:
    x = np.zeros((n, ROLE), np.float32)
    x[:, 0] = 1
    go = rng.random(n) < 0.5
    t = {
        "ep": np.arange(n), "round": np.zeros(n, np.int64), "x": x, "choice": go, "forced": np.zeros(n, np.bool_),
        "logp": np.full(n, np.log(0.5)), "size": np.full(n, 0.7), "role": np.zeros(n, np.int64),
    }  # fmt: skip
    return t, effect * go + rng.normal(size=n)


def test_the_spawn_gradient_finds_the_sign_and_forgets_nothing_between_updates() -> None:
    for effect in (0.8, -0.8):
        rng, net, gradient = np.random.default_rng(3), Network(), SpawnGradient()
        start = _gate(net)
        for _ in range(12):
            t, y = _spawn_rows(rng, 40, effect)
            gradient.add(net, t, y - y.mean())
            gradient.step(net, t)
        gain, error = gradient.estimate(np.eye(ROLE)[:1], 0)
        assert np.sign(gain[0]) == np.sign(effect)
        assert abs(gain[0]) > 4 * error[0]
        assert np.sign(_gate(net) - start) == np.sign(effect)


def test_noise_moves_the_spawn_head_little() -> None:
    rng, net, gradient = np.random.default_rng(4), Network(), SpawnGradient()
    start = _gate(net)
    for _ in range(12):
        t, y = _spawn_rows(rng, 40, 0.0)
        gradient.add(net, t, y - y.mean())
        gradient.step(net, t)
    assert abs(_gate(net) - start) < 0.8


def test_the_spawn_gradient_is_saved_whole() -> None:
    rng, net, one = np.random.default_rng(5), Network(), SpawnGradient()
    t, y = _spawn_rows(rng, 40, 1.0)
    one.add(net, t, y)
    two = SpawnGradient()
    two.restore(one.state())
    assert np.array_equal(one.estimate(np.eye(ROLE), 0)[0], two.estimate(np.eye(ROLE), 0)[0])
