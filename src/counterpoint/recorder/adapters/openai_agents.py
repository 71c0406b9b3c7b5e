"""The OpenAI Agents SDK, recorded as it runs: a tracing processor.

    from agents import set_trace_processors
    from counterpoint.recorder.adapters.openai_agents import processor

    with counterpoint.record(task="demo") as rec:
        set_trace_processors([processor(rec)])      # instead of the SDK's own, which sends traces to its maker
        Runner.run_sync(agent, question)

What becomes what, as when the SDK's export is imported: agent spans are agents, the first of them the root; one inside a function
span is spawned there and returns (the function stays a tool call, whose result is then a peer's); handoffs are messages, and who
is handed to returns in the place of who handed on; generations and responses are steps with their tokens, function spans calls
with untrusted results, guardrails safety events. Task, turn and custom spans are wrappers. Responses are recorded with what they
say, which an export leaves out.

Always true: a span is recorded when it begins and when it ends; nothing is sent anywhere.
"""

from __future__ import annotations

from typing import Any

from counterpoint.errors import InputError, NotIdentified
from counterpoint.formats.spans.span import last_answer, last_request
from counterpoint.recorder.adapters import Places, do, name_root
from counterpoint.recorder.conversation import Question, answer_of, question_of
from counterpoint.recorder.lanes import Scope
from counterpoint.recorder.problems import masked_error
from counterpoint.recorder.recording import Recording
from counterpoint.recorder.values import clean, plain, text_of, usage_of

try:
    from agents.tracing import TracingProcessor, get_current_span
except ImportError as error:
    raise InputError("the OpenAI Agents SDK is not installed", fix="pip install openai-agents") from error

_STEPS = frozenset({"generation", "response", "transcription", "speech"})


def processor(recording: Recording) -> TracingProcessor:
    """A tracing processor that records into `recording`."""
    return _Processor(recording)


def _here() -> str | None:
    span = get_current_span()
    return None if span is None else str(span.span_id)


