"""Odd values in a recording: none raises in the team, none loses an event, what was read before, or the trace."""

from __future__ import annotations

import contextvars
import copy
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from counterpoint import Store, problems, record
from counterpoint.recorder.answers import loaded_class
from counterpoint.recorder.recorded_calls import RecordedCalls
from counterpoint.recorder.recording import Recording
from counterpoint.recorder.values import arguments_text, clean
from counterpoint.trace.model_calls import messages_of, model_call

HALF = "a\ud800"


class Sore:
    """Raises at every touch."""

    def __str__(self) -> str:
        raise RuntimeError("str")

    __repr__ = __str__

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError("attribute")


class Role(Enum):
    READER = "reader"


def recorded(folder: Path, act: Callable[[Recording], object]) -> Recording:
    """A team that reads something untrusted, does the odd thing, and stops."""
    rec = record(folder, task="odd", agent="lead")
    with rec:
        with rec.tool_call("read", "page") as call:
            call.result("from outside")
        act(rec)
        rec.stop("done")
    assert rec.trace is not None, rec.problems
    assert [p for p in problems(rec.trace) if p.severity == "error"] == []
    return rec


def loop() -> dict[str, Any]:
    held: dict[str, Any] = {}
    held["self"] = held
    return held


def call(rec: Recording, tool: Any = "t", **fields: Any) -> None:
    with rec.tool_call(tool, "x", **fields) as doing:
        doing.result("y")


def act(rec: Recording, name: Any, **fields: Any) -> None:
    with rec.acting(name, **fields) as doing:
        doing.result("y")


def ask(rec: Recording, name: Any) -> None:
    with rec.model_call(name) as doing:
        doing.result("y")


@pytest.mark.parametrize(
    ("odd", "events"),
    [
        (lambda rec: call(rec, HALF), 2),
        (lambda rec: call(rec, 5), 2),
        (lambda rec: call(rec, Sore()), 2),
        (lambda rec: call(rec, source="web"), 2),
        (lambda rec: call(rec, trusted="no"), 2),
        (lambda rec: rec.tool(lambda: 1, source=7, name=HALF)(), 2),
        (lambda rec: rec.tool(lambda: 1, text=lambda value: value / 0)(), 2),
        (lambda rec: act(rec, HALF), 2),
        (lambda rec: act(rec, ""), 2),
        (lambda rec: act(rec, "ada", role=5), 2),
        (lambda rec: rec.agent(lambda: 1, name=lambda: HALF, role=Role.READER)(), 2),
        (lambda rec: ask(rec, HALF), 1),
        (lambda rec: ask(rec, 7), 1),
        (lambda rec: rec.model(lambda: 1, usage=lambda value: [value])(), 1),
        (lambda rec: rec.model(lambda: 1, usage=lambda value: value / 0)(), 1),
        (lambda rec: rec.spawn(HALF, role=5), 1),
        (lambda rec: rec.message(None, 5, "x"), 1),  # type: ignore[arg-type]
        (lambda rec: rec.message(HALF, "ben", "x"), 1),
        (lambda rec: rec.human("x", by=5), 1),  # type: ignore[arg-type]
        (lambda rec: rec.event("nonsense"), 0),
        (lambda rec: rec.event(None), 0),  # type: ignore[arg-type]
        (lambda rec: rec.decision("spawn", options=5), 1),  # type: ignore[arg-type]
        (lambda rec: rec.tell(extra=5), 0),
        (lambda rec: rec.event("message", x=loop(), y={Sore(): Sore()}), 1),
        (lambda rec: rec.reward(team=Sore()), 0),  # type: ignore[arg-type]
    ],
)
def test_an_odd_value_costs_no_event_and_nothing_that_was_read(
    tmp_path: Path, odd: Callable[[Recording], object], events: int
) -> None:
    rec = recorded(tmp_path, odd)
    trace = rec.trace
    assert trace is not None
    assert len(trace.events) == 3 + events
    assert "open_events" not in trace.meta
    reached: set[str] = set()
    todo = [trace.events[-1].id]  # what the answer rests on, through all edges
    while todo:
        at = todo.pop()
        reached.add(at)
        todo += [e.src for e in trace.edges if e.dst == at and e.src not in reached]
    assert "e2" in reached, "the answer rests on what came from outside"


def test_where_a_result_comes_from_is_said_and_what_is_unclear_is_not_trusted(tmp_path: Path) -> None:
    rec = recorded(tmp_path, lambda rec: (call(rec, source="web"), call(rec, trusted="yes"), call(rec, trusted=True)))
    assert rec.trace is not None
    results = [event for event in rec.trace.events if event.type == "tool_result"]
    assert [(event.trusted, event.source) for event in results] == [(False, "tool")] * 3 + [(True, "tool")]
    assert [line.split(" is n")[0] for line in rec.problems] == ["source=web", "trusted=yes"]


