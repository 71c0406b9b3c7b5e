"""Traces: nothing wrong with them, edges forward, every event counted; and whatever a changed event changes, it reaches by edges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from counterpoint.errors import InputError
from counterpoint.lab.worlds.teamworld.config import ATTACKS, CONTROLS, TOPOLOGIES, Config
from counterpoint.lab.worlds.teamworld.world import TeamWorld
from counterpoint.trace import Event, Graph, Trace, problems
from counterpoint.trace.replay import Delete, Do, Substitute

MIXED: dict[str, Any] = {"vote_items": 5, "pool_items": 1, "pool_mean": 5.0, "pool_slots": 12, "pool_calls": 8, "draft_items": 1, "draft_calls": 6,
                         "chain_items": 1, "chain_hops": 2, "node_modules": 1, "node_module_size": 3, "max_agents": 8, "max_rounds": 12,
                         "max_votes": 5}  # fmt: skip
VOTES: dict[str, Any] = {"vote_items": 6, "max_agents": 5, "max_rounds": 15, "max_votes": 5}
VARIANTS: list[dict[str, Any]] = [{}, {"orchestrator_works": True}, {"attack": "AV7", "attack_rate": 0.3}]


def world(**changes: Any) -> TeamWorld:
    return TeamWorld("small", "T", Config(**changes))


def sound(trace: Trace) -> None:
    bad = [str(p) for p in problems(trace) if p.severity == "error" or "never acts" not in str(p)]
    assert not bad, bad[:3]
    place = trace.index
    assert all(place[e.src] < place[e.dst] for e in trace.edges)
    assert len({e.key for e in trace.events}) == len(trace.events)


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("policy", ["oracle", "serial", "random"])
def test_traces_are_sound_and_every_event_is_counted(topology: str, policy: str) -> None:
    for i, variant in enumerate(VARIANTS if policy == "random" else VARIANTS[1:2]):
        attack = (*ATTACKS, *CONTROLS)[(TOPOLOGIES.index(topology) * 3 + i + len(policy)) % 10]
        w = world(
            **(
                MIXED
                | variant
                | {"topology": topology, "attack": attack, "attack_rate": 0.3}
            )
        )
        runs = w.run(policy, [0, 7], log=True)
        for j in range(2):
            trace = runs.trace(j)
            sound(trace)
            assert len(trace.events) == runs.columns["events"][j]
            assert trace.rewards["team"] == pytest.approx(runs.values[j], abs=1e-9)
            costs = [v for k, v in trace.rewards.items() if k.startswith("cost_")]
            assert trace.rewards["R1"] + sum(costs) == pytest.approx(trace.rewards["team"], abs=1e-9)
            gains = [(e.reward or {})["R4"] for e in trace.events if e.type == "aggregate"]
            assert sum(gains) == pytest.approx(trace.rewards.get("R4", 0.0), abs=1e-9)


def content(event: Event) -> tuple[Any, ...]:
    extra = event.extra or {}
    return (
        event.type,
        event.agent,
        event.to,
        event.content_ref,
        event.tool,
        event.ok,
        extra.get("claim"),
        extra.get("chosen"),
        extra.get("family"),
    )


def unreached(w: TeamWorld, trace: Trace, at: int, do: Do) -> list[str]:
    """Events that a fork changed, added or removed, and that the event it changed does not reach in the graph they are in."""
    other = w.fork(trace, trace.events[at].id, do)
    key = trace.events[at].key
    out = []
    for mine, theirs in ((trace, other), (other, trace))[: 1 if isinstance(do, Delete) else 2]:  # what is gone reaches nothing
        known = {e.key: content(e) for e in theirs.events}
        place = next(i for i, e in enumerate(mine.events) if e.key == key)
        reach = Graph.of(mine.events, mine.edges).descendants(place)
        out += [f"{e.key} is not reached from {key}" for i, e in enumerate(mine.events)
                if known.get(e.key) != content(e) and not reach[i] and i != place]  # fmt: skip
    return out


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("variant", range(3))
def test_what_a_return_changes_it_reaches(topology: str, variant: int) -> None:
    rng = np.random.default_rng(variant)
    for base, policy in ((VOTES, "serial"), (MIXED, "random"))[variant % 2 :][:1]:
        w = world(
            **(
                base
                | VARIANTS[variant]
                | {"topology": topology, "memory_copy": 0.8}
            )
        )
        trace = w.run(policy, [variant], log=True).trace(0)
        votes = [i for i, e in enumerate(trace.events) if e.type == "return" and (e.task or "").startswith("vote")]
        for at in rng.choice(votes, min(2, len(votes)), replace=False).tolist() if votes else []:
            claim = (trace.events[at].extra or {})["claim"]
            assert not unreached(w, trace, at, Substitute(1 - claim))
            assert not unreached(w, trace, at, Delete())


@pytest.mark.parametrize("kind", ["spawn", "message", "tool_call", "tool_result"])
@pytest.mark.parametrize("topology", ["centralized", "hierarchical"])
def test_what_other_events_change_they_reach(kind: str, topology: str) -> None:
    for variant in VARIANTS[:2]:
        w = world(**(MIXED | variant | {"topology": topology}))
        trace = w.run("random", [4], log=True).trace(0)
        places = [i for i, e in enumerate(trace.events) if e.type == kind and e.role != "critic"]
        for at in places[:: max(1, len(places) // 2)][:3]:
            assert not unreached(w, trace, at, Delete())


def test_a_fork_that_does_nothing_is_the_trace_and_a_redraw_leaves_the_tool_alone() -> None:
    w = world(**MIXED)
    trace = w.run("random", [2], log=True).trace(0)
    back = next(e for e in trace.events if e.type == "return")
    assert w.fork(trace, back.id).events == trace.events
    for draw in range(1, 4):
        other = w.fork(trace, back.id, Substitute(draw=draw))
        at = trace.index[back.id]
        assert [content(e) for e in other.events[:at]] == [content(e) for e in trace.events[:at]]


def test_a_substituted_vote_counts_instead() -> None:
    w = world(vote_items=1, max_agents=1, max_votes=1, types=1, spawn_price=0.0, round_price=0.0)
    trace = w.run("first_answer", [0], log=True).trace(0)
    back = next(e for e in trace.events if e.type == "return")
    claim = (back.extra or {})["claim"]
    other = w.fork(trace, back.id, Substitute(1 - claim))
    assert other.rewards["R1"] == 1 - trace.rewards["R1"]
    with pytest.raises(InputError):
        w.fork(trace, trace.events[0].id, Substitute(1))


def test_rewards_of_drafts_survive_a_restore() -> None:
    env = world(**(VOTES | {"types": 1, "skill_b": (1.0,) * 3, "misconception_b": (0.0,) * 3})).env()
    env.reset(1)
    env.step({"spawn": [{"number": 2}]})
    env.step({"calls": [[0, 1], [1, 2]]})
    kept = env.snapshot()
    traces = []
    for _ in range(2):
        env.step({"calls": [[2, 1], [3, 2]]})
        env.step({"stop": True})
        traces.append(env.trace())
        env.restore(kept)
    assert traces[0].events == traces[1].events
    assert traces[0].edges == traces[1].edges
