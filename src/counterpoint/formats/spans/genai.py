"""OpenTelemetry spans as agents, model calls and tools: the GenAI conventions, old and new, and those of other tracers.

What a span is: by `gen_ai.operation.name`; before it `gen_ai.system`, `prompt_tokens` and `completion_tokens`; Traceloop's
and Observe's span kinds; ADK's `call_llm`; Pydantic AI's and the Vercel SDK's names; `openinference.span.kind` where a span
has nothing else. What was said: messages of the conventions as attributes, as one event per message, and as the one event
with all details; numbered `gen_ai.prompt.N` and `gen_ai.completion.N`; Traceloop's entities; ADK's requests and responses;
the Vercel SDK's texts.

Always true: an agent's instance is its span, because `gen_ai.agent.id` names what was configured and is shared by its runs
(it stays in `extra`); on other spans the agent's name counts only where no agent span is above them; what was not captured is
an empty text, and tool calls in a message are not its words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from counterpoint.errors import InputError
from counterpoint.formats.importing.usage import Usage
from counterpoint.formats.importing.values import as_dict, as_list, compact, count, decode, number, string, text_of
from counterpoint.formats.spans.raw_records import RawSpan, SpanEvent
from counterpoint.formats.spans.span import Kind, Span
from counterpoint.formats.spans.spellings import (
    AGENT_ID,
    AGENT_INSTANCE,
    AGENT_NAME,
    HANDOFF_SOURCE,
    HANDOFF_TARGET,
    PLAN,
    TRANSFER_MODE,
    kept_of,
)

_OPERATIONS: dict[str, Kind] = {
    "chat": "llm",
    "generate_content": "llm",
    "text_completion": "llm",
    "completion": "llm",
    "embeddings": "llm",
    "execute_tool": "tool",
    "invoke_agent": "agent",
    "retrieval": "retriever",
    "agent_handoff": "handoff",
    "handoff": "handoff",
    "run_guardrail": "guardrail",
    "guardrail": "guardrail",
    "human_input": "human",
    "evaluate": "evaluator",
    "invoke_workflow": "chain",
    "create_agent": "chain",
    "plan": "chain",
}
_OTHER_KINDS: dict[str, Kind] = {
    "agent": "agent",
    "tool": "tool",
    "llm": "llm",
    "embedding": "llm",
    "retriever": "retriever",
    "guardrail": "guardrail",
    "evaluator": "evaluator",
}
_INPUT = ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.usage.prompt_tokens", "llm.token_count.prompt")
_OUTPUT = (
    "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.usage.completion_tokens", "llm.token_count.completion"
)  # fmt: skip
_READ = (
    "gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_read_input_tokens", "gen_ai.usage.details.cache_read_tokens",
    "gen_ai.usage.cache_read_tokens", "gen_ai.usage.input_tokens.cached",
)  # fmt: skip
_WROTE = (
    "gen_ai.usage.cache_creation.input_tokens", "gen_ai.usage.cache_creation_input_tokens",
    "gen_ai.usage.cache_write_input_tokens", "gen_ai.usage.details.cache_write_tokens",
)  # fmt: skip
_REASONING = (
    "gen_ai.usage.reasoning.output_tokens", "gen_ai.usage.reasoning_tokens", "gen_ai.usage.details.reasoning_tokens"
)  # fmt: skip


COUNTS = (*_INPUT, *_OUTPUT, *_READ, *_WROTE, *_REASONING)
"""Every name of a count of tokens."""


def _first(attrs: dict[str, Any], names: Sequence[str]) -> Any:
    return next((attrs[n] for n in names if attrs.get(n) is not None), None)


def usage_of(attrs: dict[str, Any]) -> Usage | None:
    """The tokens of a span. The conventions count the cache as input; a cache larger than the input was left out of it."""
    total, out = _first(attrs, _INPUT), _first(attrs, _OUTPUT)
    read, wrote, reasoning = (count(_first(attrs, names)) or 0 for names in (_READ, _WROTE, _REASONING))
    if (plain := count(total)) is not None and read + wrote > plain:
        return Usage(plain, read, wrote, count(out) or 0, reasoning)
    return Usage.whole(total, out, cached=read, written=wrote, reasoning=reasoning)


def kind_of(raw: RawSpan) -> Kind:
    """What a span is."""
    attrs, name = raw.attrs, raw.name
    operation = string(attrs.get("gen_ai.operation.name"))
    if operation == "invoke_agent" and not (_agent_name(raw) or attrs.get("gen_ai.agent.id")):
        return "chain"  # some tracers call the whole workflow so
    if operation in ("execute_tool", None) and _passes_control(attrs):
        return "handoff"
    if operation == PLAN and (usage_of(attrs) is not None or answer(attrs, raw.events).text):
        return "llm"
    if operation in _OPERATIONS:
        return "chain" if "(merged)" in name or "merged tools" in name else _OPERATIONS[operation]
    if any(key.startswith("gen_ai.guardrail.") for key in attrs):
        return "guardrail"
    for key in ("traceloop.span.kind", "ioa_observe.span.kind", "openinference.span.kind"):
        if key in attrs:
            return _OTHER_KINDS.get(str(attrs[key]).lower(), "chain")
    if attrs.get("gen_ai.tool.name") or name == "ai.toolCall":
        return "tool"
    if name == "agent run" or name.startswith("agent run "):
        return "agent"
    is_call = usage_of(attrs) is not None or "gen_ai.completion.0.role" in attrs or attrs.get("llm.request.type") is not None
    return "llm" if is_call or (name == "call_llm" and "gen_ai.request.model" in attrs) else "chain"


def _passes_control(attrs: dict[str, Any]) -> bool:
    """Whether a call hands the work over for good: a target alone may be a sub-agent that returns."""
    mode = attrs.get(TRANSFER_MODE)
    return mode == "pass_control" if mode else bool(attrs.get(HANDOFF_TARGET[0]))


def _agent_name(raw: RawSpan) -> str | None:
    attrs = raw.attrs
    named = string(_first(attrs, AGENT_NAME))
    if named is None and raw.name.startswith("invoke_agent "):
        named = raw.name.removeprefix("invoke_agent ").strip()
    if named is None and (entity := string(attrs.get("ioa_observe.entity.name"))):
        return entity.rsplit(".", 1)[0]  # agent and method: an agent has several
    return named or string(attrs.get("traceloop.entity.name")) or None


def genai_span(raw: RawSpan, kind: Kind | None = None) -> Span:
    """A span in our form, of the kind that is given or that its attributes say."""
    kind, attrs = kind or kind_of(raw), raw.attrs
    span = Span(
        id=raw.id, trace=raw.trace, parent=raw.parent, name=raw.name, kind=kind, start=raw.start, end=raw.end, order=raw.order
    )
    span.ok, span.error = raw.ok, raw.error
    span.links = [link for _, link in raw.links]
    span.usage = usage_of(attrs) if kind in ("llm", "agent") else None
    span.cost_usd = number(_first(attrs, ("gen_ai.usage.cost", "gen_ai.usage.cost_usd", "llm.cost.total")))
    span.model = string(_first(attrs, ("gen_ai.response.model", "gen_ai.request.model", "llm.model_name", "ai.model.id")))
    span.agent = _agent_name(raw) if kind == "agent" else string(_first(attrs, AGENT_NAME))
    span.definition, span.agent_id = string(_first(attrs, AGENT_ID)), string(_first(attrs, AGENT_INSTANCE))
    if span.definition and "ioa_observe.workflow.name" in attrs:
        span.definition = span.definition.rsplit(".", 1)[0]
    if kind == "agent" and span.agent is None:
        span.agent = raw.name.removesuffix(".agent") or None
    span.extra = _extra(attrs, kind)
    _say(span, raw)
    _score(span, raw)
    return span


def _say(span: Span, raw: RawSpan) -> None:
    attrs, events = raw.attrs, raw.events
    if span.kind in ("llm", "agent"):
        reply = answer(attrs, events)
        span.input, span.output = question(attrs, events), reply.text
        if reply.thinking:
            span.extra["thinking"] = reply.thinking
    elif span.kind in ("tool", "retriever"):
        entity = _first(attrs, ("traceloop.entity.name", "ioa_observe.entity.name", "ai.toolCall.name", "tool.name"))
        named = string(attrs.get("gen_ai.tool.name")) or string(entity)
        span.tool = named or raw.name.removeprefix("execute_tool ").removesuffix(".tool")
        span.call = string(_first(attrs, ("gen_ai.tool.call.id", "ai.toolCall.id", "tool.id")))
        span.to = string(_first(attrs, HANDOFF_TARGET))
        span.input, span.output = tool_input(attrs, events), tool_output(attrs, events)
        if span.kind == "retriever":
            span.input = span.input or compact(attrs.get("gen_ai.retrieval.query.text") or "")
            span.output = span.output or compact(attrs.get("gen_ai.retrieval.documents") or "")
    elif span.kind == "handoff":
        span.to, span.extra["is_handoff"] = string(_first(attrs, HANDOFF_TARGET)), True
        span.agent = string(_first(attrs, HANDOFF_SOURCE)) or span.agent
        span.input = tool_input(attrs, events)
    elif span.kind == "guardrail":
        span.verdict = string(_first(attrs, ("gen_ai.guardrail.verdict.type", "gen_ai.guardrail.action.type")))
        span.extra.update({k: v for k, v in attrs.items() if k.startswith("gen_ai.guardrail.")})
        span.ok = span.verdict not in ("deny", "escalate") if span.verdict else span.ok
    elif span.kind == "human":
        span.input, span.output = question(attrs, events), answer(attrs, events).text


def _extra(attrs: dict[str, Any], kind: Kind) -> dict[str, Any]:
    operation = PLAN if attrs.get("gen_ai.operation.name") == PLAN else None
    if kind == "chain":
        return {"operation": PLAN} if operation else {}
    extra = {
        "operation": operation,
        "response_id": attrs.get("gen_ai.response.id"),
        "finish_reasons": as_list(attrs.get("gen_ai.response.finish_reasons")) or None,
        **kept_of(attrs),
        "agent_definition_id": attrs.get("gen_ai.agent.id"),
        "tool_type": attrs.get("gen_ai.tool.type"),
        "caller": attrs.get("gen_ai.caller.name"),
    }
    return {name: value for name, value in extra.items() if value not in (None, "")}


def _score(span: Span, raw: RawSpan) -> None:
    """Evaluations of a span, as events on it or as its own attributes."""
    for attrs in [raw.attrs, *(e.attrs for e in raw.events if e.name == "gen_ai.evaluation.result")]:
        name = string(attrs.get("gen_ai.evaluation.name"))
        if name is None:
            continue
        value, label = number(attrs.get("gen_ai.evaluation.score.value")), attrs.get("gen_ai.evaluation.score.label")
        if value is not None:
            span.reward[name] = value
        if label is not None:
            span.extra[f"label_{name}"] = label
        if why := string(attrs.get("gen_ai.evaluation.explanation")):
            span.extra[f"why_{name}"] = why


def settled(spans: list[Span]) -> list[Span]:
    """The same spans, with names of agents on other spans only where no agent span is above."""
    by_id = {(span.trace, span.id): span for span in spans}
    below: dict[tuple[str, str], bool] = {}
    for span in spans:
        path: dict[tuple[str, str], None] = {}
        at: tuple[str, str] | None = (span.trace, span.id)
        known = False
        while at is not None and at not in below and at not in path:
            path[at] = None
            parent = by_id.get((span.trace, by_id[at].parent or ""))
            if parent is not None and parent.kind == "agent":
                known = True
                break
            at = None if parent is None else (span.trace, parent.id)
        else:
            known = below.get(at, False) if at is not None else False
        below.update(dict.fromkeys(path, known))
    for span in spans:
        outer = by_id.get((span.trace, span.parent or ""))
        if span.kind == "llm" and outer is not None and outer.extra.get("operation") == PLAN:
            span.extra.setdefault("operation", PLAN)
        if span.kind not in ("agent", "handoff") and below[span.trace, span.id]:
            span.agent = span.agent if span.agent_id is not None else None
    return spans


# -- what was said -------------------------------------------------------------------------------------------------------------


_DETAILS = "gen_ai.client.inference.operation.details"
_ENTITY = ("traceloop.entity.", "ioa_observe.entity.")


class GenaiMessage(NamedTuple):
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


def _messages(value: Any, role: str = "assistant") -> list[GenaiMessage]:
    """The messages in a value of any of the known shapes."""
    raw, value = value, parsed(value)
    if isinstance(value, dict) and isinstance(raw, str) and not any(k in value for k in _MESSAGE):
        value = raw  # JSON that is what was said, not how
    if isinstance(value, str):
        return [GenaiMessage(role, value)] if value else []
    messages = []
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, dict):
            messages.append(_message(item, role))
        elif isinstance(item, str) and item:
            messages.append(GenaiMessage(role, item))
    return messages


def _message(item: dict[str, Any], role: str) -> GenaiMessage:
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
    return GenaiMessage(own, "\n".join(w for w in words if w), "\n".join(t for t in thoughts if t))


_MESSAGE = ("role", "parts", "content", "text", "message")
_CALLS = ("function_call", "functionCall", "function_response", "functionResponse", "toolUse", "toolResult", "tool_calls")
_WORDS = ("text", "content", "value", "output", "thinking")


def _numbered(attrs: dict[str, Any], prefix: str, role: str = "assistant") -> list[GenaiMessage]:
    messages = []
    for n in range(4096):
        head = f"{prefix}.{n}."
        content, who = attrs.get(head + "content"), attrs.get(head + "role")
        if content is None and who is None:
            break
        messages.extend([m._replace(role=str(who or role)) for m in _messages(content, str(who or role))])
    return messages


def _message_events(events: Sequence[SpanEvent]) -> Iterator[tuple[str, Any]]:
    """Role and content of every event that is a message."""
    for event in events:
        parts = event.name.split(".")
        if len(parts) == 3 and parts[0] == "gen_ai" and parts[2] == "message":
            content = event.attrs.get("content", event.attrs.get("gen_ai.event.content"))
            yield parts[1], event.attrs if content is None else content
        elif event.name == "gen_ai.content.prompt":
            yield "user", event.attrs.get("gen_ai.prompt")


def answer(attrs: dict[str, Any], events: Sequence[SpanEvent]) -> GenaiMessage:
    """What the model (or the agent) answered."""
    for messages in _answers(attrs, events):
        text = "\n".join(m.text for m in messages if m.text)
        thinking = "\n".join(m.thinking for m in messages if m.thinking)
        if text or thinking:
            return GenaiMessage("assistant", text, thinking)
    return GenaiMessage("assistant", "")


def _answers(attrs: dict[str, Any], events: Sequence[SpanEvent]) -> Iterator[list[GenaiMessage]]:
    yield _messages(attrs.get("gen_ai.output.messages"))
    yield _numbered(attrs, "gen_ai.completion")
    yield _messages(attrs.get("gen_ai.completion"))
    yield _messages(as_dict(parsed(attrs.get("gcp.vertex.agent.llm_response"))).get("content"))
    yield _messages(attrs.get("ai.response.text"))
    for event in events:
        if event.name == "gen_ai.choice":
            contents = (event.attrs.get(k) for k in ("message", "content", "gen_ai.event.content"))
            yield _messages(next((v for v in contents if v is not None), None))
        elif event.name in (_DETAILS, "gen_ai.content.completion"):
            yield _messages(event.attrs.get("gen_ai.output.messages", event.attrs.get("gen_ai.completion")))
    yield _messages(attrs.get("final_result", attrs.get("output.value")))
    yield [GenaiMessage("assistant", entity) for entity in (_entity(attrs, "output"),) if entity]


def question(attrs: dict[str, Any], events: Sequence[SpanEvent]) -> str:
    """What the model (or the agent) was asked: the latest message of a user."""
    for messages in _questions(attrs, events):
        asked = [m.text for m in messages if m.role in ("user", "human", "HumanMessage") and m.text]
        if asked:
            return asked[-1]
    return ""


def _questions(attrs: dict[str, Any], events: Sequence[SpanEvent]) -> Iterator[list[GenaiMessage]]:
    yield _messages(attrs.get("gen_ai.input.messages"), "user")
    yield _numbered(attrs, "gen_ai.prompt", "user")
    yield _messages(attrs.get("gen_ai.prompt"), "user")
    yield [m for role, content in _message_events(events) for m in _messages(content, role)]
    for event in events:
        if event.name == _DETAILS:
            yield _messages(event.attrs.get("gen_ai.input.messages"), "user")
    yield _messages(as_list(as_dict(parsed(attrs.get("gcp.vertex.agent.llm_request"))).get("contents")), "user")
    yield _messages(attrs.get("ai.prompt.messages"), "user")
    yield _messages(attrs.get("ai.prompt", attrs.get("input.value")), "user")
    yield [GenaiMessage("user", entity) for entity in (_entity(attrs, "input"),) if entity]


def _entity(attrs: dict[str, Any], part: str) -> str:
    return next((compact(attrs[p + part]) for p in _ENTITY if attrs.get(p + part)), "")


def tool_input(attrs: dict[str, Any], events: Sequence[SpanEvent]) -> str:
    """The arguments of a tool call."""
    names = (
        "gen_ai.tool.call.arguments",
        "gcp.vertex.agent.tool_call_args",
        "tool_arguments",
        "ai.toolCall.args",
        "tool.parameters",
    )
    value = next((attrs[n] for n in (*names, "input.value") if attrs.get(n) not in (None, "")), None)
    if value is None:
        value = next((content for role, content in _message_events(events) if role == "tool"), None)
    return compact(value) if value is not None else _entity(attrs, "input")


def tool_output(attrs: dict[str, Any], events: Sequence[SpanEvent]) -> str:
    """The answer of a tool."""
    names = ("gen_ai.tool.call.result", "gcp.vertex.agent.tool_response", "tool_response", "ai.toolCall.result", "output.value")
    value = next((attrs[n] for n in names if attrs.get(n) not in (None, "")), None)
    if value is None:
        value = next((e.attrs.get("message", e.attrs.get("content")) for e in events if e.name == "gen_ai.choice"), None)
    return compact(value) if value is not None else _entity(attrs, "output")
