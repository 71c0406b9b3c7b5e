"""Agent Lightning 0.2 and 0.3: spans of a rollout's attempt, with rewards as annotations.

Always true: the spans of one attempt are one trace, whatever trace ids their tracers gave them; `sequence_id` breaks ties of
time, because clocks of agent and proxy differ; a reward stands on the span that its links name, else it is the run's.
"""

from __future__ import annotations

import re
from typing import Any

from counterpoint.formats.importing.usage import Usage
from counterpoint.formats.importing.values import as_dict, as_list, compact, count, number, seconds, string, text_of
from counterpoint.formats.spans.genai import genai_span, kind_of, settled
from counterpoint.formats.spans.raw_records import RawSpan, SpanEvent
from counterpoint.formats.spans.span import Kind, Span

_ANNOTATIONS = frozenset({"agentlightning.annotation", "agentlightning.reward"})
_NOTES = frozenset({"agentlightning.message", "agentlightning.object", "agentlightning.exception"})
_REWARD = re.compile(r"^agentlightning\.reward\.(\d+)\.(name|value)$")
_LINK = re.compile(r"^agentlightning\.link\.(\d+)\.(key_match|value_match)$")
_AGENTOPS: dict[str, Kind] = {"agent": "agent", "tool": "tool", "llm": "llm", "guardrail": "guardrail"}
_OWN = "agentlightning."


def is_span(value: Any) -> bool:
    """Whether a value is a span of Agent Lightning's store."""
    needed = ("rollout_id", "attempt_id", "span_id", "attributes")
    return isinstance(value, dict) and all(name in value for name in needed)


class Attempts:
    """The spans of some rollouts, by attempt."""

    def __init__(self) -> None:
        self._raws: list[tuple[str, RawSpan]] = []
        self.rollouts: dict[str, str] = {}
        """Our trace to the rollout that it is an attempt of."""
        self.notes: dict[str, list[dict[str, Any]]] = {}
        """Our trace to messages, objects and exceptions that were written down beside the run."""

    def add(self, record: dict[str, Any]) -> bool:
        """Take in a span of the store; False where it has no id."""
        raw = _raw(record)
        if raw is None:
            return False
        rollout, attempt = string(record.get("rollout_id")), string(record.get("attempt_id"))
        self._take(raw, rollout or "unknown", attempt or "unknown", count(record.get("sequence_id")))
        return True

    def add_raw(self, raw: RawSpan) -> None:
        """Take in a span that came by OTLP, whose resource names the rollout."""
        about = {**raw.resource, **raw.attrs}
        rollout, attempt = string(about.get(_OWN + "rollout_id")), string(about.get(_OWN + "attempt_id"))
        self._take(raw, rollout or raw.trace, attempt or "unknown", count(about.get(_OWN + "span_sequence_id")))

    def _take(self, raw: RawSpan, rollout: str, attempt: str, place: int | None) -> None:
        raw.order = place if place is not None else len(self._raws)
        raw.trace = f"{rollout}/{attempt}"
        self.rollouts[raw.trace] = rollout
        self._raws.append((raw.trace, raw))

    def spans(self) -> list[Span]:
        """All spans in our form."""
        found: dict[tuple[str, str], Span] = {}
        scored: list[RawSpan] = []
        for trace, raw in self._raws:
            if raw.name in _NOTES:
                self.notes.setdefault(trace, []).append(_note(raw))
            elif raw.name in _ANNOTATIONS or any(_REWARD.match(key) for key in raw.attrs):
                scored.append(raw)
            else:
                found[trace, raw.id] = self._span(raw)
        for raw in scored:
            targets = [found[raw.trace, id] for id in self._linked(raw) if (raw.trace, id) in found]
            for span in targets:
                span.reward |= _rewards(raw)
            if not targets:
                found[raw.trace, raw.id] = genai_span(raw, "evaluator")
                found[raw.trace, raw.id].reward = _rewards(raw)
        return settled(list(found.values()))

    def _span(self, raw: RawSpan) -> Span:
        attrs = raw.attrs
        span = genai_span(raw, _kind(raw))
        if raw.name.startswith(_OWN + "operation") and span.kind == "tool":
            span.tool = string(attrs.get(_OWN + "operation.name")) or raw.name
            span.input, span.output = _flat(attrs, _OWN + "operation.input"), _flat(attrs, _OWN + "operation.output")
        if span.kind == "agent":
            span.agent = string(attrs.get("agent.name")) or string(attrs.get("operation.name")) or span.agent
        _count_ids(span, attrs)
        return span

    def _linked(self, raw: RawSpan) -> list[str]:
        """Spans whose attributes are as the links of an annotation say: all of its pairs, in the same attempt."""
        pairs: dict[str, dict[str, Any]] = {}
        for key, value in raw.attrs.items():
            if match := _LINK.match(key):
                pairs.setdefault(match[1], {})[match[2]] = value
        wanted = {str(p["key_match"]): p["value_match"] for p in pairs.values() if len(p) == 2}
        if not wanted:
            return []
        same = (r for trace, r in self._raws if trace == raw.trace and r is not raw)
        return [r.id for r in same if all(r.attrs.get(key, _ids(r).get(key)) == value for key, value in wanted.items())]


