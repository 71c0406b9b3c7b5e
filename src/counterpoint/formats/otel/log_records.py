"""Log records of Claude Code and Codex: what they add to spans, and spans made of them where there are none.

Claude Code (`claude_code.*`): user_prompt -> human; api_request -> model call with tokens and cost; assistant_response -> its
words; tool_result -> tool; tool_decision -> the user's decision or a refusal; api_error -> failure; api_refusal -> guardrail;
subagent_completed -> agent. Codex (`codex.*`): sse_event of response.completed -> model call; user_prompt, tool_decision and
tool_result likewise. Records join by `request_id`, `tool_use_id`, `call_id` and `prompt.id`.

Always true: records join only within their session or conversation, which is one trace; a record about something that a span
tells too adds to that span, and is no event of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from counterpoint.formats.importing.report import Report
from counterpoint.formats.importing.usage import Usage
from counterpoint.formats.importing.values import compact, count, number, string
from counterpoint.formats.spans.raw_records import LogRecord
from counterpoint.formats.spans.span import Kind, Span, host_of

_REDACTED = ("<REDACTED>", "[REDACTED]", "REDACTED")
_QUIET = frozenset(
    {"conversation_starts", "sandbox_outcome", "turn_cost", "turn_ttft", "compaction", "api_retries_exhausted", "session_start"}
)


class _SpansByName:
    """The spans so far, by the ids that log records name."""

    def __init__(self, spans: list[Span], report: Report) -> None:
        self.spans, self.report = spans, report
        self.requests: dict[tuple[str, str], Span] = {}
        self.tools: dict[tuple[str, str], Span] = {}
        self.prompts: dict[tuple[str, str], Span] = {}
        self.waits: set[tuple[str, str]] = set()
        self.with_spans = {s.trace for s in spans}
        self.asked: dict[str, tuple[float | None, float | None]] = {}
        by_id = {span.id: span for span in spans}
        for span in spans:
            request, prompt = string(span.extra.get("request_id")), string(span.extra.get("prompt_id"))
            if span.kind == "llm" and request:
                self.requests[span.trace, request] = span
            elif span.kind == "human" and prompt:
                self.prompts.setdefault((span.trace, prompt), span)
            elif span.kind == "tool" and span.call:
                self.tools[span.trace, span.call] = span
            above = by_id.get(span.parent or "")
            if span.kind in ("human", "guardrail") and above is not None and above.call:
                self.waits.add((span.trace, above.call))

    def make(self, log: LogRecord, trace: str, kind: Kind, id: str | None = None, **fields: Any) -> Span:
        length = number(log.attrs.get("duration_ms"))
        start = log.at if log.at is None or length is None else log.at - length / 1e3
        span = Span(id=id or f"log:{trace}:{_sequence(log)}", trace=trace, kind=kind, start=start, end=log.at, order=log.order)
        span.dialect, span.host = "otel", host_of(log.resource) or trace  # a session of a coding agent runs on one machine
        for name, value in fields.items():
            setattr(span, name, value)
        self.spans.append(span)
        return span


def _sequence(log: LogRecord) -> Any:
    number = count(log.attrs.get("event.sequence"))
    return number if number is not None else log.order


def add_logs(logs: list[LogRecord], spans: list[Span], report: Report) -> list[Span]:
    """The spans with what the logs say about them, and with spans for what only the logs say."""
    index = _SpansByName(list(spans), report)
    for log in sorted(logs, key=lambda one: (one.at if one.at is not None else 0.0, one.order)):
        source, _, name = _name(log).partition(".")
        reader = _READERS.get((source, name))
        trace = _session(log)
        if reader is not None and trace is not None:
            reader(index, log, trace)
        elif source in ("claude_code", "codex") and name not in _QUIET and not name.startswith("hook"):
            report.unknown[f"log {source}.{name}"] += 1
    _root(index)
    return index.spans


def _root(index: _SpansByName) -> None:
    """What only logs tell of a session is under one span, as it would be under an interaction's."""
    alone = [s for s in index.spans if s.trace not in index.with_spans]
    for trace in dict.fromkeys(s.trace for s in alone):
        index.spans.append(Span(id=f"session:{trace}", trace=trace, name="main"))
    for span in alone:
        span.parent = span.parent or f"session:{span.trace}"


