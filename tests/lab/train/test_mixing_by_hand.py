"""QMIX and soft policy iteration, number by number: rounds, utilities, targets, critics' losses, and what the heads minimise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import counterpoint as cpt
from counterpoint.lab.train.critics import _losses, _prepared, _taken, by_kind, draw_rows, fit
from counterpoint.lab.train.learner import NotFinite
from counterpoint.lab.train.losses.soft import _choice, _expected, _item_loss, _stop_loss, improve
from counterpoint.lab.train.losses.td import Beats, Mixer, Options, _measure, beats_of, learn, utilities
from counterpoint.lab.train.policies.features import AGENT, PAIR, TEAM
from counterpoint.lab.train.policies.network import HEADS, Network
from counterpoint.lab.train.returns import Lesson
from counterpoint.lab.train.rollouts import Rollout
from lab.train.nets import item_x, known_net, says
from lab.train.test_learner_by_hand import candidates, item_table, net_of, spawn_table

LOG = np.log


def team_x(*first: float) -> np.ndarray:
    x = np.zeros((len(first), TEAM), np.float32)
    x[:, 0] = first
    return x


def rollout(**tables: Any) -> Rollout:
    """Two episodes of up to three rounds; the second ends after two, what it then is worth is its value."""
    value_TE = np.array([[1.0, 10.0], [3.0, 14.0], [7.0, 15.0], [8.0, 15.0]])
    config = cpt.world("W1", vote_items=2).config
    return Rollout(config, np.arange(2), np.arange(2), tables, value_TE, np.array([9.0, 16.0]), {})


def decided() -> dict[str, Any]:
    return {
        "spawn": spawn_table() | {"round": np.array([0, 0, 0])},
        "stop": {"ep": np.array([1, 0, 0]), "round": np.array([1, 1, 2]), "x": team_x(5, 6, 7), "choice": np.array([True, False, True])},
        "rule": {
            "ep": np.array([0, 1]), "round": np.array([1, 1]), "x": team_x(6, 5), "choice": np.array([4, 0]),
            "talk": np.array([[True, False], [True, True]]),
        },
        "item": item_table() | {"round": np.array([1, 1, 1, 1])}, "candidate": candidates(),
    }  # fmt: skip


def test_rounds_their_rewards_and_what_was_seen() -> None:
    beats = beats_of(rollout(**decided()))
    assert (beats.ep.tolist(), beats.round.tolist()) == ([0, 0, 0, 1, 1], [0, 1, 2, 0, 1])
    assert beats.last.tolist() == [False, False, True, False, True]
    # 3 - 1, 7 - 3, 9 - 7;  14 - 10, 16 - 14
    assert beats.reward.tolist() == [2, 4, 2, 4, 2]
    assert beats.seen.tolist() == [False, True, True, False, True]
    assert beats.x[:, 0].tolist() == [0, 6, 7, 0, 5]
    assert beats.place({"ep": np.array([1, 0]), "round": np.array([1, 2])}, 4).tolist() == [4, 2]
    alone = beats_of(rollout(spawn=spawn_table() | {"round": np.array([0, 0, 0])}))
    assert alone.seen.tolist() == [False, False]
    assert alone.reward.tolist() == [8, 6]
    rule = beats_of(rollout(rule=decided()["rule"]))
    assert rule.x[:, 0].tolist() == [6, 5]


def test_utilities_of_every_head() -> None:
    out = rollout(**decided())
    with torch.no_grad():
        chosen, best = utilities(net_of(), out, beats_of(out), 2.0)
    stop, spawn, delegate, communicate, aggregate = (HEADS.index(n) for n in ("stop", "spawn", "delegate", "communicate", "aggregate"))
    want, top = np.zeros((5, 5)), np.zeros((5, 5))
    gate, go = LOG(3), LOG(3)
    want[:, stop], top[:, stop] = [0, 0, go, 0, go], [0, go, go, 0, go]
    # sizes 3 and 1 about a mean of 1, spread 2; the second role of the first episode did not come
    want[[0, 3], spawn], top[[0, 3], spawn] = [(gate - 0.5) / 2, gate], gate
    # answers are log 2, leaving 0; of pointers log 3 and log 7; the best open one: verify, next, answer, leave
    want[[1, 4], delegate] = [(LOG(2) + 0) / 2 + LOG(3), (LOG(2) + 0) / 2 + LOG(7)]
    top[[1, 4], delegate] = [(LOG(3) + LOG(4)) / 2 + LOG(3), (LOG(2) + 0) / 2 + LOG(7)]
    # the brief of the one call to another is log 4; talk log 1/4 and log 4, of which the second round of each took these
    want[[1, 4], communicate] = [LOG(4) + LOG(0.25), LOG(0.25) + LOG(4)]
    top[[1, 4], communicate] = [LOG(4) + LOG(4), LOG(4)]
    want[[1, 4], aggregate], top[[1, 4], aggregate] = [LOG(2), 0], LOG(2)
    assert chosen.numpy() == pytest.approx(2 * want, abs=1e-5)
    assert best.numpy() == pytest.approx(2 * top, abs=1e-5)


def made_mixer() -> Mixer:
    torch.manual_seed(2)
    return Mixer()


def test_an_unseen_state_is_one_learned_row() -> None:
    mixer = made_mixer()
    with torch.no_grad():
        mixer.first.fill_(7.0)
    beats = Beats(np.zeros(2), np.zeros(2), team_x(1, 2), np.array([True, False]), np.zeros(2), np.zeros(2))
    found = mixer.states(beats).detach()
    assert found[:, 0].tolist() == [1, 7]
    assert found[1].tolist() == [7] * TEAM


def test_the_unit_is_the_spread_of_gains_per_item_and_runs_on() -> None:
    mixer, out = made_mixer(), rollout()
    assert float(mixer.unit) == 1
    _measure(mixer, out)  # gains 8 and 6 over two items: 4 and 3
    assert float(mixer.unit) == pytest.approx(0.5)
    out.values = np.array([21.0, 10.0])
    _measure(mixer, out)  # 10 and 0
    assert float(mixer.unit) == pytest.approx(0.8 * 0.5 + 0.2 * 5)
    out.values = out.value_TE[0].copy()
    fresh = made_mixer()
    _measure(fresh, out)
    assert float(fresh.unit) == pytest.approx(1e-3)


@pytest.mark.parametrize("options", [{"mix": "vdn"}, {"mix": "qmix", "lam": 0.5, "gamma": 0.5}])
def test_one_step_of_temporal_differences(options: dict[str, Any]) -> None:
    out, net, mixer = rollout(**decided()), net_of(), made_mixer()
    beats, o = beats_of(out), Options(**options)
    tau = o.tau_from * (o.tau_to / o.tau_from) ** 0.5
    with torch.no_grad():
        chosen, best = utilities(net, out, beats, tau)
        total = mixer(chosen, mixer.states(beats), mix=o.mix).numpy()
        ahead = mixer(best, mixer.states(beats), mix=o.mix).numpy()
    r = np.array([2, 4, 2, 4, 2]) / 2 / 0.5
    g, lam = o.gamma, o.lam
    y = np.zeros(5)
    for k in (4, 3, 2, 1, 0):
        y[k] = r[k] if k in (2, 4) else r[k] + g * ((1 - lam) * ahead[k + 1] + lam * y[k + 1])
    optimizer = torch.optim.SGD([*net.policy_parameters(), *mixer.parameters()], lr=0.0)
    found = learn(net, mixer, optimizer, out, o, progress=0.5)
    assert found["loss"] == pytest.approx(float(((total - y) ** 2).mean()), rel=1e-4)
    assert found["q_tot"] == pytest.approx(float(total.mean()), abs=1e-5)
    assert found["tau"] == pytest.approx(tau) == pytest.approx(0.2**0.5)


def test_steps_are_as_many_and_as_long_as_asked() -> None:
    def moved(**options: Any) -> float:
        out, net, mixer = rollout(**decided()), net_of(), made_mixer()
        before = mixer.level[0].weight.detach().clone()
        optimizer = torch.optim.SGD([*net.policy_parameters(), *mixer.parameters()], lr=1.0)
        learn(net, mixer, optimizer, out, Options(**options), progress=0.0)
        return float((mixer.level[0].weight.detach() - before).norm())

    assert 0 < moved(epochs=1) <= 10  # the gradient's norm is at most 10
    assert moved(epochs=1) != moved(epochs=3) <= 30
    assert Options() == Options("qmix", 0.99, 0.0, 1.0, 0.2, 8)
    out, net, mixer = rollout(**decided()), net_of(), made_mixer()
    with torch.no_grad():
        mixer.level[0].bias.fill_(float("nan"))
    with pytest.raises(NotFinite, match="the TD loss"):
        learn(net, mixer, torch.optim.SGD(mixer.parameters(), lr=0.1), out, Options(), progress=0.0)


# -- soft policy iteration


def test_every_kind_of_item_is_drawn_equally_often() -> None:
    x = item_x(0, 0, 0, 0, 3)
    chances = by_kind(x)
    assert chances.tolist() == [0.25, 0.5, 0.75, 1.0, 2.0]
    some = np.concatenate([draw_rows(np.random.default_rng(k), chances, 5) for k in range(400)])
    assert len(draw_rows(np.random.default_rng(0), chances, 9)) == 5
    assert len(draw_rows(np.random.default_rng(0), chances, 2)) == 2
    assert np.bincount(some, minlength=5) / len(some) == pytest.approx([0.125] * 4 + [0.5], abs=0.05)

    class Ends:
        def random(self, n: int) -> np.ndarray:
            return np.array([0.0, 0.125, 1.0])[:n]

    assert draw_rows(Ends(), chances, 3).tolist() == [0, 1, 4]  # type: ignore[arg-type]


def test_every_step_takes_the_rows_that_were_drawn_for_it() -> None:
    t = {"y": torch.arange(3.0), "x": 10 * torch.arange(6.0).reshape(3, 2)}
    found = _taken(t, [np.array([2, 0]), np.array([1, 1])])
    assert [each["y"].tolist() for each in found] == [[2.0, 0.0], [1.0, 1.0]]
    assert [each["x"].tolist() for each in found] == [[[40.0, 50.0], [0.0, 10.0]], [[20.0, 30.0], [20.0, 30.0]]]
    assert _taken(t, []) == []


def test_what_the_critics_are_regressed_on() -> None:
    net = known_net(q=(0.3, 0.6, 0.9), brief=(1.0, 2.0, 3.0, 4.0), work=0.5, level=0.1)
    says(net.team_critic[-1], 2.0, 0.5, 1.0, *[0.1 * k for k in range(6)])
    with torch.no_grad():
        net.point_pair.weight.zero_()
        net.point_pair.weight[0, 0] = 1.0
    pair = torch.zeros(3, PAIR)
    pair[:, 0] = torch.tensor([1.0, 5.0, 2.0])
    item = {
        "x": torch.from_numpy(item_x(0, 0, 1)), "choice": torch.tensor([1, 0, 3]), "agent": torch.tensor([0, -1, 2]), "brief": torch.tensor([0, 1, 3]),
        "y": torch.tensor([1.3, 9.0, 0.0]), "left": torch.tensor([2.0, 9.0, 5.0]), "g": torch.tensor([1.1, 0.1, 0.1]),
        "calls_to_go": torch.tensor([0.0, 0.0, np.e - 1], dtype=torch.float32), "worth": torch.tensor([[0.5], [0.0], [0.25]]),
        "agent_x": torch.zeros(3, AGENT), "pair_x": pair,
    }  # fmt: skip
    team = {"x": torch.zeros(2, TEAM), "y": torch.tensor([1.0, 4.0])}
    rule = {"x": torch.zeros(1, TEAM), "y": torch.tensor([1.0]), "choice": torch.tensor([3]), "talk": torch.tensor([[True, False]])}
    with torch.no_grad():
        net.point_key.weight.zero_()
        net.point_key.bias.zero_()
        found = {k: float(v) for k, v in _losses(net, {"item": _prepared(item), "team": team, "rule": rule}, "draft").items()}
        bare = _losses(net, {"item": _prepared(item), "team": team}, "draft")
    assert found == {
        "item": pytest.approx((1.0**2 + 0.9**2) / 2), "brief": pytest.approx((4 - 5) ** 2), "point": pytest.approx(((1 - 2) ** 2 + (2 - 5) ** 2) / 2),
        "level": pytest.approx(1 / 3), "work": pytest.approx((0.25 + 0.25 + 0.25) / 3),
        "value": pytest.approx(((0.75 - 1.1) ** 2 + 0.15**2 + 0.4**2) / 3), "rule": pytest.approx((0.3 + 0.5 - 1) ** 2), "team": pytest.approx(2.5),
    }  # fmt: skip
    assert "rule" not in bare
    assert float(bare["team"]) == pytest.approx(2.5)
    nobody = {**item, "choice": torch.zeros(3, dtype=torch.int64), "agent": torch.full((3,), -1)}
    with torch.no_grad():
        none = _losses(net, {"item": _prepared(nobody), "team": team}, "draft")
    assert [float(none[k]) for k in ("item", "brief", "point")] == [0, 0, 0]


def lesson_of(out_tables: dict[str, Any], n: int) -> Lesson:
    ones = np.ones(n)
    return Lesson(out_tables, item=ones * 1.3, advantage=ones, worth=ones * 1.1, left=ones * 2, rule=np.ones(1), team=np.ones(1), spawn=np.zeros(0))


def soft_tables() -> dict[str, Any]:
    t = item_table()
    n = len(t["ep"])
    item = t | {
        "calls_to_go": np.zeros(n), "worth": np.full(n, 2.0, np.float32), "agent_x": np.zeros((n, AGENT), np.float32),
        "pair_x": np.zeros((n, PAIR), np.float32),
    }  # fmt: skip
    rule = {"ep": np.zeros(1, np.int64), "x": team_x(1), "choice": np.array([1]), "talk": np.array([[True, False]])}
    return {"item": item, "stop": {"ep": np.zeros(1, np.int64), "x": team_x(1)}, "rule": rule}


def test_fitting_says_the_mean_of_each_loss_over_its_steps() -> None:
    net = known_net(level=0.1)
    net.scale.copy_(torch.tensor([4.0, 4.0, 1.0, 1.0, 1.0]))
    lessons = [lesson_of(soft_tables(), 4), lesson_of(soft_tables(), 4)]
    found = fit(net, torch.optim.SGD(net.critic_parameters(), lr=0.0), lessons, np.random.default_rng(0), steps=3)
    assert set(found) == {f"critic_{k}" for k in ("item", "brief", "point", "level", "work", "value", "rule", "team")}
    assert found["critic_level"] == pytest.approx(1.0)
    assert found["critic_team"] == pytest.approx(1.0)
    assert found["critic_value"] == pytest.approx((2 / 4 + 0.25 - 1.1) ** 2, abs=1e-5)  # the score is in units of the kind
    without = {k: v for k, v in soft_tables().items() if k != "rule"}
    assert "critic_rule" not in fit(
        net, torch.optim.SGD(net.critic_parameters(), lr=0.0), [lesson_of(without, 4)], np.random.default_rng(0), steps=1
    )
    torch.manual_seed(0)
    learning = Network()
    before = learning.item_critic[-1].bias.detach().clone()
    fit(learning, torch.optim.SGD(learning.critic_parameters(), lr=0.1), lessons, np.random.default_rng(0), steps=1)
    assert not torch.equal(learning.item_critic[-1].bias.detach(), before)


def test_heads_are_best_at_the_softmax_of_q_over_tau() -> None:
    q, tau = torch.tensor([[0.0, 1.0, 2.0]]), 0.5
    best = _expected((q / tau).log_softmax(-1), q, tau)
    assert float(best) == pytest.approx(-float(torch.logsumexp(q / tau, -1)))
    for other in (torch.zeros(1, 3), q, 3 * q):
        assert float(_expected(other.log_softmax(-1), q, tau)) > float(best)
    # by hand: two equal chances, Q 0 and 1, tau 1/2: log 1/2 - 1/2 (0 + 2)
    assert float(_expected(torch.tensor([[0.5, 0.5]]).log(), torch.tensor([[0.0, 1.0]]), 0.5)) == pytest.approx(LOG(0.5) - 1)
    two = _expected(torch.tensor([[0.5, 0.5], [0.5, 0.5]]).log(), torch.tensor([[0.0, 1.0], [0.0, 3.0]]), 0.5)
    assert float(two) == pytest.approx(LOG(0.5) - 2)


def test_yes_or_no() -> None:
    # chance 3/4 of yes, worth 2 more: 3/4 (log 3/4 - 2) + 1/4 log 1/4 at tau 1
    found = _choice(torch.tensor([LOG(3)]), torch.tensor([2.0]), 1.0)
    assert float(found) == pytest.approx(0.75 * (LOG(0.75) - 2) + 0.25 * LOG(0.25), abs=1e-6)


def test_stopping_is_weighed_against_going_on() -> None:
    net, stats = known_net(going=2.0), {}
    says(net.stop, float(LOG(3)))
    t = {"ep": np.zeros(3, np.int64), "x": team_x(1, 2, 3)}
    loss = _stop_loss(net, t, np.random.default_rng(0), 2, 1.0, stats)
    assert float(loss.detach()) == pytest.approx(0.75 * (LOG(0.75) + 2) + 0.25 * LOG(0.25), abs=1e-5)
    assert stats == {"stop_share": pytest.approx(0.75)}


def test_items_move_to_the_better_of_what_is_open_and_leaving_always_is() -> None:
    net, stats, t = net_of(), {}, item_table()
    says(net.item_critic[-1], 0.3, 0.6, 0.9, *[0.0] * 14)
    t["mask"][1, 0] = False  # kept from leaving in training
    loss = _item_loss(net, t, np.array([1, 2]), 0.5, stats)
    p = np.array([0.1, 0.2, 0.3, 0.4])
    first = (p * (LOG(p) - np.array([0, 0.3, 0.6, 0.9]) / 0.5)).sum()
    second = sum(c * (LOG(c) - q / 0.5) for c, q in ((1 / 3, 0), (2 / 3, 0.3)))
    assert float(loss.detach()) == pytest.approx((first + second) / 2, abs=1e-5)
    entropies = -(p * LOG(p)).sum(), -sum(c * LOG(c) for c in (1 / 3, 2 / 3))
    assert stats["entropy_item"] == pytest.approx(np.mean(entropies), abs=1e-5)
    assert stats["entropy_brief"] == pytest.approx(-sum(c * LOG(c) for c in (1 / 8, 1 / 8, 2 / 8, 4 / 8)), abs=1e-5)
    assert t["mask"][1, 0] == np.False_


def test_improving_takes_its_steps_on_both_losses() -> None:
    steps: list[float] = []

    class Counting(torch.optim.SGD):
        def step(self, *given: Any) -> None:  # type: ignore[override]
            steps.append(sum(float((p.grad**2).sum()) for g in self.param_groups for p in g["params"] if p.grad is not None) ** 0.5)

    torch.manual_seed(0)
    net = Network()
    says(net.item_critic[-1], 50.0, -50.0, 80.0, *[0.0] * 14)
    tables = {"item": item_table(), "stop": {"ep": np.zeros(1, np.int64), "x": team_x(1)}}
    stats = improve(net, Counting(net.policy_parameters(), lr=1.0), tables, np.random.default_rng(0), tau=0.1, steps=3)
    assert len(steps) == 3
    assert max(steps) <= 1.0 + 1e-4  # the gradient is cut at 1
    assert set(stats) == {"entropy_item", "entropy_brief", "stop_share"}
    alone = improve(net, Counting(net.policy_parameters(), lr=1.0), {"item": item_table()}, np.random.default_rng(0), tau=0.1, steps=1)
    assert set(alone) == {"entropy_item", "entropy_brief"}


def test_no_step_carries_the_gradient_of_the_one_before() -> None:
    """Where every loss is flat, nothing moves, whatever gradients were left lying around."""

    def spoiled(net: torch.nn.Module) -> torch.nn.Module:
        for p in net.parameters():
            p.grad = torch.ones_like(p)
        return net

    def critics() -> Network:
        net = known_net(level=1.1, q=(1.3, 1.3, 1.3), brief=(2.0,) * 4, bias=0.6)
        says(net.team_critic[-1], 1.0, 0.5, 0.5, *[0.5] * 6)
        with torch.no_grad():
            net.point_key.weight.zero_()
            net.point_key.bias.zero_()
        return net

    tables = soft_tables()
    tables["item"]["agent"][:] = -1
    flat = Lesson(tables, np.full(4, 1.3), np.ones(4), np.full(4, 1.1), np.full(4, 2.0), np.ones(1), np.ones(1), np.zeros(0))
    net = critics()
    net.scale.fill_(4.0)
    spoiled(net)
    before = [p.detach().clone() for p in net.critic_parameters()]
    fit(net, torch.optim.SGD(net.critic_parameters(), lr=1.0), [flat], np.random.default_rng(0), steps=1)
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(before, net.critic_parameters(), strict=True))
    even = known_net(q=(0.0, 0.0, 0.0), going=0.0)  # all alternatives are worth the same, and are taken as often
    says(even.stop, 0.0)
    spoiled(even)
    before = [p.detach().clone() for p in even.policy_parameters()]
    stop = {"ep": np.zeros(1, np.int64), "x": team_x(1)}
    improve(even, torch.optim.SGD(even.policy_parameters(), lr=1.0), {"item": item_table(), "stop": stop}, np.random.default_rng(0), tau=1.0, steps=1)
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(before, even.policy_parameters(), strict=True))
    out, other, mixer = rollout(**decided()), net_of(), made_mixer()
    spoiled(other)
    spoiled(mixer)
    optimizer = torch.optim.SGD([*other.policy_parameters(), *mixer.parameters()], lr=1.0)
    learn(other, mixer, optimizer, out, Options(epochs=1), progress=0.0)
    assert torch.equal(other.worker[0][-1].bias, net_of().worker[0][-1].bias)  # type: ignore[index]


class Drawing:
    """A generator that notes how much is drawn of it."""

    def __init__(self) -> None:
        self.rng, self.drawn = np.random.default_rng(0), []

    def random(self, n: int) -> np.ndarray:
        self.drawn.append(("item", n))
        return self.rng.random(n)

    def integers(self, low: int, high: int, n: int) -> np.ndarray:
        self.drawn.append(("other", n))
        return self.rng.integers(low, high, n)


def test_a_step_draws_its_size_of_items_and_a_quarter_of_it_of_the_rest() -> None:
    net, rng = known_net(), Drawing()
    tables = soft_tables()
    big = {name: {k: np.repeat(v, 1100, axis=0) for k, v in t.items()} for name, t in tables.items()}
    none = torch.optim.SGD(net.parameters(), lr=0.0)
    improve(net, none, big, rng, tau=1.0, steps=1)  # type: ignore[arg-type]
    assert rng.drawn == [("item", 1024), ("other", 256)]
    rng.drawn.clear()
    ones = np.ones(4400)
    lesson = Lesson(big, ones, ones, ones, ones, np.ones(1100), np.ones(1100), np.zeros(0))
    fit(net, none, [lesson], rng, steps=1)  # type: ignore[arg-type]
    fit(net, none, [lesson], rng, steps=1, size=64)  # type: ignore[arg-type]
    assert rng.drawn == [("other", 256), ("other", 256), ("item", 1024), ("other", 16), ("other", 16), ("item", 64)]


def test_a_mixer_has_32_hidden_units_unless_asked() -> None:
    assert (Mixer().b1.out_features, Mixer(8).b1.out_features, Mixer(8).w1.out_features) == (32, 8, 8 * len(HEADS))
