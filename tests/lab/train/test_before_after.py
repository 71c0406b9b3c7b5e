"""What is shown beside a learned policy: hand-made ones on the same tasks, team sizes by sort of task, and what was decided."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from counterpoint.lab.train import evaluate
from counterpoint.lab.train.before_after import Behaviour, behaviour, by_hand, mean_behaviour, measured
from counterpoint.lab.train.policies.network import Network
from counterpoint.lab.worlds.world import world

JOBS = {
    "types": 1, "max_agents": 4, "node_module_size": 1, "node_cross_edges": 0, "max_rounds": 20, "pool_slots": 8, "pool_calls": 4,
}  # fmt: skip
SORTS = [
    world("P", **JOBS, node_modules=6, node_weight=3.0),
    world("P", **JOBS, node_modules=0, pool_items=2, round_price=0.0),
]


def net() -> Network:
    torch.manual_seed(0)
    return Network()


def test_a_hand_made_policy_plays_every_seed_in_the_world_of_its_remainder() -> None:
    seeds = np.arange(10, 16)
    found = by_hand("serial", SORTS, seeds)
    for place, one in enumerate(SORTS):
        runs = one.run("serial", seeds[seeds % 2 == place])
        assert found["value"][seeds % 2 == place].tolist() == runs.values.tolist()
        assert found["agents"][seeds % 2 == place].tolist() == runs.columns["agents"].tolist()


def test_the_best_size_is_one_number_of_agents_everywhere_and_no_worse_than_the_others() -> None:
    assert len({*by_hand("best_size", SORTS[:1], np.arange(4))["agents"].tolist()}) == 1


def test_team_sizes_of_a_mix_are_those_of_the_held_out_tasks_by_sort() -> None:
    """So that a plot of them and a table of the evaluation cannot disagree."""
    held = evaluate.held_out(net(), SORTS, 5)
    rows = evaluate.team_sizes(net(), SORTS, held)
    assert [row["task"] for row in rows] == ["6 nodes, urgent", "2 pools, no hurry"]
    assert [row["agents"] for row in rows] == [held.columns["agents"][0::2].tolist(), held.columns["agents"][1::2].tolist()]
    by_reference = by_hand("reference", SORTS, np.arange(5))["agents"]
    assert [row["reference"] for row in rows] == [by_reference[0::2].mean(), by_reference[1::2].mean()]


def test_sorts_that_read_alike_are_told_apart() -> None:
    other = world("P", **JOBS, node_modules=6, node_weight=4.0)
    assert evaluate.task_labels([SORTS[0], other]) == ["6 nodes, urgent (1)", "6 nodes, urgent (2)"]
    assert evaluate.task_labels([SORTS[0], SORTS[1]]) == ["6 nodes, urgent", "2 pools, no hurry"]


def test_of_one_sort_smaller_and_larger_tasks_are_tried() -> None:
    held = evaluate.held_out(net(), SORTS[:1], 2)
    sizes = [row["size"] for row in evaluate.team_sizes(net(), SORTS[:1], held)]
    assert sizes == [2, 3, 6, 12, 24]


def test_behaviour_is_averaged_over_those_who_do_a_thing_at_all() -> None:
    first = Behaviour({"node": {"A": 1.0, "B": 0.0}}, {0: 0.5, 1: 0.5}, {"majority": 1.0}, {"node": (1.0, 3.0)})
    second = Behaviour({"node": {"A": 0.5, "B": 0.5}, "pool": {"A": 0.2, "B": 0.8}}, {0: 1.0, 1: 0.0}, {"first": 1.0}, {"node": (2.0, 3.0)})
    found = mean_behaviour([first, second])
    assert found.delegate == {"node": {"A": 0.75, "B": 0.25}, "pool": {"A": 0.2, "B": 0.8}}
    assert found.communicate == {0: 0.75, 1: 0.25}
    assert found.aggregate == {"majority": 1.0, "first": 1.0}
    assert found.stop == {"node": (1.5, 3.0)}
    assert mean_behaviour([first]).as_dict() == first.as_dict()


def test_shares_of_what_is_decided_sum_to_one_and_measures_name_no_success() -> None:
    told = behaviour(net(), SORTS, np.arange(4))
    for table in (told.communicate, told.aggregate, *told.delegate.values()):
        assert sum(table.values()) == pytest.approx(1) or not any(table.values())
    assert {m["family"] for m in measured(SORTS[0], net(), net())} == {"E2", "E3", "E4", "scale"}