def _name(log: LogRecord) -> str:
    body = log.body if isinstance(log.body, str) else ""
    for text in (log.name, body):
        if text.startswith(("claude_code.", "codex.")):
            return text
    service = str(log.resource.get("service.name", ""))
    return f"claude_code.{log.name}" if service.startswith("claude-code") or "prompt.id" in log.attrs else log.name


def _session(log: LogRecord) -> str | None:
    for name in ("session.id", "conversation.id", "session_id"):
        if name_value := string(log.attrs.get(name)) or string(log.resource.get(name)):
            return name_value
    return None


def _flag(value: Any) -> bool | None:
    return value if isinstance(value, bool) else {"true": True, "false": False}.get(str(value).lower())


def _words(value: Any) -> str:
    return "" if value is None or value in _REDACTED else compact(value)


# -- both ------------------------------------------------------------------------------------------------------------------


def _prompt(index: _SpansByName, log: LogRecord, trace: str) -> None:
    text, prompt = _words(log.attrs.get("prompt")), string(log.attrs.get("prompt.id"))
    span = index.prompts.get((trace, prompt)) if prompt else None
    if span is None:
        span = index.make(log, trace, "human", name="user_prompt", extra={"prompt_id": prompt} if prompt else {})
        if prompt:
            index.prompts[trace, prompt] = span
    span.output = span.output or text


def _decision(index: _SpansByName, log: LogRecord, trace: str) -> None:
    """Only what somebody decided: a call that the settings let through is no event."""
    attrs = log.attrs
    call = string(attrs.get("tool_use_id")) or string(attrs.get("call_id"))
    decision, source = string(attrs.get("decision")) or "", (string(attrs.get("source")) or "").lower()
    is_user, allowed = source.startswith("user"), decision.lower() in ("accept", "approved", "approved_for_session", "approve")
    if (call and (trace, call) in index.waits) or (not is_user and allowed):
        return
    if call:
        index.waits.add((trace, call))
    extra = {"tool_use_id": call, "decided_by": source or None}
    span = index.make(log, trace, "human" if is_user else "guardrail", name="tool_decision", verdict=decision, ok=allowed)
    span.output = decision
    span.extra, span.tool, span.agent_id = extra, string(attrs.get("tool_name")), string(attrs.get("agent_id"))
    span.start = log.at


def _tool(index: _SpansByName, log: LogRecord, trace: str) -> None:
    attrs = log.attrs
    call = string(attrs.get("tool_use_id")) or string(attrs.get("call_id"))
    span = index.tools.get((trace, call)) if call else None
    if span is None:
        name = f"call:{call}" if call else None
        span = index.make(log, trace, "tool", name, call=call, agent_id=string(attrs.get("agent_id")))
        if call:
            index.tools[trace, call] = span
    span.tool = span.tool or string(attrs.get("tool_name"))
    ok = _flag(attrs.get("success"))
    span.ok = ok if ok is not None else span.ok
    span.error = span.error or string(attrs.get("error"))
    args = next((attrs[k] for k in ("tool_input", "tool_parameters", "arguments") if attrs.get(k) is not None), None)
    span.input = span.input or _words(args)
    span.output = span.output or _words(attrs.get("output", attrs.get("tool_output")))


# -- Claude Code -----------------------------------------------------------------------------------------------------------


def _request(index: _SpansByName, log: LogRecord, trace: str) -> None:
    attrs, request = log.attrs, string(log.attrs.get("request_id"))
    span = index.requests.get((trace, request)) if request else None
    if span is None or span.id == f"request:{request}":  # no span tells of it; its answer may have been told first
        span = span or index.make(log, trace, "llm", f"request:{request}" if request else None)
        if request:
            index.requests[trace, request] = span
        extra = {"request_id": request, "query_source": attrs.get("query_source"), "prompt_id": attrs.get("prompt.id")}
        span.agent_id, span.extra = string(attrs.get("agent_id")), {k: v for k, v in extra.items() if v is not None}
    span.model = span.model or string(attrs.get("model"))
    if span.usage is None:
        tokens = {name: count(attrs.get(name)) for name in ("input_tokens", "output_tokens")}
        cache = {f"cache_{a}_input_tokens": count(attrs.get(f"cache_{a}_tokens")) for a in ("read", "creation")}
        span.usage = Usage.anthropic({**tokens, **cache})
    span.cost_usd = number(attrs.get("cost_usd")) if span.cost_usd is None else span.cost_usd


