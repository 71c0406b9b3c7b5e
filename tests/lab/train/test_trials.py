"""Trials: the best of the last networks plays, on tasks that are the same for all and neither trained on nor held out."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import torch

import counterpoint as cpt
from counterpoint.lab.train.jobs import play
from counterpoint.lab.train.policies.features import LATE, context, role_rows
from counterpoint.lab.train.policies.network import Network
from counterpoint.lab.train.preset import named_preset
from counterpoint.lab.train.settings import settings_of
from counterpoint.lab.train.training import Training
from counterpoint.lab.train.trials import (
    Room,
    Team,
    Trials,
    _gain,
    _level,
    _other_make_ups,
    _shift,
    _WorldTrials,
    room_of,
    try_teams,
)
from counterpoint.lab.worlds.teamworld.engine import Batch
from counterpoint.lab.worlds.teamworld.world import TeamWorld


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


def start(world: TeamWorld, net: Network) -> Team:
    obs = Batch(world.config, np.array([1])).observe()
    with torch.no_grad():
        return Team(*(head.numpy() for head in net.roles(torch.from_numpy(role_rows(obs, context(obs))[0]))))


@pytest.mark.parametrize(("size", "grows"), [(24.0, False), (1.0, True)])
def test_teams_move_to_the_size_that_greedy_play_pays_for(
    size: float, grows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("counterpoint.lab.train.trials._other_make_ups", lambda worlds: [])
    monkeypatch.setattr("counterpoint.lab.train.trials._SHIFTS", ())
    world, net = cpt.world("W1", vote_items=16), network(-1.0)
    with torch.no_grad():
        net.size.weight.zero_()
        net.size.bias.fill_(math.log(size))
        before = {k: v.clone() for k, v in net.state_dict().items()}
    assert try_teams(net, [world, world], 0, 0.0)["episodes"] == 3 * 48
    sizes = start(world, net).size
    assert ((sizes > math.log(size)) == grows).all()
    assert (abs(sizes - math.log(size)) <= math.log(1.6) + 1e-3).all()  # one step at a time
    changed = {k for k, v in net.state_dict().items() if not torch.allclose(v, before[k], atol=1e-4)}
    assert changed == {"size.weight", "size.bias"}


@pytest.mark.parametrize("right", [0, 1])
def test_teams_move_to_the_roles_that_greedy_play_pays_for(right: int) -> None:
    """The other family's answers are coin tosses; at the start only that one comes."""
    skill = {"skill_a": (0.51,) * 3, "skill_b": (0.51,) * 3} | {f"skill_{'ab'[right]}": (0.95,) * 3}
    world, net = cpt.world("W1", vote_items=24, **skill), network(-1.0)
    with torch.no_grad():
        net.gate.weight.zero_()
        net.gate.weight[0, 1] = 6.0 * (1 - 2 * right)
        net.gate.bias.fill_(-3.0 * (1 - 2 * right))
    wrong = start(world, net).gate
    assert try_teams(net, [world], 0, 0.5, tasks=16)["episodes"] == (4 + 3 + 3) * 16  # less and more of stopping and of spawning late; make-ups; sizes
    gate = start(world, net).gate
    half = len(gate) // 2
    mine = slice(half * right, half * right + half)
    assert (wrong[mine] < -2).all()
    assert (gate[mine] > 0).all()


def test_stopping_too_early_and_spawning_again_and_again_are_found_by_trial() -> None:
    free = {"price": (0.0, 0.0), "brief_price": 0.0, "round_price": 0.01}
    worlds, net = [cpt.world("W1", vote_items=n, **free) for n in (6, 12)], network(-1.0)
    every = [_WorldTrials(net, world, np.arange(16), Counter()) for world in worlds]
    stop, late = net.stop.bias.detach()[:1], net.gate.weight.detach()[0, LATE : LATE + 1]
    net.stop.weight.detach().zero_()
    stop.fill_(0.5)  # everybody goes home at once
    late.fill_(-9.0)
    _shift(every, stop)
    assert -2.5 <= float(stop) < -2
    assert float(late) == -9
    late.fill_(-2.0)  # a team is spawned in every round
    _shift(every, late)
    assert -5 <= float(late) < -4
    assert all(one.played is None for one in every)
    settled = float(stop), float(late)
    _shift(every, stop)
    _shift(every, late)
    assert (float(stop), float(late)) == settled  # nothing is better than what there is, and nothing moves


