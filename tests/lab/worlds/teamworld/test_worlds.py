"""The released worlds: what the page says of them holds, at other seeds and other numbers than ours."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import counterpoint as cpt
from counterpoint import registry
from counterpoint.errors import InputError, NotFound
from counterpoint.lab.bench.claims import reference_bound, screening
from counterpoint.lab.bench.claims.screening import PLANTED, SUB_DECISIONS, losses, worst
from counterpoint.lab.worlds.teamworld.policies import LISTED, named, play
from counterpoint.lab.worlds.teamworld.policies.composed import ComposedPolicy, Parts
from counterpoint.lab.worlds.teamworld.world import TeamWorld

WORLDS: dict[str, TeamWorld] = {n: w for n in registry.ids("world") if isinstance(w := registry.get("world", n), TeamWorld)}
KIND = {"W1": "upper bound", "W2": "exact", "D": "exact", "P": "upper bound", "V": "exact", "A": "exact", "M": "upper bound"}


def test_the_seven_families_are_released() -> None:
    assert {w.short: w.optimum().kind for w in WORLDS.values()} == KIND


@pytest.mark.parametrize("size", [64, 200])
def test_the_reference_of_w1_is_within_one_percent_of_its_bound(size: int) -> None:
    rows = list(
        reference_bound._shares("test", WORLDS["wide_verify"].replace(vote_items=size), "reference", 40_000 // size, 901, 2, 0.99)
    )
    assert all(row.ok for row in rows), rows


def test_and_at_other_prices() -> None:
    other = WORLDS["wide_verify"].replace(
        vote_items=100, spawn_price=0.2, round_price=0.05, price=(0.004, 0.02), brief_price=0.002
    )
    rows = list(reference_bound._shares("test", other, "reference", 300, 902, 1, 0.99))
    assert all(row.ok for row in rows), rows


@pytest.mark.parametrize("name", ["project_graph", "wide_discover", "debate_panel"])
@pytest.mark.parametrize("sub_decision", SUB_DECISIONS)
def test_a_planted_error_is_heard(name: str, sub_decision: str) -> None:
    row = screening._row(WORLDS[name], sub_decision, 77, 1)
    assert row.ok, row


def test_what_is_listed_as_silent_is_silent() -> None:
    world = WORLDS["deep_chain"]
    assert set(world.silent) == {"communicate"}
    assert all(abs(loss.loss) < 1e-12 for loss in losses(world.replace(chain_items=4).config, range(3), ["communicate"]))


def test_no_sub_decision_is_silent_everywhere() -> None:
    assert all(any(s not in w.silent for w in WORLDS.values()) for s in SUB_DECISIONS)


def test_a_planted_error_differs_in_one_sub_decision_only() -> None:
    fields = {
        "spawn": {"spawn"},
        "delegate": {"delegate"},
        "communicate": {"brief", "broadcast"},
        "aggregate": {"aggregate"},
        "stop": {"cap", "rounds"},
    }
    right = vars(Parts(play="optimal"))
    for sub_decision, errors in PLANTED.items():
        for parts in errors.values():
            assert {k for k, v in vars(parts).items() if v != right[k]} <= fields[sub_decision]


def test_the_worst_error_is_looked_for_with_more_episodes_only_while_none_is_heard() -> None:
    found = worst(WORLDS["deep_chain"].replace(chain_items=3).config, "communicate", 5, episodes=(4, 8))
    assert not found.is_heard
    assert worst(WORLDS["project_graph"].config, "stop", 5, episodes=(12,)).is_heard


def test_in_a_pool_of_poisson_finds_nothing_but_time_tells_when_to_stop() -> None:
    """The control: with a fixed mean, what is found says nothing about what is left, so the exact stop is a fixed number of calls."""
    world = WORLDS["wide_discover"].replace(pool_shape=0.0, pool_slots=60, pool_mean=15.0)
    calls = world.run("oracle", range(60)).columns["calls"]
    assert len(set(calls.tolist())) == 1


@pytest.mark.parametrize("name", LISTED)
def test_policies_fit_on_a_screen_and_have_a_name(name: str) -> None:
    policy = named(name, WORLDS["wide_verify"].replace(vote_items=12).config)
    assert policy.name == name
    assert len(inspect.getsource(type(policy).act).splitlines()) <= 40


def test_worlds_by_name() -> None:
    assert cpt.world("W1") is cpt.world("wide-verify") is WORLDS["wide_verify"]
    assert cpt.world("v", vote_items=5).config.vote_items == 5
    with pytest.raises(NotFound, match="did you mean"):
        cpt.world("wide_verfy")
    with pytest.raises(InputError, match="no parameter named 'items'"):
        cpt.world("W1", items=3)
    with pytest.raises(InputError, match="brief_factor"):
        cpt.world("W1", brief_factor=[1.0, 2.0])
    with pytest.raises(NotFound, match="did you mean 'reference'"):
        cpt.world("W1").run("refrence", [0])
    with pytest.raises(InputError, match="not a policy"):
        cpt.world("W1").run(3, [0])


def test_other_parameters_have_other_ids_and_the_same_ones_the_same() -> None:
    small, again, other = (cpt.world("V", vote_items=n) for n in (4, 4, 5))
    ids = [
        w.run("reference", [0], log=True).trace(0).trace_id for w in (small, again, other, cpt.world("V").replace(vote_items=64))
    ]
    assert ids[0] == ids[1] != ids[2]
    assert ids[3] == "debate_panel-0-reference"


def test_a_policy_of_ones_own() -> None:
    class Nothing:
        name = "nothing"

        def act(self, obs):  # type: ignore[no-untyped-def]
            from counterpoint.lab.worlds.teamworld.action import Action

            return Action(stop=np.ones(obs.episodes, np.bool_))

    runs = cpt.world("W1").run(Nothing(), range(50))
    assert abs(runs.values.mean() - 256) < 5 * np.sqrt(512 / 4 / 50)  # half of the questions, guessed


def test_a_team_under_leads_is_a_hierarchy() -> None:
    world = cpt.world("W1", vote_items=40, topology="hierarchical")
    trace = world.run("reference", [1], log=True).trace(0)
    spawned = {e.to: e.agent for e in trace.events if e.type == "spawn"}
    assert any(parent != "orchestrator" for parent in spawned.values())
    assert all(str(child).startswith(f"{parent}.") for child, parent in spawned.items() if parent != "orchestrator")


def test_the_best_cap_is_the_best_of_its_rehearsal() -> None:
    config = cpt.world("W1", vote_items=48).config
    best = named("best_cap", config).parts.cap  # type: ignore[attr-defined]
    seeds = range(1_000_003, 1_000_003 + 16)
    worth = {cap: play(config, ComposedPolicy(config, Parts(cap=cap), "cap"), seeds).value().mean() for cap in (1, 2, 3, 4, 5)}
    assert worth[best] == max(worth.values())


def test_the_six_topologies_are_asked_the_same_questions() -> None:
    from counterpoint.lab.worlds.teamworld.config import TOPOLOGIES

    states = [cpt.world("M", topology=t).batch(range(3)).state for t in TOPOLOGIES]
    for state in states[1:]:
        np.testing.assert_array_equal(state.kinds.vote.truth, states[0].kinds.vote.truth)
        np.testing.assert_array_equal(state.kinds.pool.present, states[0].kinds.pool.present)
        np.testing.assert_array_equal(state.kinds.node.needs, states[0].kinds.node.needs)
        np.testing.assert_array_equal(state.item_type, states[0].item_type)
