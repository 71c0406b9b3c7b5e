"""Spans of particular systems that the GenAI conventions do not cover: Claude Code, AutoGen's runtime, AG2.

Claude Code: `claude_code.interaction` -> the user's prompt; `.llm_request` -> model call (its input tokens leave the cache
out); `.tool` -> tool call; `.tool.blocked_on_user` -> the user's decision; spans of one `agent_id` -> one agent, inside the
tool span that they nest under. AutoGen: `autogen process X` -> X at work on a message of its sender. AG2: `ag2.span.type`.

Always true: a session of Claude Code is one trace; other traces become one where a span of one names a span of the other as
its cause (AutoGen and AG2 begin a trace per message), or where their spans name one session.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

import msgspec

from counterpoint.errors import InputError
from counterpoint.formats.importing.report import Report
from counterpoint.formats.importing.usage import Usage, odd_counts
from counterpoint.formats.importing.values import as_dict, as_list, compact, count, number, string
from counterpoint.formats.spans.genai import COUNTS, genai_span, kind_of, parsed
from counterpoint.formats.spans.openinference import OWN_COUNTS, Beside, flat, speaks_openinference
from counterpoint.formats.spans.openinference import spans_of as openinference_spans
from counterpoint.formats.spans.raw_records import RawSpan
from counterpoint.formats.spans.span import Kind, Span, host_of
from counterpoint.trace import Trace, lines

Dialect = Literal["otel", "openinference"]
"""The two sets of attributes that spans of one file, and of one trace, may have."""


def spans_for(
    raws: list[RawSpan], report: Report, *, system: Dialect = "otel", beside: Mapping[str, Beside] | None = None
) -> list[Span]:
    """Our spans for OpenTelemetry's, each by the dialect that it is written in; one that shows none by that of `system`."""
    beside = beside or {}
    other: list[Span] = []
    inference: list[RawSpan] = []
    speaks: dict[int, Dialect | None] = {}
    for raw in raws:
        report.note_odd_counts(odd_counts(raw.attrs, _COUNTS))
        speaks[raw.order] = dialect = _dialect(raw, system, beside)
        if (dialect or system) == "openinference":
            raw.attrs = flat(raw.attrs)
            inference.append(raw)
            continue
        reader = _reader(raw)
        other.extend(reader(raw) if reader is not None else [genai_span(raw)])
    other = _claude_agents(other)
    hosts = {raw.order: host_of(raw.resource) for raw in raws}
    for span in other:
        span.host = hosts.get(span.order)
    if not inference:
        return other
    inferred = openinference_spans(inference, report, beside)
    for raw, span in zip(inference, inferred, strict=True):
        span.order, span.host = raw.order, hosts[raw.order]
    for span in (*other, *inferred):
        span.dialect = speaks[span.order]
    return sorted((*inferred, *other), key=lambda span: span.order) if other else inferred


_COUNTS = (
    *COUNTS, *OWN_COUNTS, "input_tokens", "output_tokens", "cache_read_tokens", "cache_creation_tokens",
)  # fmt: skip


def _dialect(raw: RawSpan, system: Dialect, beside: Mapping[str, Beside]) -> Dialect | None:
    """The dialect that a span shows, if any."""
    if raw.id in beside and beside[raw.id].body:
        return "openinference"
    if system == "openinference" and (nested := flat(raw.attrs)) != raw.attrs:  # Phoenix exports them so
        raw.attrs = {**nested, **raw.attrs}
    if speaks_openinference(raw.attrs):
        return "openinference"
    return "otel" if _reader(raw) is not None or kind_of(raw) != "chain" else None


def _reader(raw: RawSpan) -> Callable[[RawSpan], list[Span]] | None:
    if raw.name.startswith("claude_code."):
        return _claude
    if raw.name.startswith("autogen ") and "messaging.operation" in raw.attrs:
        return _autogen
    return _ag2 if "ag2.span.type" in raw.attrs else None


def _plain(raw: RawSpan, kind: Kind, **fields: Any) -> Span:
    span = Span(
        id=raw.id, trace=raw.trace, parent=raw.parent, name=raw.name, kind=kind, start=raw.start, end=raw.end, order=raw.order
    )
    span.ok, span.error, span.links = raw.ok, raw.error, [link for _, link in raw.links]
    for name, value in fields.items():
        setattr(span, name, value)
    return span


# -- Claude Code -----------------------------------------------------------------------------------------------------------


