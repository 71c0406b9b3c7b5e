"""Agent Lightning 1.0: the events of a rollout's attempt, which name no agents.

Agents are told apart by system prompt, and one is another's sub-agent where its last answer comes back as the result of the
other's tool call. Both are inferred, and counted so.

Always true: event i of an attempt is `event{i}`, because their order is their identity.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from counterpoint.formats.draft import Draft
from counterpoint.formats.importing.lane import Lane
from counterpoint.formats.importing.usage import Usage
from counterpoint.formats.importing.values import as_dict, as_list, compact, count, number, seconds, string, text_of
from counterpoint.formats.spans.genai import genai_span, kind_of, settled
from counterpoint.formats.spans.raw_records import RawSpan, SpanEvent
from counterpoint.formats.spans.span import Kind, Span

# -- Agent Lightning 0.2 and 0.3: spans of a rollout's attempt, with rewards as annotations ---------------------------
# Always true: the spans of one attempt are one trace, whatever trace ids their tracers gave them; `sequence_id` breaks ties of
# time, because clocks of agent and proxy differ; a reward stands on the span that its links name, else it is the run's.

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
        by_id: dict[tuple[str, str], Span] = {}
        scored: list[RawSpan] = []
        for trace, raw in self._raws:
            if raw.name in _NOTES:
                self.notes.setdefault(trace, []).append(_note(raw))
            elif raw.name in _ANNOTATIONS or any(_REWARD.match(key) for key in raw.attrs):
                scored.append(raw)
            else:
                by_id[trace, raw.id] = self._span(raw)
        for raw in scored:
            targets = [by_id[raw.trace, id] for id in self._linked(raw) if (raw.trace, id) in by_id]
            for span in targets:
                span.reward |= _rewards(raw)
            if not targets:
                by_id[raw.trace, raw.id] = genai_span(raw, "evaluator")
                by_id[raw.trace, raw.id].reward = _rewards(raw)
        return settled(list(by_id.values()))

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
    own = _AGENTOPS.get(str(attrs.get("agentops.span.kind")).lower())
    if own is not None:
        return own
    if raw.name.startswith(_OWN + "operation"):
        return "tool"
    kind = kind_of(raw)
    is_model = "prompt_token_ids" in attrs and "response_token_ids" in attrs
    return "llm" if kind == "chain" and is_model else kind


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
    rewards = {}
    for _, part in sorted(parts.items(), key=lambda row: int(row[0])):
        if (value := number(part.get("value"))) is not None:
            rewards[string(part.get("name")) or "reward"] = value
    if not rewards and (value := number(raw.attrs.get("reward"))) is not None:
        rewards["reward"] = value
    return rewards


def _note(raw: RawSpan) -> dict[str, Any]:
    fields = {key.removeprefix(_OWN): value for key, value in raw.attrs.items() if key.startswith((_OWN, "exception."))}
    return {"kind": raw.name.removeprefix(_OWN), "span_id": raw.id, "at": raw.start, **fields}


def _flat(attrs: dict[str, Any], prefix: str) -> str:
    """A value that was written as one attribute, or flattened into several."""
    if prefix in attrs:
        return text_of(attrs[prefix])
    inside = {key[len(prefix) + 1 :]: value for key, value in attrs.items() if key.startswith(prefix + ".")}
    return compact(inside) if inside else ""


_BY_PROMPT = "agents told apart by their system prompts"
_BY_ANSWER = "an agent's answer that came back as the result of a tool call"
_TELLING = 20
"""A text that stands inside another shows that it was read only from this length on."""
_KEPT = 100


def is_event(value: Any) -> bool:
    """Whether a value is an event of Agent Lightning's store."""
    needed = ("event_type", "rollout_id", "attempt_id", "data")
    return isinstance(value, dict) and all(name in value for name in needed)


@dataclass(slots=True)
class _Request:
    """A model call: whose, what was new in its prompt, and what came of it."""

    id: str
    at: float | None
    agent: str
    fresh: list[dict[str, Any]]
    text: str
    calls: list[dict[str, Any]]
    data: dict[str, Any]
    made: dict[str, str] = field(default_factory=dict)
    """Its calls that were sub-agents."""
    returned: dict[str, str] = field(default_factory=dict)
    """Answers in its prompt that are sub-agents'."""


