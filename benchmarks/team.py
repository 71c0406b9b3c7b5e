"""A thousand agents at once, twenty steps each: what recording them costs, beside OpenTelemetry spans, both on disk.

The same fake work in plain asyncio, recorded by `Recorder` (what our own runtime calls), by the decorators of
`counterpoint.record`, and as spans of the OpenTelemetry SDK (a BatchSpanProcessor that writes JSON lines). Half of the steps call
a model, half a tool; a tool's call and result are two events of ours and one span. Each in a process of its own, taking turns;
overhead is the CPU time of the whole process, writer threads and the last sync included, over that of plain asyncio. Memory is
the most that the process had while recording; ours holds Arrow and DuckDB, which the store imports.

Then whole recordings of 20, 200 and 2,000 events, one after another in one process: opened, recorded by decorators, sealed and
durable at the end; beside a TracerProvider that is made, writes as many spans as there are calls, and is shut down. What a
recording costs whatever its size (it is checked, sealed, and synced to the disk file by file) shows in the small ones.

Last a service: fifty requests at once, one after another in each of fifty tasks of one event loop, every request a recording of
its own (or one span with a span for each step, in one provider); how long a whole request takes, p50 and p99, with and without.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from _timing import arguments, report, row

STEPS = 20
Work = Callable[[int], Awaitable[None]]


def _text(kind: str, agent: int, step: int) -> str:
    return f"{kind} {step} of agent {agent}: " + "some words of an answer that a model or a tool gives. " * 3


async def _think(agent: int, step: int) -> str:
    await asyncio.sleep(0)
    return _text("thought", agent, step)


async def _look(agent: int, step: int) -> str:
    await asyncio.sleep(0)
    return _text("page", agent, step)


async def _all(agent: Callable[[int], Awaitable[Any]], agents: int) -> None:
    await asyncio.gather(*(agent(a) for a in range(agents)))


def _plain(agents: int, folder: Path) -> dict[str, Any]:
    async def agent(a: int) -> str:
        for step in range(STEPS):
            await (_look if step % 2 else _think)(a, step)
        return "done"

    return _timed(lambda: asyncio.run(_all(agent, agents)), lambda: None, lambda: agents * STEPS)


def _recorder(agents: int, folder: Path) -> dict[str, Any]:
    from counterpoint.recorder.recorder import Recorder, WallClock
    from counterpoint.store import Store

    store = Store(folder)
    run = store.record("bench", task_id="bench")
    rec = Recorder(run, WallClock())

    async def agent(a: int) -> None:
        name = f"lead.{a}"
        last = rec.event("lead", "spawn", to=name, role="worker")
        kind = "spawn"
        for step in range(STEPS):
            if step % 2:
                call = rec.open(name, "tool_call", reads=[(last, kind)], tool="look", text=f"{a} {step}")
                answer = await _look(a, step)
                rec.close(call, ok=True)
                about = {"reads": [(call, "tool_dependency")], "tool": "look", "trusted": False, "source": "tool", "ok": True}
                last = rec.event(name, "tool_result", text=answer, **about)
            else:
                event = rec.open(name, "message", reads=[(last, kind)], model="fake", turn=step)
                rec.close(event, text=await _think(a, step), tokens_in=100, tokens_out=20, ok=True)
                last = event
            kind = "causal"
        rec.event(name, "return", reads=[(last, kind)], from_=name, to="lead", text="done", ok=True)

    found = _timed(lambda: asyncio.run(_all(agent, agents)), run.sync, lambda: rec.count)
    return found | _sealed(run.finish, store)


def _decorated(agents: int, folder: Path) -> dict[str, Any]:
    from counterpoint import Store, record

    store = Store(folder)
    rec = record(store, task="bench", agent="lead")
    think = rec.model(name="fake", usage=lambda _: {"tokens_in": 100, "tokens_out": 20})(_think)
    look = rec.tool(_look)

    @rec.agent(role="worker")
    async def worker(a: int) -> str:
        for step in range(STEPS):
            await (look if step % 2 else think)(a, step)
        return "done"

    @rec.agent
    async def lead() -> None:
        await _all(worker, agents)

    stack = contextlib.ExitStack()
    stack.enter_context(rec)
    session = rec.session
    assert session is not None
    found = _timed(lambda: asyncio.run(lead()), rec.sync, lambda: session.recorder.count)
    found |= _sealed(stack.close, store)
    assert rec.problems == [], rec.problems[:3]
    return found


def _sealed(finish: Callable[[], Any], store: Any) -> dict[str, Any]:
    begin = time.process_time()
    finish()
    store.close()
    return {"seal_cpu_s": time.process_time() - begin}


def _provider(path: Path) -> tuple[Any, Any, Any]:
    """A provider whose spans go to a file as JSON lines, synced batch by batch; its processor, and what counts them."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

    class Lines(SpanExporter):
        def __init__(self) -> None:
            self.file = path.open("w")
            self.count = 0

        def export(self, spans: Any) -> Any:
            self.file.writelines(span.to_json(indent=None) + "\n" for span in spans)
            self.file.flush()
            os.fsync(self.file.fileno())
            self.count += len(spans)
            return SpanExportResult.SUCCESS

    lines = Lines()
    provider = TracerProvider()
    # The usual queue of 2,048 would drop most of what a thousand agents do at once: here nothing is lost on either side.
    processor = BatchSpanProcessor(lines, max_queue_size=1 << 20, schedule_delay_millis=50, max_export_batch_size=512)
    provider.add_span_processor(processor)
    return provider, processor, lines


