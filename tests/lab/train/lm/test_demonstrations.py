"""Recorded calls in tokens: the same as the endpoint would read, with and without tools."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

if not all(map(find_spec, ("torch", "tokenizers"))):
    pytest.skip("needs the llm extra", allow_module_level=True)

import counterpoint as cpt
from counterpoint.lab.lm.chat import Chat
from counterpoint.lab.lm.serving.backend import EngineBackend
from counterpoint.lab.lm.serving.requests import read_chat
from counterpoint.lab.lm.serving.tool_calls import read_calls
from counterpoint.lab.train.lm.demonstrations import retokenised
from tiny_help import make_tiny

TOOLS = [{"type": "function", "function": {"name": "search", "description": "Look it up.", "parameters": {"type": "object", "properties": {"words": {"type": "string"}}}}}]
CALL = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": '{"words": "Oslo"}'}}
ASKED: list[dict[str, Any]] = [{"role": "system", "content": "You act."}, {"role": "user", "content": "where?"}]
USED = [*ASKED, {"role": "assistant", "content": None, "tool_calls": [CALL]}, {"role": "tool", "tool_call_id": "c1", "content": "in Norway"}]
WITH_TOOLS = (
    "{% if tools %}<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="module", params=["in words", "by the template"])
def chat(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Chat:
    folder = make_tiny(tmp_path_factory.mktemp("tiny"))
    if request.param == "by the template":
        (folder / "chat_template.jinja").write_text(WITH_TOOLS)
    return Chat.read(folder)


def recorded(tmp_path: Path, messages: list[dict[str, Any]], tools: list[Any] | None, message: dict[str, Any]) -> cpt.Trace:
    rec = cpt.record(tmp_path / "store", task="t")
    with rec, rec.model_call("m") as step:
        step.tell(messages=messages, **({} if tools is None else {"tools": tools}))
        step.result({"choices": [{"message": {"role": "assistant", **message}, "finish_reason": "stop"}]})
    assert rec.trace is not None
    return rec.trace


def asked(chat: Chat, messages: list[dict[str, Any]], tools: list[Any] | None) -> list[int]:
    """What the endpoint reads."""
    backend = EngineBackend(None, "m")  # type: ignore[arg-type]  # nothing is computed
    backend.chat = chat
    body = {"model": "m", "messages": messages, **({} if tools is None else {"tools": tools})}
    return backend._prompts(read_chat(json.dumps(body).encode()))[0]


@pytest.mark.parametrize(("messages", "tools"), [(ASKED, None), (ASKED, TOOLS), (USED, TOOLS), (USED, None)])
def test_a_recorded_call_is_read_as_the_endpoint_reads_it(chat: Chat, tmp_path: Path, messages: list[dict[str, Any]], tools: list[Any] | None) -> None:
    trace = recorded(tmp_path, messages, tools, {"content": "in Oslo"})
    found = retokenised(trace, trace.events[-1].id, chat)
    assert found is not None
    assert found[0] == asked(chat, messages, tools)
    assert chat.decode(found[1]).strip() == "in Oslo"
    assert found[1][-1] in chat.ends


def test_an_answer_that_calls_a_tool_is_written_so_that_the_endpoint_reads_the_call(chat: Chat, tmp_path: Path) -> None:
    trace = recorded(tmp_path, ASKED, TOOLS, {"content": "", "tool_calls": [CALL]})
    found = retokenised(trace, trace.events[-1].id, chat)
    assert found is not None
    _, calls = read_calls(chat.decode(found[1]), ["search"])
    assert [(call.name, json.loads(call.arguments)) for call in calls] == [("search", {"words": "Oslo"})]
    assert found[1][-1] in chat.ends


def test_a_call_without_words_is_left_out(chat: Chat, tmp_path: Path) -> None:
    trace = recorded(tmp_path, ASKED, TOOLS, {"content": ""})
    assert retokenised(trace, trace.events[-1].id, chat) is None
