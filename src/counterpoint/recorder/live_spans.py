"""OpenTelemetry at the same time: what is recorded leaves as spans of the program's own tracer, while it happens.

Agents are `invoke_agent` spans, each inside that of who spawned it, the first inside the span that was current when the recording
began; calls are `execute_tool` and steps of a model `chat`, inside their agent's, with the attributes of the GenAI conventions.
Texts are sent only where OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT says so.

Always true: the recorded team's thread only appends to a queue; spans begin and end, at their recorded times, in a thread of
their own, so that a slow collector holds up nobody; nothing here raises, and what goes wrong is told once; a recording that is
not kept sends nothing.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import msgspec

from counterpoint.errors import InputError
from counterpoint.formats.spans.spellings import PLAN, handoff_of, written_of
from counterpoint.recorder.recorder import Recorder, Sink, WallClock
from counterpoint.trace import Event

_MOST = 200_000
"""Records that may wait to be sent; what comes then is left out, and that is said."""
_CHARACTERS = 16 << 20
"""Characters of texts that are held so that later prompts can be sent whole."""
_CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
_CAPTURES = frozenset({"true", "1", "span_only", "span_and_event"})
_PARAMETERS = {
    "temperature": "temperature", "top_p": "top_p", "top_k": "top_k", "max_tokens": "max_tokens", "seed": "seed",
    "max_completion_tokens": "max_tokens", "max_output_tokens": "max_tokens", "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
}  # fmt: skip
_USAGE = {"tokens_in": "gen_ai.usage.input_tokens", "tokens_out": "gen_ai.usage.output_tokens", "model": "gen_ai.response.model"}
_encode = msgspec.json.Encoder().encode
Attributes = dict[str, Any]


def tracer_of(otel: Any) -> Any:
    """The tracer of what `record(otel=...)` was given: True for the provider that the program has set, or a provider."""
    try:
        from opentelemetry import trace
    except ImportError:
        raise InputError("OpenTelemetry is not installed", fix="pip install opentelemetry-sdk") from None
    provider = trace if otel is True else otel
    if not callable(getattr(provider, "get_tracer", None)):
        raise InputError(f"otel={type(otel).__name__} is no tracer provider", fix="record(otel=True), or otel=a TracerProvider")
    return provider.get_tracer("counterpoint")


_workers: list[ThreadPoolExecutor] = []
_making = threading.Lock()


def later(work: Callable[[], object]) -> Future[Any] | None:
    """Do this in the thread of spans, after what was asked for before; at once where the interpreter is ending."""
    with _making:
        if not _workers:
            _workers.append(ThreadPoolExecutor(1, "counterpoint-spans"))
        worker = _workers[0]
    try:
        return worker.submit(work)
    except RuntimeError:
        work()
        return None


def _after_fork() -> None:
    global _making
    _making = threading.Lock()
    _workers.clear()


os.register_at_fork(after_in_child=_after_fork)


class LiveSpans:
    """The spans of one recording."""

    def __init__(self, tracer: Any, trace_id: str, root: str, note: Callable[[str], None]) -> None:
        """`note` takes a problem; the span that is current here will be around all others."""
        from opentelemetry import context, trace

        self._tracer, self._otel, self._note, self._trace_id = tracer, trace, note, trace_id
        self._zero_ns = time.time_ns()
        self._queue: deque[tuple[Any, ...]] = deque()
        self._lock = threading.Lock()
        self.has_texts = os.environ.get(_CAPTURE, "").strip().lower() in _CAPTURES
        self._texts: dict[str, str] = {}
        self._characters = 0
        self._outside = context.get_current()
        self._agents: dict[str, Any] = {}
        """Agent to the span that it works in."""
        self._contexts: dict[str, Any] = {}
        """Agent to the context of what it does: kept after its span has ended."""
        self._above: dict[str, Any] = {}
        """Agent to the context that its span is in: kept, too, for it may be set to work again."""
        self._open: dict[str, tuple[Any, Event]] = {}
        self._answered: dict[str, tuple[Any, int]] = {}
        """Calls that have ended and whose result is not there yet."""
        self._results: dict[str, str | None] = {}
        self._prompts: dict[str, list[dict[str, Any]]] = {}
        """Of each agent's last model call, what it was asked."""
        self._last: dict[str, str] = {}
        self._latest_ns = self._zero_ns
        self._root, self._is_told, self._is_awake = root, False, False
        self.run: Attributes = {}
        """What every span says: which conversation it is, and the version of the agents, where the recording was told."""

    # -- in the recorded team's thread -----------------------------------------------------------------------------------

    def put(self, kind: str, *record: Any) -> None:
        """Something has been recorded."""
        if len(self._queue) < _MOST:
            self._queue.append((kind, *record))
        else:
            self._tell(f"more than {_MOST:,} records wait for OpenTelemetry: some are left out of its spans")

    def _tell(self, what: str) -> None:
        if not self._is_told:
            self._is_told = True
            self._note(what)

    def wake(self) -> None:
        """Send what was recorded so far, soon."""
        if self._queue and not self._is_awake:
            self._is_awake = True
            later(self.send)

    # -- in their own thread ---------------------------------------------------------------------------------------------

    def send(self) -> None:
        """Begin and end the spans of all that was recorded so far."""
        self._is_awake = False
        with self._lock:
            while self._queue:
                kind, *record = self._queue.popleft()
                try:
                    getattr(self, f"_{kind}")(*record)
                except Exception as error:  # a processor of the program's, or its exporter
                    self._tell(f"OpenTelemetry: {type(error).__name__}: {error}")

    def end(self, error: str | None) -> None:
        """Nothing more comes: what is open ends with the last event; the root agent says how the recording ended."""
        self.send()
        with self._lock:
            try:
                self._agent(self._root, self._zero_ns)
                self._fail(self._agents[self._root], {"error": error} if error else {})
                left = [*(span for span, _ in self._open.values()), *(span for span, _ in self._answered.values())]
                for span in [*left, *reversed(self._agents.values())]:
                    span.end(self._latest_ns)
            except Exception as failed:
                self._tell(f"OpenTelemetry: {type(failed).__name__}: {failed}")

    def _at(self, t: float) -> int:
        at = self._zero_ns + round(t * 1e9)
        self._latest_ns = max(self._latest_ns, at)
        return at

    def _agent(self, agent: str, at: int, *, role: str | None = None, boss: str | None = None) -> Any:
        """The context of an agent's work, whose span is begun where there is none."""
        if agent in self._agents:
            return self._contexts[agent]
        if agent == self._root:
            around = self._outside
        elif boss is not None:
            around = self._agent(boss, at)
        else:  # set to work again, or not spawned by anybody that was seen
            around = self._above.get(agent) or self._agent(self._root, at)
        self._above[agent] = around
        name = role or agent
        about = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": name, "gen_ai.agent.id": agent}
        about |= self.run
        if agent == self._root:
            about["counterpoint.recording"] = self._trace_id
        span = self._tracer.start_span(f"invoke_agent {name}", context=around, start_time=at, attributes=about)
        self._agents[agent] = span
        self._contexts[agent] = self._otel.set_span_in_context(span, around)
        return self._contexts[agent]

    def _text(self, name: str, text: str) -> None:
        self._characters += len(text) - len(self._texts.get(name, ""))
        self._texts[name] = text
        while self._characters > _CHARACTERS:
            self._characters -= len(self._texts.pop(next(iter(self._texts))))

    def _begin(self, event: Event) -> Any:
        """The span of a call or a step; None for what has none."""
        is_call = event.type == "tool_call"
        if not is_call and event.model is None and event.tokens_in is None and event.tokens_out is None:
            return None
        does = "execute_tool" if is_call else PLAN if (event.extra or {}).get("operation") == PLAN else "chat"
        about: Attributes = {"gen_ai.operation.name": does}
        about |= {"gen_ai.agent.id": event.agent, "gen_ai.agent.name": event.role or event.agent, **self.run}
        about |= written_of(event.extra)
        if is_call:
            about |= {"gen_ai.tool.name": event.tool or "tool", "gen_ai.tool.call.id": event.id}
            self._say(about, "gen_ai.tool.call.arguments", event.content_ref)
        elif event.model is not None:
            about["gen_ai.request.model"] = event.model
        kind = self._otel.SpanKind.INTERNAL if is_call else self._otel.SpanKind.CLIENT
        of = event.tool or "tool" if is_call else (event.role or event.agent) if does == PLAN else event.model or ""
        name = f"{does} {of}".strip()
        at = self._at(float(event.t))
        context = self._agent(event.agent, at, role=event.role)
        return self._tracer.start_span(name, context=context, kind=kind, start_time=at, attributes=about)

    def _say(self, about: Attributes, name: str, ref: str | None) -> None:
        text = self._texts.get(ref or "")
        if text is not None:
            about[name] = text

    def _speak(self, span: Any, name: str, role: str, event: Event) -> None:
        if (text := self._texts.get(event.content_ref or "")) is not None:
            span.set_attribute(name, _messages([_message(role, text)]))

    def _opens(self, event: Event) -> None:
        span = self._begin(event)
        if span is not None:
            self._open[event.id] = span, event

    def _closes(self, name: str, extra: Mapping[str, Any], fields: Mapping[str, Any]) -> None:
        span, event = self._open.pop(name, (None, None))
        if span is None or event is None:
            return
        self._usage(span, fields)
        if event.type != "tool_call":
            self._call(span, event, extra.get("call") or {}, self._texts.get(fields.get("content_ref") or ""))
        self._fail(span, fields)
        at = self._at(float(event.t) + float(fields.get("dur") or 0.0))
        if event.type == "tool_call" and self.has_texts:
            self._answered[name] = span, at
        else:
            span.end(at)

    def _happens(self, event: Event) -> None:
        at = self._at(float(event.t) + float(event.dur or 0.0))
        if event.type == "spawn" and event.to is not None:
            self._agent(event.to, at, role=event.role, boss=event.agent)
            self._speak(self._agents[event.to], "gen_ai.input.messages", "user", event)
        elif event.type == "tool_result":
            self._results[event.id] = event.content_ref
        elif event.type == "return" and event.agent != self._root:
            self._agent(event.agent, at, role=event.role)
            span = self._agents.pop(event.agent)
            self._speak(span, "gen_ai.output.messages", "assistant", event)
            self._fail(span, {"ok": event.ok, "error": event.error})
            span.end(at)
        elif event.type == "message" and event.to and (event.extra or {}).get("is_handoff") is True:
            self._hand_over(event, event.to, at)
        elif (span := self._begin(event)) is not None:
            self._usage(span, {"tokens_in": event.tokens_in, "tokens_out": event.tokens_out})
            self._fail(span, {"ok": event.ok, "error": event.error})
            span.end(at)
        elif event.decision == "stop":
            self._agent(event.agent, at, role=event.role)
            self._speak(self._agents[event.agent], "gen_ai.output.messages", "assistant", event)

    def _hand_over(self, event: Event, to: str, at: int) -> None:
        """One agent passes control to another: a call of its own that is over at once."""
        about: Attributes = {**handoff_of(event.agent, to), "gen_ai.agent.id": event.agent}
        about |= {"gen_ai.agent.name": event.role or event.agent, **self.run}
        context = self._agent(event.agent, at, role=event.role)
        name = f"execute_tool {about['gen_ai.tool.name']}"
        self._tracer.start_span(name, context=context, start_time=at, attributes=about).end(at)

    def _answers(self, call: str, result: str) -> None:
        """What a call gave is known: its span can end."""
        ref = self._results.pop(result, None)
        about: Attributes = {}
        span, at = self._answered.pop(call, (None, 0))
        if span is not None:
            self._say(about, "gen_ai.tool.call.result", ref)
            span.set_attributes(about)
            span.end(at)

    def _usage(self, span: Any, fields: Mapping[str, Any]) -> None:
        span.set_attributes({key: fields[name] for name, key in _USAGE.items() if fields.get(name) is not None})

    def _fail(self, span: Any, fields: Mapping[str, Any]) -> None:
        if fields.get("ok") is False or fields.get("error"):
            why = str(fields.get("error") or "failed")
            span.set_attribute("error.type", why.partition(":")[0].splitlines()[0])
            span.set_status(self._otel.StatusCode.ERROR, why)

    def _call(self, span: Any, event: Event, note: Mapping[str, Any], said: str | None) -> None:
        """What is kept of a model call: how it was sampled and ended, and its messages where they may be sent."""
        asked = note.get("parameters") or {}
        for name, value in asked.items():
            if name in _PARAMETERS and type(value) in (int, float):
                span.set_attribute(f"gen_ai.request.{_PARAMETERS[name]}", value)
        if finish := note.get("finish"):
            span.set_attribute("gen_ai.response.finish_reasons", [finish])
        if not self.has_texts:
            return
        prompt = note.get("prompt") or {}
        before = self._prompts.get(prompt.get("of", ""), [])[: prompt.get("first", 0)]
        more = [
            _message(str(fields.get("role", "user")), self._texts[ref], fields)
            for ref, fields in zip(prompt.get("more") or (), prompt.get("fields") or (), strict=False)
            if ref in self._texts
        ]
        self._prompts.pop(self._last.get(event.agent, ""), None)
        self._prompts[event.id], self._last[event.agent] = [*before, *more], event.id
        if before or more:
            span.set_attribute("gen_ai.input.messages", _messages([*before, *more]))
        text = self._texts.get(note.get("completion", ""), said)
        calls = {"tool_calls": note.get("tool_calls") or []}
        if text or calls["tool_calls"]:
            span.set_attribute("gen_ai.output.messages", _messages([_message("assistant", text or "", calls)]))


