"""HALO's search and AgentSpawn's script: their papers' numbers, and policies that say how likely their teams were."""

from __future__ import annotations

import numpy as np
import pytest

import counterpoint as cpt
from counterpoint import registry
from counterpoint.lab.worlds.teamworld.engine import Batch
from counterpoint.lab.worlds.teamworld.policies import halo_search, named, play
from counterpoint.lab.worlds.teamworld.policies.agentspawn import EPSILON, spawn_trigger
from counterpoint.lab.worlds.teamworld.policies.halo import EXPANSIONS, SIMULATIONS, Node, search, ucb

SMALL = {"vote_items": 10, "max_agents": 8, "max_votes": 3}


def test_the_papers_numbers() -> None:
    score, go = spawn_trigger([0.9, 0.4, 0.7], weights=[0.5, 0.25, 0.25], threshold=0.6, depth=2, max_depth=3)
    assert (float(score), bool(go)) == (pytest.approx(0.725), True)
    assert not spawn_trigger([0.9, 0.4, 0.7], depth=3)[1]
    assert ucb(0.6, 2, 5, as_released=True) == pytest.approx(1.555886, abs=1e-6)
    assert ucb(0.6, 2, 5) == pytest.approx(0.6 + 1.255886, abs=1e-6)
    assert ucb(0.6, 0, 5) == np.inf
    node = Node(visits=2, value=0.6, children={0: Node(1, 0.5), 1: Node(1, 0.3)})
    node.learn(True)
    assert (node.visits, node.value) == (3, pytest.approx(0.66))
    leaf = Node(visits=2, value=0.6)
    leaf.learn(False)
    assert leaf.value == pytest.approx(0.5)


@pytest.mark.parametrize("as_released", [False, True])
def test_a_search_finds_what_pays_and_counts_what_it_tried(as_released: bool) -> None:
    config = cpt.world("W1", **SMALL).config
    asked = []

    def simulate(policy: object, first: int, number: int) -> tuple[np.ndarray, int]:
        asked.append((first, number))
        a, b = policy.families  # type: ignore[attr-defined]
        return np.full(number, float(10 * (a + b == 4) + b)), 7

    found = search(config, simulate, as_released=as_released)
    assert sum(found.teams[0]) == 4
    assert found.calls == 7 * EXPANSIONS
    assert asked == [(SIMULATIONS * i, SIMULATIONS) for i in range(EXPANSIONS)]
    assert ({b for a, b in found.teams if a + b == 4} > {2}) != as_released  # below the first level the released code learns nothing


def test_simulations_are_charged_and_the_team_is_drawn_with_its_chance() -> None:
    world = cpt.world("W1", **SMALL)
    found = halo_search(world.config, False)
    runs = world.run("halo", range(3))
    assert (runs.columns["calls"] >= found.calls).all()
    policy = named("halo", world.config)
    first = policy.act(Batch(world.config, range(4000)).observe())
    assert first.logp is not None
    number = np.bincount(first.spawns.ep, first.spawns.number, 4000)
    usual = number == sum(found.teams[0])
    assert 0.93 < usual.mean() < 0.99
    assert np.allclose(np.exp(first.logp[~usual, 1]), 0.05 / len(found.teams))


def test_a_script_grows_its_team_with_the_work_and_turns_it_round_now_and_then() -> None:
    config = cpt.world("W1", **SMALL | {"vote_items": 40, "max_agents": 32}).config
    few = cpt.world("W1", **SMALL | {"vote_items": 4, "max_agents": 32}).config
    agents = [play(c, named("agentspawn", c), range(60)).state.spawned.mean() for c in (few, config)]
    assert agents[0] + 3 < agents[1]
    trace = cpt.world("W1", **SMALL).run("agentspawn", range(12), log=True).trace(3)
    chances = {round(float(np.exp(e.logp)), 6) for e in trace.events if (e.extra or {}).get("sub_decision") == "spawn"}
    assert chances <= {1.0, 1 - EPSILON, EPSILON}
    assert 1 - EPSILON in chances


@pytest.mark.parametrize("topology", ["hierarchical", "debate", "harness", "swarm"])
def test_they_play_in_every_topology_alone_as_in_a_batch(topology: str) -> None:
    world = cpt.world("W1", **SMALL, topology=topology)
    for name in ("agentspawn", "halo"):
        runs = world.run(name, range(6))
        assert world.run(name, [4]).values[0] == runs.values[4]
    trace = world.run("agentspawn", [2], log=True).trace(0)
    assert world.fork(trace, trace.events[0].id).rewards == trace.rewards


def test_what_spawning_is_worth_can_be_judged_from_its_traces() -> None:
    world = cpt.world("W1", **SMALL | {"max_rounds": 12})
    runs = world.run("agentspawn", range(40), log=True)
    credit = registry.get("mechanism", "vtrace")([runs.trace(i) for i in range(40)], target=lambda t: {
        e.id: 0.0 for e in t.events if e.type == "orchestrator_decision"})  # fmt: skip
    assert len({r.trace for r in credit.rows}) == 40
