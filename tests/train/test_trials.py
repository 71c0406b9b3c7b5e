"""Trials: the best of the last networks plays, on tasks that are the same for all and neither trained on nor held out."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import counterpoint as cpt
from counterpoint.envs.teamworld.engine import Batch
from counterpoint.train.jobs import play
from counterpoint.train.policies.features import context, role_rows
from counterpoint.train.policies.network import Network
from counterpoint.train.preset import named_preset
from counterpoint.train.settings import settings_of
from counterpoint.train.training import Training
from counterpoint.train.trials import Trials, _gain, size_teams


def network(leave: float) -> Network:
    torch.manual_seed(0)
    net = Network()
    with torch.no_grad():
        net.gate.bias.fill_(3.0)
        net.purpose.weight.zero_()
        net.purpose.bias[0] = leave
    return net


def test_the_better_network_stays_whatever_came_after_it() -> None:
    world = cpt.world("W1", vote_items=8)
    idle, busy = network(9.0), network(-9.0)
    trials = Trials()
    spent = trials.hold(idle, [world], seed=0, update=10)
    assert spent["episodes"] == 48
    trials.hold(busy, [world], seed=0, update=20)
    trials.hold(idle, [world], seed=0, update=30)
    (_, first), (_, second), (_, third) = trials.seen
    assert first == third
    better = busy if second > first else idle
    assert trials.best is not None
    assert all(torch.equal(v, trials.best[k]) for k, v in better.state_dict().items())
    assert trials.score == max(first, second)
    again = Trials()
    again.restore(trials.state())
    assert again.hold(busy, [world], seed=0, update=40)["calls"] > 0
    assert again.seen[-1][1] == second


def test_worlds_are_weighed_alike_whatever_their_size() -> None:
    small, large = cpt.world("W1", vote_items=4), cpt.world("W1", vote_items=40)
    trials = Trials()
    spent = trials.hold(network(-9.0), [small, large], seed=1, update=1)
    assert spent["episodes"] == 48
    assert abs(trials.score) == pytest.approx(1.0)


@pytest.mark.parametrize(("size", "grows"), [(24.0, False), (1.0, True)])
def test_teams_move_to_the_size_that_greedy_play_pays_for(size: float, grows: bool) -> None:
    world, net = cpt.world("W1", vote_items=24), network(-1.0)
    with torch.no_grad():
        net.size.weight.zero_()
        net.size.bias.fill_(math.log(size))
        before = {k: v.clone() for k, v in net.state_dict().items()}
    spent = size_teams(net, [world, world], 0, 0.0)
    assert spent["episodes"] == 3 * 48
    obs = Batch(world.config, np.array([1])).observe()
    sizes = net.roles(torch.from_numpy(role_rows(obs, context(obs))))[1]
    assert ((sizes > math.log(size)) == grows).all()
    assert (abs(sizes - math.log(size)) <= math.log(1.6)).all()  # one step at a time
    assert {k for k, v in net.state_dict().items() if not torch.equal(v, before[k])} == {"size.weight", "size.bias"}


def test_parts_of_a_gain_are_shrunk_each_by_its_own_noise() -> None:
    sure, noisy = np.full(4, 0.5), np.array([3.0, -3.0, 3.0, -2.0])
    gain, error = _gain(np.stack([sure, noisy], axis=1))
    square = noisy.var(ddof=1) / 4
    kept = 0.25**2 / (0.25**2 + square)
    assert gain == pytest.approx(0.5 + kept * 0.25)
    assert error == pytest.approx(kept * square**0.5)


def test_a_run_counts_its_trials_and_ends_with_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("counterpoint.train.trials._TASKS", 4)
    t = Training(settings_of({"preset": "train.quick:tried", "world": "W1", "set": {"vote_items": 6}, "updates": 10}))
    assert t.preset.trial_every == 2
    while not t.is_done:
        job = t.job(t.update, t.update, t.weights())
        t.learn([play(job.payload, job.weights)])
    assert [u for u, _ in t.trials.seen] == [8, 10]  # not before four times two, nor in the first half
    sized = t.totals["episodes"] - 10 * t.episodes() - 2 * 4  # three sizes of the teams, where anybody is spawned
    assert sized in (0, 12, 24)
    best = t.trials.best
    assert best is not None
    assert all(torch.equal(v, best[k]) for k, v in t.player().state_dict().items())
    other = Training(t.settings)
    other.restore(t.state(), "here")
    assert all(torch.equal(a, b) for a, b in zip(other.player().parameters(), t.player().parameters(), strict=True))


def test_ours_is_tried_and_published_methods_are_not() -> None:
    assert named_preset("counterpoint").trial_every > 0
    assert named_preset("grpo").trial_every == 0
