"""OTLP: a trace as OpenTelemetry spans under the GenAI conventions, for any collector or viewer of spans.

One span for the run, one for each agent inside that of the agent which spawned it, one for each event. Steps of a model are
`chat`, calls `execute_tool`, with tokens, model, texts and failure under the conventions' names; edges are links. Our own
fields stand beside them in `counterpoint.*`, so that the file reads back equal, also after a collector or a backend had it.

What is lost: nothing. A trace whose events have no absolute time is dated to the first second of 2000.

Always true: the same trace gives the same bytes, span ids included (they are hashes of trace and event ids).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from counterpoint.formats.format import Data, Format
from counterpoint.formats.importing.values import decode
from counterpoint.formats.otel.dialects import EDGES, EVENT, FINISH, ORDER, REST, TEXT, TRACE, is_ours, refuse, restored
from counterpoint.formats.spans.raw_records import Records
from counterpoint.formats.spans.spellings import (
    HANDOFF_SOURCE,
    HANDOFF_TARGET,
    ITERATION,
    KEPT,
    PARENT_PROMPT,
    PLAN,
    TURN,
    handoff_of,
    written_of,
)
from counterpoint.trace import Event, Trace, lines
from counterpoint.trace.hops import hash_of, run_key, span_key

_UNDATED = 946684800.0
_LATEST = (1 << 63) - 1
_INTERNAL, _CLIENT = 1, 3
_encode = msgspec.json.Encoder().encode


def _sniff(head: bytes) -> bool:
    return head.lstrip()[:1] == b"{" and b'"resourceSpans"' in head[:64] and f'"{TRACE}"'.encode() in head[:256]


def _read(data: Data) -> Iterator[Trace]:
    records = Records()
    records.add(decode(data))
    ours = [raw for raw in records.spans if is_ours(raw)]
    if not ours:
        raise refuse(f"none of its {len(records.spans)} spans has {TRACE}")
    yield from restored(ours)


def _write(trace: Trace) -> bytes:
    rows = lines.encode_lines(trace).decode().removesuffix("\n").split("\n")
    writer = _Writer(trace, rows[1 : 1 + len(trace.events)])
    spans = [_encode(span) for span in writer.spans(finish=rows[-1])]
    resource = [(TRACE, rows[0]), ("service.name", trace.system or "counterpoint")]
    head = b'{"resourceSpans":[{"resource":{"attributes":' + _encode(_attributes(resource))
    scope = b'},"scopeSpans":[{"scope":{"name":"counterpoint"},"spans":[\n'
    return head + scope + b",\n".join(spans) + b"\n]}]}]}\n"


class _Writer:
    """The spans of one trace."""

    def __init__(self, trace: Trace, rows: list[str]) -> None:
        self.trace, self.rows = trace, rows
        self.trace_id = run_key(trace.trace_id)
        self.root = hash_of("root", trace.trace_id, 8)
        self.ids = {e.id: span_key(trace.trace_id, e.id) for e in trace.events}
        dated = next((e for e in trace.events if e.at is not None and 0 < e.at < 1e10), None)
        self.base = _UNDATED if dated is None or dated.at is None else max(dated.at - dated.t, 0.0)
        self.parents = self._parents()

    def _parents(self) -> dict[str, str | None]:
        """Agent to the agent that spawned it; none where that would make an agent its own ancestor."""
        parents: dict[str, str | None] = dict.fromkeys(self.trace.agents)
        for e in self.trace.events:
            if e.type == "spawn" and e.to in parents and parents[e.to] is None:
                above: str | None = e.agent
                while above is not None and above != e.to:
                    above = parents[above]
                if above is None:
                    parents[e.to] = e.agent
        return parents

    def spans(self, *, finish: str) -> Iterator[dict[str, Any]]:
        times = [(e.t, e.t + (e.dur or 0)) for e in self.trace.events]
        span = min((a for a, _ in times), default=0.0), max((b for _, b in times), default=0.0)
        attrs: list[tuple[str, Any]] = [("gen_ai.operation.name", "invoke_workflow"), (FINISH, finish)]
        rest = self._rest()
        if rest:
            attrs.append((REST, _encode(rest).decode()))
        yield self._span(self.root, None, f"invoke_workflow {self.trace.task_id}", span, attrs)
        yield from self._agents(times)
        into = self._into()
        for i, event in enumerate(self.trace.events):
            yield self._event(i, event, times[i], into.get(event.id, []))

    def _agents(self, times: list[tuple[float, float]]) -> Iterator[dict[str, Any]]:
        lives: dict[str, tuple[float, float]] = {}
        roles: dict[str, str] = {}
        for e, (a, b) in zip(self.trace.events, times, strict=True):
            old = lives.get(e.agent, (a, b))
            lives[e.agent] = min(old[0], a), max(old[1], b)
            named = e.to if e.type == "spawn" else e.agent
            if e.role and named:
                roles.setdefault(named, e.role)
        kept = {e.agent: written_of(e.extra) for e in reversed(self.trace.events)}
        for agent, life in lives.items():
            name = roles.get(agent) or agent
            parent = self.parents[agent]
            above = self.root if parent is None else self._agent_id(parent)
            attrs = [("gen_ai.operation.name", "invoke_agent"), ("gen_ai.agent.name", name), ("gen_ai.agent.id", agent)]
            attrs += [pair for pair in kept[agent].items() if pair[0] not in _OF_STEPS]
            yield self._span(self._agent_id(agent), above, f"invoke_agent {name}", life, attrs)

    def _agent_id(self, agent: str) -> str:
        return hash_of("agent", f"{self.trace.trace_id}\0{agent}", 8)

    def _into(self) -> dict[str, list[tuple[int, str, str]]]:
        into: dict[str, list[tuple[int, str, str]]] = {}
        for i, edge in enumerate(self.trace.edges):
            into.setdefault(edge.dst, []).append((i, edge.src, edge.type))
        return into

    def _rest(self) -> dict[str, Any]:
        refs = {e.content_ref for e in self.trace.events}
        contents = {ref: text for ref, text in self.trace.contents.items() if ref not in refs}
        edges = [(i, e.src, e.type, e.dst) for i, e in enumerate(self.trace.edges) if e.dst not in self.ids]
        return {name: value for name, value in (("contents", contents), ("edges", edges)) if value}

    def _event(self, i: int, e: Event, time: tuple[float, float], into: list[tuple[int, str, str]]) -> dict[str, Any]:
        is_call = e.type == "tool_call"
        is_chat = not is_call and (e.model is not None or e.tokens_in is not None or e.tokens_out is not None)
        handed = handoff_of(e.agent, e.to) if e.to and (e.extra or {}).get("is_handoff") is True else {}
        does = "execute_tool" if is_call else self._speaks(e) if is_chat else _OPERATIONS.get(e.type)
        of = e.tool or "" if is_call else e.agent if does == PLAN else e.model or ""
        title = f"{does} {of}" if is_call or is_chat else f"{e.type} {e.to or ''}"
        name = f"execute_tool {handed['gen_ai.tool.name']}" if handed else title
        attrs: list[tuple[str, Any]] = [
            ("gen_ai.operation.name", None if handed else does),
            *handed.items(),
            ("gen_ai.tool.name", e.tool if is_call and not handed else None),
            ("gen_ai.tool.call.id", e.id if is_call else None),
            *((("gen_ai.agent.id", e.agent), ("gen_ai.agent.name", e.role or e.agent)) if is_call or is_chat or handed else ()),
            *written_of(e.extra).items(),
            ("gen_ai.request.model", e.model),
            ("gen_ai.usage.input_tokens", e.tokens_in),
            ("gen_ai.usage.output_tokens", e.tokens_out),
            ("error.type", "error" if e.ok is False else None),
            (_text_attribute(e, is_chat), self._text(e, is_chat)),
            ("counterpoint.id", e.id),
            ("counterpoint.type", e.type),
            (ORDER, i),
            (EVENT, self.rows[i]),
            (EDGES, _encode(into).decode() if into else None),
        ]
        span = self._span(self.ids[e.id], self._agent_id(e.agent), name.strip(), time, attrs, _CLIENT if is_chat else _INTERNAL)
        links = [(self.ids[src], kind) for _, src, kind in into if src in self.ids]
        if links:
            span_links = (
                {"traceId": self.trace_id, "spanId": s, "attributes": _attributes([("counterpoint.edge", k)])} for s, k in links
            )
            span["links"] = list(span_links)
        if e.ok is not None or e.error is not None:
            span["status"] = {"code": 1, "message": ""} if e.ok and e.error is None else {"code": 2, "message": e.error or ""}
        return span

    def _speaks(self, e: Event) -> str:
        """What a model was asked for: a plan, or an answer."""
        return PLAN if (e.extra or {}).get("operation") == PLAN else "chat"

    def _text(self, e: Event, is_chat: bool) -> str | None:
        text = self.trace.text(e)
        if text is None or not is_chat:
            return text
        return _encode([{"role": "assistant", "parts": [{"type": "text", "content": text}]}]).decode()

    def _span(
        self,
        name: str,
        parent: str | None,
        title: str,
        time: tuple[float, float],
        attrs: list[tuple[str, Any]],
        kind: int = _INTERNAL,
    ) -> dict[str, Any]:
        start, end = (_nanoseconds(self.base, t) for t in time)
        span: dict[str, Any] = {"traceId": self.trace_id, "spanId": name}
        if parent is not None:
            span["parentSpanId"] = parent
        more = {"name": title, "kind": kind, "startTimeUnixNano": start, "endTimeUnixNano": end}
        return span | more | {"attributes": _attributes(attrs)}


def _nanoseconds(base: float, t: float) -> str:
    try:
        return str(min(round((base + t) * 1e9), _LATEST))
    except OverflowError:
        return str(_LATEST)


_OPERATIONS = {"safety_event": "run_guardrail"}
_OF_STEPS = frozenset({TURN[0], ITERATION[0], PARENT_PROMPT[0]})


def _text_attribute(e: Event, is_chat: bool) -> str:
    """The attribute that holds an event's text."""
    if is_chat:
        return "gen_ai.output.messages"
    return {"tool_call": "gen_ai.tool.call.arguments", "tool_result": "gen_ai.tool.call.result"}.get(e.type, TEXT)


