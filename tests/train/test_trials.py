"""Trials: the best of the last networks plays, on tasks that are the same for all and neither trained on nor held out."""

from __future__ import annotations

import pytest
import torch

import counterpoint as cpt
from counterpoint.train.jobs import play
from counterpoint.train.policies.network import Network
from counterpoint.train.preset import named_preset
from counterpoint.train.settings import settings_of
from counterpoint.train.training import Training, Trials


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


def test_a_run_counts_its_trials_and_ends_with_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("counterpoint.train.training._TASKS", 4)
    t = Training(settings_of({"preset": "train.quick:tried", "world": "W1", "set": {"vote_items": 6}, "updates": 10}))
    assert t.preset.trial_every == 2
    while not t.is_done:
        job = t.job(t.update, t.update, t.weights())
        t.learn([play(job.payload, job.weights)])
    assert [u for u, _ in t.trials.seen] == [8, 10]  # not before four times two, nor in the first half
    assert t.totals["episodes"] == 10 * t.episodes() + 2 * 4
    best = t.trials.best
    assert best is not None
    assert all(torch.equal(v, best[k]) for k, v in t.player().state_dict().items())
    other = Training(t.settings)
    other.restore(t.state(), "here")
    assert all(torch.equal(a, b) for a, b in zip(other.player().parameters(), t.player().parameters(), strict=True))


def test_ours_is_tried_and_published_methods_are_not() -> None:
    assert named_preset("counterpoint").trial_every > 0
    assert named_preset("grpo").trial_every == 0
