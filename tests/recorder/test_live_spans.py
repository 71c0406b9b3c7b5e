"""OpenTelemetry at the same time: the spans of the real SDK, and back again through `counterpoint serve`."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

import counterpoint.recorder.live_spans as live_spans
from counterpoint import InputError, Store, problems, record
from counterpoint.recorder.recording import Recording
from counterpoint.trace import Trace

CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"


def provider_to(exporter: SpanExporter) -> TracerProvider:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider


@pytest.fixture
def memory() -> InMemorySpanExporter:
    return InMemorySpanExporter()


def team(folder: Path, otel: Any, **about: Any) -> Recording:
    """A lead, two readers with a page each, of which the second is missing."""
    rec = record(folder, task="bridge", agent="lead", otel=otel, **about)

    @rec.tool
    async def read(page: str) -> str:
        return {"s1": "It opened in 1932."}[page]

    @rec.model(name="asked")
    async def ask(messages: list[dict[str, str]], temperature: float) -> dict[str, Any]:
        usage = {"prompt_tokens": len(messages), "completion_tokens": 4}
        return {"text": f"said {len(messages)}", "usage": usage, "model": "answered", "finish": "stop"}

    @rec.agent(role="reader")
    async def reader(page: str) -> str:
        first = {"role": "user", "content": f"What is on {page}?"}
        found = {"role": "user", "content": await read(page)}
        await ask([first], temperature=0.5)
        return str((await ask([first, found], temperature=0.5))["text"])

    @rec.agent
    async def lead() -> None:
        found = await asyncio.gather(reader("s1"), reader("s2"), return_exceptions=True)
        answer = await ask([{"role": "user", "content": " ".join(map(str, found))}], temperature=0.0)
        rec.stop(answer["text"])

    with rec:
        asyncio.run(lead())
    assert rec.trace is not None
    assert problems(rec.trace) == [] == rec.problems
    return rec


def by_name(spans: Sequence[ReadableSpan], name: str, agent: str | None = None) -> list[ReadableSpan]:
    return [s for s in spans if s.name == name and agent in (None, dict(s.attributes or {}).get("gen_ai.agent.id"))]


def sent(memory: InMemorySpanExporter) -> tuple[ReadableSpan, ...]:
    """The spans that have ended, when all of ended recordings have."""
    done = live_spans.later(lambda: None)
    assert done is not None
    done.result(600)
    return memory.get_finished_spans()


def parent_of(spans: Sequence[ReadableSpan], span: ReadableSpan) -> ReadableSpan | None:
    return next((s for s in spans if span.parent is not None and s.context.span_id == span.parent.span_id), None)


def test_agents_calls_and_steps_are_spans_inside_the_programs_own(tmp_path: Path, memory: InMemorySpanExporter) -> None:
    provider = provider_to(memory)
    with provider.get_tracer("app").start_as_current_span("request"):
        rec = team(tmp_path, provider)
    spans = sent(memory)
    assert len({s.context.trace_id for s in spans}) == 1
    above = {(s.name, dict(s.attributes or {}).get("gen_ai.agent.id")): p.name if (p := parent_of(spans, s)) else None for s in spans}
    assert above == {
        ("request", None): None,
        ("invoke_agent lead", "lead"): "request",
        ("invoke_agent reader", "reader"): "invoke_agent lead",
        ("invoke_agent reader", "reader-2"): "invoke_agent lead",
        ("execute_tool read", "reader"): "invoke_agent reader",
        ("execute_tool read", "reader-2"): "invoke_agent reader",
        ("chat asked", "reader"): "invoke_agent reader",
        ("chat asked", "lead"): "invoke_agent lead",
    }
    chat = by_name(spans, "chat asked", "lead")[0]
    assert dict(chat.attributes or {}) == {
        "gen_ai.operation.name": "chat", "gen_ai.agent.id": "lead", "gen_ai.agent.name": "lead",
        "gen_ai.request.model": "asked", "gen_ai.response.model": "answered", "gen_ai.request.temperature": 0.0,
        "gen_ai.usage.input_tokens": 1, "gen_ai.usage.output_tokens": 4, "gen_ai.response.finish_reasons": ("stop",),
    }  # fmt: skip
    assert dict(by_name(spans, "invoke_agent lead")[0].attributes or {})["counterpoint.recording"] == rec.trace_id
    failed = {s.name for s in spans if s.status.status_code is StatusCode.ERROR}
    assert failed == {"execute_tool read", "invoke_agent reader"}
    tool = by_name(spans, "execute_tool read", "reader-2")[0]
    assert tool.status.description == "KeyError: 's2'"
    assert dict(tool.attributes or {})["error.type"] == "KeyError"
    for span in spans:
        outer = parent_of(spans, span)
        assert span.start_time is not None
        assert span.end_time is not None
        assert span.start_time <= span.end_time
        if outer is not None and outer.name != "request":  # whose clock is the SDK's
            assert outer.start_time <= span.start_time
            assert span.end_time <= outer.end_time


def test_texts_are_sent_only_where_the_variable_says_so(
    tmp_path: Path, memory: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(CAPTURE, raising=False)
    team(tmp_path, provider_to(memory))
    told = "".join(s.to_json() for s in sent(memory))
    assert "What is on" not in told
    assert "1932" not in told
    assert "said" not in told
    memory.clear()
    monkeypatch.setenv(CAPTURE, "SPAN_ONLY")
    team(tmp_path, provider_to(memory))
    spans = sent(memory)
    second = dict(by_name(spans, "chat asked", "reader")[1].attributes or {})
    assert [m["parts"][0]["content"] for m in json.loads(str(second["gen_ai.input.messages"]))] == [
        "What is on s1?", "It opened in 1932.",
    ]  # fmt: skip
    assert json.loads(str(second["gen_ai.output.messages"]))[0]["parts"] == [{"type": "text", "content": "said 2"}]
    tool = dict(by_name(spans, "execute_tool read", "reader")[0].attributes or {})
    assert (tool["gen_ai.tool.call.arguments"], tool["gen_ai.tool.call.result"]) == ("s1", "It opened in 1932.")
    reader = dict(by_name(spans, "invoke_agent reader", "reader")[0].attributes or {})
    assert json.loads(str(reader["gen_ai.input.messages"]))[0]["parts"][0]["content"] == "s1"
    assert json.loads(str(reader["gen_ai.output.messages"]))[0]["parts"][0]["content"] == "said 2"


@contextmanager
def serving(store: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "counterpoint", "serve", "--port", "0", "--store", os.fspath(store), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield json.loads(server.stdout.readline())["url"]
        finally:
            server.send_signal(signal.SIGINT)
            server.stdout.read()
            server.wait(600)


def told(trace: Trace) -> tuple[Any, ...]:
    """What both tell: agents by role and who spawned them, calls with what became of them, tokens by model."""
    role = {e.agent: e.role or e.agent for e in trace.events} | {e.to: e.role for e in trace.events if e.type == "spawn" and e.to}
    spawned = Counter((role[e.agent], role[str(e.to)]) for e in trace.events if e.type == "spawn")
    calls = Counter((role[e.agent], e.tool, trace.text(e)) for e in trace.events if e.type == "tool_call")
    results = Counter((e.tool, e.error or trace.text(e), e.ok is not False) for e in trace.events if e.type == "tool_result")
    tokens = Counter((role[e.agent], e.model, e.tokens_in, e.tokens_out) for e in trace.events if e.tokens_out)
    returned = Counter((role[e.agent], trace.text(e)) for e in trace.events if e.type == "return" and e.ok is not False)
    return spawned, calls, results, tokens, returned


def test_what_we_send_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CAPTURE, "true")
    with serving(tmp_path / "live") as url:
        provider = provider_to(OTLPSpanExporter(url + "/v1/traces"))
        own = team(tmp_path / "own", provider).trace
        sent(InMemorySpanExporter())
        provider.shutdown()
    with Store(tmp_path / "live", read_only=True) as store:
        [name] = store.ids() + store.open_ids()
        back = store.get(name)
    assert own is not None
    assert [p for p in problems(back) if p.severity == "error"] == []
    assert told(back) == told(own)
    assert len(back.agents) == len(own.agents) == 3
    assert told(own)[0] == Counter({("lead", "reader"): 2})


def test_spans_begin_and_end_while_the_recording_goes_on(tmp_path: Path) -> None:
    seen: list[tuple[str, int]] = []
    has_ended = threading.Event()

    class Watch(SimpleSpanProcessor):
        def on_start(self, span: Any, parent_context: Any = None) -> None:
            seen.append((f"begins {span.name}", threading.get_ident()))

        def on_end(self, span: ReadableSpan) -> None:
            seen.append((f"ends {span.name}", threading.get_ident()))
            has_ended.set()

    provider = TracerProvider()
    provider.add_span_processor(Watch(InMemorySpanExporter()))
    with record(tmp_path, task="demo", agent="lead", otel=provider) as rec:
        with rec.tool_call("look", "x") as call:
            call.result("y")
        assert has_ended.wait(600)
        assert [what for what, _ in seen] == ["begins invoke_agent lead", "begins execute_tool look", "ends execute_tool look"]
    assert rec.trace is not None
    sent(InMemorySpanExporter())
    assert seen[-1][0] == "ends invoke_agent lead"
    assert threading.get_ident() not in {thread for _, thread in seen}


def test_a_broken_exporter_is_told_once_and_nothing_is_lost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Broken(SimpleSpanProcessor):
        def on_start(self, span: Any, parent_context: Any = None) -> None:
            raise RuntimeError("no collector")

    provider = TracerProvider()
    provider.add_span_processor(Broken(InMemorySpanExporter()))
    with record(tmp_path, task="demo", agent="lead", otel=provider) as rec:
        for _ in range(3):
            with rec.tool_call("look", "x") as call:
                call.result("y")
    assert rec.trace is not None
    assert len(rec.trace.events) == 6
    sent(InMemorySpanExporter())
    assert rec.problems == ["OpenTelemetry: RuntimeError: no collector"]
    assert capsys.readouterr().err.count("no collector") == 1


def test_more_than_can_be_sent_is_left_out_and_said(
    tmp_path: Path, memory: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_spans, "_MOST", 10)
    with Store(tmp_path, flush_ms=60_000) as store, record(store, task="demo", agent="lead", otel=provider_to(memory)) as rec:
        assert rec.session is not None
        assert rec.session.spans is not None
        monkeypatch.setattr(rec.session.run, "beside", None)  # whoever writes does not come
        for _ in range(30):
            with rec.tool_call("look", "x") as call:
                call.result("y")
    assert rec.trace is not None
    assert len(rec.trace.events) == 60
    assert [p for p in rec.problems if "wait for OpenTelemetry" in p] == rec.problems != []
    assert len(by_name(sent(memory), "execute_tool look")) < 10


def test_what_is_not_kept_is_not_sent_and_what_fails_is(tmp_path: Path, memory: InMemorySpanExporter) -> None:
    provider = provider_to(memory)
    with record(tmp_path, task="demo", agent="lead", sample=0.0, otel=provider) as rec:
        rec.stop("fine")
    assert rec.trace is None
    assert sent(memory) == ()
    with pytest.raises(ValueError), record(tmp_path, task="demo", agent="lead", sample=0.0, otel=provider) as failing:  # noqa: PT012
        with failing.tool_call("look", "x") as call:
            call.result("y")
        raise ValueError("bad")
    assert failing.trace is not None
    spans = sent(memory)
    assert [s.name for s in spans] == ["execute_tool look", "invoke_agent lead"]
    assert spans[-1].status.description == "ValueError: bad"


def test_an_agent_that_is_set_to_work_again_has_a_span_for_each_time(tmp_path: Path, memory: InMemorySpanExporter) -> None:
    with record(tmp_path, task="demo", agent="lead", otel=provider_to(memory)) as rec:
        for answer in ("1", "2"):
            with rec.acting("ada", role="worker") as ada:
                with rec.model_call("m") as step:
                    step.result(answer, tokens_in=1, tokens_out=1)
                ada.result(answer)
    assert rec.trace is not None
    spans = sent(memory)
    again = by_name(spans, "invoke_agent worker", "ada")
    assert [s.name for s in (parent_of(spans, one) for one in again) if s is not None] == ["invoke_agent lead"] * 2
    steps = by_name(spans, "chat m", "ada")
    assert [p.context.span_id for s in steps if (p := parent_of(spans, s))] == [s.context.span_id for s in again]


def test_only_a_provider_is_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="otel=str is no tracer provider"):
        record(tmp_path, task="demo", otel="http://localhost:4318")
    with record(tmp_path, task="demo", otel=True) as rec:  # no SDK has been set up: there is nobody to tell
        rec.stop("x")
    assert rec.trace is not None
    assert rec.problems == []


def test_a_collector_that_hangs_holds_up_nobody(tmp_path: Path) -> None:
    goes_on = threading.Event()

    class Hung(SpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            goes_on.wait(600)
            return SpanExportResult.FAILURE

    recs = [record(tmp_path, task="demo", agent="lead", otel=provider_to(Hung())) for _ in range(3)]
    for rec in recs:
        with rec:
            with rec.tool_call("look", "x") as call:
                call.result("y")
            assert rec.sync()
    assert [len(rec.trace.events) for rec in recs if rec.trace is not None] == [2, 2, 2]
    goes_on.set()


def test_plans_handoffs_and_the_conversation_have_their_names(tmp_path: Path, memory: InMemorySpanExporter) -> None:
    meta = {"conversation_id": "c1", "agent_version": "2.1"}
    rec = record(tmp_path, task="bridge", agent="lead", otel=provider_to(memory), meta=meta)
    with rec:
        with rec.model_call("m", operation="plan") as step:
            step.result("First the page.", tokens_in=3, tokens_out=2)
        rec.message(None, "desk", "Yours.", is_handoff=True)
        rec.message(None, "desk", "And this.")
        with rec.acting("desk"), rec.model_call("m", conversation_turn=2) as step:
            step.result("Done.")
    assert rec.problems == []
    spans = {s.name: dict(s.attributes or {}) for s in sent(memory)}
    assert set(spans) == {"invoke_agent lead", "invoke_agent desk", "plan lead", "execute_tool transfer_to_desk", "chat m"}
    for told in spans.values():
        assert (told["gen_ai.conversation.id"], told["gen_ai.agent.version"]) == ("c1", "2.1")
    assert spans["plan lead"]["gen_ai.operation.name"] == "plan"
    assert spans["chat m"]["gen_ai.agent.turn"] == 2
    over = spans["execute_tool transfer_to_desk"]
    assert (over["gen_ai.agent.handoff.source.name"], over["gen_ai.agent.handoff.target.name"]) == ("lead", "desk")
    assert over["gen_ai.agent.id"] == "lead"
