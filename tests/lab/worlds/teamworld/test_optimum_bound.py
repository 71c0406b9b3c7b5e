"""The optimum of whole worlds: which are exact, that bounds hold over each other, and the numbers of the research notes."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoint.lab.worlds.teamworld.config import TOPOLOGIES, Config
from counterpoint.lab.worlds.teamworld.optimum import bound, chain, draft, pool, vote
from lab.worlds.teamworld.other_rules import ruled

W1 = Config(vote_items=512)


def test_w1_is_the_screened_set_of_the_research_notes() -> None:
    """Appendix C says b = 2, n* = 28; U(28) = 420.653 and U(31) = 420.693, flat."""
    best, scan = bound.plan(W1), {}
    for n in range(1, 65):
        scan[n] = max(512 * vote.value(W1, b, 0.0875 / n) for b in range(4)) - 0.12 * n - 0.0875
    assert best.value == pytest.approx(max(scan.values()), abs=1e-9)
    assert (best.agents, best.briefs[0]) == (max(scan, key=scan.__getitem__), 2)
    assert bound.optimum(W1).value == pytest.approx(420.6929, abs=1e-4)
    assert bound.optimum(W1).kind == "upper bound"


def _team_of_questions(config: Config, n: tuple[int, int] | None) -> float:
    """The optimum of one question in whole rounds, by brute force: spawn and batch adaptively, or with a team fixed at the start."""
    latents = [(y, z, a, b) for y, z, a, b in product((0, 1), range(3), (0, 1), (0, 1))]
    prior = np.array([
        0.5 * config.difficulty_shares[z] * np.prod([config.misconception[f][z] if m else 1 - config.misconception[f][z] for f, m in ((0, a), (1, b))])
        for y, z, a, b in latents
    ])  # fmt: skip
    yes = np.array(
        [
            [
                (lambda r, y=y: r if y else 1 - r)(config.right_if_misled if (a, b)[f] else config.skill[f][z])
                for y, z, a, b in latents
            ]
            for f in (0, 1)
        ]
    )
    truth = np.array([y for y, *_ in latents])

    def go(weight: np.ndarray, left: int, team: tuple[int, int], fresh: bool) -> float:
        best = config.vote_weight * max(weight[truth == 1].sum(), weight[truth == 0].sum())
        grow = [(0, 0)] if n is not None and not fresh else [n] if n is not None else [(0, 0), (1, 0), (0, 1)]
        for more, calls in product(grow, product(range(team[0] + 1), range(team[1] + 1))):
            if sum(team) + sum(more) > config.max_agents or sum(calls) > left or (sum(calls) == 0 and more == (0, 0)):
                continue
            cost = (
                config.round_price
                + config.spawn_price * sum(more)
                + sum(c * (config.price[f] + 0.0024) for f, c in enumerate(calls))
            )
            total, grown = -cost * weight.sum(), (team[0] + more[0], team[1] + more[1])
            for votes in product((0, 1), repeat=sum(calls)):
                seen = weight.copy()
                for i, v in enumerate(votes):
                    p = yes[0 if i < calls[0] else 1]
                    seen = seen * (p if v else 1 - p)
                total += go(seen, left - sum(calls), grown, False)
            best = max(best, total)
        return best

    return go(prior, config.max_votes, (0, 0), True)


def test_bounds_cover_the_best_team_found_by_brute_force() -> None:
    for time, spawn in ((0.001, 0.01), (0.02, 0.005), (0.03, 0.03)):
        config = Config(vote_items=1, max_votes=3, max_agents=2, round_price=time, spawn_price=spawn, price=(0.002, 0.01))
        fixed = max(_team_of_questions(config, n) for n in ((1, 0), (0, 1), (1, 1), (2, 0), (0, 2)))
        adaptive = _team_of_questions(config, None)
        assert fixed - 1e-12 <= bound.optimum(config).value
        assert adaptive - 1e-12 <= bound.bound_any(config)
        assert adaptive > 0.5


def test_one_pool_is_exact() -> None:
    config = Config(pool_items=1, pool_slots=20, pool_mean=5.0, pool_calls=20, max_agents=10)
    best = bound.optimum(config)
    assert (best.kind, best.value) == ("exact", pool.team_value(config))
    assert best.value <= bound.plan(config).value
    assert bound.optimum(config.__class__(**{**vars(config), "pool_items": 2})).kind == "upper bound"


def test_one_draft_pays_a_round_per_call() -> None:
    """One worker, family and brief at their best: value(extra = round) − a spawn − the spawn's round."""
    best = bound.optimum(Config(draft_items=1))
    assert best.kind == "exact"
    assert best.value == pytest.approx(
        max(draft.value(Config(draft_items=1), b, 0.0875) for b in range(4)) - 0.12 - 0.0875, abs=1e-12
    )