def put_attempt(draft: Draft, events: list[dict[str, Any]]) -> None:
    """Put the events of one attempt down."""
    requests = _requests(draft, events)
    _join(requests)
    _Attempt(draft, requests).put()
    _score(draft, events)
    others = [e for e in events if e.get("event_type") not in ("model_request", "reward")]
    for event in others:
        draft.report.unknown[str(event.get("event_type"))] += 1
    if others:
        records = [{name: e.get(name) for name in ("event_type", "timestamp", "data")} for e in others[:_KEPT]]
        draft.meta["user_events"] = records


# -- who called --------------------------------------------------------------------------------------------------------------


def _requests(draft: Draft, events: list[dict[str, Any]]) -> list[_Request]:
    names: dict[str, str] = {}
    before_by_agent: dict[str, list[str]] = {}
    requests = []
    for i, event in enumerate(events):
        if event.get("event_type") != "model_request":
            continue
        data = as_dict(event.get("data"))
        messages = [as_dict(m) for m in as_list(as_dict(data.get("request")).get("messages"))]
        agent = string(data.get("agent_id")) or string(data.get("agent")) or _agent_name(names, messages)
        before = before_by_agent.get(agent, [])
        now = [compact(m) for m in messages]
        shared = 0
        while shared < min(len(before), len(now)) and before[shared] == now[shared]:
            shared += 1
        before_by_agent[agent] = now
        text, calls = _answer(data.get("response"))
        fresh = [m for m in messages[shared:] if m.get("role") in ("user", "tool", "function")]
        requests.append(_Request(f"event{i}", seconds(event.get("timestamp")), agent, fresh, text, calls, data))
    if len(names) > 1:
        draft.report.inferred[_BY_PROMPT] += len(names)
    return requests


def _agent_name(names: dict[str, str], messages: list[dict[str, Any]]) -> str:
    """The agent of a system prompt, numbered in order of appearance."""
    prompt = "\n".join(text_of(m.get("content")) for m in messages if m.get("role") in ("system", "developer"))
    return names.setdefault(prompt, f"agent{len(names) + 1}")


def _answer(response: Any) -> tuple[str, list[dict[str, Any]]]:
    choice = as_dict(next(iter(as_list(as_dict(response).get("choices"))), None))
    message = as_dict(choice.get("message"))
    return text_of(message.get("content")), [as_dict(call) for call in as_list(message.get("tool_calls"))]


def _join(requests: list[_Request]) -> None:
    """Find the calls that were sub-agents: a tool's result that is the last answer of another agent since the call."""
    called: dict[str, tuple[int, _Request]] = {}
    parents: dict[str, str] = {}
    for k, request in enumerate(requests):
        for message in request.fresh:
            id, text = string(message.get("tool_call_id")), text_of(message.get("content")).strip()
            if id not in called or not text:
                continue
            since, caller = called[id]
            last = {r.agent: r for r in requests[since + 1 : k] if r.agent != caller.agent}
            same = [
                agent for agent, r in last.items() if r.text.strip() == text and parents.get(agent, caller.agent) == caller.agent
            ]
            if len(same) == 1 and caller.agent == request.agent and parents.get(caller.agent) != same[0]:
                parents[same[0]] = caller.agent
                caller.made[id] = request.returned[id] = same[0]
        called.update({id: (k, request) for call in request.calls if (id := string(call.get("id")))})


# -- putting down -------------------------------------------------------------------------------------------------------------


