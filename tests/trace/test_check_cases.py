"""The edges of the rules of `check`: equality, other file orders, gaps, and which of several is named."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest

from counterpoint.trace import Edge, Event, Trace, problems
from counterpoint.trace.check import CODES, findings
from counterpoint.trace.problem import DEFAULT_LIMIT, Findings, Problem


def trace(events: list[Event], edges: list[tuple[str, str]] | None = None, **fields: Any) -> Trace:
    return Trace(trace_id="t", task_id="q", events=events, edges=[Edge(a, b, "causal") for a, b in edges or []], **fields)


def ev(name: str, t: float, type_: Any = "message", agent: str = "x", **fields: Any) -> Event:
    return Event(id=name, t=t, type=type_, agent=agent, **fields)


def said(of: Trace) -> list[tuple[str, str]]:
    return [(p.code, p.where) for p in problems(of)]


def words(of: Trace) -> list[str]:
    return [p.what for p in problems(of)]


# -- the graph ---------------------------------------------------------------------------------------------------


def test_an_acyclic_trace_may_stand_in_any_file_order() -> None:
    backwards = [ev("c", 2), ev("b", 1), ev("a", 0)]
    assert said(trace(backwards, [("a", "b"), ("b", "c"), ("a", "c")])) == []
    assert said(trace([ev("b", 1), ev("a", 0), ev("c", 2)], [("a", "b"), ("b", "c")])) == []


def test_a_cycle_is_told_from_its_first_event_round_to_it_again() -> None:
    events = [ev(n, 0) for n in "abcd"]
    assert words(trace(events, [("a", "b"), ("c", "b"), ("b", "d"), ("d", "c")])) == ["a cycle of 3 events: d -> c -> b -> d"]
    ring = [ev(f"n{i}", 0) for i in range(10)]
    [one] = problems(trace(ring, [(f"n{i}", f"n{(i + 1) % 10}") for i in range(10)]))
    shown = one.what.removeprefix("a cycle of 10 events: ").split(" -> ")
    assert len(shown) == 9
    assert shown[0] == shown[-1]
    assert all((int(b[1:]) - int(a[1:])) % 10 == 1 for a, b in itertools.pairwise(shown[:8]))
    assert one.where == f"events[{shown[0][1:]}]"


def test_a_cycle_is_found_beside_edges_to_nowhere() -> None:
    found = said(trace([ev("a", 0), ev("b", 0)], [("a", "b"), ("nowhere", "a"), ("b", "a"), ("b", "gone")]))
    assert sorted(found) == [("cycle", "events[1]"), ("dangling-edge", "edges[1].src"), ("dangling-edge", "edges[3].dst")]


def test_both_ends_of_an_edge_may_be_missing() -> None:
    assert said(trace([ev("a", 0)], [("p", "q")])) == [("dangling-edge", "edges[0].src"), ("dangling-edge", "edges[0].dst")]
    assert words(trace([ev("a", 0)], [("p", "q")])) == ["there is no event 'p'", "there is no event 'q'"]


def test_an_edge_to_nowhere_says_nothing_about_time_and_answers_no_call() -> None:
    # A missing end must not be taken for the last event: here a later one, and a call.
    events = [ev("a", 0, "tool_result", tool="x"), ev("b", 9, "tool_call", tool="y")]
    assert sorted(said(trace(events, [("nowhere", "a")]))) == [("dangling-edge", "edges[0].src"), ("orphan-result", "events[0]")]
    swapped = [ev("b", 9, "tool_call", tool="y"), ev("a", 0, "message")]
    assert said(trace(swapped, [("b", "nowhere")])) == [("dangling-edge", "edges[0].dst")]


def test_every_repetition_of_an_id_is_named() -> None:
    events = [ev("a", 0), ev("b", 1), ev("a", 2), ev("a", 3)]
    assert said(trace(events)) == [("duplicate-id", "events[2]"), ("duplicate-id", "events[3]")]
    assert words(trace(events))[0] == "the id 'a' was used before"


# -- time --------------------------------------------------------------------------------------------------------


def test_cause_and_effect_may_have_one_time() -> None:
    assert said(trace([ev("a", 1), ev("b", 1)], [("a", "b")])) == []


def test_an_effect_before_its_cause_is_told_with_both_times() -> None:
    found = problems(trace([ev("a", 1), ev("b", 0.5), ev("c", 3)], [("a", "c"), ("a", "b")]))
    assert [(p.code, p.where) for p in found] == [("time-backwards", "edges[1]")]
    assert found[0].what == "'b' at t=0.5 depends on 'a' at t=1, which is later"


# -- lives -------------------------------------------------------------------------------------------------------


def spawn(name: str, t: float, to: str | None = "w", agent: str = "lead") -> Event:
    return ev(name, t, "spawn", agent, to=to)


def test_an_agent_may_act_at_the_time_of_its_spawn_and_of_its_end() -> None:
    events = [ev("a", 1, agent="w"), spawn("s", 1), ev("d", 2, "despawn", "lead", to="w"), ev("b", 2, agent="w")]
    assert said(trace(events)) == []


def test_the_first_act_before_a_spawn_is_named_whatever_the_file_order() -> None:
    events = [ev("m", 0, agent="lead"), ev("a", 1, agent="w"), ev("b", 2, agent="w"), spawn("s", 3), ev("c", 4, agent="w")]
    [one] = problems(trace(events))
    assert (one.code, one.where) == ("act-before-spawn", "events[1]")
    assert one.what == "'w' acts at t=1, before its spawn 's' at t=3"
    shuffled = [events[i] for i in (3, 4, 2, 0, 1)]
    assert said(trace(shuffled)) == [("act-before-spawn", "events[4]")]


def test_of_several_agents_each_is_judged_by_its_own_spawn() -> None:
    events = [spawn("s1", 0, "u"), ev("a", 1, agent="u"), ev("b", 2, agent="v"), spawn("s2", 3, "v"), spawn("s3", 4, "w"), ev("c", 5, agent="w")]
    assert said(trace(events)) == [("act-before-spawn", "events[2]")]
    assert said(trace(events[::-1])) == [("act-before-spawn", "events[3]")]


def test_an_agent_that_was_ended_and_never_acted_is_only_idle() -> None:
    events = [spawn("s", 1), ev("d", 2, "despawn", "lead", to="w"), ev("z", 3, agent="lead")]
    assert said(trace(events)) == [("idle-agent", "events[0]")]
    assert words(trace(events)) == ["'w' is spawned and never acts"]


def test_a_despawn_that_names_nobody_ends_nobody() -> None:
    events = [spawn("s", 1), ev("d", 2, "despawn", "lead"), ev("b", 3, agent="w")]
    assert said(trace(events)) == []


def test_of_the_idle_each_is_named_at_its_spawn() -> None:
    events = [spawn("s1", 0, "u"), spawn("s2", 1, "v"), spawn("s3", 2, "w"), ev("a", 3, agent="v")]
    assert said(trace(events)) == [("idle-agent", "events[0]"), ("idle-agent", "events[2]")]
    # Who acts after the last spawn, and in the last event, is not idle.
    assert said(trace([spawn("s1", 0, "u"), ev("a", 1, agent="u")])) == []


def test_the_last_act_after_an_end_is_named_whatever_the_file_order() -> None:
    events = [
        spawn("s", 0),
        ev("a", 1, agent="w"),
        ev("d", 2, "despawn", "lead", to="w"),
        ev("b", 3, agent="w"),
        ev("c", 4, agent="w"),
        ev("z", 5, agent="lead"),
    ]
    [one] = problems(trace(events))
    assert (one.code, one.severity, one.where) == ("act-after-despawn", "warning", "events[4]")
    assert one.what == "'w' was ended by 'd' at t=2"
    shuffled = [events[i] for i in (4, 0, 5, 2, 3, 1)]
    assert said(trace(shuffled)) == [("act-after-despawn", "events[0]")]


def test_of_several_ends_only_those_that_were_outlived_are_named() -> None:
    events = [
        spawn("s1", 0, "u"),
        spawn("s2", 0, "v"),
        ev("a", 1, agent="u"),
        ev("d1", 2, "despawn", "lead", to="u"),
        ev("b", 3, agent="v"),
        ev("d2", 4, "despawn", "lead", to="v"),
        ev("z", 5, agent="lead"),
    ]
    assert said(trace(events)) == []
    late = [*events, ev("y", 6, agent="u")]
    assert said(trace(late)) == [("act-after-despawn", "events[7]")]
    both = [*late, ev("x", 7, agent="v")]
    assert sorted(said(trace(both))) == [("act-after-despawn", "events[7]"), ("act-after-despawn", "events[8]")]


def test_without_spawns_nothing_is_said_about_lives() -> None:
    assert said(trace([ev("d", 0, "despawn", "lead", to="w"), ev("a", 1, agent="w"), ev("r", 2, "return", "w", to="x")])) == []
    assert said(trace([spawn("s", 1, None), ev("a", 0, agent="w"), spawn("s2", 1, "u")])) == [("idle-agent", "events[2]")]


def test_a_second_spawn_names_the_first() -> None:
    events = [spawn("s0", 0, "other"), spawn("s1", 1), spawn("s2", 2, agent="w"), spawn("s3", 3), ev("b", 4, agent="other")]
    found = problems(trace(events))
    assert [(p.code, p.where) for p in found] == [("spawned-twice", "events[2]"), ("spawned-twice", "events[3]")]
    assert {p.what for p in found} == {"'w' was spawned by 's1' already"}


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"agent": "w", "to": "lead"}, []),
        ({"agent": "w"}, []),
        ({"agent": "w", "to": "u"}, ["'w' returns to 'u', but 'lead' spawned it"]),
        ({"agent": "u", "from_": "w", "to": "u"}, ["'w' returns to 'u', but 'lead' spawned it"]),
        ({"agent": "w", "from_": "u", "to": "x"}, []),
        ({"agent": "u", "to": "x"}, []),
    ],
)
def test_who_returns_to_whom(fields: dict[str, Any], found: list[str]) -> None:
    events = [spawn("s", 0), ev("a", 1, agent="w"), ev("r", 2, "return", **fields)]
    assert words(trace(events)) == found


# -- results -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call_t", "call_tool", "is_orphan"), [(1, "search", False), (2, "search", False), (3, "search", True), (1, "other", True)]
)
def test_a_result_needs_a_call_of_its_tool_at_its_time_or_before(call_t: float, call_tool: str, is_orphan: bool) -> None:
    events = [ev("c", call_t, "tool_call", tool=call_tool), ev("r", 2, "tool_result", tool="search")]
    assert said(trace(events)) == ([("orphan-result", "events[1]")] if is_orphan else [])


def test_the_earliest_call_of_a_tool_counts_and_an_edge_from_any_call_answers() -> None:
    calls = [ev("c1", 5, "tool_call", tool="s"), ev("c2", 1, "tool_call", tool="s"), ev("m", 0, "message")]
    result = ev("r", 3, "tool_result", tool="s")
    assert said(trace([*calls, result])) == []
    other = ev("r", 6, "tool_result", tool="unheard")
    assert said(trace([*calls, other])) == [("orphan-result", "events[3]")]
    assert said(trace([*calls, other], [("c1", "r")])) == []
    assert said(trace([*calls, other], [("m", "r")])) == [("orphan-result", "events[3]")]
    assert words(trace([*calls, other])) == ["a result of 'unheard' with no call before it"]


# -- costs -------------------------------------------------------------------------------------------------------

WHOLE = {"tokens": 0, "wall_clock_s": 100}


@pytest.mark.parametrize(
    ("fields", "costs", "differs"),
    [
        ({"tokens_in": 0}, {"tokens": 5}, ["tokens"]),
        ({"tokens_out": 0}, {"tokens": 5}, ["tokens"]),
        ({"tokens_in": 0}, {"tokens": 0}, []),
        ({}, {"tokens": 5}, []),
        ({"tokens_in": 2, "tokens_out": 3}, {"tokens": 5}, []),
        ({"tokens_in": 2, "tokens_out": 3}, {"tokens": 4}, ["tokens"]),
        ({"tokens_in": 2, "tokens_out": 3}, {"tokens": 6}, ["tokens"]),
        ({"tokens_in": 2_000_000}, {"tokens": 2_000_001}, []),
        ({"tokens_in": 2_000_000}, {"tokens": 1_999_998}, []),
        ({"tokens_in": 2_000_000}, {"tokens": 2_000_003}, ["tokens"]),
        ({"cost_usd": 0}, {"cost_usd": 1}, ["cost_usd"]),
        ({}, {"cost_usd": 1}, []),
        ({"cost_usd": 0.5}, {}, []),
        ({"cost_usd": 0.5}, {"cost_usd": 0.5000009}, []),
        ({"cost_usd": 0.5}, {"cost_usd": 0.500002}, ["cost_usd"]),
        ({"cost_usd": 0.5}, {"cost_usd": 0}, ["cost_usd"]),
        ({}, {"tool_calls": 1, "messages": 2}, []),
        ({}, {"tool_calls": 0, "messages": 3}, ["tool_calls", "messages"]),
        ({}, {"tool_calls": 2, "messages": 1}, ["tool_calls", "messages"]),
        ({}, {"wall_clock_s": 6}, []),
        ({}, {"wall_clock_s": 5.999999}, []),
        ({}, {"wall_clock_s": 5.9}, ["wall_clock_s"]),
        ({}, {"wall_clock_s": 60}, []),
    ],
)
def test_stated_costs_against_what_events_carry(fields: dict[str, Any], costs: dict[str, float], differs: list[str]) -> None:
    # Three events over six seconds that do not begin at zero; only the first carries anything.
    events = [ev("a", 10, **fields), ev("b", 16, "tool_call", tool="s"), ev("c", 12)]
    found = problems(trace(events, costs=WHOLE | {"tokens": sum(fields.get(f, 0) for f in ("tokens_in", "tokens_out"))} | costs))
    assert [(p.code, p.severity, p.where) for p in found] == [("costs-differ", "warning", f"$.costs.{name}") for name in differs]


def test_a_difference_is_told_with_both_numbers() -> None:
    events = [ev("a", 0, tokens_in=3), ev("b", 4)]
    costs = {"tokens": 5, "wall_clock_s": 1, "messages": 7}
    assert words(trace(events, costs=costs)) == [
        "states 5, its events carry 3",
        "states 7, its events are 2",
        "states 1, its events span 4",
    ]


def test_costs_at_zero_are_right_and_below_it_wrong() -> None:
    assert said(trace([ev("a", 0)], costs={"tokens": 0, "wall_clock_s": 0, "dollars": 0})) == []
    costs = {"tokens": 0, "wall_clock_s": 0, "dollars": -0.5}
    assert words(trace([ev("a", 0)], costs=costs)) == ["a cost is not negative, is -0.5"]


def test_costs_that_are_not_stated_are_not_compared() -> None:
    events = [ev("a", 0, "tool_call", tool="s", tokens_in=4, cost_usd=1.0), ev("b", 9)]
    assert said(trace(events)) == []


# -- records in memory -------------------------------------------------------------------------------------------


def test_amounts_at_zero_are_right_and_below_it_each_is_named() -> None:
    assert said(trace([ev("a", 0, dur=0, tokens_in=0, tokens_out=0, cost_usd=0.0, turn=0)])) == []
    events = [ev("z", 0), ev("a", 1, dur=-0.5, turn=-1), ev("b", 2, cost_usd=-1)]
    assert said(trace(events)) == [("negative", "events[1].dur"), ("negative", "events[1].turn"), ("negative", "events[2].cost_usd")]
    assert words(trace(events))[0] == "must not be negative, is -0.5"


def test_a_negative_amount_does_not_hide_what_else_is_wrong() -> None:
    found = said(trace([ev("a", 0, dur=-1.0), ev("b", 0)], [("a", "b"), ("b", "a")]))
    assert found == [("negative", "events[0].dur"), ("cycle", "events[1]")]


def test_a_wrong_field_is_all_that_is_said() -> None:
    events = [ev("z", 0), ev("a", 1, tokens_in="many", ok="yes"), ev("z", 2)]
    assert said(trace(events)) == [("field", "events[1].ok"), ("field", "events[1].tokens_in")]
    assert said(trace([ev("", 0), ev("a", 0, "shout")])) == [("field", "events[0].id"), ("field", "events[1].type")]


def test_what_json_cannot_hold_is_named() -> None:
    [one] = problems(trace([ev("a", 0, extra={"x": object()}), ev("a", 0)]))
    assert (one.code, one.severity, one.where) == ("field", "error", "$")
    assert one.what.startswith("a record cannot be written as JSON: ")
    [one] = problems(trace([ev("a", 0), ev("a", 0)], rewards={"team": float("inf")}))
    assert (one.code, one.where, one.what, one.hint) == (
        "non-finite",
        "$.rewards.team",
        "inf is not a JSON number",
        "leave out what has no value",
    )


def test_foreign_fields_are_no_problem_even_under_our_names() -> None:
    for extra in ({}, {"colour": "red"}, {"dur": "long"}, {"dur": 3, "colour": None}):
        assert said(trace([ev("a", 0), ev("b", 1, extra=extra)])) == []
    assert said(trace([ev("a", 0), ev("b", 1, extra={"from": 3})])) == [("field", "events[1].from")]
    broken = [ev("a", 0, extra={"colour": "red"}), ev("b", 1, tokens_in="many")]
    assert said(trace(broken)) == [("field", "events[1].tokens_in")]


def test_a_trace_without_events_has_no_answer() -> None:
    assert said(trace([])) == [("field", "$.events")]
    assert findings(trace([], costs={"tokens": 0, "wall_clock_s": 0}), known="fields").problems == []


def test_what_decoding_has_shown_is_not_asked_again() -> None:
    wrong = trace([ev("a", 0, dur=-1.0), ev("a", 1)])
    assert [p.code for p in findings(wrong, known="nothing").problems] == ["negative", "duplicate-id"]
    assert [p.code for p in findings(wrong, known="schema").problems] == ["negative", "duplicate-id"]
    assert [p.code for p in findings(wrong, known="fields").problems] == ["duplicate-id"]
    unlike = trace([ev("a", 0, ok="yes")])
    assert [p.where for p in findings(unlike, known="schema").problems] == ["events[0].ok"]


@pytest.mark.parametrize(
    ("about", "found"),
    [
        ({"lacks": {"timestamps": 3, "tokens": 1}}, ["timestamps (3)", "tokens (1)"]),
        ({"lacks": ["timestamps"]}, []),
        ({}, []),
        ("a log", []),
    ],
)
def test_what_the_source_lacks_is_told(about: Any, found: list[str]) -> None:
    assert words(trace([ev("a", 0)], meta={"import": about})) == found


# -- the collector -----------------------------------------------------------------------------------------------


def test_the_codes_are_those_of_the_table() -> None:
    assert CODES[:4] == ("duplicate-id", "dangling-edge", "cycle", "time-backwards")
    assert CODES[-1] == "source-lacks"
    assert len(CODES) == len(set(CODES)) == 15


def test_a_limit_holds_for_each_severity_and_the_counts_for_all() -> None:
    found = Findings(2)
    for k in range(3):
        found.error("e", f"{k}", "wrong")
        found.warning("w", f"{k}", "odd", "mend it")
    found.error("another", "9", "wrong")
    assert [(p.severity, p.where) for p in found.problems] == [("error", "0"), ("warning", "0"), ("error", "1"), ("warning", "1")]
    assert (found.error_count, found.warning_count) == (4, 3)
    assert list(found.by_code("error").items()) == [("e", 3), ("another", 1)]
    assert found.by_code("warning") == {"w": 3}
    assert [p.where for p in found.errors] == ["0", "1"]
    assert [str(p) for p in found.warnings] == ["0: odd (mend it)", "1: odd (mend it)"]


def test_without_a_limit_everything_is_kept() -> None:
    assert Findings().limit == DEFAULT_LIMIT == 50
    found = Findings(None)
    for k in range(60):
        found.error("e", f"{k}", "wrong")
    assert len(found.problems) == 60
    assert len(problems(trace([ev("same", i) for i in range(60)]))) == 59
    assert len(findings(trace([ev("same", i) for i in range(60)])).problems) == 50
    assert len(problems(trace([ev("same", i) for i in range(60)]), 7)) == 7


def test_codes_of_one_count_stand_by_name() -> None:
    found = Findings()
    for code in ("b", "c", "a", "c"):
        found.warning(code, "$", "odd")
    assert list(found.by_code("warning")) == ["c", "a", "b"]


@pytest.mark.parametrize(
    ("errors", "line"),
    [(0, "no errors"), (1, "0: wrong"), (2, "0: wrong, and 1 more error"), (3, "0: wrong, and 2 more errors"), (1002, "0: wrong, and 1,001 more errors")],
)
def test_the_headline_counts_the_rest(errors: int, line: str) -> None:
    found = Findings()
    found.warning("w", "$", "odd")
    for k in range(errors):
        found.error("e", f"{k}", "wrong")
    assert found.headline() == line


def test_a_problem_is_a_value() -> None:
    one = Problem("c", "error", "$", "wrong")
    assert (str(one), one.hint) == ("$: wrong", "")
    assert one == Problem("c", "error", "$", "wrong", "")
    with pytest.raises(AttributeError):
        one.code = "d"  # type: ignore[misc]
    assert msgspec.json.encode(one) == b'{"code":"c","severity":"error","where":"$","what":"wrong","hint":""}'
