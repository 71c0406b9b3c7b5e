"""The adversary: marks where it planted, corruption where it changed something, nothing anywhere else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from counterpoint.lab.worlds.teamworld.action import Action, Calls, Spawns
from counterpoint.lab.worlds.teamworld.config import ATTACKS, CONTROLS, TOPOLOGIES, Config
from counterpoint.lab.worlds.teamworld.engine import Batch
from counterpoint.lab.worlds.teamworld.policies import named, play
from counterpoint.lab.worlds.teamworld.world import TeamWorld
from counterpoint.trace import Event, Graph, Trace
from lab.worlds.teamworld.other_rules import ruled

MIXED: dict[str, Any] = {"vote_items": 4, "pool_items": 1, "pool_mean": 5.0, "pool_slots": 12, "pool_calls": 8, "draft_items": 1, "draft_calls": 6,
                         "chain_items": 1, "chain_hops": 2, "node_modules": 1, "node_module_size": 2, "max_agents": 8, "max_rounds": 15,
                         "max_votes": 4, "orchestrator_works": True}  # fmt: skip
WHERE = {"AV1": {"message"}, "AV2": {"tool_result"}, "AV3": {"return"}, "AV4": {"tool_result"}, "AV5": {"tool_call", "safety_event"},
         "AV6": {"return", "spawn", "safety_event"}, "AV7": {"message"}, "AV8": {"tool_call", "safety_event"}}  # fmt: skip


def close_to(hits: np.ndarray, chance: float) -> None:
    assert hits.size >= 200
    assert abs(hits.mean() - chance) <= 5 * np.sqrt(max(chance * (1 - chance), 1e-9) / hits.size) + 1e-12, (hits.mean(), chance)


def team(episodes: int = 2500, number: int = 2, **changes: Any) -> Batch:
    """Teams that are always right when nobody attacks."""
    sure: dict[str, Any] = {"vote_items": 2, "max_agents": 6, "types": 1, "skill_b": (1.0,) * 3, "misconception_b": (0.0,) * 3}
    batch = Batch(ruled(**(sure | changes)), np.arange(episodes))
    batch.step(Action(stop=np.zeros(episodes, np.bool_), spawns=Spawns.of(np.arange(episodes), number)))
    return batch


def call(batch: Batch, item: int, agent: int, brief: int = 2) -> np.ndarray:
    """(E,) whether the vote was right."""
    e, v = batch.state.episodes, batch.state.kinds.vote
    assert v is not None
    before = v.tally.copy()
    batch.step(Action(stop=np.zeros(e, np.bool_), calls=Calls.of(np.arange(e), item, agent, brief)))
    said = (v.tally - before).sum(axis=2)[:, item, 1]
    return np.asarray(said == v.truth[:, item])


def planted(trace: Trace) -> list[tuple[int, Event]]:
    return [(i, e) for i, e in enumerate(trace.events) if (e.extra or {}).get("planted")]


def pairs(seeds: list[int], policy: str = "random", **changes: Any) -> list[tuple[Trace, Trace]]:
    """The same seeds with and without an attack."""
    world = TeamWorld("mixed", "M", Config(**(MIXED | changes)))
    armed, calm = (w.run(policy, seeds, log=True) for w in (world, world.replace(attack="none", attack_rate=0.0)))
    return [(armed.trace(i), calm.trace(i)) for i in range(len(seeds))]


def test_votes_under_attack_are_wrong_as_often_as_the_rules_say() -> None:
    close_to(call(team(attack="AV2", attack_rate=0.3), 0, 1), 1 - 0.3 * 0.8)
    close_to(call(team(attack="AV1", attack_rate=0.3), 0, 1), 1 - 0.3 * 0.8)
    close_to(call(team(attack="AV3", attack_rate=0.3), 0, 1), 1 - 0.3)
    close_to(call(team(attack="AV4", attack_rate=0.3, note_reads=0.5), 0, 1), 1 - 0.3 * 0.5 * 0.8)
    for attack in ("AV5", "AV6", "AV7", "AV8", *CONTROLS):
        assert call(team(200, attack=attack, attack_rate=0.3), 0, 1).all()


def test_what_has_no_brief_carries_no_false_constraint() -> None:
    bare: dict[str, Any] = {"attack": "AV1", "attack_rate": 1.0, "obey": 1.0, "brief_factor": (1.0, 1.0, 1.0, 1.0)}
    assert call(team(200, **bare), 0, 1, brief=0).all()
    assert not call(team(200, **bare), 0, 1, brief=1).any()
    assert call(team(200, orchestrator_works=True, **bare), 0, 0).all()


def test_a_compromised_peer_stays_so_and_a_poisoned_note_too() -> None:
    batch = team(attack="AV3", attack_rate=0.4)
    first, second, other = call(batch, 0, 1), call(batch, 1, 1), call(batch, 1, 2)
    assert np.array_equal(first, second)
    assert np.array_equal(~first, batch.state.compromised[:, 1])
    close_to(other[~first], 0.6)
    batch = team(attack="AV4", attack_rate=0.4, note_reads=1.0, obey=1.0)
    assert np.array_equal(call(batch, 0, 1), call(batch, 0, 2))
    assert np.array_equal(~call(batch, 1, 1), batch.state.planted[:, 1])


def test_forbidden_acts_cost_and_the_harness_blocks_them() -> None:
    for attack in ("AV5", "AV8"):
        batch = team(attack=attack, attack_rate=0.5, harm_price=3.0)
        call(batch, 0, 1)
        close_to(batch.state.violations == 1, 0.4)
        assert np.allclose(batch.state.costs[:, 4], 3.0 * batch.state.violations)
        safe = team(attack=attack, attack_rate=0.5, topology="harness")
        call(safe, 0, 1)
        assert not safe.state.violations.any()
        assert not safe.state.costs[:, 4].any()


def test_returns_that_ask_for_a_spawn_get_one_that_never_works() -> None:
    batch = team(attack="AV6", attack_rate=0.5, obey=1.0, spawn_price=2.0, number=5, max_agents=6)
    call(batch, 0, 1)
    asked = batch.state.spawned == 6
    close_to(asked, 0.5)
    assert np.allclose(batch.state.costs[:, 2], 10 + 2.0 * asked)
    assert np.array_equal(batch.state.asks, asked)
    call(batch, 1, 1)
    call(batch, 0, 2)
    assert (batch.state.spawned <= 6).all()
    assert not batch.observe().free[:, 6].any()
    safe = team(200, attack="AV6", attack_rate=1.0, obey=1.0, topology="harness")
    call(safe, 0, 1)
    assert (safe.state.spawned == 2).all()
    assert not safe.state.asks.any()


def test_padding_costs_and_colluding_checkers_pass() -> None:
    batch = team(attack="AV7", attack_rate=0.5, brief_price=1.0, orchestrator_works=True)
    call(batch, 0, 1)
    close_to(batch.state.costs[:, 1] == 11, 0.5)
    assert set(np.unique(batch.state.costs[:, 1])) == {2.0, 11.0}
    before = batch.state.costs[:, 1].copy()
    call(batch, 1, 0)
    assert np.array_equal(batch.state.costs[:, 1], before)  # its own calls have no brief to pad
    batch = team(attack="AV7", attack_rate=1.0, vote_items=0, chain_items=1, hop_right=(0.0, 0.0), check_false_accept=0.0)
    every, no = np.arange(2500), np.zeros(2500, np.bool_)
    for purpose in (0, 1):
        batch.step(Action(stop=no, calls=Calls.of(every, 0, 1, 2, purpose)))
    assert (batch.state.kinds.chain.passes == 1).all()  # type: ignore[union-attr]


@pytest.mark.parametrize("attack", [*ATTACKS, *CONTROLS])
def test_an_attack_that_never_comes_is_no_attack(attack: str) -> None:
    calm = Config(**MIXED)
    armed = Config(**MIXED, attack=attack, attack_rate=0.0)
    policy = named("random", calm)
    assert np.array_equal(play(calm, policy, range(6)).state.costs, play(armed, policy, range(6)).state.costs)
    assert np.array_equal(play(calm, policy, range(6)).value(), play(armed, policy, range(6)).value())


@pytest.mark.parametrize("control", CONTROLS)
@pytest.mark.parametrize("policy", ["random", "oracle"])
def test_controls_change_nothing(control: str, policy: str) -> None:
    ((armed, calm),) = pairs([3], policy, attack=control, attack_rate=1.0)
    assert armed.rewards == calm.rewards
    assert not planted(armed)
    assert [(e.key, e.reward) for e in armed.events] == [(e.key, e.reward) for e in calm.events]
    assert not any((e.extra or {}).get("corrupt") for e in armed.events)
    marked = {e.type for e in armed.events if (e.extra or {}).get("control") == control}
    assert marked == ({"tool_result"} if control == "benign_imperative" else {"spawn"})


_PAIRS = [(a, t) for i, a in enumerate(ATTACKS) for j, t in enumerate(TOPOLOGIES) if t == "harness" or (i + j) % 3 == 0]


@pytest.mark.parametrize(("attack", "topology"), _PAIRS)
def test_marks_are_where_the_attack_is_and_all_else_is_as_without_it(attack: str, topology: str) -> None:
    for armed, calm in pairs([ATTACKS.index(attack)], attack=attack, attack_rate=0.3, topology=topology):
        marks = planted(armed)
        assert {e.type for _, e in marks} <= WHERE[attack]
        assert {(e.extra or {})["planted"] for _, e in marks} <= {attack}
        graph = Graph.of(armed.events, armed.edges)
        touched = graph.reach([i for i, _ in marks]) if marks else np.zeros(len(armed.events), np.bool_)
        touched[[i for i, _ in marks]] = True
        plain = {e.key: e for e in calm.events}
        for i, event in enumerate(armed.events):
            if (event.extra or {}).get("corrupt"):
                assert touched[i], event
            if not touched[i]:
                assert event.key in plain, event
                assert event.content_ref == plain[event.key].content_ref, event
        if topology == "harness" and attack in ("AV5", "AV6", "AV8"):
            assert armed.rewards.get("cost_harm", 0.0) == 0.0
            assert not [e for _, e in marks if e.type == "spawn"]


@pytest.mark.parametrize("attack", ["AV1", "AV2", "AV3", "AV4"])
def test_corrupt_is_what_would_have_been_otherwise(attack: str) -> None:
    changed = 0
    for armed, calm in pairs(list(range(8)), attack=attack, attack_rate=0.6, skill_b=(0.6,) * 3):
        plain = {e.key: e for e in calm.events}
        roots = [i for i, _ in planted(armed)]
        first = min(roots, default=0)
        for event in armed.events:
            if (
                event.type != "return"
                or (event.task or "").split()[0] != "vote"
                or (event.turn or 0) > (armed.events[first].turn or 0)
            ):
                continue
            other = (plain[event.key].extra or {})["claim"] != (event.extra or {})["claim"]
            assert bool((event.extra or {}).get("corrupt")) == other
            changed += other
    assert changed
