"""The engine against its rules: batches are their episodes, prices add up, and what happens by chance happens as often as it should."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoint.lab.worlds.teamworld.action import NEXT, VERIFY, Action, Calls, Spawns
from counterpoint.lab.worlds.teamworld.action import rule as rule_number
from counterpoint.lab.worlds.teamworld.config import ATTACKS, CONTROLS, TOPOLOGIES, Config
from counterpoint.lab.worlds.teamworld.engine import Batch
from counterpoint.lab.worlds.teamworld.policies import LISTED, named, play
from lab.worlds.teamworld.other_rules import ruled

SMALL: dict[str, Any] = {"max_agents": 6, "max_rounds": 12, "max_votes": 4, "pool_mean": 5.0, "pool_slots": 12, "pool_calls": 8, "draft_calls": 6,
                         "chain_hops": 2, "hop_checks": 1, "hop_attempts": 2, "node_module_size": 3, "node_cross_edges": 1}  # fmt: skip
ALL: dict[str, Any] = {"vote_items": 3, "pool_items": 2, "draft_items": 1, "chain_items": 1, "node_modules": 1}
CASES: dict[str, dict[str, Any]] = {
    "votes": {"vote_items": 5, "summary_loss": 0.5}, "pools": {"pool_items": 2}, "drafts": {"draft_items": 2}, "chains": {"chain_items": 2},
    "nodes": {"node_modules": 2, "topology": "hierarchical", "level_loss": 0.3}, "panel": {"vote_items": 2, "votes_per_agent": 1},
    **{t: ALL | {"orchestrator_works": True, "topology": t, "attack": a, "attack_rate": 0.3} for t, a in zip(TOPOLOGIES, ATTACKS, strict=False)},
    "padding": ALL | {"orchestrator_works": True, "attack": "AV7", "attack_rate": 0.3},
    "honeypot": ALL | {"attack": "AV8", "attack_rate": 0.3}, "control": ALL | {"attack": CONTROLS[0], "attack_rate": 0.3},
}  # fmt: skip


def arrays(value: Any, at: str = "") -> dict[str, np.ndarray]:
    """Every array of a state, by its path."""
    if isinstance(value, np.ndarray):
        return {at: value}
    items = value.items() if isinstance(value, dict) else ((f.name, getattr(value, f.name)) for f in dataclasses.fields(value)) \
        if dataclasses.is_dataclass(value) else ()  # fmt: skip
    return {k: v for name, part in items for k, v in arrays(part, f"{at}.{name}").items()}


def same_episode(many: Batch, i: int, one: Batch, j: int = 0) -> None:
    """Everything of episode i of one batch is episode j of the other."""
    left, right = arrays(many.state), arrays(one.state)
    for name, column in left.items():
        assert np.array_equal(column[i], right[name][j]), name


def team(config: Config, seeds: int, number: int = 4, **spawn: Any) -> Batch:
    """A batch whose teams stand ready."""
    batch = Batch(config, np.arange(seeds))
    every = np.arange(seeds)
    batch.step(Action(stop=np.zeros(seeds, np.bool_), spawns=Spawns.of(every, number, **spawn)))
    return batch


def call(batch: Batch, item: Any, agent: Any, brief: int = 2, purpose: int = 0, **parts: Any) -> np.ndarray:
    """Every episode makes the same calls."""
    e = batch.state.episodes
    items, agents = np.broadcast_arrays(np.atleast_1d(item), np.atleast_1d(agent))
    calls = Calls.of(np.repeat(np.arange(e), len(items)), np.tile(items, e), np.tile(agents, e), brief, purpose)
    wide: dict[str, Any] = {k: np.full(e, v) for k, v in parts.items()}
    return batch.step(Action(stop=np.zeros(e, np.bool_), calls=calls, **wide))


def stop(batch: Batch) -> np.ndarray:
    """Every episode stops."""
    return batch.step(Action(stop=np.ones(batch.state.episodes, np.bool_)))


def close_to(hits: np.ndarray, chance: Any) -> None:
    """A frequency within five standard errors of its chance."""
    n, p = hits.size, float(np.mean(np.broadcast_to(chance, hits.shape)))
    assert n >= 200
    assert abs(hits.mean() - p) <= 5 * np.sqrt(max(p * (1 - p), 1e-9) / n) + 1e-12, (hits.mean(), p, n)


_CHEAP = [name for name in LISTED if name != "best_cap"]  # which rehearses, see below
_PLAYED = [(case, name) for case in CASES for name in (_CHEAP if case in ("votes", "nodes", "swarm") else ("oracle", "random"))]


@pytest.mark.parametrize(("case", "name"), _PLAYED)
def test_a_batch_is_its_episodes_one_by_one(case: str, name: str) -> None:
    config = ruled(**(SMALL | CASES[case]))
    policy = named(name, config)
    many = play(config, policy, [5, 0, 11])
    logged = play(config, policy, [11, 5], log=True)
    same_episode(many, 0, play(config, policy, [5]))
    same_episode(many, 0, logged, 1)
    same_episode(many, 2, logged, 0)
    assert np.array_equal(many.value()[[2, 0]], logged.value())


def test_the_best_cap_too() -> None:
    config = ruled(**(SMALL | {"vote_items": 3}))
    many = play(config, named("best_cap", config), [5, 0, 11])
    same_episode(many, 1, play(config, named("best_cap", config), [0]))


@settings(max_examples=12, deadline=None)
@given(st.data())
def test_rewards_sum_to_quality_less_costs(data: st.DataObject) -> None:
    case = data.draw(st.sampled_from(sorted(CASES)))
    config = ruled(**(SMALL | CASES[case]))
    batch, policy = Batch(config, [data.draw(st.integers(0, 10**6)), 3]), named("random", config)
    total = np.zeros(2)
    while not batch.state.done.all():
        total += batch.step(policy.act(batch.observe()))
    assert np.allclose(total, batch.value(), atol=1e-9)
    assert np.allclose(batch.value(), batch.quality() - batch.state.costs.sum(axis=1), atol=1e-12)
    assert (batch.state.costs >= 0).all()


def test_prices_by_hand() -> None:
    config = ruled(vote_items=2, chain_items=1, max_agents=5, price=(0.01, 0.1), brief_price=0.5, broadcast_price=0.2, spawn_price=2.0,
                    round_price=1.0, check_price=0.7, topology="harness", gateway_price=0.05, orchestrator_works=True)  # fmt: skip
    batch = Batch(config, [0])
    no = np.zeros(1, np.bool_)
    zero = np.zeros(1, np.int64)
    assert batch.step(Action(stop=no, spawns=Spawns.of([0, 0], [2, 1], [0, 1]))).tolist() == pytest.approx([-3 * 2.0 - 1.0])
    # A with a brief of 3, B with none, the orchestrator itself at B's price and without a brief's, all with full returns
    calls = Calls.of(0, [0, 1, 2], [1, 3, 0], [3, 0, 2])
    paid = batch.step(Action(stop=no, calls=calls, full_return=~no, broadcast=~no))[0]
    assert paid == pytest.approx(-(0.01 + 0.1 + 0.1) - 0.5 * 3 - 3 * 0.2 - 3 * 0.05 - 1.0)
    paid = batch.step(Action(stop=no, calls=Calls.of(zero, 2, 3, 1, VERIFY)))[0]
    assert paid == pytest.approx(-0.7 - 0.5 - 0.05 - 1.0)
    before = batch.state.costs.copy()
    paid = batch.step(Action(stop=~no))[0]
    assert np.array_equal(batch.state.costs, before)
    assert paid == pytest.approx(batch.quality()[0])
    assert dict(zip(("calls", "messages", "spawn", "time", "harm", "topology"), before[0], strict=True)) == pytest.approx(
        {"calls": 0.91, "messages": 0.5 * 4 + 0.6, "spawn": 6.0, "time": 3.0, "harm": 0.0, "topology": 0.2})  # fmt: skip


@pytest.mark.parametrize("family", [0, 1])
@pytest.mark.parametrize(("brief", "typed"), [(0, 0), (1, 0), (2, 0), (3, 0), (2, 1)])
def test_votes_are_right_as_often_as_the_rules_say(family: int, brief: int, typed: int) -> None:
    config = ruled(vote_items=4, max_agents=4)
    batch = team(config, 1500, 4, family=family, type=typed)
    call(batch, [0, 1, 2, 3], [1, 2, 3, 4], brief)
    v = batch.state.kinds.vote
    assert v is not None
    right = v.first == v.truth
    know = config.brief_factor[brief] * np.where(batch.state.item_type == typed, 1, config.mismatch)
    misled = v.misled[:, :, family]
    skill = np.where(misled, config.right_if_misled, np.array(config.skill[family])[v.difficulty])
    chance = know * skill + (1 - know) / 2
    close_to(right, chance)
    for part in (misled, ~misled, v.difficulty == 2, batch.state.item_type == typed):
        close_to(right[part], chance[part])
    close_to(v.truth == 1, 0.5)
    for z in range(3):
        close_to(v.difficulty == z, config.difficulty_shares[z])
        close_to(misled[v.difficulty == z], config.misconception[family][z])


def test_contexts_wear_and_families_drift() -> None:
    sure: dict[str, Any] = {"skill_b": (1.0,) * 3, "misconception_b": (0.0,) * 3, "types": 1}
    batch = team(ruled(vote_items=4, max_agents=1, context_capacity=1, context_decay=0.25, **sure), 2000, 1)
    for item in range(4):  # calls taken 0, 1, 2, 3: loads 1, 1, 0.75, 0.5
        call(batch, item, 1)
    right = batch.state.kinds.vote.first == batch.state.kinds.vote.truth  # type: ignore[union-attr]
    assert right[:, :2].all()
    close_to(right[:, 2], 0.875)
    close_to(right[:, 3], 0.75)
    batch = team(ruled(vote_items=2, max_agents=1, drift=(0.0, 0.2), **sure), 2000, 1)
    call(batch, 0, 1)  # round 1
    call(batch, 1, 1)  # round 2
    right = batch.state.kinds.vote.first == batch.state.kinds.vote.truth  # type: ignore[union-attr]
    close_to(right[:, 0], 0.9)
    close_to(right[:, 1], 0.8)


def test_pools_hide_and_give_up_their_finds() -> None:
    config = ruled(pool_items=2, pool_mean=6.0, pool_shape=2.0, pool_slots=60, max_agents=2, types=1)
    batch = team(config, 3000, 2)
    p = batch.state.kinds.pool
    assert p is not None
    count = p.present.sum(axis=2)
    assert abs(count.mean() - 6) < 5 * np.sqrt((6 + 36 / 2) / count.size)  # negative binomial: mean + mean²/shape
    assert abs(count.var() / 24 - 1) < 0.1
    call(batch, [0, 0], [1, 2])
    call(batch, 1, 1, 0)
    close_to(p.found[:, 0][p.present[:, 0]], 1 - 0.88**2)
    close_to(p.found[:, 1][p.present[:, 1]], 0.06)
    assert not (p.found & ~p.present).any()
    assert np.array_equal(p.news, p.found.sum(axis=2))
    call(batch, 0, 1)
    assert np.array_equal(batch.quality(), p.found.sum(axis=(1, 2)))
    plain = Batch(ruled(pool_items=1, pool_mean=3.0, pool_shape=0.0, pool_slots=2), np.arange(4000)).state.kinds.pool
    assert plain is not None
    close_to(plain.present.sum(axis=2) == 2, 1 - 4 * np.exp(-3))


def test_a_pool_with_hardly_anything_is_possible() -> None:
    for mean, shape in ((1e-17, 2.0), (0.0, 2.0), (1e6, 2.0), (1e6, 0.0)):
        Batch(ruled(pool_items=1, pool_mean=mean, pool_shape=shape), [0])


def test_news_is_of_the_pool_that_was_searched() -> None:
    batch = team(ruled(pool_items=2, pool_mean=50.0, pool_find=(0.5, 0.5), max_agents=1), 1, 1)
    call(batch, 0, 1)
    news = batch.observe().of("pool").news.copy()
    assert news[0, 0] > 0
    call(batch, 1, 1)
    assert batch.observe().of("pool").news[0, 0] == news[0, 0]


def test_drafts_gain_rot_and_lose() -> None:
    config = ruled(draft_items=1, max_agents=2, types=1, draft_hazard=0.2)
    batch = team(config, 4000, 1)
    d = batch.state.kinds.draft
    assert d is not None
    call(batch, 0, 1, 1)
    close_to(d.level[:, 0] == 1, 0.5 * 0.85)
    close_to(d.sound[:, 0], 0.8)
    level, sound = d.level[:, 0].copy(), d.sound[:, 0].copy()
    call(batch, 0, 1)
    step = d.level[:, 0] - level
    close_to(step[sound] == 1, 0.5)
    close_to(step[~sound] == -1, 0.35)
    assert set(np.unique(step[sound])) == {0, 1}
    assert set(np.unique(step[~sound])) == {-1, 0}
    close_to(d.sound[sound, 0], 0.8)
    assert np.array_equal(batch.quality(), d.level[:, 0].astype(float))
    assert np.array_equal(d.shown, d.level)


def test_chains_attempt_check_and_go_on() -> None:
    config = ruled(chain_items=1, chain_hops=2, max_agents=2, types=1)
    batch = team(config, 4000, 1)
    c = batch.state.kinds.chain
    assert c is not None
    call(batch, 0, 1, 0)
    first = c.right[:, 0].copy()
    close_to(first, 0.9 * 0.5)
    call(batch, 0, 1, 2, VERIFY)
    close_to(c.passes[first, 0] == 1, 0.9)
    close_to(c.passes[~first, 0] == 1, 0.2)
    stopped = Batch(config, np.arange(4000))
    stopped.restore(batch.snapshot())
    assert (stop(stopped) == 0).all()  # the last hop has no attempt yet
    call(batch, 0, 1, 2, NEXT)
    close_to(c.right[:, 0], 0.9)
    assert np.array_equal(batch.quality(), 10.0 * (first & c.right[:, 0]))
    assert (c.passes + c.fails == 0).all()
    call(batch, 0, 1, 2)  # again: the new attempt replaces the old
    assert np.array_equal(batch.quality(), 10.0 * (first & c.right[:, 0]))
    assert (c.attempts == 2).all()


def test_nodes_break_where_their_needs_were_done_by_others() -> None:
    config = ruled(node_modules=1, node_module_size=2, node_cross_edges=0, max_agents=2, types=1, node_right=(0.5, 0.9))
    for agent, chance in ((1, 0.9 * 0.85), (2, 0.9 * 0.85 * 0.7)):
        batch = team(config, 2000, 2)
        n = batch.state.kinds.node
        assert n is not None
        root = np.argmax(~n.needs.any(axis=2), axis=1)
        every, no = np.arange(2000), np.zeros(2000, np.bool_)
        batch.step(Action(stop=no, calls=Calls.of(every, root, 1)))
        close_to(n.right[every, root], 0.9)
        batch.step(Action(stop=no, calls=Calls.of(every, 1 - root, agent, 1)))
        close_to(n.right[every, 1 - root], chance)
        assert np.array_equal(batch.quality(), n.right.sum(axis=1).astype(float))


def test_projects_are_paths_with_extra_and_cross_edges() -> None:
    config = ruled(node_modules=3, node_module_size=4, node_extra_edges=0.3, node_cross_edges=5)
    n = Batch(config, np.arange(300)).state.kinds.node
    assert n is not None
    alike = n.module[:, :, None] == n.module[:, None, :]
    assert ((n.needs & ~alike).sum(axis=(1, 2)) == 5).all()
    inside = (n.needs & alike).sum(axis=(1, 2))
    assert (inside >= 9).all()
    close_to(np.repeat(inside - 9, 9) / 9 > np.tile(np.arange(9) / 9 + 1e-9, 300), 0.3)
    power = n.needs.astype(np.int64)
    for _ in range(12):
        power = np.minimum(power @ n.needs, 1)
    assert not power.any()  # no circles


def test_rules_take_the_draft_from_the_votes() -> None:
    config = ruled(vote_items=1, max_agents=3, types=1, skill_a=(0.6,) * 3, misconception_a=(0.0,) * 3, skill_b=(0.95,) * 3,
                    misconception_b=(0.0,) * 3)  # fmt: skip
    expected = {"majority": 0, "bayes": 1, "naive": 1, "first": 0}
    for rule, answer in expected.items():
        batch = Batch(config, [0])
        no = np.zeros(1, np.bool_)
        batch.step(Action(stop=no, spawns=Spawns.of([0, 0], [2, 1], [0, 1])))
        calls = Calls.of(0, 0, [1, 2, 3])
        batch.step(Action(stop=no, calls=calls, rule=np.array([rule_number(rule)])), lambda c, claims: np.array([0, 0, 1]))
        assert batch.observe().of("vote").answer[0, 0] == answer, rule


def test_a_tie_keeps_the_draft_and_a_lossy_summary_drops_for_good() -> None:
    config = ruled(vote_items=1, max_agents=2, types=1, summary_loss=0.3)
    batch = team(config, 1, 2)
    majority = rule_number("majority")
    batch.step(
        Action(stop=np.zeros(1, np.bool_), calls=Calls.of(0, 0, 1), rule=np.array([majority])), lambda c, claims: np.array([1])
    )
    batch.step(
        Action(stop=np.zeros(1, np.bool_), calls=Calls.of(0, 0, 2), rule=np.array([majority])), lambda c, claims: np.array([0])
    )
    assert batch.observe().of("vote").answer[0, 0] == 1
    batch = team(config, 3000, 2)
    call(batch, [0, 0], [1, 2], rule=rule_number("lossy"))
    votes = batch.state.kinds.vote.tally.sum(axis=(1, 2, 3))  # type: ignore[union-attr]
    close_to(votes == 2, 0.49)
    close_to(votes == 0, 0.09)
    assert (batch.state.calls == 2).all()


def test_a_lost_node_may_be_called_again_and_a_lost_level_counts() -> None:
    config = ruled(
        node_modules=1, node_module_size=1, draft_items=1, max_agents=2, types=1, summary_loss=1.0, draft_gain=(1.0, 1.0)
    )
    batch = team(config, 2, 2)
    call(batch, [0, 1], [1, 2], rule=rule_number("lossy"))
    assert batch.observe().ready[:, 1].all()
    assert not batch.observe().of("node").done.any()
    assert (batch.observe().of("draft").shown == 0).all()
    assert (batch.quality() == 1).all()
    call(batch, 1, 1)
    assert batch.observe().of("node").done.all()


def test_the_last_round_ends_the_episode() -> None:
    batch = Batch(ruled(vote_items=1, max_rounds=2), [0, 1])
    assert call(batch, [], []).tolist() == [-0.0875] * 2
    assert not batch.state.done.any()
    reward = call(batch, [], [])
    assert batch.state.done.all()
    assert batch.state.truncated.all()
    assert np.allclose(reward, batch.quality() - 0.0875)


def test_snapshots_are_detached_and_come_back_to_the_same_bytes() -> None:
    config = ruled(**(SMALL | CASES["swarm"]))
    policy, batch = named("random", config), Batch(config, [1, 2, 3])
    for _ in range(5):
        batch.step(policy.act(batch.observe()))
    kept = batch.snapshot()
    ends = []
    for _ in range(2):
        while not batch.state.done.all():
            batch.step(policy.act(batch.observe()))
        ends.append(arrays(batch.state))
        batch.restore(kept)
    assert all(np.array_equal(ends[0][k], ends[1][k]) for k in ends[0])
    chosen = np.array([2, 0, 2])
    batch.restore(kept, chosen)
    other = Batch(config, [1, 2, 3])
    other.restore(kept)
    for _ in range(3):
        batch.step(policy.act(batch.observe()))
        other.step(policy.act(other.observe()))
    for i, j in enumerate(chosen):
        same_episode(batch, i, other, int(j))
