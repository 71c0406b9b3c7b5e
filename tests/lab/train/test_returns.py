"""Credit of rollout rows: hand-made chains, the all-stops recursion, and spawns whose effect is not taken for luck."""

from __future__ import annotations

import numpy as np
import torch

import counterpoint as cpt
from counterpoint.credits.advantages import gae
from counterpoint.lab.train.critics import fit
from counterpoint.lab.train.policies.features import ROLE
from counterpoint.lab.train.policies.network import Network
from counterpoint.lab.train.returns import _along_chains, going_on, lesson, measure, row_advantages
from counterpoint.lab.train.rollouts import Rollout, along, play_out
from counterpoint.lab.train.spawn_head import SpawnGradient, fit_heads


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


def _chain(mask: list[bool]) -> dict:
    n = len(mask)
    may = np.ones((n, 4), np.bool_)
    may[:, 0] = mask
    return {"order": np.arange(n), "chain": np.zeros(n, np.int64), "mask": may, "ep": np.zeros(n, np.int64)}


def test_a_row_kept_from_leaving_counts_as_left_as_often_as_the_policy_would() -> None:
    t, r, w = _chain([True, False]), np.array([1.0, -4.0]), np.array([0.5, 2.0])
    # lam 1, p = 0.75:  G_1 = -4,  G_0 = 1 + 0.25 * -4 = 0;  A = G - W;  the second row's own return is 0.25 * -4
    adv, returns = _along_chains(t, r, w, np.array([0.0, 0.75]), 1.0)
    assert np.allclose(adv, [-0.5, -6.0])
    assert np.allclose(returns, [0.0, -1.0])
    # lam 0.5:  G_0 = 1 + 0.5 * 2 + 0.5 * 0.25 * -4 = 1.5
    adv, returns = _along_chains(t, r, w, np.array([0.0, 0.75]), 0.5)
    assert np.allclose([adv[0], returns[0]], [1.0, 1.5])


def test_where_nothing_was_kept_chains_are_plain_gae() -> None:
    rng = np.random.default_rng(0)
    t = _chain([True] * 9) | {"chain": np.repeat([0, 1, 2], 3)}
    r, w = rng.normal(size=9), rng.normal(size=9)
    adv, returns = _along_chains(t, r, w, np.zeros(9), 0.9)
    expected = gae(r, w, segments=t["chain"], lam=0.9)
    assert np.allclose(adv, expected[0])
    assert np.allclose(returns, expected[1])


def test_the_level_of_q_is_what_was_paid_even_where_nobody_leaves() -> None:
    """Calls that change nothing are worth nothing, whatever the critics believed of them before."""
    torch.manual_seed(0)
    net = Network()
    with torch.no_grad():
        net.item_critic[-1].bias[:3] = 2.5  # a belief in every alternative
        net.purpose.bias[0] = -30.0  # nobody ever leaves
    out = play_out(cpt.world("W1", vote_items=12, price=(0.0, 0.0), round_price=0.0).config, net, np.arange(24), np.arange(24))
    out.tables["item"]["reward"][:] = 0.0
    optimizer = torch.optim.Adam(net.critic_parameters(), lr=3e-3)
    for step in range(12):
        taught = lesson(net, out)
        assert taught is not None
        fit(net, optimizer, [taught], np.random.default_rng(step), steps=24)
    q = net.judge_items(torch.from_numpy(out.tables["item"]["x"]))[0].detach().numpy()[:, 0]
    assert abs(q.mean()) < 0.3


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


def _follow(gradient: SpawnGradient, net: Network, t: dict, y: np.ndarray) -> None:
    """The evidence of a batch, and a step of its roles' gates and sizes."""
    gradient.add(net, t, y - y.mean(), spread=float(y.std()))
    x = t["x"].astype(np.float64)
    fit_heads(net, x, *gradient.targets(net, x, 12, left=1.0, least=-2.5), np.ones(len(x)))


def test_the_spawn_gradient_finds_the_sign_and_forgets_nothing_between_updates() -> None:
    for effect in (0.8, -0.8):
        rng, net, gradient = np.random.default_rng(3), Network(), SpawnGradient()
        start = _gate(net)
        for _ in range(12):
            t, y = _spawn_rows(rng, 40, effect)
            _follow(gradient, net, t, y)
        gain, error = gradient.estimate(np.eye(ROLE)[:1], 0)
        assert np.sign(gain[0]) == np.sign(effect)
        assert abs(gain[0]) > 4 * error[0]
        assert np.sign(_gate(net) - start) == np.sign(effect)


def test_noise_moves_the_spawn_head_little() -> None:
    rng, net, gradient = np.random.default_rng(4), Network(), SpawnGradient()
    start = _gate(net)
    for _ in range(12):
        t, y = _spawn_rows(rng, 40, 0.0)
        _follow(gradient, net, t, y)
    assert abs(_gate(net) - start) < 0.8


def test_a_batch_of_one_decision_is_measured_in_the_unit_of_its_update() -> None:
    net, gradient = Network(), SpawnGradient()
    t, _ = _spawn_rows(np.random.default_rng(6), 1, 1.0)
    gradient.add(net, t, np.array([3.0]), spread=2.0)
    assert gradient.energy == 2.25


def test_the_spawn_gradient_is_saved_whole() -> None:
    rng, net, one = np.random.default_rng(5), Network(), SpawnGradient()
    t, y = _spawn_rows(rng, 40, 1.0)
    one.add(net, t, y, spread=float(y.std()))
    two = SpawnGradient()
    two.restore(one.state())
    assert np.array_equal(one.estimate(np.eye(ROLE), 0)[0], two.estimate(np.eye(ROLE), 0)[0])
