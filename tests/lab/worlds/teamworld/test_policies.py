"""The hand-made policies: legal everywhere, blind to what is hidden, and each wrong in its own way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from counterpoint.errors import NotFound
from counterpoint.lab.worlds.teamworld.config import RULES, TOPOLOGIES, Config
from counterpoint.lab.worlds.teamworld.engine import Batch
from counterpoint.lab.worlds.teamworld.policies import LISTED, named, play

MIXED: dict[str, Any] = {"vote_items": 4, "pool_items": 2, "pool_mean": 5.0, "pool_slots": 12, "pool_calls": 8, "draft_items": 1, "draft_calls": 6,
                         "chain_items": 1, "chain_hops": 2, "node_modules": 1, "node_module_size": 3, "max_agents": 6, "max_rounds": 20,
                         "max_votes": 4}  # fmt: skip
CHEAP = [n for n in LISTED if n != "best_cap"]


@pytest.mark.parametrize("name", CHEAP)
def test_policies_end_of_their_own_accord(name: str) -> None:
    for topology in TOPOLOGIES if name == "random" else TOPOLOGIES[1:5:3]:
        config = Config(**(MIXED | {"max_rounds": 200, "topology": topology}))
        batch = play(config, named(name, config), range(4))
        assert not batch.state.truncated.any()
        assert np.isfinite(batch.value()).all()


@pytest.mark.parametrize("name", CHEAP)
def test_policies_do_not_see_what_is_hidden(name: str) -> None:
    config = Config(**MIXED)
    policy, batch = named(name, config), Batch(config, [0, 1])
    for _ in range(4):
        honest = policy.act(batch.observe())
        kinds: Any = batch.state.kinds
        kept = batch.snapshot()
        for array in (
            kinds.vote.truth,
            kinds.vote.misled,
            kinds.draft.sound,
            kinds.chain.right,
            kinds.node.right,
            kinds.node.module,
        ):
            array[...] = 1
        again = policy.act(batch.observe())
        batch.restore(kept)
        for mine, other in ((honest.calls, again.calls), (honest.spawns, again.spawns)):
            assert all(np.array_equal(vars(mine)[k], vars(other)[k]) for k in vars(mine))
        assert np.array_equal(honest.stop, again.stop)
        batch.step(honest)


def test_a_policy_keeps_no_state() -> None:
    config = Config(**MIXED)
    policy = named("oracle", config)
    alone = play(config, policy, [3]).value()
    play(config, policy, [8, 9])
    assert np.array_equal(play(config, policy, [3]).value(), alone)
    assert np.array_equal(play(config, named("oracle", config), [3]).value(), alone)


def test_random_says_how_likely_it_was() -> None:
    config = Config(**MIXED)
    batch, policy = Batch(config, range(300)), named("random", config)
    first = policy.act(batch.observe())
    assert first.logp is not None
    assert np.allclose(first.logp[:, 1], -np.log(6 * 2 * 2))
    assert first.stop.sum() == 0
    numbers = np.bincount(first.spawns.number, minlength=7)[1:]
    assert (numbers > 20).all()
    assert numbers.sum() == 300
    batch.step(first)
    second = policy.act(batch.observe())
    assert second.logp is not None
    assert (second.logp <= 0).all()
    assert np.allclose(second.logp[:, 0], np.where(second.stop, np.log(1 / 30), np.log(29 / 30)))
    assert second.rule is not None
    assert set(np.unique(second.rule)) == set(range(len(RULES)))


def test_each_policy_is_what_it_is_called() -> None:
    config = Config(vote_items=8, max_agents=8, max_votes=5, types=1)
    teams = {name: play(config, named(name, config), range(40)) for name in CHEAP}
    assert (teams["serial"].state.spawned == 1).all()
    assert (teams["spawn_all"].state.spawned == 8).all()
    assert (teams["first_answer"].state.calls == 1).all()
    assert teams["oracle"].value().mean() > teams["random"].value().mean() + 1
    with pytest.raises(NotFound):
        named("optimal", config)


def test_no_seeds_no_episodes() -> None:
    config = Config(**MIXED)
    for name in ("random", "oracle"):
        assert play(config, named(name, config), []).value().shape == (0,)
