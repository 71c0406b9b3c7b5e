"""The bound of a project: never below the best plan, found by exhausting assignments; and by hand."""

from __future__ import annotations

from itertools import permutations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoint.lab.worlds.teamworld.config import Config
from counterpoint.lab.worlds.teamworld.optimum import bound
from lab.worlds.teamworld.every_way import brute_force, makespan
from lab.worlds.teamworld.other_rules import ruled

PATHS = [[], [0], [1], [], [3], [4]]  # two modules of three


def _project(**changes: object) -> Config:
    return ruled(**{"node_modules": 2, "node_module_size": 3, "node_cross_edges": 0, "node_extra_edges": 0.0, **changes})


def test_two_paths_by_hand() -> None:
    """Two B agents, a path each, nothing cut: 6·(0.93 − 0.0274) − 2·0.12 − 4·0.0875 = 4.8256; one agent: 5.4156 − 0.12 − 7·0.0875 = 4.6831."""
    config = _project()
    assert brute_force(config, PATHS, 2, 1, 1) == pytest.approx(4.6831, abs=1e-12)
    assert brute_force(config, PATHS, 2, 1, 3) == pytest.approx(4.8256, abs=1e-12)
    assert bound.project_bound(config) == pytest.approx(4.8256, abs=1e-12)


def test_a_cross_edge_costs_the_interface() -> None:
    """0 → 4 as well: its loss 0.93·0.15 = 0.1395 is less than the 0.1425 that one agent alone would lose."""
    config = _project()
    assert brute_force(config, [[], [0], [1], [], [3, 0], [4]], 2, 1, 3) == pytest.approx(4.8256 - 0.1395, abs=1e-12)


def test_makespan() -> None:
    assert makespan(PATHS, [0, 0, 0, 1, 1, 1], 1) == 3
    assert makespan(PATHS, [0] * 6, 1) == 6
    assert makespan(PATHS, [0] * 6, 2) == 3
    assert makespan([[], [], [1]], [0, 0, 1], 1) == 2  # agent 0 must do node 1 first
    assert makespan(PATHS, [0, -1, -1, -1, -1, -1], 1) == 1


def test_brute_force_equals_all_schedules() -> None:
    """A third way, for four nodes: every order, every agent, greedy start in that order."""
    config, dependencies = _project(spawn_price=0.02, round_price=0.2), [[], [0], [], [1, 2]]
    best, right, keep = 0.0, 0.93, 1 - config.interface_loss[2]
    for order, who in product(permutations(range(4)), product(range(3), repeat=4)):
        done: dict[int, int] = {}
        used: set[tuple[int, int]] = set()
        points, last = 0.0, 0
        for i in order:
            if any(j not in done for j in dependencies[i]):
                break
            start = max([0, *(done[j] for j in dependencies[i])]) + 1
            while (who[i], start) in used:
                start += 1
            used.add((who[i], start))
            done[i], last = start, max(last, start)
            points += right * keep ** sum(who[j] != who[i] for j in dependencies[i]) - 0.0274
            agents = len({who[j] for j in done})
            best = max(best, points - 0.02 * agents - 0.2 * (last + 1))
    assert brute_force(config, dependencies, 2, 1, 3) == pytest.approx(best, abs=1e-12)


@settings(max_examples=25, deadline=None)
@given(
    st.floats(0, 0.5), st.floats(0, 0.5), st.integers(0, 3), st.integers(0, 1), st.integers(1, 2),
    st.lists(st.sampled_from([(0, 2), (3, 5), (0, 4), (1, 5), (3, 1), (4, 2)]), max_size=3),
)  # fmt: skip
def test_bound_is_never_below_the_best_plan(
    spawn: float, time: float, b: int, f: int, calls: int, edges: list[tuple[int, int]]
) -> None:
    config = _project(spawn_price=spawn, round_price=time, calls_per_round=calls)
    order = [0, 3, 1, 4, 2, 5]  # place by place: topological also with cross edges
    dependencies = [sorted({order.index(j) for j in PATHS[i]} | {order.index(a) for a, c in edges if c == i}) for i in order]
    assert bound.project_bound(config) >= brute_force(config, dependencies, b, f, 3) - 1e-12