def _attributes(pairs: list[tuple[str, Any]]) -> list[dict[str, Any]]:
    """Attributes in OTLP's wrapping; what is None, or a count beyond 64 bits, is left out."""
    out = []
    for key, value in pairs:
        if isinstance(value, str):
            out.append({"key": key, "value": {"stringValue": value}})
        elif isinstance(value, int) and value <= _LATEST:
            out.append({"key": key, "value": {"intValue": str(value)}})
    return out


otlp = Format(
    suffixes=(".otlp.json",),
    sniff=_sniff,
    read=_read,
    write=_write,
    fields={
        "resource": (TRACE, "service.name"),
        "root span": ("gen_ai.operation.name", FINISH, REST),
        "agent span": (
            "gen_ai.operation.name", "gen_ai.agent.name", "gen_ai.agent.id", "gen_ai.agent.version", "gen_ai.conversation.id",
        ),
        "event span": (
            "gen_ai.operation.name", "gen_ai.agent.id", "gen_ai.agent.name", *(names[0] for names in KEPT.values()),
            HANDOFF_SOURCE[0], HANDOFF_TARGET[0], "gen_ai.tool.name", "gen_ai.tool.call.id", "gen_ai.request.model",
            "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens", "gen_ai.output.messages", "gen_ai.tool.call.arguments",
            "gen_ai.tool.call.result",
            "counterpoint.id", "counterpoint.type", ORDER, EVENT, EDGES, TEXT,
        ),
        "link": ("counterpoint.edge",),
    },
    keeps=("contents", "meta"),
    lost="nothing",
)  # fmt: skip
"""The format."""