def _claude(raw: RawSpan) -> list[Span]:
    attrs, what = raw.attrs, raw.name.removeprefix("claude_code.")
    raw.trace = string(attrs.get("session.id")) or string(raw.resource.get("session.id")) or raw.trace
    agent = string(attrs.get("agent_id"))
    success = attrs.get("success")
    if success in (False, "false"):
        raw.ok, raw.error = False, raw.error or string(attrs.get("error")) or string(attrs.get("status_code"))
    elif success in (True, "true"):
        raw.ok = True
    extra = {k.replace(".", "_"): attrs[k] for k in _CLAUDE_KEPT if attrs.get(k) is not None}
    if what == "interaction":
        prompt = string(attrs.get("user_prompt")) or ""
        prompt_span = _plain(raw, "human", id=f"{raw.id}:prompt", parent=raw.id, end=raw.start, extra=extra, ok=None, error=None)
        prompt_span.output, prompt_span.name = "" if prompt == "<REDACTED>" else prompt, "user_prompt"
        return [_plain(raw, "chain", name="main"), prompt_span]
    if what == "llm_request":
        span = _plain(raw, "llm", agent_id=agent, model=string(attrs.get("model")), extra=extra)
        span.usage = Usage.anthropic(
            {
                "input_tokens": count(attrs.get("input_tokens")),
                "output_tokens": count(attrs.get("output_tokens")),
                "cache_read_input_tokens": count(attrs.get("cache_read_tokens")),
                "cache_creation_input_tokens": count(attrs.get("cache_creation_tokens")),
            }
        )
        span.output = string(attrs.get("response.model_output")) or string(attrs.get("response_text")) or ""
        return [span]
    if what == "tool":
        return [_claude_tool(raw, agent, extra)]
    if what == "tool.blocked_on_user":
        return [_claude_decision(raw, agent, extra)]
    return [_plain(raw, "chain", agent_id=agent, extra=extra)]


_CLAUDE_KEPT = (
    "prompt.id", "request_id", "tool_use_id", "query_source", "attempt", "status_code", "stop_reason", "workflow.run_id",
    "result_tokens", "parent_agent_id", "decision", "source",
)  # fmt: skip


def _claude_tool(raw: RawSpan, agent: str | None, extra: dict[str, Any]) -> Span:
    attrs = raw.attrs
    by_name = {e.name: e.attrs for e in raw.events}
    output = by_name.get("tool.output", {})
    span = _plain(raw, "tool", agent_id=agent, tool=string(attrs.get("tool_name")), call=string(attrs.get("tool_use_id")))
    span.extra, span.to = extra, string(attrs.get("subagent_type"))
    span.input = compact(
        next((attrs[k] for k in ("tool_input", "tool_parameters", "full_command", "file_path") if k in attrs), "")
    )
    span.output = compact(output.get("content", output.get("output", attrs.get("tool_output", ""))))
    return span


def _claude_decision(raw: RawSpan, agent: str | None, extra: dict[str, Any]) -> Span:
    """A wait for permission: the user's decision, or the settings' or a hook's refusal."""
    decision, source = string(raw.attrs.get("decision")), string(raw.attrs.get("source")) or ""
    is_user = source.startswith("user") or not source
    span = _plain(raw, "human" if is_user else "guardrail", agent_id=agent, verdict=decision, extra=extra, output=decision or "")
    if not is_user and decision == "accept":
        span.kind = "chain"
    span.ok = {"accept": True, "reject": False}.get(decision or "", span.ok)
    return span


def _claude_agents(spans: list[Span]) -> list[Span]:
    """One agent span for all spans of an `agent_id`, inside the tool span that they nest under."""
    by_id = {(span.trace, span.id): span for span in spans}
    agents: dict[tuple[str, str], Span] = {}
    roles: dict[tuple[str, str], str] = {}
    for span in [s for s in spans if s.agent_id is not None and s.name.startswith("claude_code.")]:
        assert span.agent_id is not None
        key = span.trace, span.agent_id
        agent = agents.get(key)
        if agent is None:
            agent = Span(id=f"agent:{span.agent_id}", trace=span.trace, kind="agent", name="agent", agent_id=span.agent_id)
            agent.order, agents[key] = span.order, agent
        if source := string(span.extra.get("query_source")):
            roles.setdefault(key, source)
        _widen(agent, span)
        above = by_id.get((span.trace, span.parent or ""))
        if above is not None and above.agent_id == span.agent_id:
            continue
        tool, visited = above, set[str]()
        while tool is not None and tool.kind != "tool" and tool.id not in visited:
            visited.add(tool.id)
            tool = by_id.get((span.trace, tool.parent or ""))
        span.parent = agent.id
        if tool is not None and tool.kind == "tool" and tool.agent_id != span.agent_id and agent.parent is None:
            agent.parent, agent.agent, agent.end = tool.id, tool.to, tool.end
        elif agent.parent is None and (owner := string(span.extra.get("parent_agent_id"))):
            agent.parent = f"agent:{owner}"
    for key, agent in agents.items():
        parent = agent.parent
        if parent is not None and (agent.trace, parent) not in by_id and (agent.trace, parent[6:]) not in agents:
            agent.parent = None
        agent.agent = agent.agent or roles.get(key)
    return [*agents.values(), *spans]