def _response(index: _SpansByName, log: LogRecord, trace: str) -> None:
    request = string(log.attrs.get("request_id"))
    span = index.requests.get((trace, request)) if request else None
    text = next((log.attrs[k] for k in ("response", "text", "content", "assistant_response") if log.attrs.get(k)), None)
    if span is not None:
        span.output = span.output or _words(text)
    elif request:  # its request comes later, or never
        span = index.make(log, trace, "llm", f"request:{request}", output=_words(text), extra={"request_id": request})
        index.requests[trace, request] = span
    else:
        index.report.lacks["the model calls of some answers"] += 1


def _error(index: _SpansByName, log: LogRecord, trace: str) -> None:
    request = string(log.attrs.get("request_id"))
    span = index.requests.get((trace, request)) if request else None
    if span is None:
        span = index.make(log, trace, "llm", f"request:{request}" if request else None, model=string(log.attrs.get("model")))
        span.agent_id = string(log.attrs.get("agent_id"))
        if request:
            index.requests[trace, request] = span
    span.ok, span.error = False, span.error or string(log.attrs.get("error")) or string(log.attrs.get("error.message"))


def _refusal(index: _SpansByName, log: LogRecord, trace: str) -> None:
    why = next((log.attrs[k] for k in ("reason", "category", "message") if log.attrs.get(k)), None)
    span = index.make(log, trace, "guardrail", name="api_refusal", verdict="refused", ok=False, output=_words(why))
    span.agent_id = string(log.attrs.get("agent_id"))


def _subagent(index: _SpansByName, log: LogRecord, trace: str) -> None:
    """A finished sub-agent; where spans tell it too, or its id joins its calls, they tell more."""
    attrs = log.attrs
    agent, call = string(attrs.get("agent_id")), string(attrs.get("tool_use_id"))
    if trace in index.with_spans:
        return
    role = string(attrs.get("agent_type"))
    span = index.make(log, trace, "agent", f"agent:{agent}" if agent else None, agent=role, agent_id=agent, name=role or "agent")
    tool = index.tools.get((trace, call)) if call else None
    span.parent = tool.id if tool else None
    span.extra = {k: v for k in ("is_async", "total_tool_uses", "model") if (v := attrs.get(k)) is not None}


# -- Codex -----------------------------------------------------------------------------------------------------------------


def _codex_request(index: _SpansByName, log: LogRecord, trace: str) -> None:
    length = number(log.attrs.get("duration_ms")) or 0.0
    start = None if log.at is None else log.at - length / 1e3
    failed = string(log.attrs.get("error.message"))
    if failed:
        index.make(log, trace, "llm", name="api_request", ok=False, error=failed, model=string(log.attrs.get("model")))
    else:
        index.asked[trace] = start, log.at


def _codex_event(index: _SpansByName, log: LogRecord, trace: str) -> None:
    if log.attrs.get("event.kind") != "response.completed":
        return
    attrs = log.attrs
    start, _ = index.asked.pop(trace, (log.at, None))
    span = index.make(log, trace, "llm", name="response", model=string(attrs.get("model")))
    span.start = start
    span.usage = Usage.whole(
        attrs.get("input_token_count"),
        attrs.get("output_token_count"),
        cached=attrs.get("cached_token_count"),
        reasoning=attrs.get("reasoning_token_count"),
    )


_READERS: dict[tuple[str, str], Callable[[_SpansByName, LogRecord, str], None]] = {
    ("claude_code", "user_prompt"): _prompt,
    ("claude_code", "api_request"): _request,
    ("claude_code", "assistant_response"): _response,
    ("claude_code", "api_error"): _error,
    ("claude_code", "api_refusal"): _refusal,
    ("claude_code", "tool_result"): _tool,
    ("claude_code", "tool_decision"): _decision,
    ("claude_code", "subagent_completed"): _subagent,
    ("codex", "user_prompt"): _prompt,
    ("codex", "api_request"): _codex_request,
    ("codex", "sse_event"): _codex_event,
    ("codex", "tool_decision"): _decision,
    ("codex", "tool_result"): _tool,
}