def test_a_role_that_is_in_everywhere_has_one_gate_for_all_tasks() -> None:
    world, net = cpt.world("W1", vote_items=24), network(-1.0)
    every = [_WorldTrials(net, world, np.arange(2), Counter()) for _ in range(2)]
    every[0].team = Team(np.array([2.0, 1.0, -1.0, 3.0]), np.zeros(4))
    every[1].team = Team(np.array([1.0, -1.0, -2.0, 0.5]), np.ones(4))
    _level(every)
    assert every[0].team.gate.tolist() == [1.5, 1.0, -1.5, 1.75]
    assert every[1].team.gate.tolist() == [1.5, -1.0, -1.5, 1.75]
    assert every[1].team.size.tolist() == [1.0] * 4


@pytest.mark.parametrize(("spawn_price", "comes"), [(0.0, True), (50.0, False)])
def test_where_nobody_comes_a_team_begins_if_it_pays(spawn_price: float, comes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("counterpoint.lab.train.trials._SHIFTS", ())
    free = {"price": (0.0, 0.0), "brief_price": 0.0, "round_price": 0.01, "spawn_price": spawn_price}
    world, net = cpt.world("W1", vote_items=24, **free), network(-1.0)
    with torch.no_grad():
        net.gate.weight.zero_()
        net.gate.bias.fill_(-2.0)
    spent = try_teams(net, [world], 0, 0.5, tasks=16)
    assert (start(world, net).gate > 0).any() == comes
    if not comes:
        assert (start(world, net).gate == pytest.approx(-2.0, abs=1e-3))  # nothing moves
        assert spent["episodes"] == (6 + 1) * 16  # three sizes of two sorts, and nobody


def test_first_teams_are_paid_for_as_the_dearest_episodes_were() -> None:
    world, net = cpt.world("W1", vote_items=24), network(-1.0)
    with torch.no_grad():
        net.gate.weight.zero_()
        net.gate.bias.fill_(-2.0)
    for plays in (0, 1, 3):
        one = _WorldTrials(net, world, np.arange(10), Counter())
        one.begin(plays)
        assert one.spent["episodes"] == 10 * (plays + (plays > 0))
    poor, rich = (try_teams(net, [world], 0, 0.5, tasks=10, most=50_000.0, dearest=each) for each in (10_000.0, 1.0))
    assert poor["episodes"] < rich["episodes"]


def test_the_teams_beside_a_team_by_hand() -> None:
    world, net = cpt.world("W1", vote_items=24), network(-1.0)
    one = _WorldTrials(net, world, np.arange(2), Counter())
    one.team = Team(np.array([2.0, 1.0, -1.0, -2.0]), np.log([4.0, 2.0, 9.0, 9.0]))  # two types of A; and of B, which stay away
    others = _other_make_ups([one])
    assert [other.tolist() for other in others] == [[False, False, True, True], [True, True, True, True]]
    teams = [one.made_up(other) for other in others]
    sizes = [np.where(team.gate > 0, np.exp(team.size), 0.0).round(9).tolist() for team in teams]
    assert sizes == [[0, 0, 3, 3], [2, 1, 1.5, 1.5]]  # six agents as before; newcomers as many as those who are there
    assert {abs(g) for team in teams for g in team.gate} == {2.5}
    one.move(teams[0], 0.5)
    assert one.team.gate.tolist() == [-0.25, -0.75, 0.75, 0.25]
    one.team = Team(np.array([1.0, 1.0, -9.0, -9.0]), np.zeros(4))
    one.move(teams[0], 0.5)
    assert one.team is teams[0]  # halfway nobody would be in


def test_parts_of_a_gain_are_shrunk_each_by_its_own_noise() -> None:
    sure, noisy = np.full(4, 0.5), np.array([3.0, -3.0, 3.0, -2.0])
    square = noisy.var(ddof=1) / 4
    gain, error = _gain(np.array([0.5, noisy.mean()]), np.array([sure.std(ddof=1), square**0.5]))
    kept = 0.25**2 / (0.25**2 + square)
    assert gain == pytest.approx(0.5 + kept * 0.25)
    assert error == pytest.approx(kept * square**0.5)


def test_a_run_counts_its_trials_and_ends_with_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("counterpoint.lab.train.trials._TASKS", 4)
    t = Training(settings_of({"preset": "lab.train.quick:tried", "world": "W1", "set": {"vote_items": 6, "max_rounds": 8}, "updates": 10}))
    assert t.preset.trial_every == 2
    while not t.is_done:
        job = t.job(t.update, t.update, t.weights())
        t.learn([play(job.payload, job.weights)])
    assert [u for u, _ in t.trials.seen] == [8, 10]  # not before four times two, nor in the first half
    tried = t.totals["episodes"] - 10 * t.episodes() - 2 * 4  # four shifts and the present; make-ups and sizes, where anybody is spawned
    assert tried >= 2 * 5 * 4
    assert tried % 4 == 0
    best = t.trials.best
    assert best is not None
    assert all(torch.equal(v, best[k]) for k, v in t.player().state_dict().items())
    other = Training(t.settings)
    other.restore(t.state(), "here")
    assert all(torch.equal(a, b) for a, b in zip(other.player().parameters(), t.player().parameters(), strict=True))


def test_what_a_round_of_trials_may_cost_by_hand() -> None:
    assert room_of(0, {"charged": 900, "episodes": 10}) == Room(48, math.inf, 0.0)  # a run of so many updates
    # 84,000 in 1,000 episodes: 126 a greedy one, 1,764 a task of a round; a fifth of the budget pays for 11 of them
    assert room_of(100_000, {"charged": 84_000, "episodes": 1_000}) == Room(11, 16_000.0, 14 * 11 * 126.0)
    assert room_of(100_000, {"charged": 84_000, "episodes": 1_000}, tasks=48) == Room(48, 16_000.0, 20_000.0)
    assert room_of(100_000, {"charged": 200, "episodes": 200}).tasks == 48
    assert room_of(1_000, {"charged": 1_200, "episodes": 10}) == Room(6, 0.0, 200.0)


def test_trials_that_cannot_be_paid_are_not_played() -> None:
    world = cpt.world("W1", vote_items=6)
    whole = try_teams(network(-1.0), [world], 0, 0.5, tasks=8)
    some = try_teams(network(-1.0), [world], 0, 0.5, tasks=8, most=whole["charged"] / 2)
    assert 0 < some["charged"] <= 0.6 * whole["charged"]
    assert try_teams(network(-1.0), [world], 0, 0.5, tasks=8, most=0.0) == {}


@pytest.mark.parametrize("budget", [1_500, 3_000])
def test_a_run_pays_for_its_trials_within_its_budget(budget: int) -> None:
    settings = {"preset": "lab.train.quick:tried", "world": "W1", "set": {"vote_items": 6}, "budget_calls": budget}
    t = Training(settings_of(settings))
    update = 0
    while not t.is_done:
        job, before = t.job(t.update, t.update, t.weights()), t.totals["charged"]
        t.learn([play(job.payload, job.weights)])
        update = update if t.trials.seen else t.totals["charged"] - before
    assert t.trials.is_over
    assert t.progress == 1
    assert t.trials.seen[-1][0] == t.update
    assert 0.6 * budget < t.totals["charged"] <= 1.1 * budget + update
    other = Training(t.settings)
    other.restore(t.state(), "here")
    assert other.is_done


def test_ours_is_tried_and_published_methods_are_not() -> None:
    assert named_preset("counterpoint").trial_every > 0
    assert named_preset("grpo").trial_every == 0