def test_free_rounds_make_drafts_exact_only_with_room() -> None:
    room = Config(draft_items=4, round_price=0.0, types=1)
    assert bound.optimum(room).kind == "exact"
    assert bound.optimum(room).value == pytest.approx(4 * draft.value(room, 2) - 0.12, abs=1e-12)
    for change in ({"types": 2}, {"context_capacity": 100}, {"max_rounds": 100}, {"drift": (0.0, 0.001)},
                   {"attack": "AV2", "attack_rate": 0.05}):  # fmt: skip
        narrow = bound.optimum(Config(**{**vars(room), **change}))
        assert narrow.kind == "upper bound"
        assert narrow.value >= bound.optimum(room).value - 1e-9


def test_the_orchestrator_walks_a_chain_alone() -> None:
    config = Config(chain_items=1, orchestrator_works=True)
    best = bound.optimum(config)
    assert best.kind == "exact"
    assert best.value == pytest.approx(chain.value(config, 0, 0.0875, own=True), abs=1e-12)
    assert bound.optimum(Config(chain_items=1)).value == pytest.approx(chain.value(config, 2, 0.0875) - 0.12 - 0.0875, abs=1e-12)


def test_the_panel_is_exact_when_rounds_are_free() -> None:
    config = Config(
        vote_items=20, round_price=0.0, types=1, votes_per_agent=1, max_votes=6, price=(0.002, 0.01), spawn_price=0.05
    )
    scan = {(c, i): 20 * vote.panel_value(config, c, i, 2) - 0.05 * (c + i) for c in range(7) for i in range(7)}
    best = bound.optimum(config)
    assert best.kind == "exact"
    assert best.value == pytest.approx(max(scan.values()), abs=1e-12)
    timed = bound.optimum(Config(**{**vars(config), "round_price": 0.02}))
    assert timed.kind == "upper bound"
    assert timed.value < best.value


def test_a_chain_with_too_many_confidences_is_still_bounded() -> None:
    best = bound.optimum(ruled(chain_items=1, chain_hops=40, hop_checks=3, chain_weight=100.0))
    assert best.kind == "upper bound"
    assert 0 < best.value < 100


def test_a_team_too_dear_stays_at_home() -> None:
    assert bound.optimum(Config(vote_items=3, spawn_price=50.0)).value == 1.5
    assert bound.optimum(Config(draft_items=1, spawn_price=50.0)).value == 0


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_every_topology_has_a_bound(topology: str) -> None:
    star, other = (Config(vote_items=16, chain_items=2, draft_items=2, topology=t) for t in ("centralized", topology))
    value = bound.optimum(other).value
    if topology == "planner_executor_critic":
        assert value > bound.optimum(star).value
    elif topology == "harness":
        assert value < bound.optimum(star).value
    else:
        assert value == bound.optimum(star).value
    assert bound.bound_any(other) >= value


def test_maximise_searches_boxes_exactly() -> None:
    rng = np.random.default_rng(1)
    for _ in range(20):
        rise, price = rng.random((9, 7)).cumsum(0).cumsum(1), rng.random(2) * 8
        steep, dear = rise.tolist(), price.tolist()
        value, point = bound._maximise(
            (0, 0), (8, 6), lambda p, r=steep: r[p[0]][p[1]], lambda p, c=dear: p[0] * c[0] + p[1] * c[1]
        )
        table = rise - price[0] * np.arange(9)[:, None] - price[1] * np.arange(7)[None]
        assert value == pytest.approx(table.max())
        assert table[point] == pytest.approx(table.max())


@settings(max_examples=15, deadline=None)
@given(
    st.integers(0, 30), st.integers(0, 2), st.integers(0, 4), st.integers(0, 3), st.integers(0, 3), st.booleans(), st.integers(1, 4),
    st.floats(0, 1), st.floats(0, 0.5),
)  # fmt: skip
def test_bounds_hold_over_each_other(
    votes: int, pools: int, drafts: int, chains: int, modules: int, works: bool, calls: int, spawn: float, time: float
) -> None:
    if votes + pools + drafts + chains + modules == 0:
        votes = 1
    config = Config(
        vote_items=votes, pool_items=pools, draft_items=drafts, chain_items=chains, node_modules=modules, orchestrator_works=works,
        calls_per_round=calls, spawn_price=spawn, round_price=time, max_votes=4, pool_slots=10, pool_mean=3.0, pool_calls=8, draft_calls=8,
        chain_hops=3, max_agents=20,
    )  # fmt: skip
    best = bound.optimum(config)
    assert votes / 2 - 1e-9 <= best.value <= bound.bound_any(config) + 1e-9
    assert best.value <= bound.plan(config).value + 1e-9
    cheaper = Config(**{**vars(config), "spawn_price": spawn / 2})
    assert bound.plan(cheaper).value >= bound.plan(config).value - 1e-9
