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

A recording keeps what models (any `Model` of the SDK) and function tools answered, so that the team can be run again.

Always true: a span is recorded when it begins and when it ends; nothing is sent anywhere.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Collection
from typing import Any

from counterpoint.errors import InputError, NotIdentified
from counterpoint.formats.spans.span import last_answer, last_request
from counterpoint.recorder.adapters import Places, do, name_root
from counterpoint.recorder.conversation import Question, answer_of, question_of
from counterpoint.recorder.keep import answer_note, ended, keep_question, keep_step
from counterpoint.recorder.lanes import Scope, current
from counterpoint.recorder.player import Player
from counterpoint.recorder.problems import error_text, masked_error
from counterpoint.recorder.recording import Recording
from counterpoint.recorder.values import clean, plain, text_of, usage_of
from counterpoint.trace.keys import REPLAY

try:
    from agents.tracing import TracingProcessor, get_current_span

    from counterpoint.recorder.adapters._openai_answers import as_response, response_of
    from counterpoint.recorder.adapters._openai_calls import ModelQuestion, ToolRun, asked_ref, stand_in_for_tools, watching
except ImportError as error:
    raise InputError("the OpenAI Agents SDK is not installed", fix="pip install openai-agents") from error

_STEPS = frozenset({"generation", "response", "transcription", "speech"})
_OWN = {"framework": "openai-agents"}
_UNTOLD = "the team keeps what is said out of its traces (trace_include_sensitive_data)"


def processor(recording: Recording, *, effects: Collection[str] = ()) -> TracingProcessor:
    """A tracing processor that records into `recording`; `effects` names tools that a replay never calls without consent."""
    return _Processor(recording, frozenset(effects))


def _here() -> str | None:
    span = get_current_span()
    return None if span is None else str(span.span_id)