@pytest.mark.parametrize(
    ("given", "kept"),
    [(True, 1), (np.bool_(True), 1), (np.float32(0.5), 0.5), (np.int64(2), 2), (Decimal("0.5"), 0.5), (np.array(0.5), 0.5)],
)
def test_a_reward_is_any_number_that_there_is(tmp_path: Path, given: Any, kept: float) -> None:
    rec = recorded(tmp_path, lambda rec: (rec.reward(team=given), rec.metric(right=given)))
    assert rec.trace is not None
    assert (rec.problems, rec.trace.rewards, rec.trace.metrics) == ([], {"team": kept}, {"right": kept})
    assert type(rec.trace.rewards["team"]) in (int, float)


@pytest.mark.parametrize("given", ["1", None, float("nan"), 10**400, [1.0], np.array([1.0, 2.0]), 1j])
def test_what_is_no_number_is_said_and_left_out(tmp_path: Path, given: Any) -> None:
    rec = recorded(tmp_path, lambda rec: rec.reward(team=given, **{HALF: 1}))
    assert rec.trace is not None
    assert rec.trace.rewards == {"a?": 1}
    assert len(rec.problems) == 1
    assert rec.problems[0].endswith("is not a finite number: dropped")


def test_tokens_and_money_may_be_numbers_of_numpy(tmp_path: Path) -> None:
    def spend(rec: Recording) -> None:
        with rec.model_call("m", tokens_in=np.int64(12)) as step:
            step.result("x", cost_usd=np.float32(0.5), tokens_out=np.int32(3))
        rec.model(lambda: {"usage": {"prompt_tokens": np.int64(7)}})()

    rec = recorded(tmp_path, spend)
    assert rec.trace is not None
    first, second = rec.trace.events[2:4]
    assert (first.tokens_in, first.tokens_out, first.cost_usd, second.tokens_in) == (12, 3, 0.5, 7)
    assert rec.problems == []


def test_what_was_read_may_be_one_id_and_an_edge_of_no_type_is_said_at_once(tmp_path: Path) -> None:
    def act(rec: Recording) -> None:
        rec.aggregate("one", reads="e1")
        rec.aggregate("odd", reads=[("e1", "nonsense"), ("e2", "causal")])
        assert rec.sync(), "what is refused at once holds up nothing"

    rec = recorded(tmp_path, act)
    assert rec.trace is not None
    read = {event.id: [edge.src for edge in rec.trace.edges if edge.dst == event.id] for event in rec.trace.events}
    assert (read["e3"], read["e4"]) == (["e1"], ["e2"])
    assert rec.problems == ["no edge of type 'nonsense': its edge was left out"]


def test_the_list_says_when_a_recorded_run_began(tmp_path: Path) -> None:
    recorded(tmp_path, lambda rec: None)
    with Store(tmp_path) as store:
        (row,) = store.rows()
        assert row.started is not None
        assert row.started <= row.added


def test_the_model_is_the_one_that_the_answer_names(tmp_path: Path) -> None:
    with record(tmp_path, task="demo", agent="lead") as rec:
        ask = rec.model(name="alias")(lambda words: {"text": words, "model": "big-2026-11-01", "usage": {"prompt_tokens": 3}})
        ask("a")
        rec.model(name="alias")(lambda words: words)("b")
    assert [(e.model, e.tokens_in) for e in rec.trace.events if e.model] == [("big-2026-11-01", 3), ("alias", None)]


def test_who_leads_decides_and_others_think_aloud_which_is_a_cause_and_no_message(tmp_path: Path) -> None:
    """The first agent leads from the beginning, another one from its first spawn. What was sent is read as a message."""
    with record(tmp_path, task="demo", agent="lead") as rec:

        @rec.agent
        def leaf() -> None:
            pass

        @rec.agent
        def helper() -> str:
            with rec.model_call("m") as aloud:
                aloud.result("first I look")
            sent = rec.message(None, "lead", "I look")
            last = rec.noop("done", reads=[aloud.event, sent])
            leaf()
            with rec.model_call("m") as leading:
                leading.result("then I ask")
            return f"{aloud.event} {sent} {last} {leading.event}"

        with rec.model_call("m") as first:
            first.result("who helps")
        aloud, sent, last, leading = helper().split()
    trace = rec.trace
    kinds = [trace.events[trace.index[name]].type for name in (first.event, aloud, leading)]
    assert kinds == ["orchestrator_decision", "message", "orchestrator_decision"]
    assert [(e.src, e.type) for e in trace.edges if e.dst == last] == [(aloud, "causal"), (sent, "message")]


