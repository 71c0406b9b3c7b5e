"""The leakage test finds the truth wherever it stands, and lets agents say what they worked out."""

from __future__ import annotations

import pytest

from counterpoint.lab.tasks.leakage import Leak, leaks, marker, readable_texts, truth
from counterpoint.lab.tasks.task import task as find
from counterpoint.trace import Event, Trace, content_ref

NAMES = ("ledger_hunt", "sql_audit", "pointer_chase")
TASK = find("pointer_chase")
INSTANCE = TASK.instance(0)
KEY, SOLUTION = truth(INSTANCE, TASK)


def trace_of(*events: tuple[Event, str], prompts: tuple[str, ...] = ()) -> Trace:
    contents = {content_ref(text): text for text in (*(t for _, t in events), *prompts)}
    made = [Event(**{f: getattr(e, f) for f in e.__struct_fields__ if f != "content_ref"}, content_ref=content_ref(t)) for e, t in events]
    return Trace(trace_id="t", task_id="t", events=made, contents=contents)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_that_agents_are_given_leaks(name: str) -> None:
    task = find(name)
    for seed in range(5):
        instance = task.instance(seed)
        texts = readable_texts(instance)
        assert set(texts) >= {"question", "answer format", f"subtask {instance.subtasks[0].id}", f"document {instance.documents[0].id}"}
        assert leaks(instance, texts.values(), task) == []


def test_a_text_with_the_marker_or_the_solution_is_found() -> None:
    assert leaks(INSTANCE, ["fine", f"x {KEY} y", f"it is {SOLUTION}"], TASK) == [Leak("1", "marker"), Leak("2", "solution")]
    assert leaks(INSTANCE, [f"it is {SOLUTION}"], TASK, written=[f"RETURN: {SOLUTION}"]) == []
    assert leaks(INSTANCE, [f"x {KEY}"], TASK, written=[KEY]) == [Leak("0", "marker")]  # nobody works out a marker


def test_markers_differ() -> None:
    assert len({marker(name, seed) for name in NAMES for seed in range(20)}) == 60


ANSWER = (Event(id="e2", t=2, type="return", agent="lead.1"), SOLUTION)
RESULT = (Event(id="e1", t=1, type="tool_result", agent="lead.1", tool="open"), f"K-1 | Card\n{SOLUTION}")


def test_in_a_trace_the_solution_may_come_from_agents_only() -> None:
    later = (Event(id="e3", t=3, type="tool_result", agent="lead.1", tool="open"), RESULT[1])
    assert leaks(INSTANCE, trace_of(ANSWER), TASK) == []
    assert leaks(INSTANCE, trace_of(ANSWER, later), TASK) == []
    assert leaks(INSTANCE, trace_of(RESULT, ANSWER), TASK) == [Leak("e1", "solution")]
    computed = (Event(id="e1", t=1, type="tool_result", agent="lead.1", tool="python"), SOLUTION)
    assert leaks(INSTANCE, trace_of(computed, ANSWER), TASK) == []
    asked = (Event(id="e0", t=0, type="message", agent="user"), f"Is it {SOLUTION}?")
    assert leaks(INSTANCE, trace_of(asked, ANSWER), TASK) == [Leak("e0", "solution")]


def test_prompts_that_a_trace_keeps_are_searched() -> None:
    prompt = f"You are a worker. The answer is {SOLUTION}."
    event = Event(id="e2", t=2, type="return", agent="lead.1", extra={"call": {"prompt": [content_ref(prompt)]}})
    assert leaks(INSTANCE, trace_of((event, SOLUTION), prompts=(prompt,)), TASK) == [Leak("e2", "solution")]
    secret = f"truth file: {KEY}"
    found = leaks(INSTANCE, trace_of(ANSWER, prompts=(secret,)), TASK)
    assert found == [Leak(content_ref(secret), "marker")]
    hidden = Event(id="e1", t=1, type="message", agent="lead", extra={"debug": KEY})
    assert leaks(INSTANCE, trace_of((hidden, "hello")), TASK) == [Leak("e1", "marker")]