def _spans(agents: int, folder: Path) -> dict[str, Any]:
    provider, processor, lines = _provider(folder / "spans.jsonl")
    tracer = provider.get_tracer("bench")

    async def agent(a: int) -> None:
        with tracer.start_as_current_span("agent", attributes={"agent": f"lead.{a}", "role": "worker"}):
            for step in range(STEPS):
                if step % 2:
                    with tracer.start_as_current_span("tool", attributes={"tool": "look", "input": f"{a} {step}"}) as span:
                        span.set_attribute("output", await _look(a, step))
                else:
                    with tracer.start_as_current_span("llm", attributes={"model": "fake", "turn": step}) as span:
                        span.set_attributes({"output": await _think(a, step), "tokens_in": 100, "tokens_out": 20})

    found = _timed(lambda: asyncio.run(_all(agent, agents)), lambda: processor.force_flush(60_000), lambda: lines.count)
    assert found["count"] == agents * (STEPS + 1), "spans were dropped"
    return found


WHOLE = 20, 200, 2_000


def _whole_recording(folder: Path, number: int, events: int) -> int:
    """One recording of so many events, from the first line to a trace in the store."""
    from counterpoint import record

    rec = record(folder, task="bench", agent="lead")
    look = rec.tool(_text)
    with rec:
        for step in range(events // 2):  # a call and its result are two events
            look("page", number, step)
    assert rec.problems == [], rec.problems[:3]
    assert rec.trace is not None
    return len(rec.trace.events)


def _whole_spans(folder: Path, number: int, events: int) -> int:
    provider, _, lines = _provider(folder / f"{number}.jsonl")
    tracer = provider.get_tracer("bench")
    for step in range(events // 2):
        with tracer.start_as_current_span("tool", attributes={"tool": "look", "input": f"page {number} {step}"}) as span:
            span.set_attribute("output", _text("page", number, step))
    provider.shutdown()
    return int(lines.count)


def _whole(one: Callable[[Path, int, int], int], events: int, folder: Path) -> dict[str, Any]:
    """The median of some recordings, after two that warm up."""
    cpu, wall = [], []
    for number in range(9):
        begin = time.process_time(), time.perf_counter()
        count = one(folder, number, events)
        cpu.append(time.process_time() - begin[0])
        wall.append(time.perf_counter() - begin[1])
    return {"count": count, "cpu_s": statistics.median(cpu[2:]), "wall_s": statistics.median(wall[2:])}


AT_ONCE, PAUSE_S = 50, 0.02


def _requests(folder: Path, each: int, mode: str) -> dict[str, Any]:
    """Requests of twenty steps, fifty at once; the time of each, and how many events or spans it left."""
    import counterpoint.store.pending as pending
    from counterpoint import record

    provider, processor, _ = _provider(folder / "spans.jsonl") if mode == "spans" else (None, None, None)
    tracer = provider.get_tracer("bench") if provider is not None else None
    took: list[float] = []
    rec = record(folder, task="bench", agent="lead")
    think, look = _paused(_think), _paused(_look)
    asked = {"recorded": (rec.model(name="fake")(think), rec.tool(look))}.get(mode, (think, look))
    share = {"recorded": 1.0, "sampled": 0.0}.get(mode)
    if mode == "sampled":
        asked = (rec.model(name="fake")(think), rec.tool(look))

    async def request(number: int) -> None:
        with contextlib.ExitStack() as stack:
            if share is not None:
                stack.enter_context(record(folder, task="bench", agent="lead", sample=share))
            if tracer is not None:
                stack.enter_context(tracer.start_as_current_span("request"))
            for step in range(STEPS):
                inner = contextlib.nullcontext() if tracer is None else tracer.start_as_current_span("step")
                with inner as span:
                    said = await asked[step % 2](number, step)
                    if span is not None:
                        span.set_attributes({"input": f"{number} {step}", "output": said})

    async def caller(number: int) -> None:
        await asyncio.sleep(PAUSE_S * number / AT_ONCE)
        for turn in range(each):
            begin = time.perf_counter()
            await request(number * each + turn)
            took.append(time.perf_counter() - begin)

    cpu = time.process_time()
    asyncio.run(_all(caller, AT_ONCE))
    if processor is not None:
        processor.force_flush(60_000)
    pending.settle(folder)
    at = statistics.quantiles(took[AT_ONCE:], n=100)
    return {"count": STEPS * 3 // 2, "p50_s": at[49], "p99_s": at[98], "cpu_s": time.process_time() - cpu}


def _paused(step: Callable[[int, int], Awaitable[str]]) -> Callable[[int, int], Awaitable[str]]:
    async def paused(agent: int, number: int) -> str:
        await asyncio.sleep(PAUSE_S)
        return await step(agent, number)

    return paused


def _timed(work: Callable[[], Any], sync: Callable[[], Any], count: Callable[[], int]) -> dict[str, Any]:
    before, cpu, wall = _memory_mb(), time.process_time(), time.perf_counter()
    work()
    sync()
    took = {"cpu_s": time.process_time() - cpu, "wall_s": time.perf_counter() - wall}
    return took | {"count": count(), "memory_mb": _memory_mb(), "grown_mb": _memory_mb() - before}


def _memory_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


REQUESTS = {f"request_{mode}": functools.partial(_requests, mode=mode) for mode in ("plain", "recorded", "sampled", "spans")}
WHOLES = {"whole": _whole_recording, "whole_spans": _whole_spans}
MODES = {"plain": _plain, "recorder": _recorder, "decorators": _decorated, "spans": _spans}


def _child(mode: str, agents: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        if mode in REQUESTS:
            made = REQUESTS[mode](Path(folder), agents)
        else:
            made = _whole(WHOLES[mode], agents, Path(folder)) if mode in WHOLES else MODES[mode](agents, Path(folder))
        print(json.dumps(made))


def _medians(found: list[dict[str, Any]]) -> dict[str, float]:
    return {name: statistics.median(one[name] for one in found) for name in found[0]}


def measure(*, quick: bool) -> list[dict[str, Any]]:
    agents, repeats = (200, 3) if quick else (1_000, 5)
    modes = [mode for mode in MODES if mode != "spans" or _has_opentelemetry()]
    found: dict[str, list[dict[str, Any]]] = {mode: [] for mode in modes}
    for _ in range(repeats):
        for mode in modes:
            done = subprocess.run([sys.executable, __file__, mode, str(agents)], capture_output=True, text=True, check=True)
            found[mode].append(json.loads(done.stdout))
    median = {mode: _medians(rows) for mode, rows in found.items()}
    plain, spans = median["plain"], median.get("spans")

    def overhead(mode: str, per: str = "count") -> float:
        units = median[mode]["count"] if per == "count" else agents * STEPS
        return (median[mode]["cpu_s"] - plain["cpu_s"]) / units * 1e6

    span_us = overhead("spans") if spans else None
    step_us = overhead("spans", "step") if spans else None
    rows = []
    for mode in ("recorder", "decorators"):
        one = median[mode]
        rate, peer_rate = one["count"] / one["wall_s"], spans["count"] / spans["wall_s"] if spans else None
        peer_mb, peer_grown_mb = (spans["memory_mb"], spans["grown_mb"]) if spans else (None, None)
        rows += [
            row(f"{mode}: overhead per event (a span)", overhead(mode), span_us, "us", limit=50.0),
            row(f"{mode}: overhead per step", overhead(mode, "step"), step_us, "us"),
            row(f"{mode}: events on disk per second (spans)", rate, peer_rate, "1/s", is_rate=True),
            row(f"{mode}: memory of the process (plain {plain['memory_mb']:.0f})", one["memory_mb"], peer_mb, "MB"),
            row(f"{mode}: of that, grown by the work (plain {plain['grown_mb']:.0f})", one["grown_mb"], peer_grown_mb, "MB"),
            row(f"{mode}: sealing afterwards, per event", one["seal_cpu_s"] / one["count"] * 1e6, None, "us"),
            row(
                f"{mode}: with sealing, per event (a span)",
                overhead(mode) + one["seal_cpu_s"] / one["count"] * 1e6, span_us, "us",
            ),
        ]  # fmt: skip
    return rows + _whole_rows(quick=quick) + _request_rows(quick=quick)


def _request_rows(*, quick: bool) -> list[dict[str, Any]]:
    modes = [mode for mode in REQUESTS if mode != "request_spans" or _has_opentelemetry()]
    found: dict[str, list[dict[str, Any]]] = {mode: [] for mode in modes}
    for _ in range(1 if quick else 3):
        for mode in modes:
            asked = [sys.executable, __file__, mode, str(4 if quick else 20)]
            done = subprocess.run(asked, capture_output=True, text=True, check=True)
            found[mode].append(json.loads(done.stdout))
    median = {mode: _medians(runs) for mode, runs in found.items()}
    plain, spans = median["request_plain"], median.get("request_spans")
    rows = []
    for mode in ("recorded", "sampled"):
        for at in ("p50", "p99"):
            ours, bare = median[f"request_{mode}"][f"{at}_s"], plain[f"{at}_s"]
            peer = None if spans is None else (spans[f"{at}_s"] - bare) * 1e3
            name = f"a request, {mode}, {at} more than the {bare * 1e3:.0f} ms without (spans)"
            rows.append(row(name, (ours - bare) * 1e3, peer, "ms"))
            if at == "p50":
                rows.append(row("the same, per event", (ours - bare) / plain["count"] * 1e6, None, "us", limit=50.0))
    return rows


def _whole_rows(*, quick: bool) -> list[dict[str, Any]]:
    rows = []
    for events in WHOLE[:2] if quick else WHOLE:
        found: dict[str, list[dict[str, Any]]] = {}
        for _ in range(1 if quick else 3):
            for mode in WHOLES if _has_opentelemetry() else ("whole",):
                asked = [sys.executable, __file__, mode, str(events)]
                done = subprocess.run(asked, capture_output=True, text=True, check=True)
                found.setdefault(mode, []).append(json.loads(done.stdout))
        ours, peer = _medians(found["whole"]), _medians(found["whole_spans"]) if "whole_spans" in found else None
        for what, name in (("CPU", "cpu_s"), ("wall", "wall_s")):
            mine = ours[name] / ours["count"] * 1e6
            theirs = None if peer is None else peer[name] / peer["count"] * 1e6
            rows.append(row(f"a whole recording of {events:,} events, {what} per event (a span)", mine, theirs, "us"))
            rows.append(row(f"the same, {what} in all", ours[name] * 1e3, None if peer is None else peer[name] * 1e3, "ms"))
    return rows


def _has_opentelemetry() -> bool:
    try:
        import opentelemetry.sdk.trace  # noqa: F401
    except ImportError:
        print("opentelemetry-sdk is not installed, skipped")
        return False
    return True


def main() -> None:
    if len(sys.argv) == 3 and sys.argv[1] in {*MODES, *WHOLES, *REQUESTS}:
        _child(sys.argv[1], int(sys.argv[2]))
        return
    options = arguments(__doc__)
    count = "Two hundred" if options.quick else "A thousand"
    title = f"{count} agents, {STEPS} steps each (CPU of the whole process, median)"
    report(title, measure(quick=options.quick), as_json=options.json)


if __name__ == "__main__":
    main()
