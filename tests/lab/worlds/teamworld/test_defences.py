"""Gates in TeamWorld: they stop what they say as often as they say, cost what they say, and a fork meets the same ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from counterpoint.errors import InputError
from counterpoint.lab.worlds.teamworld.config import DEFENCES, Config
from counterpoint.lab.worlds.teamworld.world import TeamWorld
from counterpoint.lab.worlds.world import world
from counterpoint.trace import Trace, problems
from lab.worlds.teamworld.test_attacks import MIXED, call, close_to, team

ALL = ",".join(DEFENCES)


def votes(batch: Any, item: int) -> np.ndarray:
    """(E,) votes counted on a question."""
    return np.asarray(batch.state.kinds.vote.tally[:, item].sum(axis=(1, 2)))


def test_a_reader_withholds_as_often_as_it_notices() -> None:
    close_to(call(team(attack="AV2", attack_rate=0.5, gates="taint", gate_hit=0.7), 0, 1), 1 - 0.5 * 0.8 * 0.3)
    assert call(team(attack="AV2", attack_rate=0.5, gates="taint", gate_hit=1.0), 0, 1).all()
    close_to(call(team(attack="AV1", attack_rate=0.5, gates="taint", gate_hit=1.0), 0, 1), 1 - 0.5 * 0.8)  # no tool said it
    harmless = call(team(attack="benign_imperative", attack_rate=0.5, gates="taint", gate_false=0.4), 0, 1)
    close_to(harmless, 1 - 0.5 * 0.4 * 0.5)  # who is told nothing guesses


def test_an_allow_list_stops_every_forbidden_act() -> None:
    for attack in ("AV5", "AV8"):
        batch = team(attack=attack, attack_rate=0.5, gates="allow_list")
        call(batch, 0, 1)
        assert not batch.state.violations.any()
    asked = team(attack="AV6", attack_rate=0.5, gates="allow_list")
    before = asked.state.spawned.copy()
    assert call(asked, 0, 1).all()  # the answer is heard
    assert (asked.state.spawned == before).all()


def test_quarantine_drops_the_lie_and_silences_its_agent() -> None:
    batch = team(attack="AV3", attack_rate=0.5, gates="quarantine", gate_hit=1.0, max_agents=2)
    call(batch, 0, 1)
    lies = batch.state.compromised[:, 1]
    assert (votes(batch, 0) == ~lies).all()
    assert (batch.observe().free[:, 1] == ~lies).all()
    call_again = batch.observe().free[:, 2]
    assert call_again.all()  # one who can be called is left


def test_quorum_and_verifier_count_what_they_should() -> None:
    poor: dict[str, Any] = {"skill_b": (0.7,) * 3, "brief_factor": (0.5, 0.85, 1.0, 0.9)}
    batch = team(gates="quorum", **poor)
    call(batch, 0, 1)
    close_to(votes(batch, 0) > 0, 0.7 * 0.7 + 0.3 * 0.3)
    checked = team(gates="verifier", **poor)
    call(checked, 0, 1)
    close_to(votes(checked, 0) > 0, 0.7 * 0.9 + 0.3 * 0.2)


def test_prices_are_paid_for_looks_and_checks() -> None:
    costs = {}
    for gates in ("", "taint", "taint,allow_list,quarantine", "quorum", "verifier"):
        batch = team(episodes=3, gates=gates)
        call(batch, 0, 1)
        costs[gates] = float(batch.state.costs[0].sum())
    paid = {gates: round(cost - costs[""], 9) for gates, cost in costs.items()}
    assert paid == {"": 0, "taint": 0.0005, "taint,allow_list,quarantine": 0.0015, "quorum": 0.025, "verifier": 0.03}


@pytest.mark.parametrize("attack", ["AV2", "AV3", "AV6", "AV8", "benign_imperative"])
def test_logs_are_whole_and_change_no_number(attack: str) -> None:
    place = TeamWorld("mixed", "M", Config(**MIXED | {"attack": attack, "attack_rate": 0.4, "gates": ALL}))
    runs, silent = place.run("random", range(6), log=True), place.run("random", range(6))
    assert (runs.values == silent.values).all()
    for i in range(6):
        trace = runs.trace(i)
        assert [p for p in problems(trace) if p.severity == "error"] == []
        assert len(trace.events) == runs.columns["events"][i]
        alarms = [e.key for e in trace.events if e.type == "safety_event"]
        assert len(alarms) == len(set(alarms))


def test_forks_meet_the_same_gates_and_worlds_without_gates_keep_their_ids() -> None:
    place: TeamWorld = world("W1").replace(vote_items=6, max_agents=6, attack="AV3", attack_rate=0.3, gates=ALL)  # type: ignore[assignment]
    trace: Trace = place.run("reference", [3], log=True).trace(0)
    middle = trace.events[len(trace.events) // 2]
    same = place.fork(trace, next(e.id for e in trace.events if e.type == "tool_result" and e.turn == middle.turn))
    assert [(e.key, e.content_ref) for e in same.events] == [(e.key, e.content_ref) for e in trace.events]
    assert "gates=" not in repr(Config(vote_items=1))
    with pytest.raises(InputError, match="a gate is 'tiant'"):
        Config(vote_items=1, gates="taint, tiant")