def test_a_tools_answer_rests_on_what_was_returned_and_decided_in_it(tmp_path: Path) -> None:
    with record(tmp_path, task="demo", agent="lead") as rec:

        @rec.agent
        def helper(what: str) -> str:
            return what.upper()

        decided = []

        @rec.tool
        def ask(what: str) -> str:
            found = helper(what)
            decided.append(rec.decision("delegate", found))
            return found

        ask("a")
    trace = rec.trace
    answer = next(e.id for e in trace.events if e.type == "tool_result")
    returned = next(e.id for e in trace.events if e.type == "return")
    call = next(e.id for e in trace.events if e.type == "tool_call")
    read = {(e.src, e.type) for e in trace.edges if e.dst == answer}
    assert read == {(call, "tool_dependency"), (decided[0], "causal")}
    assert (returned, "return") in {(e.src, e.type) for e in trace.edges if e.dst == decided[0]}


@pytest.mark.parametrize(
    ("said", "names"),
    [(90, ("tokens_in", "input_tokens", "prompt_tokens")), (12, ("tokens_out", "output_tokens", "completion_tokens"))],
)
def test_tokens_are_read_under_each_name_that_models_give_them(tmp_path: Path, said: int, names: tuple[str, ...]) -> None:
    with record(tmp_path, task="demo", agent="lead") as rec:
        for name in names:
            rec.model(lambda name=name: {"text": "x", "usage": {name: said}})()
    assert [getattr(e, names[0]) for e in rec.trace.events] == [said] * 3


def test_options_of_a_decision_may_be_anything_that_can_be_counted_off(tmp_path: Path) -> None:
    with record(tmp_path, task="demo", agent="lead") as rec:
        for options in (("a", "b"), iter("ab"), {"a": 1, "b": 2}, None):
            rec.decision("delegate", "a", options=options)  # type: ignore[arg-type]
    assert [e.options for e in rec.trace.events] == [["a", "b"]] * 3 + [None]


def test_a_recording_may_be_left_in_another_context_than_it_was_entered_in(tmp_path: Path) -> None:
    rec = record(task="fixture", agent="lead", store=tmp_path)
    inside = contextvars.copy_context()
    inside.run(rec.__enter__)
    inside.run(rec.stop, "done")
    contextvars.copy_context().run(rec.__exit__, None, None, None)
    assert rec.trace is not None
    assert problems(rec.trace) == []


def test_who_speaks_where_nothing_is_recorded_gets_no_event(tmp_path: Path) -> None:
    assert record(task="early", agent="lead", store=tmp_path).human("hello") == ""


def test_arguments_that_no_json_holds_are_told_in_words() -> None:
    loop: list[Any] = []
    loop.append(loop)
    assert arguments_text(["plan", "n"], (loop, 1), {})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "long"])
def test_a_field_that_is_no_finite_number_is_left_out_and_said(value: object) -> None:
    notes: list[str] = []
    assert clean({"dur": value, "turn": 2}, notes.append) == {"turn": 2}
    assert len(notes) == 1
    assert "'dur'" in notes[0]


@dataclass
class Page:
    lines: list[str]


def test_what_is_changed_afterwards_is_recorded_as_it_was(tmp_path: Path) -> None:
    """Arguments, answers and messages are looked at when they come, however late they are written."""
    given: list[Any] = [["a"], {"b": [1]}]
    gives: list[Any] = [{"page": ["one", {"n": 1}]}, [1, [2]], Page(["x"]), ({"k": "v"}, b"y"), ["é" * 2_000]]
    messages = [{"role": "user", "content": "first"}]
    response: dict[str, Any] = {"text": "said", "usage": {"prompt_tokens": 3}, "tool_calls": [{"name": "f", "arguments": "{}"}]}
    before = copy.deepcopy((given, gives, messages, response))
    with Store(tmp_path, flush_ms=600_000) as store, record(store, task="odd", agent="lead") as rec:
        assert rec.session is not None
        look = rec.tool(lambda number, *given: gives[number])
        ask = rec.model(name="m")(lambda messages: response)
        with rec.session.run._commit_lock:  # nothing is written while the team works
            answers = [look(number, *given) for number in range(len(gives))]
            ask(messages)
            assert [id(answer) for answer in answers] == [id(one) for one in gives]
            for one in (given, given[0], given[1], gives[0]["page"][1], gives[0]["page"], gives[0], gives[1][1], gives[1],
                        gives[2].lines, gives[3][0], gives[4], messages[0], messages, response["usage"], response["tool_calls"][0],
                        response["tool_calls"], response):  # fmt: skip
                one.clear()
    trace = rec.trace
    assert trace is not None
    assert rec.problems == []
    calls = RecordedCalls(trace).every
    assert [call.answer(trace, loaded_class).value for call in calls] == [*before[1], before[3]]
    asked = [trace.text(call.event) for call in calls[:-1]]
    assert asked == [arguments_text(["number"], (number, *before[0]), {}) for number in range(len(before[1]))]
    step = calls[-1].event
    assert [message["content"] for message in messages_of(trace, step)] == ["first"]
    assert ((model_call(step) or {})["tool_calls"], step.tokens_in) == (before[3]["tool_calls"], 3)