def _widen(agent: Span, span: Span) -> None:
    if span.start is not None:
        agent.start = span.start if agent.start is None else min(agent.start, span.start)
    if span.end is not None and (agent.end is None or agent.parent is None):
        agent.end = span.end if agent.end is None else max(agent.end, span.end)


# -- AutoGen and AG2 -------------------------------------------------------------------------------------------------------


_UUID = re.compile(r"_[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$")


def _autogen(raw: RawSpan) -> list[Span]:
    """A message being worked on by its recipient; making, sending and acknowledging it are the runtime's business."""
    attrs, operation = raw.attrs, raw.attrs.get("messaging.operation")
    recipient = string(attrs.get("recipient_agent_type"))
    if operation != "process" or recipient is None:
        return [_plain(raw, "chain")]
    work = _plain(raw, "agent", agent=_UUID.sub("", recipient), agent_id=recipient)
    sender = string(attrs.get("sender_agent_type"))
    message = _plain(raw, "handoff", id=f"{raw.id}:message", parent=raw.parent, ok=None, error=None, links=work.links)
    message.input, message.agent_id, message.to = compact(attrs.get("message") or ""), sender, recipient
    message.agent, work.links = _UUID.sub("", sender) if sender else None, []
    if sender is None:
        message.kind, message.agent_id, message.output = "human", recipient, message.input
    return [message, work]


_AG2: dict[str, Kind] = {
    "agent": "agent",
    "llm": "llm",
    "tool": "tool",
    "code_execution": "tool",
    "human_input": "human",
    "handoff": "handoff",
    "envelope": "handoff",
}


def _ag2(raw: RawSpan) -> list[Span]:
    attrs = raw.attrs
    what = str(attrs["ag2.span.type"])
    span = genai_span(raw, _AG2.get(what, "chain"))
    if what == "envelope":
        audience = attrs.get("ag2.network.audience")
        names = [str(a) for a in audience] if isinstance(audience, list) else [audience] if isinstance(audience, str) else []
        span.agent_id = string(attrs.get("ag2.network.sender_id"))
        span.to = names[0] if len(names) == 1 else None
        span.extra = {"envelope_id": attrs.get("ag2.network.envelope_id"), "audience": names or None}
    if span.kind == "tool":
        span.tool = span.tool or string(attrs.get("gen_ai.tool.name")) or what
    if span.kind == "agent":
        span.agent = string(attrs.get("ag2.agent.name")) or span.agent
        span.agent_id = string(attrs.get("gen_ai.agent.id"))  # envelopes name agents by it
    if outcome := string(attrs.get("ag2.network.outcome")):
        span.extra["outcome"] = outcome
    span.cost_usd = span.cost_usd if span.cost_usd is not None else number(attrs.get("gen_ai.usage.cost"))
    return [span]


# -- which traces are one --------------------------------------------------------------------------------------------------


_SESSIONS = (
    "session.id", "gen_ai.conversation.id", "langfuse.session.id", "traceloop.association.properties.session_id",
    "gcp.vertex.agent.session_id", "session_id",
)  # fmt: skip


def session_of(raw: RawSpan) -> str | None:
    """The session or conversation that a span names, or its resource."""
    return next((name for attrs in (raw.attrs, raw.resource) for n in _SESSIONS if (name := string(attrs.get(n)))), None)


def joined(spans: list[Span], raws: list[RawSpan]) -> tuple[int, int]:
    """Give traces of one run one name, that of the earliest. Returns how many were joined by links, and how many by session.

    A run's traces name each other's spans as causes, or one session.
    """
    known = {(raw.trace, raw.id) for raw in raws}
    envelopes = {e: raw.trace for raw in raws if (e := string(raw.attrs.get("ag2.network.envelope_id")))}
    owner: dict[str, str] = {}

    def find(trace: str) -> str:
        while (up := owner.get(trace, trace)) != trace:
            owner[trace] = owner.get(up, up)
            trace = up
        return trace

    begins: dict[str, tuple[float, int]] = {}
    for raw in raws:
        key = (raw.start if raw.start is not None else float("inf"), raw.order)
        begins[raw.trace] = min(key, begins.get(raw.trace, key))
    for raw in raws:
        others: list[str | None] = [trace for trace, span in raw.links if (trace, span) in known]
        others.append(envelopes.get(string(raw.attrs.get("ag2.network.causation_id")) or ""))
        for other in others:
            if other is not None and (a := find(other)) != (b := find(raw.trace)):
                first, second = sorted((a, b), key=lambda t: begins[t])
                owner[second] = first
    by_links = len(owner)
    first_of: dict[str, str] = {}
    inside: dict[str, set[str]] = {}
    for raw in raws:
        inside.setdefault(find(raw.trace), set()).add(raw.id)
    for raw in raws:
        if (session := session_of(raw)) is not None:
            a, b = find(first_of.setdefault(session, raw.trace)), find(raw.trace)
            if a != b and inside[a].isdisjoint(inside[b]):  # of two copies of one trace, both stay
                first, second = sorted((a, b), key=lambda t: begins[t])
                owner[second] = first
                inside[first] |= inside[second]
    for span in spans:
        span.trace = find(span.trace)
    return by_links, len(owner) - by_links


