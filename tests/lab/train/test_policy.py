"""The learned policy: any number of items and agents, in any order, and log-probabilities that can be computed again."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import counterpoint as cpt
from counterpoint.lab.train.evaluate import _team_sizes
from counterpoint.lab.train.learner import log_probs
from counterpoint.lab.train.policies import features as f
from counterpoint.lab.train.policies.acting import Forced, TeamPolicy, _reached
from counterpoint.lab.train.policies.network import Network
from counterpoint.lab.train.rollouts import merge_rollouts, play_out
from counterpoint.lab.worlds.teamworld.action import Action, Spawns
from counterpoint.lab.worlds.teamworld.engine import Batch

WORLDS = {
    "W1": {"vote_items": 6},
    "D": {"chain_items": 2},
    "P": {"node_modules": 2},
    "V": {"vote_items": 6},
    "A": {},
    "W2": {},
    "M": {},
}


def network(seed: int = 0) -> Network:
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    net = Network()
    with torch.no_grad():  # heads that depend on what they see
        for p in net.parameters():
            p.add_(0.3 * torch.randn_like(p))
        net.stop.bias.fill_(-3.0)
        net.purpose.bias[0] = -4.0
        net.gate.bias.fill_(2.0)
    return net


def played(world: str, **changes: object):
    w = cpt.world(world, **{**WORLDS[world], **changes})
    return play_out(w.config, network(), np.arange(4), np.arange(4) + 1)


@pytest.mark.parametrize("world", WORLDS)
def test_recorded_log_probabilities_are_those_of_the_network(world: str) -> None:
    tables = played(world).tables
    with torch.no_grad():
        again, _ = log_probs(network(), tables)
    item = tables["item"]
    called = item["agent"] >= 0
    assert np.allclose(again["item"], item["logp"], atol=2e-4)
    assert np.allclose(again["brief"][called], item["brief_logp"][called], atol=2e-4)
    assert np.allclose(again["point"][called], item["point_logp"][called], atol=2e-4)
    for name in ("stop", "rule", "spawn"):
        assert np.allclose(again[name], tables[name]["logp"], atol=2e-4)
    assert np.allclose(again["size"], tables["spawn"]["size_logp"], atol=2e-3)


@pytest.mark.parametrize("world", WORLDS)
def test_every_point_of_reward_is_on_a_row_or_is_the_teams(world: str) -> None:
    out = played(world)
    config, columns = out.config, out.columns
    assert out.gap() < 1e-9
    idle = out.columns["rounds"] - np.array(
        [len(np.unique(out.tables["rule"]["round"][out.tables["rule"]["ep"] == e])) for e in range(4)]
    )
    told = -columns["cost_spawn"] - config.round_price * idle
    heard = out.tables["rule"]["talk"][:, 1] > 0
    alive = np.zeros(4)
    for e in range(4):  # broadcasts are the team's too
        spawned = columns["agents"][e]
        alive[e] = config.broadcast_price * spawned * heard[out.tables["rule"]["ep"] == e].sum()
    assert (out.extra["team"] <= told + 1e-9).all()
    assert (out.extra["team"] >= told - alive - 1e-9).all()


def test_items_and_agents_may_be_permuted() -> None:
    world = cpt.world("W1", vote_items=8)
    batch = Batch(world.config, np.arange(3))
    net = network()
    policy = TeamPolicy(net)
    for _ in range(4):
        batch.step(policy.act(batch.observe()))
    obs = batch.observe()
    about = f.context(obs)
    rows = f.item_rows(obs, about, obs.free)
    team = f.team_rows(obs, about, rows)
    order = np.random.default_rng(0).permutation(8)
    place = np.argsort(rows.ep * 8 + order[rows.item], kind="stable")
    mixed = rows.subset(place)
    assert np.allclose(f.team_rows(obs, about, mixed), team, atol=1e-6)
    with torch.no_grad():
        first, again = net.items(torch.from_numpy(rows.x))[0], net.items(torch.from_numpy(mixed.x))[0]
    assert torch.allclose(first[place], again, atol=1e-6)


def test_a_policy_of_small_tasks_plays_large_ones() -> None:
    net = network()
    for items, agents in ((3, 2), (40, 20), (300, 64)):
        runs = cpt.world("W1", vote_items=items, max_agents=agents).run(TeamPolicy(net), range(2))
        assert np.isfinite(runs.values).all()


def test_types_of_items_take_turns_as_often_as_agents_of_theirs_are_free() -> None:
    """Two agents for items of type 0, one for type 1. By urgency alone the three first would all be of type 0."""
    n = 7
    rows = f.Rows(np.zeros(n, np.int64), np.arange(n), np.zeros(n, np.int64), np.zeros((n, f.ITEM), np.float32), np.arange(n))
    kind, urgency = np.array([0, 0, 0, 0, 1, 1, 1]), np.array([1.4, 1.3, 1.2, 1.1, 0.9, 0.8, 0.7])
    purpose = np.array([1, 0, 1, 1, 1, 1, 1])  # the second is left: it takes nobody's turn
    reached, rank = _reached(rows, purpose, urgency, np.array([3]), kind, np.array([[2, 1]]))
    assert rank.tolist() == [0, 2, 2, 3, 1, 4, 5]
    assert np.flatnonzero(reached).tolist() == [0, 1, 2, 4]
    _, rank = _reached(rows, purpose, urgency, np.array([3]), kind * 0, np.array([[3]]))
    assert rank.tolist() == [0, 1, 1, 2, 3, 4, 5]  # one type: by urgency


@pytest.mark.parametrize("size", [(3, 3), (4, 3), (5, 2)])
def test_specialists_get_items_of_their_type_whatever_the_team(size: tuple[int, int]) -> None:
    world, net = cpt.world("W1", vote_items=64), network()
    with torch.no_grad():
        net.query.weight.zero_()
        net.pair.weight.copy_(torch.tensor([[9.0, 0, 0, 0]]))  # an item points to agents of its type
    batch, policy = Batch(world.config, np.arange(8)), TeamPolicy(net, greedy=True)
    team = Spawns.of(np.repeat(np.arange(8), 2), np.tile(size, 8), type=np.tile([0, 1], 8))
    batch.step(Action(np.zeros(8, np.bool_), spawns=team))
    obs = batch.observe()
    made = policy.act(obs).calls
    assert (np.bincount(made.ep, minlength=8) == sum(size)).all()
    assert (obs.item_type[made.ep, made.item] == obs.type[made.ep, made.agent]).all()


def test_a_batch_decides_as_its_episodes_would() -> None:
    world = cpt.world("M", vote_items=6, pool_items=1, draft_items=1, chain_items=1, node_modules=1)
    net = network()
    together = play_out(world.config, net, np.array([5, 6, 7]), np.array([1, 2, 3]))
    alone = [play_out(world.config, net, np.array([s]), np.array([k])) for s, k in ((5, 1), (6, 2), (7, 3))]
    assert np.array_equal(together.values, np.concatenate([a.values for a in alone]))
    joined = merge_rollouts(alone)
    assert np.array_equal(np.sort(joined.tables["item"]["reward"]), np.sort(together.tables["item"]["reward"]))
    assert joined.decisions == together.decisions


def test_salts_part_episodes_of_a_seed_and_greed_needs_none() -> None:
    world, net = cpt.world("W1", vote_items=10), network()
    noisy = play_out(world.config, net, np.zeros(6, np.int64), np.arange(6))
    assert len(np.unique(noisy.values)) > 1
    greedy = play_out(world.config, net, np.zeros(3, np.int64), np.arange(3), greedy=True)
    assert len(np.unique(greedy.values)) == 1


def test_forced_gates_are_obeyed_and_marked() -> None:
    world, net = cpt.world("W1", vote_items=8), network()
    gate = np.full((2, 4), -1)
    gate[0], gate[1, 2] = 0, 1
    spawn = play_out(world.config, net, np.arange(2), np.arange(2), force=Forced(gate)).tables["spawn"]
    start = spawn["round"] == 0
    nobody = start & (spawn["ep"] == 0)
    assert not spawn["choice"][nobody].any()
    assert spawn["forced"][nobody].all()
    one = start & (spawn["ep"] == 1) & (spawn["role"] == 2)
    assert spawn["choice"][one].all()
    assert spawn["forced"][one].all()


def test_a_team_that_is_tried_has_the_size_that_was_drawn() -> None:
    world, net = cpt.world("W1", vote_items=8), network()
    gate, sizes = np.full((2, 4), -1), np.full((2, 4), np.nan)
    gate[1, 2], sizes[1, 2] = 1, np.log(6.0)
    forces = Forced(gate), Forced(gate, sizes=sizes)
    played = [play_out(world.config, net, np.arange(2), np.arange(2), force=f).tables["spawn"] for f in forces]
    free, tried = ({k: v[t["round"] == 0] for k, v in t.items()} for t in played)
    at = (tried["ep"] == 1) & (tried["role"] == 2)
    assert tried["number"][at].tolist() == [6]
    assert tried["size"][at] == pytest.approx([np.log(6.0)])
    assert (free["number"][~at] == tried["number"][~at]).all()


def test_an_item_that_is_kept_is_left_after_its_calls_and_not_before() -> None:
    world, net = cpt.world("W1", vote_items=8), network()
    with torch.no_grad():
        net.purpose.bias.copy_(torch.tensor([30.0, 0.0, 0.0, 0.0]))  # leaves at once, if it may
    keeps = np.zeros((2, world.config.items), np.int64)
    keeps[0, :3] = 1, 3, 100
    item = play_out(world.config, net, np.arange(2), np.arange(2), force=Forced(keeps=keeps)).tables["item"]
    called = item["choice"] > 0
    calls = [int((called & (item["ep"] == 0) & (item["item"] == i)).sum()) for i in range(8)]
    assert calls == [1, 3, world.config.max_votes, 0, 0, 0, 0, 0]
    assert not called[item["ep"] == 1].any()
    assert not item["mask"][called, 0].any()
    assert item["mask"][~called, 0].all()


def test_in_an_episode_of_tries_nothing_is_left_before_its_first_call() -> None:
    world, net = cpt.world("W1", vote_items=8), network()
    with torch.no_grad():
        net.purpose.bias.copy_(torch.tensor([30.0, 0.0, 0.0, 0.0]))  # leaves at once, if it may
        net.stop.weight.zero_()
    force = Forced(gate=np.ones((2, 4), np.int64), tries=np.array([False, True]))
    item = play_out(world.config, net, np.arange(2), np.arange(2), force=force, goes_on=True).tables["item"]
    assert (item["choice"][item["ep"] == 0] == 0).all()
    tried = item["ep"] == 1
    first = tried & (item["x"][:, 5] == 0)
    assert (item["choice"][first] > 0).all()
    assert sorted(item["item"][first]) == list(range(8))
    assert not item["mask"][first, 0].any()
    assert (item["choice"][tried & ~first] == 0).all()


def test_forced_continuation_records_stops_and_goes_on() -> None:
    world, net = cpt.world("W1", vote_items=12), network()
    with torch.no_grad():
        net.stop.weight.zero_()
        net.stop.bias.fill_(3.0)
    stopped = play_out(world.config, net, np.arange(3), np.arange(3), goes_on=False)
    forced = play_out(world.config, net, np.arange(3), np.arange(3), goes_on=True)
    assert forced.tables["stop"]["choice"].any()
    assert forced.columns["rounds"].mean() > stopped.columns["rounds"].mean()


@pytest.mark.parametrize(("late", "world"), [(-4.0, "W1"), (0.5, "W1"), (0.5, "M"), (0.5, "A")])
def test_team_sizes_without_the_whole_episode(late: float, world: str) -> None:
    net, config = network(), cpt.world(world, **WORLDS[world], max_rounds=40).config
    with torch.no_grad():
        net.gate.weight.copy_(torch.tensor([[0.0, -0.3, 1.5, 1.5, -1.0, -0.5, late, 0.0]]))
        net.gate.bias.fill_(-0.4)
        net.size.weight.zero_()
    whole = Batch(config, np.arange(3))
    while not whole.state.done.all():
        whole.step(TeamPolicy(net).act(whole.observe()))
    assert _team_sizes(net, config, 3).tolist() == whole.state.spawned.tolist()


def test_a_trusted_policy_plays_as_a_checked_one() -> None:
    config, net = cpt.world("M").config, network()
    one, other = Batch(config, np.arange(3)), Batch(config, np.arange(3))
    for _ in range(6):
        action = TeamPolicy(net, greedy=False, salt=np.arange(3)).act(one.observe())
        assert one.step(action).tolist() == other.step(action, trusted=True).tolist()
    assert one.value().tolist() == other.value().tolist()
