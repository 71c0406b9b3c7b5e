"""A step of a given KL: the KL by hand, what it is of, and that two gradients of any length go equally far."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from counterpoint.errors import InputError
from counterpoint.lab.bench.gradients import Setting as World
from counterpoint.lab.bench.gradients import gradient, item_returns, team_advantages, teams_of
from counterpoint.lab.train.kl_step import _outcomes, kl_of, move, step
from counterpoint.lab.train.learner import log_probs
from counterpoint.lab.train.policies.network import Network
from counterpoint.lab.train.rollouts import Rollout


@pytest.fixture(scope="module")
def played() -> tuple[Network, Rollout]:
    torch.manual_seed(4)
    net = Network()
    arrays = {name: value.numpy().copy() for name, value in net.state_dict().items()}
    return net, teams_of(World(net, arrays, "W1", {"vote_items": 6, "max_agents": 3}), 900, 2, log=False)[0]


def _tables(out: Rollout) -> dict[str, dict[str, np.ndarray]]:
    return {name: out.tables[name] for name in ("item", "candidate")}


def test_kl_by_hand() -> None:
    # two decisions: (1/2, 1/2) becomes (1/4, 3/4), and a sure one stays
    before, after = torch.tensor([0.5, 0.5, 1.0]).log(), torch.tensor([0.25, 0.75, 1.0]).log()
    assert kl_of(before, after, 2) == pytest.approx((0.5 * math.log(2) + 0.5 * math.log(2 / 3)) / 2)


def test_every_decision_is_a_distribution_and_holds_what_was_chosen(played: tuple[Network, Rollout]) -> None:
    net, out = played
    tables = _tables(out)
    with torch.no_grad():
        logp, decisions = _outcomes(net, tables)
        chosen, _ = log_probs(net, tables)
    assert float(logp.exp().sum()) == pytest.approx(decisions, rel=1e-5)
    t = tables["item"]
    pointed = np.unique(tables["candidate"]["row"])
    assert decisions == (t["mask"].sum(axis=1) > 1).sum() + ((t["agent"] > 0) & (t["agent"] >= 0)).sum() + len(pointed)
    assert np.isin(chosen["point"].double().numpy()[pointed].round(4), logp.numpy().round(4)).all()


def test_two_credits_go_equally_far(played: tuple[Network, Rollout]) -> None:
    net, out = played
    ways = [gradient(net, out, make(out)) for make in (team_advantages, item_returns)]
    factors = []
    for way in (*ways, 1000 * ways[0]):
        own = net.twin()
        factor, kl = step(own, _tables(out), way, kl=0.01)
        factors.append(factor)
        assert kl == pytest.approx(0.01, rel=0.02)
        again = net.twin()
        assert step(again, _tables(out), way, kl=None, rate=factor)[1] == pytest.approx(kl, rel=1e-3)
        assert all(torch.equal(a, b) for a, b in zip(own.parameters(), again.parameters(), strict=True))
    assert factors[2] == pytest.approx(factors[0] / 1000, rel=0.05), "the length of a gradient does not count"
    shorter = step(net.twin(), _tables(out), ways[0], kl=0.0025)[0]
    assert shorter == pytest.approx(factors[0] / 2, rel=0.25), "near 0 the KL is quadratic"


def test_a_step_up_makes_what_was_good_likelier(played: tuple[Network, Rollout]) -> None:
    net, out = played
    own, given = net.twin(), item_returns(out)
    step(own, _tables(out), gradient(net, out, given), kl=0.001)
    with torch.no_grad():
        gain = sum(
            float(((log_probs(own, _tables(out))[0][name] - log_probs(net, _tables(out))[0][name]).numpy() * given[name]).sum())
            for name in ("item", "brief", "point")
        )
    assert gain > 0


def test_nothing_to_follow_and_what_is_refused(played: tuple[Network, Rollout]) -> None:
    net, out = played
    size = sum(p.numel() for p in net.policy_parameters())
    own = net.twin()
    assert step(own, _tables(out), np.zeros(size), kl=0.01)[1] == 0.0
    assert all(torch.equal(a, b) for a, b in zip(own.parameters(), net.parameters(), strict=True))
    with pytest.raises(InputError, match="between 0 and 1"):
        step(own, _tables(out), np.zeros(size), kl=0.0)
    stop = np.zeros(size)
    before = [p.clone() for p in own.policy_parameters()]
    move(own, stop + 1.0, 0.5)
    assert all(torch.allclose(a, b + 0.5) for a, b in zip(own.policy_parameters(), before, strict=True))


def test_a_gradient_that_changes_no_decision_has_no_step(played: tuple[Network, Rollout]) -> None:
    net, out = played
    places, at = [], 0
    stop = {id(net.stop.weight), id(net.stop.bias)}
    for p in net.policy_parameters():
        places.append(np.full(p.numel(), float(id(p) in stop)))
        at += p.numel()
    own = net.twin()
    with pytest.raises(InputError, match="no step along this gradient"):
        step(own, _tables(out), np.concatenate(places), kl=0.01)
    assert all(torch.equal(a, b) for a, b in zip(own.parameters(), net.parameters(), strict=True)), "and nothing was changed"