class _Processor(TracingProcessor):
    def __init__(self, recording: Recording) -> None:
        self._places = Places(recording, _here)
        self._last_text: dict[str, str | None] = {}
        """Agent to what its model said last."""
        self._peers: set[str] = set()
        """Calls of functions in which an agent worked."""

    def on_trace_start(self, trace: Any) -> None:
        """A workflow begins: its spans tell all."""

    def on_trace_end(self, trace: Any) -> None:
        """A workflow ends."""

    def shutdown(self) -> None:
        """Nothing is held back."""

    def force_flush(self) -> None:
        """Nothing is held back."""

    def on_span_start(self, span: Any) -> None:
        """Something begins."""
        scope, data = self._places.above(span.parent_id), span.span_data
        if scope is None:
            return
        if (player := scope.session.player) is not None:  # the SDK swallows the errors of a processor, but not this
            what = "the SDK makes its model calls itself: nothing stands in for them, and they would really be made"
            player.failure = NotIdentified(what, "a team whose models and tools are functions with @rec.model and @rec.tool")
            raise SystemExit(str(player.failure))
        inner: Scope | None = scope
        if data.type == "agent":
            inner = self._enter(scope, str(data.name or "agent"))
        elif data.type in _STEPS:
            self._hear(scope, getattr(data, "input", None))
            inner = do(scope, "begin_step", model=_model(data))
        elif data.type == "function":
            inner = do(scope, "begin", "tool_call", tool=str(data.name or "function"), text=text_of(data.input))
        elif data.type == "guardrail":
            inner = do(scope, "begin", "safety_event")
        self._places.put(span.span_id, inner)

    def on_span_end(self, span: Any) -> None:
        """Something ends."""
        scope, data = self._places.take(span.span_id), span.span_data
        if scope is None:
            return
        failure: dict[str, Any] = {"ok": True}
        if span.error:
            failure = {"ok": False, "error": _why(span.error)}
        if data.type == "agent":
            do(scope, "leave", self._last_text.pop(scope.lane.agent, None), **failure)
        elif data.type in _STEPS:
            self._step(scope, data, failure)
        elif data.type == "function":
            self._result(scope, span.span_id, data, failure)
        elif data.type == "handoff" and data.to_agent:
            scope.hands_on = True
            do(scope, "message", str(data.to_agent), None, extra={"is_handoff": True})
        elif data.type == "guardrail":
            verdict = {"verdict": "triggered" if data.triggered else "allow", "guardrail": plain(str(data.name))}
            do(scope, "end", None, extra=verdict, **failure)

    def _enter(self, scope: Scope, name: str) -> Scope | None:
        if scope.outer is None:
            name_root(scope, name)
        is_tool = (
            scope.event is not None and scope.outer is not None
        )  # this agent is the work of a function call, each an own one
        if is_tool:
            self._peers.add(str(scope.event))
        entered: Scope | None = do(scope, "enter", name, name, None, is_new=is_tool)
        return entered

    def _hear(self, scope: Scope, asked: Any) -> None:
        """What the first step of all is asked is what a human said."""
        if asked and scope is scope.session.root and scope.lane.latest is None and not scope.knows:
            do(scope, "human", plain(last_request(_plain_data(asked))))

    def _step(self, scope: Scope, data: Any, failure: dict[str, Any]) -> None:
        response = getattr(data, "response", None)
        output = getattr(response, "output", None) if response is not None else getattr(data, "output", None)
        answer = last_answer(_plain_data(output)) if output is not None else None
        do(scope, "tell_call", _question(data, response), answer_of(response) or answer_of(output[-1] if output else None))
        told_usage = usage_of({"usage": getattr(data, "usage", None)}) or usage_of(response)
        told_usage["model"] = _model(data)
        calls = [{"name": call.name, "arguments": call.arguments} for call in answer.calls] if answer else []
        fields = clean({**told_usage, "extra": {"tool_calls": calls} if calls else None}, scope.session.note)
        text = plain(answer.text) if answer and answer.text else None
        if text is not None:
            self._last_text[scope.lane.agent] = text
        do(scope, "end", text, **fields, **failure)

    def _result(self, scope: Scope, span: str, data: Any, failure: dict[str, Any]) -> None:
        is_peer = scope.event in self._peers
        self._peers.discard(scope.event or "")
        origin = {"trusted": True, "source": "peer"} if is_peer else {"trusted": False, "source": "tool"}
        more = clean({"extra": {"mcp": data.mcp_data} if data.mcp_data else None}, scope.session.note)
        asked, name = text_of(data.input), str(data.name or "function")
        do(scope, "end_call", text_of(data.output), tool=name, asked=asked, **origin, **failure, **more)


def _why(error: Any) -> str:
    """What the SDK says of an error, and the exception's own words where it has them; secrets masked."""
    about = error.get("data")
    inner = about.get("error") if isinstance(about, dict) else None
    return masked_error(": ".join(part for part in (text_of(error.get("message")), text_of(inner)) if part)) or "error"


def _question(data: Any, response: Any) -> Question:
    """What a generation or a response was asked."""
    settings = getattr(data, "model_config", None)
    asked = dict(settings) if isinstance(settings, dict) else {}
    named = {name: value for name in ("instructions", "tools", "temperature", "top_p", "max_output_tokens", "tool_choice")
             if (value := getattr(response, name, None)) is not None}  # fmt: skip
    return question_of((), (), {**asked, **named, "input": getattr(data, "input", None)})


def _model(data: Any) -> str | None:
    name = getattr(data, "model", None) or getattr(getattr(data, "response", None), "model", None)
    return plain(name) if isinstance(name, str) and name else None


def _plain_data(value: Any) -> Any:
    """Objects of the SDK as plain data."""
    if isinstance(value, (list, tuple)):
        return [_plain_data(one) for one in value]
    dump = getattr(value, "model_dump", None)
    return dump() if callable(dump) else value
