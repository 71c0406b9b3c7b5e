"""Rewards on what is no action (a return, a tool's result): they are of the action that led to it, and none is lost."""

from __future__ import annotations

import pytest

import counterpoint as cpt
from counterpoint.credits.mechanisms.agent_wise import agent_wise
from counterpoint.credits.mechanisms.hierarchical import hierarchical
from counterpoint.credits.mechanisms.marshal import marshal
from counterpoint.credits.mechanisms.puppeteer import puppeteer
from counterpoint.credits.mechanisms.rema import rema
from counterpoint.credits.mechanisms.spiral import spiral
from counterpoint.credits.rows import paid_actions, paid_steps, payments_of, unit_events
from counterpoint.errors import NotIdentified
from counterpoint.trace import Edge, Event, Trace


def team(name: str = "t", a: float = 2.0, b: float = 5.0) -> Trace:
    """A lead decides, a calls a tool that answers (paid 1) and returns (paid a); the lead decides again; b speaks and returns."""

    def event(n: int, kind: str, who: str, turn: int, paid: float | None = None) -> Event:
        role = "orchestrator" if who == "lead" else "worker"
        reward = None if paid is None else {"x": paid}
        decision = "delegate" if kind == "orchestrator_decision" else None
        return Event(id=f"e{n}", t=float(n), type=kind, agent=who, role=role, turn=turn, reward=reward, decision=decision)

    events = [
        event(0, "orchestrator_decision", "lead", 0),
        event(1, "tool_call", "a", 0),
        event(2, "tool_result", "a", 0, 1.0),
        event(3, "return", "a", 0, a),
        event(4, "orchestrator_decision", "lead", 1),
        event(5, "message", "b", 1),
        event(6, "return", "b", 1, b),
    ]
    edges = [Edge(f"e{n}", f"e{n + 1}", "causal") for n in range(6)]
    return Trace(trace_id=name, task_id="q", events=events, edges=edges, rewards={"team": 1.0})


def test_a_consequence_is_paid_to_its_agents_action() -> None:
    trace = team()
    assert paid_actions(trace, "x") == {0: 0.0, 1: 3.0, 4: 0.0, 5: 5.0}
    assert paid_actions(trace, "y") is None
    for unit, told in (("agent", {"lead": 0.0, "a": 3.0, "b": 5.0}), ("role", {"orchestrator": 0.0, "worker": 8.0})):
        assert payments_of([trace], [unit_events(trace, unit)], unit, channel="x") == [told]
    assert paid_steps(trace, [[0], [1], [4], [5]], "x") == [0.0, 3.0, 0.0, 5.0]
    assert paid_steps(trace, [[0], [4]], "x") == [0.0, 0.0]  # a chain of the lead's own
    assert paid_steps(trace, [[0], [4]], "x", leads=True) == [3.0, 5.0]  # the lead answers for the team
    assert paid_steps(trace, [[4]], "x", leads=True) == [8.0]


def test_who_had_not_acted_is_paid_by_what_the_event_depends_on() -> None:
    told = [
        Event(id="m", t=0.0, type="message", agent="a"),
        Event(id="r", t=1.0, type="tool_result", agent="search", role="tool", reward={"x": 4.0}),
        Event(id="early", t=2.0, type="return", agent="b", reward={"x": 2.0}),
        Event(id="n", t=3.0, type="message", agent="b"),
    ]
    trace = Trace(trace_id="t", task_id="q", events=told, edges=[Edge("m", "r", "tool_dependency")])
    assert paid_actions(trace, "x") == {0: 4.0, 3: 2.0}
    with pytest.raises(NotIdentified, match="'r' carries a reward, and nothing that the team did led to it"):
        paid_actions(Trace(trace_id="t", task_id="q", events=told), "x")


def test_the_mechanisms_pay_it() -> None:
    traces = [team("t1", 2.0, 5.0), team("t2", 0.0, 5.0)]  # a is paid 3 and 1: mean 2, population std 1
    layer = hierarchical(traces, channel="x").of(0)  # nobody was spawned, all are one layer: 0, 3, 5, 0, 1, 5
    assert layer["a"] == pytest.approx((3 - 14 / 6) / (10 - (14 / 6) ** 2) ** 0.5)
    own = agent_wise(traces, channel="x", ddof=0, eps=0.0)
    assert (own.of(0)["a"], own.of(1)["a"]) == pytest.approx((1.0, -1.0))
    assert spiral(traces, channel="x", decay=0.5).of(1)["worker"] == pytest.approx(6.0 - 4.0)  # b after 8 is 4
    assert marshal(traces, channel="x").of(0)["a#0"] == pytest.approx(1.0)
    assert rema(traces, channel="x", singleton="zero").of(0)["b#1"] == pytest.approx(1 / 2**0.5, abs=1e-5)  # 8 and 6
    assert puppeteer(traces[0], channel="x", lam=0.0, gamma=1.0).of(0) == pytest.approx({"e0": 8.0, "e4": 5.0})


def test_a_world_pays_its_returns() -> None:
    trace = cpt.world("W1", vote_items=4).run("reference", [1], log=True).trace(0)
    carried = sum(e.reward["R2"] for e in trace.events if e.reward and "R2" in e.reward)
    told = payments_of([trace], [unit_events(trace, "agent")], "agent", channel="R2")[0]
    assert carried > 0
    assert sum(told.values()) == pytest.approx(carried)