# -- Spans that our own exporter wrote, as the traces they were, whatever collector or backend they came through ------
# Always true: a trace whose spans are all there comes back equal, number for number; where some are missing it is what the rest
# says, with an edge for each pair that is there, and unfinished without its root span.

TRACE = "counterpoint.trace"
"""On the resource: the trace's header."""
EVENT = "counterpoint.event"
"""On an event's span: the event, field for field."""
ORDER = "counterpoint.order"
"""On an event's span: its place in the trace."""
EDGES = "counterpoint.edges"
"""On an event's span: the edges into it, each as its place, source and type."""
TEXT = "counterpoint.text"
"""On an event's span: its text, where no attribute of the conventions holds it."""
FINISH = "counterpoint.finish"
"""On the root span: rewards, costs and metrics."""
REST = "counterpoint.rest"
"""On the root span: texts that no event refers to and edges to events that are not there."""
_TEXTS = (TEXT, "gen_ai.tool.call.arguments", "gen_ai.tool.call.result")

_encode = msgspec.json.Encoder().encode


def is_ours(raw: RawSpan) -> bool:
    """Whether our exporter wrote the span."""
    return TRACE in raw.resource


def restored(raws: list[RawSpan]) -> Iterator[Trace]:
    """The traces that some spans of ours hold; raises `InputError` where one of them was changed beyond reading."""
    groups: dict[str, list[RawSpan]] = {}
    for raw in raws:
        groups.setdefault(str(raw.resource[TRACE]), []).append(raw)
    for header, group in groups.items():
        yield lines.decode_lines(b"\n".join([header.encode("utf-8", "replace"), *_records(group)]), where="its spans")


def _records(group: list[RawSpan]) -> list[bytes]:
    spans = {str(raw.attrs[EVENT]): raw for raw in group if EVENT in raw.attrs}
    ordered = sorted(spans.items(), key=lambda row: (count(row[1].attrs.get(ORDER)) or 0, row[1].order))
    events, contents, edges = [], {}, []
    for line, raw in ordered:
        event = as_dict(as_dict(parsed(line)).get("event"))
        events.append(line.encode("utf-8", "replace"))
        text = _text(raw.attrs)
        if text is not None and isinstance(event.get("content_ref"), str):
            contents[event["content_ref"]] = text
        edges += [(*e, event.get("id")) for e in map(as_list, as_list(parsed(raw.attrs.get(EDGES)))) if len(e) == 3]
    root = next((raw for raw in group if FINISH in raw.attrs), None)
    rest = as_dict(parsed(root.attrs.get(REST))) if root else {}
    contents |= {k: v for k, v in as_dict(rest.get("contents")).items() if isinstance(v, str)}
    edges += [tuple(e) for e in map(as_list, as_list(rest.get("edges"))) if len(e) == 4]
    edges.sort(key=lambda e: count(e[0]) or 0)
    edge_records = [_encode({"edge": {"src": src, "dst": dst, "type": kind}}) for _, src, kind, dst in edges]
    texts = [_encode({"content": ref, "text": text}) for ref, text in contents.items()]
    finish = [str(root.attrs[FINISH]).encode("utf-8", "replace")] if root else []
    return [*events, *edge_records, *texts, *finish]


def _text(attrs: dict[str, Any]) -> str | None:
    for name in _TEXTS:
        if isinstance(attrs.get(name), str):
            return str(attrs[name])
    messages = as_list(parsed(attrs.get("gen_ai.output.messages")))
    part = as_dict((as_list(as_dict(messages[0]).get("parts")) or [None])[0]) if messages else {}
    content = part.get("content")
    return content if isinstance(content, str) else None


def refuse(what: str) -> InputError:
    """The error for bytes that hold no trace of ours."""
    return InputError("holds no trace that this exporter wrote", why=what, fix="read other OpenTelemetry files as `otel`")
