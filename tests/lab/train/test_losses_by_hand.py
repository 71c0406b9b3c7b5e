"""Losses by hand: what a round is paid, who waits, what is known of spawning, flows from an anchor, and whose KL is whose."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from counterpoint import registry
from counterpoint.lab.train.learner import log_probs, rows_of, update
from counterpoint.lab.train.losses import joint_critic
from counterpoint.lab.train.losses.anchor_tb import Flows
from counterpoint.lab.train.losses.clip import _places
from counterpoint.lab.train.losses.sft import Options as Imitation
from counterpoint.lab.train.losses.sft import imitate
from counterpoint.lab.train.losses.td import Options, beats_of, learn, utilities
from counterpoint.lab.train.policies.network import HEADS
from counterpoint.lab.train.rollouts import Rollout
from counterpoint.lab.train.surrogates import Reference, Steps, less_kl
from counterpoint.lab.train.training import Training
from lab.train.nets import says
from lab.train.test_joint_critic_by_hand import begun, rough
from lab.train.test_learner_by_hand import net_of
from lab.train.test_loss_steps import assert_same, learned, two_alike
from lab.train.test_mixing_by_hand import decided, made_mixer, rollout

# -- temporal differences of what was paid

NOW = 5 + 2 / 3.5 * (np.array([1, 3, 7, 10, 14]) - 12.5)  # the draft's value with the level and spread of what is paid
AFTER = np.array([NOW[1], NOW[2], 0, NOW[4], 0])
REWARDS: list[tuple[dict[str, Any], list[float]]] = [
    ({}, [0, 0, 3, 0, 7]),
    ({"each_step": True}, [3, 3, 3, 7, 7]),
    ({"drop_last": True}, [0, 0, 3, 0, 7]),
    ({"shaped": True}, [0 - NOW[0], 0 - NOW[1], 3 - NOW[2], 0 - NOW[3], 7 - NOW[4]]),  # and gamma of what comes
]


@pytest.mark.parametrize(("options", "paid"), REWARDS, ids=[next(iter(o), "plain") for o, _ in REWARDS])
def test_what_was_paid_for_an_episode_is_its_last_rounds_or_every_rounds(options: dict[str, Any], paid: list[float]) -> None:
    """Two episodes of three and two rounds are paid 3 and 7, whose spread is 2."""
    out, net, mixer = rollout(**decided()), net_of(), made_mixer()
    beats, o = beats_of(out), Options(mix="vdn", gamma=0.5, tau_to=1.0, **options)
    with torch.no_grad():
        chosen, best = utilities(net, out, beats, 1.0)
        total, ahead = (mixer(q, mixer.states(beats), mix="vdn").numpy() for q in (chosen, best))
    reward = (np.array(paid) + (0.5 * AFTER if o.shaped else 0)) / 2
    y = reward + 0.5 * np.array([ahead[1], ahead[2], 0, ahead[4], 0])
    fitted = [0, 1, 3] if o.drop_last else [0, 1, 2, 3, 4]
    optimizer = torch.optim.SGD([*net.policy_parameters(), *mixer.parameters()], lr=0.0)
    found = learn(net, mixer, optimizer, out, o, progress=0.5, paid=np.array([3.0, 7.0]))
    assert float(mixer.unit) == pytest.approx(2.0)
    assert found["loss"] == pytest.approx(float(((total - y)[fitted] ** 2).mean()), rel=1e-4)


def test_while_utilities_wait_only_the_mix_learns() -> None:
    for waits in (True, False):
        out, net, mixer = rollout(**decided()), net_of(), made_mixer()
        before = [{k: v.clone() for k, v in m.state_dict().items()} for m in (net, mixer)]
        optimizer = torch.optim.SGD([*net.policy_parameters(), *mixer.parameters()], lr=0.1)
        learn(net, mixer, optimizer, out, Options(epochs=1), progress=0.0, waits=waits)
        same = [all(torch.equal(v, m.state_dict()[k]) for k, v in b.items() if k != "unit") for b, m in zip(before, (net, mixer), strict=True)]
        assert same == [waits, False]


def test_what_agents_say_to_each_other_is_of_the_head_that_communicates() -> None:
    """Of the acts 1 : 2 : 4 the first team of round 1 chose the third and, where that was closed, the first; the other the second."""
    plain, net = rollout(**decided()), net_of()
    head = torch.nn.Linear(5, 3)
    says(head, 0.0, float(np.log(2)), float(np.log(4)))
    net.extra["act"] = head
    act = {
        "ep": np.array([0, 0, 1]), "round": np.array([1, 1, 1]), "x": np.zeros((3, 5), np.float32), "choice": np.array([2, 0, 1]),
        "mask": np.array([[1, 1, 1], [1, 1, 0], [1, 1, 1]], np.bool_),
    }  # fmt: skip
    with torch.no_grad():
        before = utilities(net, plain, beats_of(plain), 2.0)
        out = rollout(**decided(), act=act)
        after = utilities(net, out, beats_of(out), 2.0)
    communicate = HEADS.index("communicate")
    chosen, best = np.zeros((5, 5)), np.zeros((5, 5))
    chosen[[1, 4], communicate] = [(np.log(4) + 0) / 2, np.log(2)]
    best[[1, 4], communicate] = [(np.log(4) + np.log(2)) / 2, np.log(4)]
    assert (after[0] - before[0]).numpy() == pytest.approx(2 * chosen, abs=1e-5)
    assert (after[1] - before[1]).numpy() == pytest.approx(2 * best, abs=1e-5)


@pytest.mark.parametrize("warm", [1, 2])
def test_the_mix_warms_up_for_as_many_updates_as_asked(warm: int) -> None:
    one, _, out = two_alike("td")  # its second update
    before = {k: v.copy() for k, v in one.weights().items()}
    learned(one, "td", out, warm=warm, epochs=1)
    heads = [k for k in before if k.startswith(("stop.", "gate.", "rule.", "purpose."))]
    assert all((one.weights()[k] == before[k]).all() for k in heads) == (warm == 2)


# -- whose gradients are balanced, and marginals


def test_losses_on_advantages_of_several_rewards_balance_their_gradients() -> None:
    assert {name for name in registry.ids("loss") if registry.get("loss", name).balances} == {"clip", "reinforce"}


def test_marginals_are_fitted_in_their_sum() -> None:
    """Of a critic that is known: (sum of the five marginals - y)^2, the mean over rounds."""
    training, played = begun(actor="shapley", orders=2, epochs=1)
    beats, critic = beats_of(played.rollout), rough(6)
    taken = torch.randn(len(beats.ep), joint_critic.ACTS, generator=torch.Generator().manual_seed(1))
    y = torch.linspace(-1, 1, len(beats.ep))[:, None]
    with torch.no_grad():
        orders = joint_critic._orders(training.rng(7), training.loss_options)
        phi = joint_critic._marginals(critic, critic.states(beats), taken, orders)
        assert phi.shape == (len(beats.ep), 5)
        wanted = float(((phi[:, 0] + phi[:, 1] + phi[:, 2] + phi[:, 3] + phi[:, 4] - y[:, 0]) ** 2).mean())
    assert joint_critic._fit(training, training.loss_options, critic, beats, taken, y) == pytest.approx(wanted, rel=1e-4)
    own = training.module
    assert isinstance(own, joint_critic.JointCritic)
    known = joint_critic._fit(training, training.loss_options, own, beats, taken, y)
    assert known == pytest.approx(float(y.square().mean()))  # it knew nothing yet
    assert joint_critic._fit(training, joint_critic.Options(actor="shapley", orders=2, epochs=30), own, beats, taken, y) < known


# -- imitation of what was good


def test_what_is_above_the_bar_is_imitated_and_a_batch_without_it_changes_nothing() -> None:
    one, _, out = two_alike("sft")
    table = out.tables["stop"]
    credit = {"stop": np.where(np.arange(len(table["ep"])) % 2 == 0, 1.0, -1.0)}
    before = {k: v.copy() for k, v in one.weights().items()}
    assert imitate(one, out, credit, Imitation(above=1.0)) == {"loss": 0.0, "kept": 0.0}
    assert all((one.weights()[k] == v).all() for k, v in before.items())
    counted = rows_of(out.tables, credit, scale=False)["stop"]
    good = counted.at[counted.advantage > 0]
    with torch.no_grad():
        wanted = -float(log_probs(one.net, out.tables)[0]["stop"][torch.from_numpy(good)].mean())
    found = imitate(one, out, credit, Imitation(steps=1))
    assert found == {"loss": pytest.approx(wanted, rel=1e-5), "kept": len(good) / len(counted.at)}
    assert any((one.weights()[k] != v).any() for k, v in before.items())
    later = imitate(one, out, credit, Imitation(steps=4))
    assert later["loss"] < found["loss"]


# -- flows from an anchor


def test_returns_lie_between_the_least_and_the_largest_seen_so_far() -> None:
    flows = Flows()
    assert flows.scaled(np.array([4.0, 4.0])).tolist() == [0, 0]
    assert flows.scaled(np.array([2.0, 4.0, 6.0])).tolist() == [0, 0.5, 1]
    assert flows.scaled(np.array([4.0, 10.0])).tolist() == [0.25, 1]
    assert flows.scaled(np.array([3.0])).tolist() == [0.125]


def by_spans(one: Training, out: Rollout, then: dict[str, torch.Tensor], beta: float, reward: np.ndarray) -> float:
    """The mean over all spans of an episode of (F_i + log ratios - F_j)^2, span by span."""
    beats, flows = beats_of(out), one.module
    assert isinstance(flows, Flows)
    names = {"item": "item", "brief": "item", "point": "item", "stop": "stop", "spawn": "spawn", "talk": "talk", "rule": "rule"}
    tables = {n: t for n, t in out.tables.items() if n != "worker"}
    ones = {n: np.ones(len(tables[t]["ep"])) for n, t in names.items() if t in tables}
    ratio: dict[tuple[int, int], float] = {}
    with torch.no_grad():
        now, flow = log_probs(one.net, tables)[0], flows.of(beats).numpy()
        for name, r in rows_of(tables, ones, scale=False).items():
            t = tables[{"size": "spawn"}.get(name, names.get(name, name))]
            for row in r.at.tolist():
                place = (int(t["ep"][row]), int(t["round"][row]))
                ratio[place] = ratio.get(place, 0.0) + float((now[name][row] - then[name][row]).sum())
    means = []
    for ep in np.unique(beats.ep):
        mine = np.flatnonzero(beats.ep == ep)
        states = [*flow[mine], np.log(1 + (np.exp(beta) - 1) * reward[ep])]
        steps = [ratio.get((int(ep), int(beats.round[b])), 0.0) for b in mine]
        means.append(np.mean([(states[i] + sum(steps[i:j]) - states[j]) ** 2 for i in range(len(states)) for j in range(i + 1, len(states))]))
    return float(np.mean(means))


@pytest.mark.parametrize("every", [0, 1])
def test_flows_are_balanced_against_the_anchor(every: int) -> None:
    """The anchor is the network at the start, or that of the last update where it is taken anew. At a rate of 0 nothing moves."""

    def loss_at(rate: float) -> float:
        for group in one.policy.param_groups:
            group["lr"] = rate
        return learned(one, "anchor_tb", out, beta=1.5, anchor_every=every)["loss"]

    one, _, out = two_alike("anchor_tb")
    values = out.values.astype(np.float64)
    reward = (values - values.min()) / (values.max() - values.min())
    with torch.no_grad():
        start = {k: v.clone() for k, v in log_probs(one.net, out.tables)[0].items()}
    first = by_spans(one, out, start, 1.5, reward)
    assert loss_at(0.0) == pytest.approx(first, rel=1e-4)
    loss_at(0.01)
    with torch.no_grad():
        moved = {k: v.clone() for k, v in log_probs(one.net, out.tables)[0].items()}
    kept, anew = by_spans(one, out, start, 1.5, reward), by_spans(one, out, moved, 1.5, reward)
    assert abs(kept - anew) > 1e-3 * kept
    assert loss_at(0.0) == pytest.approx(anew if every else kept, rel=1e-4)


# -- a KL within the reward


def test_rows_stand_at_their_episode_round_and_agent() -> None:
    out = rollout(**decided(), worker={"ep": np.array([0, 1]), "round": np.array([1, 1]), "agent": np.array([2, 3])})
    found = {name: [x.tolist() for x in where] for name, where in _places(out, ["worker", "brief", "size", "stop"]).items()}
    assert found["worker"] == [[0, 1], [1, 1], [2, 3]]
    assert found["brief"] == [[0, 0, 1, 1], [1, 1, 1, 1], [0, 0, 0, 0]]  # the orchestrator's, whomever it calls
    assert found["size"][1:] == [[0, 0, 0], [0, 0, 0]]
    assert found["stop"] == [[1, 0, 0], [1, 1, 2], [0, 0, 0]]


@pytest.mark.parametrize(("place", "estimator"), [("reward", "k1"), ("loss", "k2"), ("loss", "k3")])
def test_a_kl_is_to_the_network_that_was_held(place: str, estimator: str) -> None:
    one, other, out = two_alike("clip")
    for each in (one, other):
        assert isinstance(each.module, Reference)
        each.module.network(each.net)
        with torch.no_grad():
            for p in each.net.policy_parameters():
                p.add_(0.02)
    told = learned(one, "clip", out, kl_weight=0.5, kl_in=place, kl=estimator, entropy=0.0)
    advantages, _ = other.advantages(out, [])
    with torch.no_grad():
        own = {k: v.numpy().astype(np.float64) for k, v in log_probs(other.net, out.tables)[0].items()}
        assert isinstance(other.module, Reference)
        ref = {k: v.numpy().astype(np.float64) for k, v in log_probs(other.module.network(other.net), out.tables)[0].items()}
    assert any(not np.allclose(own[k], ref[k]) for k in own)
    if place == "reward":
        advantages = less_kl(advantages, _places(out, [n for n in advantages if n in own]), own, ref, 0.5)
    steps = Steps(kl_weight=0.5, kl_in=place, kl=estimator, entropy=0.0)
    mine = update(other.net, other.policy, out.tables, advantages, 8, steps, other.rng(1), ref=ref)
    assert {k: told[k] for k in mine} == mine
    assert_same(one, other)
