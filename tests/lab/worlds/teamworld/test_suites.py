"""Suites: what they are made of, what a fixed rule is, and that choosing by the task pays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from counterpoint.errors import NotFound
from counterpoint.lab.worlds.teamworld.config import Config
from counterpoint.lab.worlds.teamworld.optimum import bound, vote
from counterpoint.lab.worlds.teamworld.policies import play
from counterpoint.lab.worlds.teamworld.policies.composed import ComposedPolicy, Parts
from counterpoint.lab.worlds.teamworld.suites import DECISIONS, SUITES, fixed_rules, screen, suite_worlds

EVERY = SUITES["full"]


def test_the_core_has_six_worlds_and_a_world_for_every_decision() -> None:
    assert len(SUITES["core"]) == 6
    assert set(SUITES["core"]) < set(EVERY)
    assert {name for world in SUITES["core"] for name in world.decisions} == set(DECISIONS)
    assert {world.decisions for world in SUITES["core"] if len(world.decisions) == 1} == {(name,) for name in DECISIONS}
    assert len({world.name for world in EVERY}) == len(EVERY)


@pytest.mark.parametrize("world", EVERY, ids=lambda world: world.name)
def test_every_sort_of_task_has_items_and_known_play(world: object) -> None:
    assert len(world.known) == len(world.mix) == len(world.worlds)  # type: ignore[attr-defined]
    assert all(config.items for config in world.configs)  # type: ignore[attr-defined]


def test_a_decision_that_is_not_there_is_an_error() -> None:
    with pytest.raises(NotFound, match="spawn"):
        fixed_rules(suite_worlds()["width"], "spwan")


def _spawned(config: Config, spawn: str) -> int:
    return int(play(config, ComposedPolicy(config, Parts(spawn=spawn), "x"), [0]).state.spawned[0])


def test_a_fixed_number_of_agents_and_one_by_the_size_of_the_task() -> None:
    jobs, few, old = suite_worlds()["width"].configs
    assert [_spawned(jobs, n) for n in ("5", "0.25/item", "all")] == [5, 6, 32]
    assert [_spawned(few, n) for n in ("5", "0.25/item")] == [5, 1]
    assert _spawned(old, "0") == 0


def test_what_a_team_for_urgent_jobs_costs_by_hand() -> None:
    """24 jobs, 8 agents: a round to spawn and three of work, 8 spawns, 24 calls of family B with a brief of two units."""
    jobs = suite_worlds()["width"].configs[0]
    batch = play(jobs, ComposedPolicy(jobs, Parts(spawn="8"), "x"), range(4))
    cost = 4 * 5.4 + 8 * 1.0 + 24 * (0.1 + 2 * 0.0012)
    assert batch.quality() - batch.value() == pytest.approx(cost)
    assert batch.value().mean() < 24 * 2.8 - cost


def test_delegation_by_type_or_by_family_alone_is_worse_than_by_both() -> None:
    crew = suite_worlds()["crew"]
    both, *alone = (
        crew.values([Parts(spawn="9", play="optimal", delegate=way)], range(12)).mean()
        for way in ("matched", "by_type", "by_family", "dear")
    )
    assert all(both > other + 0.1 * crew.bound for other in alone)


def test_doing_nothing_is_among_the_rules_and_leaves_half_of_the_questions_right() -> None:
    """A question that nobody is asked keeps its default answer, which is right half of the time; nothing else pays."""
    rules = {name: suite_worlds()[name].rules for name in ("width", "critic")}
    assert rules["width"]["nobody"] == 0
    assert rules["critic"]["nobody"] == pytest.approx((6 * 2 / 2 + 8 * 2 / 2) / 2, abs=1.5)
    assert rules["critic"]["nobody"] < rules["critic"]["serial"] < rules["critic"]["known"]


def test_no_rule_of_merging_does_for_questions_with_and_without_a_critic() -> None:
    world, seeds = suite_worlds()["critic"], np.arange(12)
    found = screen(world, "aggregate", seeds, seeds, world.values(world.known, seeds))
    assert found.known.mean() - found.fixed.mean() > 0.1 * world.bound
    assert len(found.fixed) == len(found.known) == 12


def test_the_best_table_by_size_is_among_the_fixed_rules() -> None:
    whole, seeds = suite_worlds()["width"], np.arange(4)
    jobs = {**whole.set, "max_agents": 6}  # 24 jobs need many, 3 need three: a table by size knows which
    world = replace(whole, set=jobs, mix=whole.mix[:2], known=whole.known[:2])
    found = screen(world, "spawn", seeds, seeds, world.values(world.known, seeds))
    assert found.fixed.tolist() == found.known.tolist()


def test_behind_a_critic_a_vote_that_knows_less_may_be_worth_more_and_the_bound_says_so() -> None:
    """Three in four mislead everybody: who knows less errs less, and the critic's bound is over the sizes of the brief."""
    config = suite_worlds()["critic"].configs[0]
    assert vote.critic_value(config, 0) > 1.2 * vote.critic_value(config, 2)
    best = bound.optimum(config)
    assert best.value >= config.vote_items * vote.critic_value(config, 0) - config.spawn_price - 1e-9
    known = play(config, ComposedPolicy(config, Parts(play="optimal", aggregate="majority"), "x"), range(40)).value()
    assert known.mean() < best.value
