"""Traces as rows: who acted and when, which units there are, what was paid for them, what comes out as credit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from counterpoint.credits.forks import check_ids, messages_of
from counterpoint.credits.groups import Convention
from counterpoint.credits.rows import (
    TraceUnit,
    actions,
    compared,
    credit_of,
    event_unit,
    grouped_credit,
    keys_of,
    main_of,
    paid_steps,
    payments_of,
    tree_of,
    unit_events,
    values_of,
)
from counterpoint.errors import InputError, NotFound, NotIdentified
from counterpoint.trace import Event, Trace
from counterpoint.trace.rows import Cost, CreditRow, Signal, Signals
from credits.published_made import said, team

DECIDES = {"type": "orchestrator_decision", "agent": "lead"}
CALLS = {"type": "tool_call", "agent": "w", "tool": "search"}
ANSWERS = {"type": "tool_result", "agent": "w", "tool": "search"}


def worked() -> Trace:
    """A lead decides and spawns; a worker calls a tool and reports; the lead joins it all. Outsiders speak in between."""
    steps: list[dict[str, Any]] = [
        said("user"),
        {**DECIDES, "role": "boss", "turn": 0},
        {"type": "spawn", "agent": "lead", "to": "w"},
        {**CALLS, "role": "hand", "turn": 0},
        {**ANSWERS, "role": "hand", "turn": 0},
        said("bash", role="tool"),
        said("w", role="hand", turn=1),
        {"type": "return", "agent": "w", "to": "lead", "role": "hand"},
        {"type": "aggregate", "agent": "lead", "role": "boss", "turn": 1},
        {"type": "despawn", "agent": "lead", "to": "w"},
    ]
    return team("worked", 1.0, steps)


def test_actions_are_what_members_did_in_the_order_of_time() -> None:
    trace = worked()
    assert actions(trace) == [1, 3, 6, 8]
    late = replace(trace, events=[replace(e, t=20.0) if e.id == "e3" else e for e in trace.events])
    assert actions(late) == [1, 6, 8, 3]
    tied = replace(trace, events=[replace(e, t=0.0) for e in trace.events])
    assert actions(tied) == [1, 3, 6, 8]  # then the order of the file
    assert [event_unit(trace.events[i]) for i in (1, 3, 6, 8)] == ["orchestrator", "tool", "message", "message"]


def test_units_and_their_actions() -> None:
    trace = worked()
    assert unit_events(trace, "team") == {"": [1, 3, 6, 8]}
    assert unit_events(trace, "orchestrator") == {"lead": [1, 8]}
    assert unit_events(trace, "agent") == {"lead": [1, 8], "w": [3, 6]}
    assert unit_events(trace, "role") == {"boss": [1, 8], "hand": [3, 6]}
    assert unit_events(trace, "turn") == {"lead#0": [1], "w#0": [3], "w#1": [6], "lead#1": [8]}
    assert unit_events(trace, "message") == {"e6": [6], "e8": [8]}
    assert unit_events(trace, "tool") == {"e3": [3]}
    with pytest.raises(InputError, match="no rows for unit 'token'"):
        unit_events(trace, "token")
    bare = team("bare", 1.0, [said("a", role="r"), said("b", turn=3)])
    with pytest.raises(NotIdentified, match="no turn number") as error:
        unit_events(bare, "turn")
    assert error.value.where == "bare"
    with pytest.raises(NotIdentified, match="no role") as error:
        unit_events(bare, "role")
    assert error.value.where == "bare"
    assert unit_events(bare, "agent") == {"a": [0], "b": [1]}


def test_nobody_leads_a_trace_without_agents() -> None:
    assert main_of(worked()) == "lead"
    with pytest.raises(NotIdentified, match="no lead") as error:
        main_of(team("empty", 1.0, []))
    assert error.value.where == "empty"


def test_groups_by_a_field_of_the_trace_by_all_or_by_a_function() -> None:
    traces = [replace(team(n, 1.0, [], task=f"task-{n}"), system=f"sys-{n}", topology="swarm") for n in "ab"]
    assert keys_of(traces, "task_id") == ["task-a", "task-b"]
    assert keys_of(traces, "trace_id") == ["a", "b"]
    assert keys_of(traces, "system") == ["sys-a", "sys-b"]
    assert keys_of(traces, "topology") == ["swarm", "swarm"]
    assert keys_of(traces, "batch") == ["batch", "batch"]
    assert keys_of(traces, lambda t: len(t.trace_id)) == [1, 1]
    with pytest.raises(InputError, match="no group key 'events'"):
        keys_of(traces, "events")


# -- what was paid ------------------------------------------------------------------------------------------------------


def test_signals_come_first_then_the_events_own_rewards_then_the_teams() -> None:
    shared = team("shared", 5.0, [said("a"), said("b")])
    own = team("own", 5.0, [said("a", reward={"team": 2.0}), said("b"), said("a", reward={"team": 0.5, "x": 9.0}), said("c")])
    units = [unit_events(t, "agent") for t in (shared, own)]
    assert payments_of([shared, own], units, "agent") == [{"a": 5.0, "b": 5.0}, {"a": 2.5, "b": 0.0, "c": 0.0}]
    assert payments_of([own], units[1:], "agent", channel="x") == [{"a": 9.0, "b": 0.0, "c": 0.0}]
    zero = team("zero", 5.0, [said("a", reward={"team": 0.0}), said("b")])
    assert payments_of([zero], [unit_events(zero, "agent")], "agent") == [{"a": 0.0, "b": 0.0}]  # 0 is a reward
    other = team("other", 5.0, [said("a", reward={"x": 1.0})])
    assert payments_of([other], [unit_events(other, "agent")], "agent") == [{"a": 5.0}]  # another channel is none
    given = Signals.of(
        {
            "own": [Signal("agent", "a", "x", 1.0), Signal("agent", "a", "y", 0.25), Signal("role", "b", "x", 7.0)],
            "shared": [Signal("agent", "b", "x", 3.0), Signal("agent", "z", "x", 3.0)],
        }
    )
    assert payments_of([shared, own], units, "agent", signals=given) == [{"b": 3.0}, {"a": 1.25}]
    with pytest.raises(InputError, match="no reward 'y'"):
        payments_of([shared], units[:1], "agent", channel="y")


def test_what_was_paid_for_the_steps_of_a_chain() -> None:
    shared = team("shared", 5.0, [said("a"), said("b"), said("a")])
    assert paid_steps(shared, [[0], [1], [2]]) == [0.0, 0.0, 5.0]
    assert paid_steps(shared, [[0, 1, 2]]) == [5.0]
    assert paid_steps(shared, []) == []
    own = team("own", 5.0, [said("a", reward={"team": 2.0}), said("b"), said("a", reward={"team": 0.5, "x": 9.0})])
    assert paid_steps(own, [[0, 2], [1]]) == [2.5, 0.0]
    assert paid_steps(own, [[0], [2]], "x") == [0.0, 9.0]
    zero = team("zero", 5.0, [said("a", reward={"team": 0.0}), said("b")])
    assert paid_steps(zero, [[0], [1]]) == [0.0, 0.0]


def test_a_critics_numbers_by_event() -> None:
    trace = team("t", 1.0, [said("a"), said("b")])
    assert values_of(trace, lambda t: {"e1": 3.0}) == {"e1": 3.0}
    assert values_of(trace, {"e0": 1.0}) == {"e0": 1.0}
    assert values_of(trace, lambda t: [1.0, 2.0]) == {"e0": 1.0, "e1": 2.0}
    assert values_of(trace, np.array([4.0, 5.0])) == {"e0": 4.0, "e1": 5.0}
    with pytest.raises(NotIdentified, match="needs a critic") as refused:
        values_of(trace, None)
    assert refused.value.where == "t"
    with pytest.raises(InputError, match="1 values for 2 events") as error:
        values_of(trace, [1.0])
    assert error.value.where == "t"


# -- credit -------------------------------------------------------------------------------------------------------------


def three() -> list[Trace]:
    return [team(n, 1.0, []) for n in "abc"]


def test_credit_names_what_it_refuses_and_keeps_the_order_of_traces() -> None:
    rows = [(TraceUnit(2, "agent", "x"), 1.0), (TraceUnit(0, "agent", "y"), np.nan), (TraceUnit(0, "agent", "x"), 2.0), (TraceUnit(2, "agent", "a"), 3.0)]
    credit = credit_of("uniform", "words", three(), rows, unidentified={(1, "z"): "told"}, notes={"k": 1}, cost=Cost(2, 3))
    assert credit.rows == (CreditRow(0, "agent", "x", 2.0), CreditRow(2, "agent", "x", 1.0), CreditRow(2, "agent", "a", 3.0))
    assert credit.unidentified == {(1, "z"): "told", (0, "y"): "an input is NaN"}
    assert (credit.mechanism, credit.estimand, credit.trace_ids) == ("uniform", "words", ("a", "b", "c"))
    assert (credit.notes, credit.cost, credit.additive, credit.declared) == ({"k": 1}, Cost(2, 3), False, None)
    plain = credit_of("uniform", "words", three(), [])
    assert (plain.rows, plain.notes, plain.cost, plain.unidentified) == ((), {}, Cost(), {})
    summed = credit_of("uniform", "words", three()[:1], [(TraceUnit(0, "agent", "x"), 2.0)], declared=np.array([2.0]))
    assert summed.additive
    assert summed.declared == [2.0]


def test_when_no_row_is_left_the_question_is_refused() -> None:
    with pytest.raises(NotIdentified, match="because; do this"):
        credit_of("uniform", "words", three(), [(TraceUnit(0, "agent", "x"), np.nan)], why_not="because", fix="do this")
    with pytest.raises(NotIdentified, match="first; a critic, counterfactual or rating that answers with a number for every unit"):
        credit_of("uniform", "words", three(), [], unidentified={(0, "a"): "first", (1, "b"): "second"})


def test_the_notes_of_a_comparison() -> None:
    traces, how = three(), Convention(scale="none")
    rows = [TraceUnit(0, "agent", "x"), TraceUnit(1, "agent", "x"), TraceUnit(2, "team", "")]
    notes = compared(rows, ["k", "k", ("l", 1)], traces, how)
    assert notes["groups"] == {"k": 2, "('l', 1)": 1}
    assert notes["compared"] == {"k": ["a x", "b x"], "('l', 1)": ["c"]}
    assert (notes["scale"], notes["ddof"]) == ("none", 1)
    credit = grouped_credit("m", "words", traces, rows[:2], [1.0, 0.0], ["k", "k"], how, size=2, notes={"scale": "mine"})
    assert credit.of(0) == {"x": 0.5}
    assert credit.of(1) == {"x": -0.5}
    assert credit.notes["scale"] == "mine"


def test_groups_of_another_size_are_named_three_at_most() -> None:
    traces = three()
    rows = [TraceUnit(i % 3, "team", "") for i in range(8)]
    with pytest.raises(InputError, match="groups of 2 were expected: 'a' has 1, 'c' has 3, 'd' has 1;") as error:
        grouped_credit("m", "words", traces, rows, [0.0] * 8, ["a", "b", "b", "c", "c", "c", "d", "e"], Convention(), size=2)
    assert "'b'" not in str(error.value)


def test_episodes_of_grouped_rows_are_their_traces() -> None:
    rows = [TraceUnit(0, "agent", "x"), TraceUnit(0, "agent", "y"), TraceUnit(1, "agent", "x")]
    how = Convention(scale="none", count="episodes")
    credit = grouped_credit("m", "words", three(), rows, [2.0, 4.0, 1.0], ["k"] * 3, how)
    assert [r.value for r in credit.rows] == pytest.approx([0.0, 2.0, -1.0])  # means 3 and 1: baseline 2


# -- shared beginnings --------------------------------------------------------------------------------------------------


def test_a_tree_of_traces_that_share_their_beginning() -> None:
    spoken = [["x", "y"], ["x", "z"], ["x", "y"], ["x"]]
    traces = [team(f"t{i}", 0.0, [said("a", text) for text in texts]) for i, texts in enumerate(spoken)]
    tree = tree_of(traces, ["q", "q", "p", "q"], [1.0, 3.0, 8.0, 5.0])
    first, second = tree.steps[0], tree.steps[1]
    assert [(s.trace, s.place, s.depth) for s in tree.steps] == [
        (0, 0, 0),
        (0, 1, 1),
        (1, 0, 0),
        (1, 1, 1),
        (2, 0, 0),
        (2, 1, 1),
        (3, 0, 0),
    ]
    assert tree.steps[2].node == first.node  # the same words of the same task
    assert tree.steps[3].parent == second.parent == first.node
    assert tree.steps[4].node != first.node  # another task
    assert tree.steps[6].node != first.node  # a last word is a sample of its own
    assert tree.steps[6].parent == first.parent != tree.steps[4].parent
    assert tree.value_N[first.node] == 2.0
    assert tree.leaves_N[first.node] == 2
    assert [tree.value_N[s.node] for s in tree.steps] == [2.0, 1.0, 2.0, 3.0, 8.0, 8.0, 5.0]
    assert tree.leaves_N[first.parent] == 0  # roots are no steps
    assert tree.value_N[first.parent] == 0.0
    assert tree.first_steps() == [0, 1, 3, 4, 5, 6]


def test_who_speaks_and_how_tells_nodes_apart_and_a_sample_may_too() -> None:
    same = [
        team("a", 0.0, [said("a", "x"), said("z", "end")]),
        team("b", 0.0, [said("b", "x"), said("z", "end")]),
        team("c", 0.0, [{"type": "aggregate", "agent": "a", "content_ref": "x"}, said("z", "end")]),
    ]
    assert len({s.node for s in tree_of(same, ["q"] * 3, [0.0] * 3).steps if s.depth == 0}) == 3
    mute = [team(n, 0.0, [said("a"), said("a")]) for n in "ab"]
    with pytest.raises(NotIdentified, match="event 'e0' has no content") as error:
        tree_of(mute, ["q", "q"], [0.0, 0.0])
    assert error.value.where == "a"
    assert tree_of(mute, ["q", "q"], [0.0, 0.0], lambda e: e.id).steps[2].node == 1


def test_the_last_word_is_the_last_in_time() -> None:
    # the file holds the last word first: both share "x", and end on a "y" of their own
    late = [
        Event(id="b", t=5, type="message", agent="a", content_ref="y"),
        Event(id="a", t=1, type="message", agent="a", content_ref="x"),
    ]
    traces = [Trace(trace_id=n, task_id="q", events=late) for n in "uv"]
    steps = tree_of(traces, ["q", "q"], [1.0, 0.0]).steps
    assert [s.place for s in steps] == [1, 0, 1, 0]
    assert steps[0].node == steps[2].node
    assert steps[1].node != steps[3].node


# -- messages, words, one trace -----------------------------------------------------------------------------------------


def test_which_events_are_messages() -> None:
    trace = worked()
    assert [e.id for e in messages_of(trace)] == ["e0", "e5", "e6", "e7"]
    assert [e.id for e in messages_of(trace, ["return"])] == ["e7"]
    assert [e.id for e in messages_of(trace, ids=["e6", "e7", "e8"])] == ["e6", "e7"]
    with pytest.raises(InputError, match="'aggregate' is not a type of message"):
        messages_of(trace, ["return", "spawn", "aggregate"])
    check_ids([trace, team("t", 1.0, [])], ["e6"])
    check_ids([team("t", 1.0, []), trace], ["e6"])
    check_ids([trace], None)
    with pytest.raises(NotFound, match="no event 'e77'") as error:
        check_ids([trace, team("t", 1.0, [])], ["e6", "e77"])
    assert error.value.where == "worked"
