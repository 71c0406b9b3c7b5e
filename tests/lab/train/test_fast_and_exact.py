"""What was made faster gives the numbers of the plain way, on episodes that are really played."""

from __future__ import annotations

import copy
import gc
import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from counterpoint.lab.train.child_process import collecting_seldom
from counterpoint.lab.train.evaluate import held_out
from counterpoint.lab.train.jobs import play
from counterpoint.lab.train.learner import advance, clear
from counterpoint.lab.train.losses.td import Utilities, beats_of
from counterpoint.lab.train.policies import features as f
from counterpoint.lab.train.policies.acting import TeamPolicy
from counterpoint.lab.train.rollouts import Rollout
from counterpoint.lab.train.settings import settings_of
from counterpoint.lab.train.training import Training
from counterpoint.lab.worlds.teamworld.action import DECISIONS
from counterpoint.lab.worlds.teamworld.engine import answers
from counterpoint.lab.worlds.teamworld.tables import tables_of
from counterpoint.lab.worlds.wide_verify import wide_verify

SMALL = {"vote_items": 6, "max_rounds": 6, "max_agents": 6}


@pytest.fixture(scope="module")
def played() -> tuple[Training, Rollout]:
    """A batch of the preset qmix, in which items have several agents to choose among."""
    training = Training(settings_of({"preset": "qmix", "world": "wide_verify", "set": SMALL, "updates": 3}))
    job = training.job(0, 0, training.weights())
    return training, play(job.payload, job.weights).rollout