def _ids(raw: RawSpan) -> dict[str, str]:
    return {"span_id": raw.id, "trace_id": raw.trace}


def _raw(record: dict[str, Any]) -> RawSpan | None:
    id = string(record.get("span_id"))
    if id is None:
        return None
    attrs, status = as_dict(record.get("attributes")), as_dict(record.get("status"))
    events = [
        SpanEvent(string(e.get("name")) or "", seconds(e.get("timestamp")), as_dict(e.get("attributes")))
        for e in map(as_dict, as_list(record.get("events")))
    ]
    contexts = [as_dict(as_dict(link).get("context")) for link in as_list(record.get("links"))]
    links = [(str(c.get("trace_id")), c["span_id"]) for c in contexts if isinstance(c.get("span_id"), str)]
    code = string(status.get("status_code"))
    return RawSpan(
        id,
        string(record.get("trace_id")) or "",
        string(record.get("parent_id")),
        string(record.get("name")) or "",
        seconds(record.get("start_time")),
        seconds(record.get("end_time")),
        attrs,
        as_dict(as_dict(record.get("resource")).get("attributes")),
        events=events,
        links=links,
        ok=None if code in (None, "UNSET") else code == "OK",
        error=(string(status.get("description")) or "error") if code == "ERROR" else None,
    )


def _kind(raw: RawSpan) -> Kind:
    attrs = raw.attrs
    told = _AGENTOPS.get(str(attrs.get("agentops.span.kind")).lower())
    if told is not None:
        return told
    if raw.name.startswith(_OWN + "operation"):
        return "tool"
    found = kind_of(raw)
    is_model = "prompt_token_ids" in attrs and "response_token_ids" in attrs
    return "llm" if found == "chain" and is_model else found


def _count_ids(span: Span, attrs: dict[str, Any]) -> None:
    """Spans of the proxy hold the tokens themselves: where nothing else counts them, they do."""
    prompt, answer = attrs.get("prompt_token_ids"), attrs.get("response_token_ids")
    if span.kind == "llm" and span.usage is None and isinstance(prompt, list) and isinstance(answer, list):
        written = answer[0] if answer and isinstance(answer[0], list) else answer
        span.usage = Usage.whole(len(prompt), len(written))


def _rewards(raw: RawSpan) -> dict[str, float]:
    """Numbered rewards by name, or the one of 0.2."""
    parts: dict[str, dict[str, Any]] = {}
    for key, value in raw.attrs.items():
        if match := _REWARD.match(key):
            parts.setdefault(match[1], {})[match[2]] = value
    found = {}
    for _, part in sorted(parts.items(), key=lambda row: int(row[0])):
        if (value := number(part.get("value"))) is not None:
            found[string(part.get("name")) or "reward"] = value
    if not found and (value := number(raw.attrs.get("reward"))) is not None:
        found["reward"] = value
    return found


def _note(raw: RawSpan) -> dict[str, Any]:
    kept = {key.removeprefix(_OWN): value for key, value in raw.attrs.items() if key.startswith((_OWN, "exception."))}
    return {"kind": raw.name.removeprefix(_OWN), "span_id": raw.id, "at": raw.start, **kept}


def _flat(attrs: dict[str, Any], prefix: str) -> str:
    """A value that was written as one attribute, or flattened into several."""
    if prefix in attrs:
        return text_of(attrs[prefix])
    inside = {key[len(prefix) + 1 :]: value for key, value in attrs.items() if key.startswith(prefix + ".")}
    return compact(inside) if inside else ""
