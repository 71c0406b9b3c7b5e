"""The survey's published counts, number by number."""

from __future__ import annotations

from counterpoint.lab.papers import load
from counterpoint.lab.papers.query import counts, cross, statistics

CREDIT = ["NA", "agent", "message", "orchestrator", "role", "turn"]
REWARD_BY_CREDIT = {
    "NA": [32, 0, 0, 1, 0, 0],
    "debate": [0, 3, 1, 0, 0, 0],
    "hybrid": [0, 6, 0, 1, 4, 4],
    "individual": [0, 4, 0, 0, 0, 0],
    "orchestration": [0, 0, 0, 6, 1, 0],
    "process": [0, 1, 0, 0, 0, 1],
    "role": [0, 0, 0, 0, 3, 0],
    "shared": [0, 9, 1, 0, 0, 0],
    "verifier": [4, 0, 0, 0, 2, 0],
}
FORM_BY_CREDIT = {
    "NA": [31, 3, 0, 0, 0, 0],
    "centralized": [0, 14, 1, 3, 0, 0],
    "debate": [1, 3, 1, 0, 1, 2],
    "harness": [2, 1, 0, 0, 0, 0],
    "hierarchical": [0, 2, 0, 3, 5, 3],
    "planner_executor_critic": [0, 0, 0, 0, 4, 0],
    "swarm": [2, 0, 0, 2, 0, 0],
}
COUNTS = {
    "headline": {"retained": 84, "excluded": 32, "audited": 116},
    "category": {"rl_method": 42, "benchmark": 18, "classical_marl": 10, "industry": 6, "survey": 5, "framework": 3},
    "reward_type": {
        "NA": 33,
        "hybrid": 15,
        "shared": 10,
        "orchestration": 7,
        "verifier": 6,
        "debate": 4,
        "individual": 4,
        "role": 3,
        "process": 2,
    },
    "credit_granularity": {"NA": 36, "agent": 23, "role": 10, "orchestrator": 8, "turn": 5, "message": 2},
}


def test_every_count_of_the_survey_in_its_order() -> None:
    numbers = statistics(load.papers(), load.excluded())
    for section, expected in COUNTS.items():
        assert list(numbers[section].items()) == list(expected.items())


def test_every_cell_of_the_surveys_cross_tables() -> None:
    numbers = statistics(load.papers(), load.excluded())
    for section, expected in (
        ("reward_type_x_credit_granularity", REWARD_BY_CREDIT),
        ("orchestration_form_x_credit_granularity", FORM_BY_CREDIT),
    ):
        assert {row: list(cells.values()) for row, cells in numbers[section].items()} == expected
        assert all(list(cells) == CREDIT for cells in numbers[section].values())


def test_ties_go_by_name_and_cells_sum_to_rows() -> None:
    rows = load.papers()[:4]  # agent, agent, role, agent; shared, hybrid, hybrid, shared
    assert list(counts(rows, "reward_type").items()) == [("hybrid", 2), ("shared", 2)]
    assert cross(rows, "reward_type", "credit_granularity") == {
        "hybrid": {"agent": 1, "role": 1},
        "shared": {"agent": 2, "role": 0},
    }


def test_nothing_gives_zero_not_an_error() -> None:
    assert statistics([], [])["headline"] == {"retained": 0, "excluded": 0, "audited": 0}
