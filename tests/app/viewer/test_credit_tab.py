"""Credit for the page: the mechanisms' own numbers, sums that close, refusals with their reasons."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from app.viewer.small import team
from counterpoint import registry
from counterpoint.app.api.credit import credit_of
from counterpoint.app.viewer import trace_view as seen_
from counterpoint.app.viewer.credit_tab import credit, methods, work
from counterpoint.app.viewer.overview import overview
from counterpoint.errors import NotFound
from counterpoint.lab.worlds.world import world
from counterpoint.testing import synthetic_trace
from counterpoint.trace import Trace


@pytest.fixture(scope="module")
def simulated() -> Trace:
    """A short episode of a shipped world, which can be forked."""
    return world("W1", vote_items=8, max_agents=6).run("reference", [0], log=True).trace(0)  # type: ignore[no-any-return]


def test_every_mechanism_is_listed_and_those_that_answer_come_first() -> None:
    told = methods(team())
    assert sorted(method.id for method in told) == sorted(registry.ids("mechanism"))
    refused = [method.refusal is not None for method in told]
    assert refused == sorted(refused)
    assert any(refused)
    assert not all(refused)
    by_id = {method.id: method for method in told}
    assert by_id["uniform"].is_additive
    assert by_id["uniform"].refusal is None
    assert by_id["uniform"].about
    assert "group of one" in (by_id["group_relative"].refusal or "")
    assert "nothing to spread" not in (by_id["token_spread"].refusal or "")  # the page spreads the ledger
    for method in told:
        assert (credit(team(), method.id).refusal is None) == (method.refusal is None), method.id


def test_even_shares_close() -> None:
    told = credit(team(), "uniform", "agent")
    assert [(row.label, row.agent, row.value) for row in told.rows] == [("lead", 0, 0.5), ("reader", 1, 0.5)]
    assert told.by_agent == {"lead": 0.5, "reader": 0.5}
    assert (told.total, told.target, told.unassigned) == (1.0, 1.0, 0.0)
    assert told.is_additive
    assert told.closes is True
    assert told.refusal is None
    assert told.units == ["agent"]


def test_a_method_that_is_not_additive_has_a_total_and_no_target() -> None:
    told = credit(team(), "rema")
    assert told.unit == "turn"
    assert not told.is_additive
    assert (told.target, told.unassigned, told.closes) == (None, None, None)
    assert told.total is not None
    assert {(row.label, row.event, row.agent) for row in told.rows} >= {("lead#0", 0, 0), ("reader#0", 2, 1), ("lead#1", 5, 0)}


def test_rows_of_events_name_their_event_and_agent() -> None:
    trace = synthetic_trace(5, 40, "hierarchical", contents=True)
    told = credit(trace, "malt", "tool")
    where = {event.id: event for event in trace.events}
    assert told.rows
    for row in told.rows:
        assert overview(trace).agents[row.agent].name == where[row.label].agent
        assert row.event >= 0


def test_by_event_is_everything_that_is_said_about_events() -> None:
    trace = synthetic_trace(5, 40, "hierarchical", contents=True)
    told, parts = credit(trace, "malt", "event"), [credit(trace, "malt", unit) for unit in ("orchestrator", "message", "tool")]
    assert "event" in told.units
    assert sorted(row.label for row in told.rows) == sorted(row.label for part in parts for row in part.rows)
    assert all(row.event >= 0 for row in told.rows)
    assert "event" not in credit(trace, "uniform").units


def test_the_numbers_are_those_of_the_command() -> None:
    trace = synthetic_trace(5, 40, "centralized", contents=True)
    for name in ("uniform", "marshal", "hierarchical", "puppeteer"):
        found = credit_of(name, [trace])
        for unit in found.units:
            told = credit(trace, name, unit)
            assert [row.value for row in told.rows] == sorted(
                (row.value for row in found.rows if row.unit == unit), key=lambda value: -abs(value)
            )


def test_a_refusal_is_an_answer() -> None:
    told = credit(team(), "message-delete")
    assert told.rows == []
    assert told.total is None
    assert "what else would have happened" in (told.refusal or "")
    assert told.fix
    other = credit(team(), "uniform", "token")
    assert other.refusal == "uniform gives no credit by token here"
    assert other.fix == "it gives credit by agent"
    unscored = credit(replace(team(), rewards={}), "uniform")
    assert "no reward 'team'" in (unscored.refusal or "")
    assert "counterpoint notes score" in (unscored.fix or "")


def test_only_shipped_mechanisms_can_be_asked_for() -> None:
    for name in ("unifrom", "antigravity:geohash", "../x", ""):
        with pytest.raises(NotFound, match="no credit method"):
            credit(team(), name)


def test_a_large_trace_is_left_to_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen_, "LARGE", 3)
    told = credit(team(), "uniform")
    assert told.rows == []
    assert told.fix == "counterpoint credit small --mechanism uniform"


def test_a_simulated_trace_is_forked_for_its_credit(simulated: Trace) -> None:
    assert overview(simulated).can_fork
    assert {m.id: m.refusal for m in methods(simulated)}["difference"] is None
    told = credit(simulated, "difference", "agent")
    assert told.refusal is None
    assert len(told.rows) >= 1
    assert not told.is_additive
    estimated = credit(simulated, "shapley", "agent")
    assert estimated.refusal is not None or estimated.closes
    if estimated.refusal is None:
        assert sum(estimated.by_agent.values()) + (estimated.unassigned or 0) == pytest.approx(estimated.target)
        assert any(fact.kind == "credit" for fact in overview(simulated).facts)


def test_answers_travel() -> None:
    for name in registry.ids("mechanism"):
        msgspec.json.encode(credit(team(), name))
    msgspec.json.encode(methods(team()))


def test_one_method_is_chosen_with_its_reason_and_shows_the_same_everywhere(simulated: Trace) -> None:
    told = [method for method in methods(simulated) if method.why]
    assert [method.id for method in told] == ["difference"]
    assert methods(simulated)[0].id == "difference"
    assert credit(simulated, "difference").by_agent  # which the page need not ask for again
    log = replace(team(), rewards={})
    assert not [method for method in methods(log) if method.why]
    shown = work(log)
    assert shown.why_no_credit == "no outcome is stated: nothing says how well the team did"
    assert {row.name for row in shown.rows} == set(log.members)
    assert work(simulated).why_no_credit is None
    said = [replace(e, type="message") if e.id == "e3" else e for e in log.events]  # the reader says what the page told it
    log = replace(log, trace_id="said", events=said)
    by_agent, by_event = credit(log, "provenance", "agent"), credit(log, "provenance", "event")
    assert by_agent.by_agent == by_event.by_agent
    assert (by_agent.whole, by_agent.target) == ("result", 1.0)
    assert by_agent.unassigned == pytest.approx(1 - sum(by_agent.by_agent.values()))
    assert by_agent.notes[0].startswith("Of 3 words: 33% traced to the team")
    assert [abs(row.value) for row in by_event.rows] == sorted((abs(row.value) for row in by_event.rows), reverse=True)
    assert by_event.rows[0].excerpt == "12"