def _message(role: str, text: str, fields: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A message as the conventions have it."""
    fields = fields or {}
    if role == "tool":
        return {"role": role, "parts": [{"type": "tool_call_response", "id": fields.get("tool_call_id"), "response": text}]}
    parts: list[dict[str, Any]] = [{"type": "text", "content": text}] if text else []
    parts += [{"type": "tool_call", **call} for call in fields.get("tool_calls") or ()]
    return {"role": role, "parts": parts}


def _messages(messages: list[dict[str, Any]]) -> str:
    return str(_encode(messages), "utf-8")


def recorder_of(run: Any, spans: LiveSpans | None) -> Recorder:
    """The recorder of a run, which tells the spans too where there are any."""
    if spans is None:
        return Recorder(run, WallClock(), keep=getattr(run, "text", None))  # a replay's run holds all in memory
    run.beside = spans.wake
    sink = SpanSink(run, run.text, spans)
    return Recorder(sink, WallClock(), keep=sink.text)


class SpanSink:
    """A sink of records that tells the spans of them."""

    def __init__(self, sink: Sink, keep: Callable[[str], str], spans: LiveSpans) -> None:
        self._sink, self._keep, self._put = sink, keep, spans.put
        self._has_texts = spans.has_texts
        self.content, self.later = sink.content, sink.later

    def text(self, text: str) -> str:
        """Keep a text."""
        name = self._keep(text)
        if self._has_texts:
            self._put("text", name, text)
        return name

    def event(self, event: Event) -> None:
        """Record an event."""
        self._sink.event(event)
        self._put("happens", event)

    def edge(self, src: str, dst: str, type: str) -> None:
        """Record what an event read."""
        self._sink.edge(src, dst, type)
        if type == "tool_dependency" and self._has_texts:
            self._put("answers", src, dst)

    def open(self, event: Event) -> str:
        """Record that an event began."""
        name = self._sink.open(event)
        self._put("opens", event)
        return name

    def close(self, event_id: str, *, extra: Mapping[str, Any] | None = None, **fields: Any) -> None:
        """Record that it ended."""
        self._sink.close(event_id, extra=extra, **fields)
        self._put("closes", event_id, extra or {}, fields)