class _Attempt:
    def __init__(self, draft: Draft, requests: list[_Request]) -> None:
        self.draft, self.requests = draft, requests
        self._spawned: set[str] = set()
        self._answers: list[tuple[str, str, str]] = []
        """Agent, text and event of each answer so far."""
        self._heard: dict[str, int] = {}

    def put(self) -> None:
        for request in self.requests:
            lane = self.draft.lane(request.agent)
            self._reads(lane, request)
            self._steps(lane, request)

    def _reads(self, lane: Lane, request: _Request) -> None:
        start = _start(request)
        for k, message in enumerate(request.fresh):
            text, id = text_of(message.get("content")), string(message.get("tool_call_id"))
            if message.get("role") in ("tool", "function"):
                if id is not None and id in request.returned:
                    self.draft.lane(request.returned[id]).returns(lane.agent, text, at=start, id=f"{id}:return")
                else:
                    lane.result(
                        id, text, at=start, id=f"{id}:result" if id else f"{request.id}.{k}", tool=string(message.get("name"))
                    )
            elif not self._from_team(lane, text):
                self._from_outside(lane, text, f"{request.id}.{k}", start)

    def _from_team(self, lane: Lane, text: str) -> bool:
        """Whether a prompt is, or holds, what another agent answered."""
        events = [
            event
            for agent, answer, event in self._answers[self._heard.get(lane.agent, 0) :]
            if agent != lane.agent and answer and (answer == text or (len(answer) >= _TELLING and answer in text))
        ]
        self._heard[lane.agent] = len(self._answers)
        for event in events:
            lane.hears(event, "message")
        return bool(events)

    def _from_outside(self, lane: Lane, text: str, id: str, at: float | None) -> None:
        """The task of the first agent comes from people; what others are told, the program around them says."""
        if lane.agent == self.requests[0].agent:
            lane.prompt(text, at=at, id=id)
        else:
            lane.prompt(text, by="system", source="system", at=at, id=id)

    def _steps(self, lane: Lane, request: _Request) -> None:
        data = request.data
        usage, error = _usage(data), _error(data)
        if usage is None and error is None:
            self.draft.report.lacks["the tokens of a model call"] += 1
        extra = {
            name: data.get(name) for name in ("model_version", "retry_count", "finish_reason", "http_status", "adjusted_params")
        }
        response, asked = as_dict(data.get("response")), as_dict(data.get("request"))
        model = string(data.get("model")) or string(response.get("model")) or string(asked.get("model"))
        extra["server_version"] = as_dict(data.get("server")).get("version")
        fields: dict[str, Any] = {"ok": False, "error": error} if error else {}
        event = lane.step(
            at=_start(request),
            end=request.at,
            text=request.text,
            usage=usage,
            model=model,
            id=request.id,
            only_calls=bool(request.calls),
            extra=extra,
            **fields,
        )
        if event is not None and request.text:
            self._answers.append((lane.agent, request.text, event))
        for k, call in enumerate(request.calls):
            self._calls(lane, request, call, k)

    def _calls(self, lane: Lane, request: _Request, call: dict[str, Any], k: int) -> None:
        function = as_dict(call.get("function"))
        id = string(call.get("id")) or f"{request.id}.call{k}"
        tool, args = string(function.get("name")) or "unnamed", compact(function.get("arguments") or "")
        child = request.made.get(id)
        if child is None:
            lane.call(tool, args, call=id, at=request.at, id=id)
        elif child in self._spawned:
            lane.send(child, args, at=request.at, id=id, extra={"tool": tool})
        else:
            lane.spawn(child, role=tool, text=args, at=request.at, id=id)
            self._spawned.add(child)
            self.draft.report.linked(_BY_ANSWER, exact=False)


def _start(request: _Request) -> float | None:
    """The store writes an event when the call is done."""
    took = number(request.data.get("latency_ms"))
    return request.at - took / 1000 if request.at is not None and took is not None else request.at


def _usage(data: dict[str, Any]) -> Usage | None:
    response = as_dict(data.get("response"))
    stated = as_dict(data.get("usage")) or as_dict(response.get("usage"))
    if (usage := Usage.openai(stated)) is not None:
        return usage
    choice = as_dict(next(iter(as_list(response.get("choices"))), None))
    prompt, answer = response.get("prompt_token_ids"), choice.get("token_ids")
    if isinstance(prompt, list) and isinstance(answer, list):
        return Usage.whole(len(prompt), len(answer))
    return None


def _error(data: dict[str, Any]) -> str | None:
    status, code = string(data.get("status")), number(data.get("http_status"))
    if (code is not None and code >= 400) or (status is not None and status not in ("ok", "success", "succeeded", "completed")):
        raw = as_dict(data.get("response")).get("error") or data.get("error")
        message = string(as_dict(raw).get("message")) or text_of(raw)
        return message or status or f"HTTP {code:.0f}"
    return None


def _score(draft: Draft, events: list[dict[str, Any]]) -> None:
    notes = []
    for event in events:
        data = as_dict(event.get("data"))
        value = number(data.get("value"))
        if event.get("event_type") != "reward" or value is None:
            continue
        name = string(data.get("name")) or string(data.get("source")) or "reward"
        k, fresh = 2, name
        while fresh in draft.rewards:
            fresh, k = f"{name}~{k}", k + 1
        draft.rewards[fresh] = value
        notes.append({"name": fresh, "at": seconds(event.get("timestamp")), **data})
    if notes:
        draft.meta["rewards"] = notes
