"""What was said in a model call, a tool call or an agent's run, from whichever attribute or event of a span holds it.

Read: messages of the GenAI conventions as attributes, as one event per message, and as the one event with all details; numbered
`gen_ai.prompt.N` and `gen_ai.completion.N`; Traceloop's entities; ADK's requests and responses; the Vercel SDK's texts.

Always true: nothing raises on a strange value; what is not captured is an empty string; tool calls in a message are not its
words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from counterpoint.errors import InputError
from counterpoint.formats.importing.values import as_dict, as_list, compact, decode, string, text_of
from counterpoint.formats.otel.records import Happening

_DETAILS = "gen_ai.client.inference.operation.details"
_ENTITY = ("traceloop.entity.", "ioa_observe.entity.")


class Said(NamedTuple):
    """A message: who said it, its words, and the reasoning before them."""

    role: str
    text: str
    thinking: str = ""


def parsed(value: Any) -> Any:
    """The value that a string of JSON holds, or the value itself."""
    if isinstance(value, str) and value.lstrip()[:1] in ("[", "{"):
        try:
            return decode(value)
        except InputError:
            return value
    return value


def _messages(value: Any, role: str) -> list[Said]:
    """The messages in a value of any of the known shapes."""
    given, value = value, parsed(value)
    if isinstance(value, dict) and isinstance(given, str) and not any(k in value for k in _MESSAGE):
        value = given  # JSON that is what was said, not how
    if isinstance(value, str):
        return [Said(role, value)] if value else []
    found = []
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, dict):
            found.append(_message(item, role))
        elif isinstance(item, str) and item:
            found.append(Said(role, item))
    return found


def _message(item: dict[str, Any], role: str) -> Said:
    inner = item.get("message")
    if isinstance(inner, dict):
        item = {**item, **inner}
    content = parsed(item.get("parts") if item.get("parts") is not None else item.get("content", item.get("text")))
    words: list[str] = []
    thoughts: list[str] = []
    for part in content if isinstance(content, list) else [content]:
        kind = str(part.get("type", "")) if isinstance(part, dict) else ""
        if isinstance(part, dict) and ("tool" in kind or "function" in kind or any(k in part for k in _CALLS)):
            continue
        text = text_of(part) if not isinstance(part, dict) or any(k in part for k in _WORDS) else ""
        is_thought = kind in ("reasoning", "thinking") or (isinstance(part, dict) and part.get("thought") is True)
        (thoughts if is_thought else words).append(text)
    own = string(item.get("role")) or string(item.get("type")) or role
    return Said(own, "\n".join(w for w in words if w), "\n".join(t for t in thoughts if t))


_MESSAGE = ("role", "parts", "content", "text", "message")
_CALLS = ("function_call", "functionCall", "function_response", "functionResponse", "toolUse", "toolResult", "tool_calls")
_WORDS = ("text", "content", "value", "output", "thinking")


def _numbered(attrs: dict[str, Any], prefix: str, role: str) -> list[Said]:
    found = []
    for n in range(4096):
        head = f"{prefix}.{n}."
        content, who = attrs.get(head + "content"), attrs.get(head + "role")
        if content is None and who is None:
            break
        found.extend([m._replace(role=str(who or role)) for m in _messages(content, str(who or role))])
    return found


def _told(events: Sequence[Happening]) -> Iterator[tuple[str, Any]]:
    """Role and content of every event that is a message."""
    for event in events:
        parts = event.name.split(".")
        if len(parts) == 3 and parts[0] == "gen_ai" and parts[2] == "message":
            content = event.attrs.get("content", event.attrs.get("gen_ai.event.content"))
            yield parts[1], event.attrs if content is None else content
        elif event.name == "gen_ai.content.prompt":
            yield "user", event.attrs.get("gen_ai.prompt")


def answer(attrs: dict[str, Any], events: Sequence[Happening]) -> Said:
    """What the model (or the agent) answered."""
    for messages in _answers(attrs, events):
        text = "\n".join(m.text for m in messages if m.text)
        thinking = "\n".join(m.thinking for m in messages if m.thinking)
        if text or thinking:
            return Said("assistant", text, thinking)
    return Said("assistant", "")


def _answers(attrs: dict[str, Any], events: Sequence[Happening]) -> Iterator[list[Said]]:
    yield _messages(attrs.get("gen_ai.output.messages"), "assistant")
    yield _numbered(attrs, "gen_ai.completion", "assistant")
    yield _messages(attrs.get("gen_ai.completion"), "assistant")
    yield _messages(as_dict(parsed(attrs.get("gcp.vertex.agent.llm_response"))).get("content"), "assistant")
    yield _messages(attrs.get("ai.response.text"), "assistant")
    for event in events:
        if event.name == "gen_ai.choice":
            found = (event.attrs.get(k) for k in ("message", "content", "gen_ai.event.content"))
            yield _messages(next((v for v in found if v is not None), None), "assistant")
        elif event.name in (_DETAILS, "gen_ai.content.completion"):
            yield _messages(event.attrs.get("gen_ai.output.messages", event.attrs.get("gen_ai.completion")), "assistant")
    yield _messages(attrs.get("final_result", attrs.get("output.value")), "assistant")
    yield [Said("assistant", entity) for entity in (_entity(attrs, "output"),) if entity]


def question(attrs: dict[str, Any], events: Sequence[Happening]) -> str:
    """What the model (or the agent) was asked: the latest message of a user."""
    for messages in _questions(attrs, events):
        asked = [m.text for m in messages if m.role in ("user", "human", "HumanMessage") and m.text]
        if asked:
            return asked[-1]
    return ""


def _questions(attrs: dict[str, Any], events: Sequence[Happening]) -> Iterator[list[Said]]:
    yield _messages(attrs.get("gen_ai.input.messages"), "user")
    yield _numbered(attrs, "gen_ai.prompt", "user")
    yield _messages(attrs.get("gen_ai.prompt"), "user")
    yield [m for role, content in _told(events) for m in _messages(content, role)]
    for event in events:
        if event.name == _DETAILS:
            yield _messages(event.attrs.get("gen_ai.input.messages"), "user")
    yield _messages(as_list(as_dict(parsed(attrs.get("gcp.vertex.agent.llm_request"))).get("contents")), "user")
    yield _messages(attrs.get("ai.prompt.messages"), "user")
    yield _messages(attrs.get("ai.prompt", attrs.get("input.value")), "user")
    yield [Said("user", entity) for entity in (_entity(attrs, "input"),) if entity]


def _entity(attrs: dict[str, Any], part: str) -> str:
    return next((compact(attrs[p + part]) for p in _ENTITY if attrs.get(p + part)), "")


def tool_input(attrs: dict[str, Any], events: Sequence[Happening]) -> str:
    """The arguments of a tool call."""
    names = (
        "gen_ai.tool.call.arguments",
        "gcp.vertex.agent.tool_call_args",
        "tool_arguments",
        "ai.toolCall.args",
        "tool.parameters",
    )
    found = next((attrs[n] for n in (*names, "input.value") if attrs.get(n) not in (None, "")), None)
    if found is None:
        found = next((content for role, content in _told(events) if role == "tool"), None)
    return compact(found) if found is not None else _entity(attrs, "input")


def tool_output(attrs: dict[str, Any], events: Sequence[Happening]) -> str:
    """The answer of a tool."""
    names = ("gen_ai.tool.call.result", "gcp.vertex.agent.tool_response", "tool_response", "ai.toolCall.result", "output.value")
    found = next((attrs[n] for n in names if attrs.get(n) not in (None, "")), None)
    if found is None:
        found = next((e.attrs.get("message", e.attrs.get("content")) for e in events if e.name == "gen_ai.choice"), None)
    return compact(found) if found is not None else _entity(attrs, "output")
