"""Every rule of `check`: a trace that breaks it, and one that does not."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from counterpoint.trace import Edge, Event, Trace, problems, wire
from counterpoint.trace.check import CODES, findings
from counterpoint.trace.synthetic import synthetic_trace


def trace(events: list[Event], edges: list[Edge] | None = None, **fields: Any) -> Trace:
    return Trace(trace_id="t", task_id="q", events=events, edges=edges or [], **fields)


def ev(name: str, t: float, type_: Any, agent: str, **fields: Any) -> Event:
    return Event(id=name, t=t, type=type_, agent=agent, **fields)


def story() -> tuple[list[Event], list[Edge]]:
    """A whole small story in which nothing is wrong."""
    events = [
        ev("e1", 0, "orchestrator_decision", "lead", decision="spawn", tokens_in=10, tokens_out=2),
        ev("e2", 1, "spawn", "lead", to="w", role="worker"),
        ev("e3", 2, "tool_call", "w", tool="search", tokens_out=5),
        ev("e4", 3, "tool_result", "w", tool="search", trusted=False),
        ev("e5", 4, "return", "w", from_="w", to="lead"),
        ev("e6", 5, "despawn", "lead", to="w"),
        ev("e7", 6, "aggregate", "lead"),
    ]
    names = [("e1", "e2", "spawn"), ("e2", "e3", "causal"), ("e3", "e4", "tool_dependency"), ("e4", "e5", "return")]
    edges = [Edge(*e) for e in [*names, ("e5", "e7", "aggregate")]]  # type: ignore[arg-type]
    return events, edges


def codes(t: Trace, severity: str | None = None) -> list[str]:
    return [p.code for p in problems(t) if severity in (None, p.severity)]


def test_a_whole_story_has_no_problem() -> None:
    costs = {"tokens": 17, "wall_clock_s": 6, "tool_calls": 1, "messages": 0}
    assert codes(trace(*story(), costs=costs, rewards={"team": 1})) == []


def swapped(number: int, **fields: Any) -> Trace:
    import msgspec

    events, edges = story()
    events[number] = msgspec.structs.replace(events[number], **fields)
    return trace(events, edges)


@pytest.mark.parametrize(
    ("broken", "code", "severity", "where"),
    [
        (lambda: swapped(1, id="e1"), "duplicate-id", "error", "events[1]"),
        (lambda: trace(story()[0], [Edge("e1", "nope", "causal")]), "dangling-edge", "error", "edges[0].dst"),
        (lambda: trace([ev("a", 0, "message", "x")], [Edge("a", "a", "causal")]), "cycle", "error", "events[0]"),
        (lambda: swapped(2, t=5), "time-backwards", "error", "edges[2]"),
        (lambda: trace([ev("a", 0, "message", "w"), ev("b", 1, "spawn", "lead", to="w")]), "act-before-spawn", "error", "events[0]"),
        (lambda: trace([ev("b", 1, "spawn", "lead", to="w"), ev("a", 0, "message", "w")]), "act-before-spawn", "error", "events[1]"),
        (lambda: swapped(2, dur=-1.0), "negative", "error", "events[2].dur"),
        (lambda: trace(*story(), costs={"tokens": 17, "wall_clock_s": 6, "dollars": -1}), "negative", "error", "$.costs.dollars"),
        (lambda: swapped(0, logp=float("nan")), "non-finite", "error", "events[0].logp"),
        (lambda: swapped(0, t="now"), "field", "error", "events[0].t"),
        (lambda: swapped(0, tokens_in="many"), "field", "error", "events[0].tokens_in"),
        (lambda: trace([ev("a", 0, "tool_result", "w", tool="search")]), "orphan-result", "warning", "events[0]"),
        (lambda: swapped(4, to="somebody"), "return-elsewhere", "warning", "events[4]"),
        (lambda: swapped(5, t=3.5), "act-after-despawn", "warning", "events[4]"),
        (lambda: trace([ev("b", 1, "spawn", "lead", to="w")]), "idle-agent", "warning", "events[0]"),
        (lambda: trace([ev("b", 1, "spawn", "lead", to="lead2"), ev("c", 2, "spawn", "lead2", to="lead2")]), "spawned-twice", "warning", "events[1]"),
        (lambda: trace(*story(), meta={"import": {"lacks": {"timestamps": 1}}}), "source-lacks", "warning", "$.meta.import"),
        (lambda: trace(*story(), costs={"tokens": 99, "wall_clock_s": 6}), "costs-differ", "warning", "$.costs.tokens"),
        (lambda: trace(*story(), costs={"tokens": 17, "wall_clock_s": 6, "tool_calls": 3}), "costs-differ", "warning", "$.costs.tool_calls"),
        (lambda: trace(*story(), costs={"tokens": 17, "wall_clock_s": 2}), "costs-differ", "warning", "$.costs.wall_clock_s"),
    ],
)
def test_each_rule_can_fail(broken: Any, code: str, severity: str, where: str) -> None:
    found = [p for p in problems(broken()) if p.code == code]
    assert found, f"{code} was not found"
    assert (found[0].severity, found[0].where) == (severity, where)


def test_every_documented_code_is_tested() -> None:
    tested = {mark.args[1][k][1] for mark in test_each_rule_can_fail.pytestmark for k in range(len(mark.args[1]))}  # type: ignore[attr-defined]
    assert tested == set(CODES)


def test_an_unknown_cost_is_not_compared() -> None:
    events = [ev("a", 0, "message", "x")]
    assert codes(trace(events, costs={"tokens": 12_000, "wall_clock_s": 420})) == []


def test_a_result_after_a_call_of_the_same_tool_is_no_orphan() -> None:
    events = [ev("a", 0, "tool_call", "w", tool="search"), ev("b", 1, "tool_result", "search", tool="search")]
    assert codes(trace(events)) == []


def test_a_million_errors_are_counted_not_kept() -> None:
    events = [ev("same", i, "message", "x") for i in range(2001)]
    found = findings(trace(events), limit=50)
    assert found.error_count == 2000
    assert len(found.errors) == 50
    assert found.by_code("error") == {"duplicate-id": 2000}


def test_the_cycle_names_its_events() -> None:
    events = [ev(n, 0, "message", "x") for n in "abc"]
    found = problems(trace(events, [Edge("a", "b", "causal"), Edge("b", "c", "causal"), Edge("c", "a", "causal")]))
    assert found[0].code == "cycle"
    assert "a" in found[0].what
    assert "3 events" in found[0].what


def test_what_was_just_decoded_is_not_decoded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    data = wire.encode(synthetic_trace(3, 9))
    trace = wire.decode(data)
    monkeypatch.setattr(wire, "encode", lambda whole: pytest.fail("encoded again"))
    assert problems(trace) == []


def test_a_decoded_trace_that_was_changed_is_checked_anew() -> None:
    data = wire.encode(synthetic_trace(3, 9))
    for change in (
        lambda t: t.events.__setitem__(0, msgspec.structs.replace(t.events[0], dur=-1)),
        lambda t: t.costs.__setitem__("tokens", -5),
        lambda t: t.rewards.__setitem__("team", "much"),
    ):
        trace = wire.decode(data)
        change(trace)
        assert any(problem.severity == "error" for problem in problems(trace))