def test_picked_candidates_alone_have_the_scores_and_gradients_of_all(played: tuple[Training, Rollout]) -> None:
    training, out = played
    net, found, among = training.net, Utilities(out, beats_of(out)), out.tables["candidate"]
    assert len(among["row"]) > 2 * among["picked"].sum() > 20  # most candidates are not picked
    with torch.no_grad():  # heads start near 0
        for p in net.parameters():
            p += 0.1 * torch.randn(p.shape, generator=torch.Generator().manual_seed(p.numel()))
    own = [net.key.weight, net.key.bias, net.pair.weight, *net.for_query.parameters(), net.query.weight, net.query.bias]
    fast = next(each for name, each in found._each(net, best=False) if name == "candidate")
    query, row = net.items(torch.from_numpy(out.tables["item"]["x"]))[2], torch.from_numpy(among["row"])
    pairs, agents = torch.from_numpy(among["pair_x"]), torch.from_numpy(among["agent_x"])
    score = (query[row] * net.key(agents)).sum(-1) + net.pair(pairs)[:, 0]
    picked = torch.from_numpy(among["picked"])
    whole = torch.zeros(len(query)).index_add(0, row[picked], score[picked])
    slow = whole[torch.from_numpy(np.unique(among["row"]))]
    slope = torch.linspace(-1, 1, len(slow))
    assert torch.allclose(fast, slow, rtol=1e-5, atol=1e-7)  # products of fewer rows may be rounded otherwise on some machines
    for mine, plain in zip(torch.autograd.grad(fast, own, slope), torch.autograd.grad(slow, own, slope), strict=True):
        assert plain.abs().max() > 0
        assert torch.allclose(mine, plain, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("is_greedy", [False, True])
def test_agents_are_chosen_alike_with_and_without_limits(is_greedy: bool) -> None:
    rng = np.random.default_rng(1)
    ep = np.concatenate([np.arange(4)] * 3)  # three ranks of four teams
    score = np.round(rng.normal(size=(12, 5)), 1)  # some are equal
    score[0] = 0.0
    free = rng.random((4, 5)) < 0.5
    free[:, :3] = True
    u = None if is_greedy else np.append(rng.random(11), 1 - 1e-17)  # the last one is past every agent
    turns = list(itertools.pairwise([0, 4, 8, 12]))
    seen = []
    for barred in (None, np.zeros(score.shape, np.bool_)):
        left, could = free.copy(), np.zeros(score.shape, np.bool_)
        way = f._in_turn if barred is None else f._where_legal
        more = () if barred is None else (barred, None)
        seen.append((*way(score, ep, u, left, could, turns, *more), left, could))
    for fast, plain in zip(*seen, strict=True):
        assert np.array_equal(fast, plain)
    agent, logp = seen[0][:2]
    assert (logp <= 0).all()
    assert [len(set(agent[ep == e])) for e in range(4)] == [3] * 4  # nobody twice
    assert free[ep, agent].all()


def test_a_policy_draws_what_the_observation_draws() -> None:
    batch = wide_verify.replace(**SMALL).batch(range(5))
    obs, salt, net = batch.observe(), np.arange(5) + 7, Training(settings_of({"preset": "grpo", "world": "W1"})).net
    policy = TeamPolicy(net, greedy=False, salt=salt)
    rows, item = np.array([0, 0, 3, 4]), np.array([2, 1, 5, 0])
    for name in DECISIONS:
        assert np.array_equal(policy.noise(obs, name), obs.uniform(name, salt))
        assert np.array_equal(policy.noise(obs, name, np.arange(2)[None]), obs.uniform(name, salt[:, None], np.arange(2)[None]))
        for keys in ((np.arange(3)[:, None], item), (item,)):
            assert np.array_equal(policy.noise(obs, name, *keys, ep=rows), obs.uniform(name, salt[rows], *keys, ep=rows))


def test_held_out_tasks_in_a_batch_are_those_played_one_by_one() -> None:
    training = Training(settings_of({"preset": "counterpoint", "world": "wide_verify", "set": SMALL, "updates": 3, "episodes": 8}))
    job = training.job(0, 0, training.weights())
    training.learn([play(job.payload, job.weights)])
    net, (world,) = training.player(), training.worlds
    whole = held_out(net, [world], 6, keep=2)
    for seed in range(6):
        alone = world.run(TeamPolicy(net), [seed])
        assert alone.values[0] == pytest.approx(whole.values[seed], abs=1e-12)
        assert {k: v[0] for k, v in alone.columns.items()} == pytest.approx({k: v[seed] for k, v in whole.columns.items()})
    assert [t.task_id[-1] for t in whole.traces] == ["0", "1"]


def test_rules_of_many_teams_at_once_are_those_of_each() -> None:
    config = wide_verify.replace(**SMALL).config
    batch = wide_verify.replace(**SMALL).batch(range(6))
    votes, rng = copy.deepcopy(batch.state.kinds.vote), np.random.default_rng(3)
    assert votes is not None
    votes.tally[...] = rng.integers(0, 3, votes.tally.shape)
    votes.confidence[...] = rng.random(votes.confidence.shape)
    votes.first[...] = rng.integers(-1, 2, votes.first.shape)
    ep, item = (part.reshape(-1) for part in np.indices((6, SMALL["vote_items"])))
    rule = ep.copy()  # each team has a rule of its own
    found = answers(config, votes, ep, item, rule)
    for e in range(6):
        mine = ep == e
        assert np.array_equal(found[mine], answers(config, votes, ep[mine], item[mine], rule[mine]))
    assert 0 < found.mean() < 1


def test_tables_belong_to_one_configuration() -> None:
    first, same = wide_verify.replace(**SMALL).config, wide_verify.replace(**SMALL).config
    other = replace(first, price=(9.0, 8.0), drift=(0.1, 0.0))
    assert tables_of(first) is tables_of(first)
    assert first == same
    assert np.array_equal(tables_of(same).skill, tables_of(first).skill)
    assert tables_of(first).drift is None
    assert np.array_equal(tables_of(other).drift, [0.1, 0.0])  # type: ignore[arg-type]
    assert tables_of(other).price.tolist() == [9.0, 8.0]
    with pytest.raises(ValueError, match="read-only"):
        tables_of(first).price[0] = 1.0
    kept = [replace(first, vote_items=n) for n in range(1, 200)]
    assert [len(tables_of(c).kind) for c in kept] == [c.items for c in kept]  # more than are remembered


def test_steps_without_the_profilers_wrapper_are_the_optimizers() -> None:
    found = []
    for is_plain in (True, False):
        torch.manual_seed(0)
        layer = torch.nn.Linear(5, 3)
        optimizer = torch.optim.Adam(layer.parameters(), lr=0.1, fused=True)
        for _ in range(3):
            optimizer.zero_grad() if is_plain else clear(optimizer)
            layer(torch.ones(2, 5)).square().sum().backward()
            optimizer.step() if is_plain else advance(optimizer)
        found.append([*layer.state_dict().values(), *(v for s in optimizer.state_dict()["state"].values() for v in s.values())])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_the_collector_is_as_it_was() -> None:
    before = gc.get_threshold()
    with collecting_seldom():
        assert gc.get_threshold() > before
    with pytest.raises(ZeroDivisionError), collecting_seldom():
        print(1 / 0)
    assert gc.get_threshold() == before
