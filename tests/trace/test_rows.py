"""Rows that rooms exchange, the words everybody uses, and the records that say what to do at a fork."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest

from counterpoint.errors import InputError
from counterpoint.trace import records, vocabulary
from counterpoint.trace.replay import Delete, Force, Fork, Insert, ManyReplay, Replay, Substitute
from counterpoint.trace.rows import Cost, Credit, CreditRow, Shares, Signal, Signals, rows_of
from counterpoint.trace.schema import json_schema

# -- signals -----------------------------------------------------------------------------------------------------

ROWS = {
    "t1": [Signal("team", "", "R1", 1.0), Signal("agent", "a", "R2", 0.25), Signal("agent", "b", "R2", 0.5)],
    "t2": [],
    "t3": [Signal("agent", "a", "R4", -2.0)],
}


def test_signals_stand_together_in_the_order_of_their_traces() -> None:
    found = Signals.of(ROWS)
    assert found.trace_ids == ("t1", "t2", "t3")
    assert found.trace.tolist() == [0, 0, 0, 2]
    assert found.units == ("team", "agent", "agent", "agent")
    assert found.unit_ids == ("", "a", "b", "a")
    assert found.channels == ("R1", "R2", "R2", "R4")
    assert found.values.tolist() == [1.0, 0.25, 0.5, -2.0]
    assert len(found) == 4


def test_a_trace_without_rows_has_no_total() -> None:
    totals = Signals.of(ROWS).totals()
    assert totals[[0, 2]].tolist() == [1.75, -2.0]
    assert np.isnan(totals[1])
    assert np.isnan(Signals.of({"t": []}).totals()).all()


@pytest.mark.parametrize(
    ("asked", "values"),
    [
        ({}, [1.0, 0.25, 0.5, -2.0]),
        ({"unit": "agent"}, [0.25, 0.5, -2.0]),
        ({"channel": "R2"}, [0.25, 0.5]),
        ({"unit": "agent", "channel": "R4"}, [-2.0]),
        ({"unit": "team", "channel": "R4"}, []),
    ],
)
def test_rows_are_chosen_by_unit_and_channel(asked: dict[str, str], values: list[float]) -> None:
    found = Signals.of(ROWS).where(**asked)
    assert found.values.tolist() == values
    assert found.trace_ids == ("t1", "t2", "t3")
    assert len(found.trace) == len(found.units) == len(found.unit_ids) == len(found.channels) == len(values)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_no_amount_is_refused(value: float) -> None:
    with pytest.raises(InputError) as caught:
        Signals.of({"t": [Signal("agent", "a", "R2", value)]})
    assert (caught.value.what, caught.value.where) == (f"{value} is not an amount", "R2 of agent 'a'")


def test_an_unknown_unit_is_refused_with_the_nearest() -> None:
    with pytest.raises(InputError) as caught:
        Signals.of({"t": [Signal("agnt", "a", "R2", 1.0)]})
    assert (caught.value.what, caught.value.fix) == ("no unit 'agnt'", "did you mean 'agent'?")


# -- credit ------------------------------------------------------------------------------------------------------


def credit(rows: list[CreditRow], declared: Any = None, *, additive: bool = True, **more: Any) -> Credit:
    return Credit("m", "what", additive, ("t1", "t2"), tuple(rows), declared, **more)


def test_additive_rows_sum_to_what_is_declared_unit_by_unit() -> None:
    rows = [CreditRow(0, "agent", "a", 0.5), CreditRow(0, "agent", "b", 0.5), CreditRow(0, "team", "", 1.0)]
    assert credit(rows, np.array([1.0, 7.0])).units == ("team", "agent")  # a trace without rows is not judged
    for wrong in ([0.9, 0.0], [1.1, 0.0]):
        with pytest.raises(InputError, match=r"m: the \w+ rows miss their sum by 0\.1"):
            credit(rows, np.array(wrong))
    assert credit(rows, np.array([0.9, 0.0]), additive=False).rows == tuple(rows)
    with pytest.raises(InputError, match="does not declare what its rows sum to"):
        credit(rows)


@pytest.mark.parametrize(("size", "gap", "is_refused"), [(1.0, 1.8e-9, False), (1.0, 2.2e-9, True), (1e6, 1.8e-3, False), (1e6, 2.2e-3, True)])
def test_how_far_a_sum_may_miss_grows_with_what_is_summed(size: float, gap: float, is_refused: bool) -> None:
    rows = [CreditRow(1, "agent", "a", size), CreditRow(1, "agent", "b", -size)]
    if is_refused:
        with pytest.raises(InputError, match="miss their sum"):
            credit(rows, np.array([0.0, gap]))
    else:
        assert len(credit(rows, np.array([0.0, gap])).rows) == 2
    small = [CreditRow(1, "agent", "a", 0.0)]
    with pytest.raises(InputError, match="miss their sum"):
        credit(small, np.array([0.0, 2e-9]))
    assert len(credit(small, np.array([0.0, 0.9e-9])).rows) == 1


def test_credit_is_read_by_trace_and_unit() -> None:
    rows = [CreditRow(0, "agent", "a", 0.5), CreditRow(0, "role", "lead", 0.25), CreditRow(1, "agent", "a", 2.0)]
    found = credit(rows, additive=False)
    assert found.of(0) == {"a": 0.5, "lead": 0.25}
    assert found.of(0, "agent") == {"a": 0.5}
    assert found.of(1) == {"a": 2.0}
    assert found.units == ("role", "agent")
    assert (found.declared, found.cost, found.unidentified, found.notes) == (None, Cost(0, 0), {}, {})
    other = found.renamed("other")
    assert (other.mechanism, other.rows) == ("other", found.rows)
    with pytest.raises(InputError, match="m: agent 'a'"):
        credit([CreditRow(0, "agent", "a", float("nan"))], additive=False)


def test_rows_of_a_mapping() -> None:
    assert rows_of(3, "agent", {"a": 1, "b": 2.5}) == [CreditRow(3, "agent", "a", 1.0, None), CreditRow(3, "agent", "b", 2.5, None)]
    assert [r.se for r in rows_of(0, "agent", {"a": 1, "b": 2}, {"a": 0.1})] == [0.1, None]
    assert CreditRow(0, "agent", "a", 1.0).se is None


@pytest.mark.parametrize("record", [Signals.of(ROWS), credit([], additive=False), Delete(), Substitute(), Insert("x"), Force({})])
def test_what_rooms_exchange_is_frozen(record: Any) -> None:
    with pytest.raises(FrozenInstanceError):
        record.trace_ids = ()


# -- forks -------------------------------------------------------------------------------------------------------


def test_what_a_fork_takes_for_granted() -> None:
    assert (Substitute().value, Substitute().draw) == (None, 1)
    assert Insert("x").about == {}
    assert Insert("x").about is not Insert("x").about
    assert Fork("e1") == ("e1", None, None)
    assert Shares("m", 1.0, {}, 0.0)._fields == ("method", "reward", "agents", "unassigned")


def test_whoever_can_fork_is_a_replay() -> None:
    class One:
        def fork(self, trace: Any, at: str, do: Any = None, seed: int | None = None) -> Any:
            return trace

    class Many(One):
        def returns(self, trace: Any, forks: Any) -> Any:
            return forks

    assert isinstance(One(), Replay)
    assert not isinstance(One(), ManyReplay)
    assert isinstance(Many(), ManyReplay)
    assert not isinstance(object(), Replay)


# -- words -------------------------------------------------------------------------------------------------------


def test_a_code_is_a_place_that_never_changes() -> None:
    """Stores hold these places, so a word may be added at the end and nowhere else."""
    assert vocabulary.EVENT_TYPES == (
        "orchestrator_decision", "spawn", "despawn", "message", "tool_call", "tool_result", "return", "aggregate",
        "human_intervention", "safety_event",
    )  # fmt: skip
    assert vocabulary.EDGE_TYPES == ("temporal", "causal", "spawn", "message", "tool_dependency", "return", "aggregate", "safety_flow")
    assert vocabulary.TOPOLOGIES == (
        "centralized", "planner_executor_critic", "debate", "swarm", "hierarchical", "harness", "mixed", "unknown",
    )  # fmt: skip
    assert vocabulary.DECISIONS == ("spawn", "delegate", "communicate", "aggregate", "stop", "noop")
    assert vocabulary.SOURCES == ("user", "tool", "peer", "memory", "system")
    assert vocabulary.UNITS == ("team", "orchestrator", "role", "agent", "turn", "message", "tool", "token")
    assert vocabulary.SUB_DECISIONS == {"O1": "spawn", "O2": "delegate", "O3": "communicate", "O4": "aggregate", "O5": "stop"}
    assert list(vocabulary.REWARD_FAMILIES) == [f"R{k}" for k in range(1, 9)]
    assert vocabulary.COST_FIELDS == ("tokens", "wall_clock_s", "tool_calls", "messages")


def test_the_fields_of_an_event() -> None:
    assert records.SURVEY_FIELDS == ("id", "t", "type", "agent", "role", "from_", "to", "tool", "content_ref", "trusted")
    assert records.OUR_FIELDS == (
        "dur", "tokens_in", "tokens_out", "cost_usd", "model", "turn", "task", "decision", "options", "logp", "policy", "key",
        "ok", "error", "source", "reward", "at",
    )  # fmt: skip
    assert (*records.SURVEY_FIELDS, *records.OUR_FIELDS) == records.FIELDS
    assert set(records.FIELDS) - records.PLAIN == {"id", "t", "type", "agent", "from_"}
    assert [records.wire_name(f) for f in ("from_", "to")] == ["from", "to"]
    assert set(records.AMOUNTS) == {"dur", "tokens_in", "tokens_out", "cost_usd", "turn"}
    assert records.BARE == {"id": "-", "t": 0, "type": "message", "agent": "-"}


# -- the schema --------------------------------------------------------------------------------------------------


def test_the_schema_is_titled_and_every_part_says_what_it_is() -> None:
    schema = json_schema()
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["title"] == "Counterpoint orchestration trace"
    assert schema["description"] == "A team's run: a rooted, labelled, temporal graph of events, with its rewards and costs."
    event, edge = schema["$defs"]["Event"], schema["$defs"]["Edge"]
    assert event["description"] == "One vertex of the trace: the survey's ten fields, then ours, all optional."
    assert edge["description"] == "A dependency between two events: `dst` depends on, or read, `src`."
    assert not {"title"} & (event.keys() | edge.keys())
    assert [*event["properties"]] == [records.wire_name(f) for f in records.FIELDS]
    assert all(field.get("description") for field in event["properties"].values())
    assert not any("default" in field or "anyOf" in field for part in (schema, event) for field in part["properties"].values())
    assert (event["additionalProperties"], edge["required"]) == (True, ["src", "dst", "type"])
    assert event["properties"]["from"]["description"] == "Who a message or return comes from."
    assert event["properties"]["dur"] == {"type": "number", "minimum": 0, "description": "Seconds it took."}
    costs = schema["properties"]["costs"]
    assert costs["required"] == ["tokens", "wall_clock_s"]
    assert costs["properties"] == {name: {"type": "number", "minimum": 0} for name in vocabulary.COST_FIELDS}
    for numbers in (costs, schema["properties"]["rewards"], schema["properties"]["metrics"], event["properties"]["reward"]):
        assert numbers["additionalProperties"] == {"type": "number"}
