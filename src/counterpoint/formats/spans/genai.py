"""OpenTelemetry spans as agents, model calls and tools: the GenAI conventions, old and new, and what grew beside them.

Read: `gen_ai.operation.name`; before it `gen_ai.system`, `prompt_tokens` and `completion_tokens`; Traceloop's and Observe's span
kinds; ADK's `call_llm`; Pydantic AI's and the Vercel SDK's names; `openinference.span.kind` where a span has nothing else.

Always true: an agent's instance is its span, because `gen_ai.agent.id` names what was configured and is shared by its runs (it
stays in `extra`); on other spans the agent's name counts only where no agent span is above them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from counterpoint.formats.importing.usage import Usage
from counterpoint.formats.importing.values import as_list, compact, count, number, string
from counterpoint.formats.otel.records import RawSpan
from counterpoint.formats.spans.genai_text import answer, question, tool_input, tool_output
from counterpoint.formats.spans.span import Kind, Span

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
    if operation == "execute_tool" and (attrs.get("gen_ai.transfer.mode") == "pass_control"):
        return "handoff"
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


def _agent_name(raw: RawSpan) -> str | None:
    attrs = raw.attrs
    named = string(_first(attrs, ("gen_ai.agent.name", "agent_name", "agent.name")))
    if named is None and raw.name.startswith("invoke_agent "):
        named = raw.name.removeprefix("invoke_agent ").strip()
    return named or string(_first(attrs, ("traceloop.entity.name", "ioa_observe.entity.name"))) or None


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
    span.agent = _agent_name(raw) if kind == "agent" else string(attrs.get("gen_ai.agent.name"))
    if kind == "agent" and span.agent is None:
        span.agent = raw.name.removesuffix(".agent") or None
    span.extra = _extra(attrs, kind)
    _say(span, raw)
    _score(span, raw)
    return span


def _say(span: Span, raw: RawSpan) -> None:
    attrs, events = raw.attrs, raw.events
    if span.kind in ("llm", "agent"):
        said = answer(attrs, events)
        span.input, span.output = question(attrs, events), said.text
        if said.thinking:
            span.extra["thinking"] = said.thinking
    elif span.kind in ("tool", "retriever"):
        entity = _first(attrs, ("traceloop.entity.name", "ioa_observe.entity.name", "ai.toolCall.name", "tool.name"))
        named = string(attrs.get("gen_ai.tool.name")) or string(entity)
        span.tool = named or raw.name.removeprefix("execute_tool ").removesuffix(".tool")
        span.call = string(_first(attrs, ("gen_ai.tool.call.id", "ai.toolCall.id", "tool.id")))
        span.to = string(attrs.get("gen_ai.transfer.target.name"))
        span.input, span.output = tool_input(attrs, events), tool_output(attrs, events)
        if span.kind == "retriever":
            span.input = span.input or compact(attrs.get("gen_ai.retrieval.query.text") or "")
            span.output = span.output or compact(attrs.get("gen_ai.retrieval.documents") or "")
    elif span.kind == "handoff":
        span.to = string(_first(attrs, ("gen_ai.handoff.to_agent", "gen_ai.transfer.target.name", "ag2.handoff.target")))
        span.agent = string(attrs.get("gen_ai.handoff.from_agent")) or span.agent
        span.input = tool_input(attrs, events)
    elif span.kind == "guardrail":
        span.verdict = string(_first(attrs, ("gen_ai.guardrail.verdict.type", "gen_ai.guardrail.action.type")))
        span.extra.update({k: v for k, v in attrs.items() if k.startswith("gen_ai.guardrail.")})
        span.ok = span.verdict not in ("deny", "escalate") if span.verdict else span.ok
    elif span.kind == "human":
        span.input, span.output = question(attrs, events), answer(attrs, events).text


def _extra(attrs: dict[str, Any], kind: Kind) -> dict[str, Any]:
    if kind == "chain":
        return {}
    kept = {
        "response_id": attrs.get("gen_ai.response.id"),
        "finish_reasons": as_list(attrs.get("gen_ai.response.finish_reasons")) or None,
        "conversation_id": _first(attrs, ("gen_ai.conversation.id", "session.id")),
        "agent_definition_id": attrs.get("gen_ai.agent.id"),
        "tool_type": attrs.get("gen_ai.tool.type"),
        "caller": attrs.get("gen_ai.caller.name"),
    }
    return {name: value for name, value in kept.items() if value not in (None, "")}


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
        if span.kind not in ("agent", "handoff") and below[span.trace, span.id]:
            span.agent = span.agent if span.agent_id is not None else None
    return spans