class _Processor(TracingProcessor):
    def __init__(self, recording: Recording, effects: frozenset[str]) -> None:
        self._places, self._effects = Places(recording, _here), effects
        self._open: dict[str, Scope] = {}
        """Spans that are open, with the scope that each is in."""
        self._within: set[str] = set()
        """Spans that a model opened itself, inside a call that is recorded."""
        self._models: dict[Scope, ModelQuestion] = {}
        self._tools: tuple[Player, set[str]] | None = None
        """The replay that runs, and the names of the tools that it answers."""
        self._last_text: dict[Scope, str | None] = {}
        """Run of an agent to what its model said last."""
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
        self._play(scope, data)
        inner: Scope | None = scope
        if data.type == "agent":
            inner = self._enter(scope, str(data.name or "agent"))
        elif data.type in _STEPS:
            inner = self._step_begins(scope, span)
        elif data.type == "function":
            inner = do(scope, "begin", "tool_call", tool=str(data.name or "function"), text=text_of(data.input))
        elif data.type == "guardrail":
            inner = do(scope, "begin", "safety_event")
        self._places.put(span.span_id, inner)
        if inner is not None:
            self._open[span.span_id] = inner
            watching.hold(self, looks=data.type == "agent")

    def _play(self, scope: Scope, data: Any) -> None:
        """In a replay: from the first span on its tools are answered, and what nothing stands in for is not begun."""
        if (player := scope.session.player) is None:
            return
        if self._tools is None or self._tools[0] is not player:
            self._tools = (player, stand_in_for_tools(player, self._tool_run))
        what, at = None, current.get()
        if data.type in _STEPS and (at is None or at.call is None):
            what = "a model that is no `Model` of the SDK would really be asked"
        elif data.type == "function" and not {str(data.name), str(data.name).rpartition(".")[2]} & self._tools[1]:
            what = f"{data.name} is no function tool: it would really be run"
        if what is not None:  # the SDK swallows the errors of a processor, but not this
            player.failure = NotIdentified(what, "a function tool, or a function with @rec.model or @rec.tool")
            raise SystemExit(str(player.failure))

    def _tool_run(self) -> ToolRun | None:
        """The function's call that acts here."""
        span = get_current_span()
        scope = None if span is None else self._places.of(span.span_id)
        if span is None or scope is None or scope.tool is None or scope.session.player is None:
            return None
        return ToolRun(scope, scope.tool, asked_ref(getattr(span.span_data, "input", None)), scope.tool in self._effects)

    def on_span_end(self, span: Any) -> None:
        """Something ends."""
        scope, data = self._places.take(span.span_id), span.span_data
        if scope is None:
            return
        self._open.pop(span.span_id, None)
        failure: dict[str, Any] = {"ok": True}
        if span.error:
            failure = {"ok": False, "error": _why(span.error)}
        if data.type == "agent":
            about = {} if scope.outer is None else {"extra": _OWN}
            do(scope, "leave", self._last_text.pop(scope, None), **about, **failure)
        elif span.span_id in self._within:
            self._within.discard(span.span_id)
            self._learn(scope, data)
        elif data.type in _STEPS:
            self._step(scope, data, failure)
        elif data.type == "function":
            self._result(scope, span, data, failure)
        elif data.type == "handoff" and data.to_agent:
            scope.hands_on = True
            do(scope, "message", str(data.to_agent), None, extra={"is_handoff": True})
        elif data.type == "guardrail":
            verdict = {"verdict": "triggered" if data.triggered else "allow", "guardrail": plain(str(data.name))}
            do(scope, "end", None, extra=verdict, **failure)
        watching.let_go(self, is_last=not self._open)

    # -- models ----------------------------------------------------------------------------------------------------------

    def place(self, span: str) -> Scope | None:
        """The scope of an open span."""
        return self._places.of(span)

    def owns(self, scope: Scope) -> bool:
        """Whether this model's call is recorded here."""
        return scope in self._models

    def begin_model(self, scope: Scope, asked: ModelQuestion) -> Scope | None:
        """The SDK's runner asks a model."""
        self._hear(scope, asked.heard)
        begun: Scope | None = do(scope, "begin_step", asked.question, model=asked.model)
        if begun is not None:
            self._models[begun] = asked
        return begun

    def question_ref(self, scope: Scope, asked: ModelQuestion) -> str:
        """What it is asked, written down by its hash."""
        return keep_question(scope, asked.model, asked.text)

    def end_model(self, scope: Scope, value: Any, error: BaseException | None) -> None:
        """It answers, or fails; `value` is what its method gave: of a stream all events."""
        asked, response = self._models.pop(scope), response_of(value)
        if isinstance(value, list) and response is not None:  # it has said all
            error = None
        failure = {"ok": error is None, "error": error_text(error)}
        if not asked.is_told:
            note = scope.outcome.get("extra", {}).get(REPLAY, {})
            note["lost"] = _UNTOLD
            scope.outcome["extra"] = {REPLAY: note}
            do(scope, "end", None, **clean(usage_of(response), scope.session.note), **failure)
            ended(scope)
            return
        output = getattr(response, "output", None)
        answer = last_answer(_plain_data(output)) if output is not None else None
        text = plain(answer.text) if answer and answer.text else None
        extra = {name: one for name, one in (scope.outcome.get("extra") or {}).items() if name != "tool_calls"}
        calls = [{"name": call.name, "arguments": call.arguments} for call in answer.calls] if answer else []
        scope.outcome["extra"] = {**extra, **({"tool_calls": calls} if calls else {})}
        is_stream, is_cancelled = isinstance(value, list), isinstance(error, asyncio.CancelledError)
        end = as_response(value) if is_stream and response is not None else None  # of a stream too long to keep its end is all
        scope.session.do(keep_step, scope, value, error if is_cancelled or not is_stream else None, text, instead=end)
        usage = clean({**usage_of(response), "model": asked.model}, scope.session.note)
        do(scope, "tell_call", None, answer_of(response))
        if text is not None and scope.outer is not None:
            self._last_text[scope.outer] = text
        do(scope, "end", text, **usage, **failure)
        ended(scope)

    def _step_begins(self, scope: Scope, span: Any) -> Scope | None:
        """A model's own span; inside a call of the SDK's runner it is that."""
        at, data = current.get(), span.span_data
        if at is not None and at.call is not None and at.session is scope.session:
            self._within.add(span.span_id)
            if name := _model(data):
                at.outcome["model"] = name
            return at
        self._hear(scope, getattr(data, "input", None))
        begun: Scope | None = do(scope, "begin_step", model=_model(data))
        return begun

    def _learn(self, scope: Scope, data: Any) -> None:
        """What a model's own span says besides: of the answer, and its name."""
        response, output = getattr(data, "response", None), getattr(data, "output", None)
        last = output[-1] if isinstance(output, list) and output else None
        do(scope, "tell_call", None, answer_of(response) or answer_of(last))
        if name := _model(data):
            scope.outcome["model"] = name

    # -- agents and tools ------------------------------------------------------------------------------------------------

    def _enter(self, scope: Scope, name: str) -> Scope | None:
        if scope.outer is None:
            name_root(scope, name)
        is_tool = (
            scope.event is not None and scope.outer is not None
        )  # this agent is the work of a function call, each an own one
        if is_tool:
            self._peers.add(str(scope.event))
        entered: Scope | None = do(scope, "enter", name, name, None, is_new=is_tool, extra=_OWN)
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
        if text is not None and scope.outer is not None:
            self._last_text[scope.outer] = text
        do(scope, "end", text, **fields, **failure)

    def _result(self, scope: Scope, span: Any, data: Any, failure: dict[str, Any]) -> None:
        is_peer = scope.event in self._peers
        self._peers.discard(scope.event or "")
        origin = {"trusted": True, "source": "peer"} if is_peer else {"trusted": False, "source": "tool"}
        more = clean({"extra": {"mcp": data.mcp_data} if data.mcp_data else None}, scope.session.note)
        asked, name, text = text_of(data.input), str(data.name or "function"), text_of(data.output)
        error = _raised(span)
        if isinstance(error, asyncio.CancelledError):
            failure = {"ok": False, "error": error_text(error)}
        if (player := scope.session.player) is not None:
            failure = player.tool_ends(scope, name, asked_ref(data.input)) or failure
        kept = scope.session.do(answer_note, scope, data.output, error, text, ok=failure["ok"])
        if data.input is None and not scope.has_inner:
            kept = {REPLAY: {"lost": _UNTOLD}}
        do(scope, "end_call", text, tool=name, asked=asked, result=kept, **origin, **failure, **more)
        ended(scope)


def _raised(span: Any) -> BaseException | None:
    """What the code of a function tool has raised, where that ends its span; the SDK wraps it in an error of its own."""
    error = sys.exc_info()[1]
    if error is None or span.span_data.output is not None or not (span.error or isinstance(error, asyncio.CancelledError)):
        return None
    is_wrapped = str(error).startswith("Error running tool") and error.__cause__ is not None
    return error.__cause__ if is_wrapped else error


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
