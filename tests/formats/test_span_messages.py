"""What frameworks store as messages, and LangGraph's marks, shape by shape."""

from __future__ import annotations

from typing import Any

import pytest

from counterpoint.formats.spans.langgraph import human_of, mark_graphs, mark_tool, result_text
from counterpoint.formats.spans.span import Span, last_answer, last_request, opened

CALL = ("c1", "find", '{"q":1}')


@pytest.mark.parametrize(
    ("value", "text", "calls"),
    [
        ("Yes.", "Yes.", []),
        ({"role": "assistant", "content": "Yes."}, "Yes.", []),
        ([{"role": "user", "content": "No."}, {"role": "AI", "content": [{"type": "text", "text": "Yes."}, {"type": "tool_result", "text": "x"}]}], "Yes.", []),
        ('{"messages": [{"type": "ai", "content": "Yes."}]}', "Yes.", []),
        ('"{\\"output\\": {\\"role\\": \\"assistant\\", \\"content\\": \\"Yes.\\"}}"', "Yes.", []),
        ({"choices": [{"message": {"role": "assistant", "content": "Yes."}}]}, "Yes.", []),
        ({"input": [{"role": "user", "parts": [{"text": "Yes."}]}]}, "Yes.", []),
        ({"generations": [[{"text": "Yes.", "message": {"kwargs": {"content": "x"}}}]]}, "Yes.", []),
        ({"generations": [{"message": {"content": "Yes."}}]}, "Yes.", []),
        ({"lc": 1, "id": ["a", "AIMessageChunk"], "kwargs": {"content": "Yes."}}, "Yes.", []),
        ([{"type": "thinking", "thinking": "x", "text": ""}, {"type": "text", "text": "Yes."}], "Yes.", []),
        ({"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "function": {"name": "find", "arguments": '{"q":1}'}}]}, "", [CALL]),
        ({"role": "assistant", "content": None, "additional_kwargs": {"tool_calls": [{"id": "c1", "name": "find", "args": {"q": 1}}]}}, "", [CALL]),
        ({"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "find", "input": {"q": 1}}, {"type": "text", "text": "Yes."}]}, "Yes.", [CALL]),
        ([{"type": "tool-call", "toolName": "find", "toolCallId": "c1", "args": {"q": 1}}], "", [CALL]),
        ({"role": "assistant", "parts": [{"type": "tool_call", "name": "find", "tool_call_id": "c1", "arguments": {"q": 1}}]}, "", [CALL]),
        ([{"type": "function_call", "name": "find", "call_id": "c1", "arguments": '{"q":1}'}], "", [CALL]),
        ({"role": "assistant", "content": "", "tool_calls": [{"id": "c1", "function": {}}, 7]}, "", []),
        ({"content": "Yes."}, "Yes.", []),
        (None, "", []),
    ],
)  # fmt: skip
def test_the_last_answer(value: Any, text: str, calls: list[Any]) -> None:
    found = last_answer(value)
    assert (found.text, list(found.calls)) == (text, calls)


def test_what_a_model_was_told() -> None:
    talk = [{"role": "user", "content": "One."}, {"type": "human", "content": "Two."}, {"role": "assistant", "content": "Three."}]
    assert last_request(talk) == "Two."
    assert last_request(talk[2:]) == "Three."
    assert last_request({"task": "Do it.", "content": "x"}) == "Do it."
    assert last_request({"task": "", "content": "x"}) == last_request('{"content": "x"}') == last_request("x") == "x"
    deep: Any = {"role": "user", "content": "far"}
    for _ in range(30):
        deep = [deep]
    assert last_request(deep) == "far"


def test_messages_are_looked_for_twelve_levels_deep() -> None:
    pair = [{"lc": 1, "id": ["x", "HumanMessageChunk"], "kwargs": {"content": "a"}}, {"role": "assistant", "content": "b"}]

    def lists(depth: int) -> Any:
        value: Any = pair
        for _ in range(depth - 1):
            value = [value]
        return value

    def objects(depth: int) -> Any:
        value: Any = {"role": "user", "content": "a"}
        for _ in range(depth):
            value = {"messages": value}
        return value

    assert (last_request(lists(12)), last_answer(lists(12)).text, last_request(objects(12))) == ("a", "b", "a")
    assert last_request(lists(13)) not in ("a", "b")
    assert last_answer(lists(13)).text not in ("a", "b")
    assert last_request(objects(13)) != "a"


def test_json_in_text_is_opened_at_most_twice() -> None:
    assert opened('{"a": 1}') == {"a": 1}
    assert opened('"[1]"') == [1]
    assert opened('"\\"[1]\\""') == "[1]"
    assert (opened("{broken"), opened("plain"), opened(3)) == ("{broken", "plain", 3)


@pytest.mark.parametrize(
    ("tool", "given", "gave", "kind", "to"),
    [
        ("transfer_to_math", None, None, "handoff", "math"), ("hand_off_to_math", None, None, "handoff", "math"),
        ("handoff_to_math", None, None, "handoff", "math"), ("delegate_to_math", None, None, "handoff", "math"),
        ("search", None, "Command(update={}, goto='math')", "handoff", "math"), ("search", None, {"goto": ["math", "x"]}, "handoff", "math"),
        ("transfer_to_x", None, {"output": {"lg_name": "Command", "goto": "math"}}, "handoff", "math"), ("search", None, {"goto": []}, "tool", None),
        ("task", '{"subagent_type": "math"}', "done", "tool", "math"), ("to_math", {"x": 1}, "done", "tool", None),
    ],
)  # fmt: skip
def test_tools_that_pass_control_on(tool: str, given: Any, gave: Any, kind: str, to: str | None) -> None:
    span = Span("s", "t", kind="tool", tool=tool)
    mark_tool(span, given, gave)
    assert (span.kind, span.to) == (kind, to)


def test_what_a_tool_gave_and_what_a_graph_asked() -> None:
    wrapped = {"output": {"lc": 1, "kwargs": {"content": [{"text": "42"}]}}}
    assert [result_text(v) for v in (wrapped, {"content": "42"}, '{"output": "42"}', "42")] == ["42"] * 4
    assert (result_text({"a": 1}), result_text(None), result_text({"output": 1, "b": 2})) == ('{"a":1}', "", '{"output":1,"b":2}')
    graph = Span("g", "t", name="graph", end=7.0)
    human = human_of(graph, {"__interrupt__": [{"value": "Really?"}, "Sure?"]}, 3)
    assert human is not None
    assert (human.id, human.trace, human.parent, human.name, human.kind, human.start, human.end, human.order, human.input, human.extra) == (
        "g:interrupt", "t", "g", "interrupt", "human", 7.0, 7.0, 3, "Really?\nSure?", {"is_question": True},
    )  # fmt: skip
    assert human_of(graph, {"x": 1}, 3) is None


@pytest.mark.parametrize(
    ("name", "meta", "agent"),
    [
        ("LangGraph", {"langgraph_node": "math"}, "math"), ("CompiledStateGraph", {"langgraph_node": "math"}, "math"),
        ("CompiledGraph", {"langgraph_node": "math"}, "math"), ("CompiledGraph", {"langgraph_node": "tools"}, "CompiledGraph"),
        ("solver", {"langgraph_node": "math"}, "solver"), ("solver", {"langgraph_node": "math", "lc_agent_name": "Ada"}, "Ada"),
    ],
)  # fmt: skip
def test_a_graph_inside_a_graph_is_an_agent_with_the_best_name(name: str, meta: dict[str, str], agent: str) -> None:
    spans = [Span("top", "t", name="LangGraph"), Span("n", "t", "top"), Span("in", "t", "n", name), Span("node", "t", "in"), Span("call", "t", "node", kind="llm")]
    places = {"n": "a:1", "in": "a:1", "node": "a:1|b:2", "call": "a:1|b:2"}
    metas: dict[str, dict[str, str]] = {s.id: {"checkpoint_ns" if s.id == "n" else "langgraph_checkpoint_ns": places.get(s.id, "")} for s in spans}
    metas["in"] |= meta
    mark_graphs(spans, metas)
    assert [(s.id, s.kind, s.agent) for s in spans if s.kind == "agent"] == [("in", "agent", agent)]
    spans = [Span("top", "t", name="LangGraph"), Span("n", "t", "top"), Span("call", "t", "n", kind="llm"), Span("x", "t", "gone"), Span("loop", "t", "loop")]
    mark_graphs(spans, {"n": {"langgraph_checkpoint_ns": "a:1"}, "call": {"langgraph_checkpoint_ns": "a:1"}})
    assert [(s.id, s.agent) for s in spans if s.kind == "agent"] == [("top", "LangGraph")]
