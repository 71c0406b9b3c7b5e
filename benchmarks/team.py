"""A thousand agents at once, twenty steps each: what recording them costs, beside OpenTelemetry spans, both on disk.

The same fake work in plain asyncio, recorded by `Recorder` (what our own runtime calls), by the decorators of
`counterpoint.record`, and as spans of the OpenTelemetry SDK (a BatchSpanProcessor that writes JSON lines). Half of the steps call
a model, half a tool; a tool's call and result are two events of ours and one span. Each in a process of its own, taking turns;
overhead is the CPU time of the whole process, writer threads and the last sync included, over that of plain asyncio. Memory is
the most that the process had while recording; ours holds Arrow and DuckDB, which the store imports.

Then whole recordings of 20, 200 and 2,000 events, one after another in one process: opened, recorded by decorators, sealed and
durable at the end; beside a TracerProvider that is made, writes as many spans as there are calls, and is shut down. What a
recording costs whatever its size (it is checked, sealed, and synced to the disk file by file) shows in the small ones.

Last a service: fifty requests at once, one after another in each of fifty tasks of one event loop, or in each of fifty threads;
every request has twenty steps (30 events) and is a recording of its own (or one span with a span for each step, in one provider;
or both, by `record(otel=...)`); how long a whole request takes, p50 and p99, with and without. `nothing` records with `sample=0`.
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
import threading
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


class _Service:
    """Requests of twenty steps, fifty at once; the time of each, and the CPU of the threads that serve them."""

    def __init__(self, folder: Path, mode: str) -> None:
        from counterpoint import record

        provider, self.processor, _ = _provider(folder / "spans.jsonl") if mode in ("spans", "both") else (None, None, None)
        self.tracer = provider.get_tracer("bench") if provider is not None and mode == "spans" else None
        store = folder / "store"
        rec = record(store, task="bench", agent="lead")
        kept = {"recorded": 1.0, "both": 1.0, "nothing": 0.0}.get(mode)
        self.begin = functools.partial(
            record, store, task="bench", agent="lead", sample=kept or 0.0, otel=provider if mode == "both" else False
        )
        self.is_recorded = kept is not None
        self.async_steps: tuple[Any, ...] = (_paused(_think), _paused(_look))
        self.steps: tuple[Any, ...] = (_paused_here("thought"), _paused_here("page"))
        if self.is_recorded:
            self.async_steps, self.steps = ((rec.model(name="fake")(a), rec.tool(b)) for a, b in (self.async_steps, self.steps))
        self.took: list[float] = []
        self.caller_s = 0.0

    def around(self, name: str) -> Any:
        """What a request, or a step of it, is done in."""
        if self.tracer is not None:
            return self.tracer.start_as_current_span(name)
        return self.begin() if self.is_recorded and name == "request" else contextlib.nullcontext()

    async def caller(self, number: int, each: int) -> None:
        """One of fifty tasks."""
        await asyncio.sleep(PAUSE_S * number / AT_ONCE)
        for turn in range(each):
            begin = time.perf_counter()
            with self.around("request"):
                for step in range(STEPS):
                    with self.around("step") as span:
                        said = await self.async_steps[step % 2](number * each + turn, step)
                        if span is not None:
                            span.set_attributes({"input": f"{number} {step}", "output": said})
            self.took.append(time.perf_counter() - begin)

    def thread(self, number: int, each: int) -> None:
        """One of fifty threads."""
        time.sleep(PAUSE_S * number / AT_ONCE)
        for turn in range(each):
            begin = time.perf_counter()
            with self.around("request"):
                for step in range(STEPS):
                    with self.around("step") as span:
                        said = self.steps[step % 2](number * each + turn, step)
                        if span is not None:
                            span.set_attributes({"input": f"{number} {step}", "output": said})
            self.took.append(time.perf_counter() - begin)
        self.caller_s += time.thread_time()


def _requests(folder: Path, each: int, mode: str, *, in_threads: bool = False) -> dict[str, Any]:
    import counterpoint.store.pending as pending
    from counterpoint import Store

    service, cpu, caller, begin = _Service(folder, mode), time.process_time(), time.thread_time(), time.perf_counter()
    if in_threads:
        threads = [threading.Thread(target=service.thread, args=(number, each)) for number in range(AT_ONCE)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    else:
        asyncio.run(_all(functools.partial(service.caller, each=each), AT_ONCE))
        service.caller_s = time.thread_time() - caller
    if service.processor is not None:
        service.processor.force_flush(60_000)
    pending.settle(folder / "store")
    rate = len(service.took) / (time.perf_counter() - begin)
    if mode in ("recorded", "both"):  # past 256 unsealed ones none begins: then this would be cheap, and false
        with Store(folder / "store") as store:
            assert len(store.ids()) == len(service.took), f"{len(store.ids())} of {len(service.took)} requests are recorded"
    at = statistics.quantiles(service.took[AT_ONCE:], n=100)
    times = {"p50_s": at[49], "p99_s": at[98], "cpu_s": time.process_time() - cpu}
    return {"count": STEPS * 3 // 2, "caller_s": service.caller_s / len(service.took), "per_s": rate, **times}


def _paused(step: Callable[[int, int], Awaitable[str]]) -> Callable[[int, int], Awaitable[str]]:
    async def paused(agent: int, number: int) -> str:
        await asyncio.sleep(PAUSE_S)
        return await step(agent, number)

    return paused


def _paused_here(kind: str) -> Callable[[int, int], str]:
    def paused(agent: int, number: int) -> str:
        time.sleep(PAUSE_S)
        return _text(kind, agent, number)

    return paused


def _timed(work: Callable[[], Any], sync: Callable[[], Any], count: Callable[[], int]) -> dict[str, Any]:
    before, cpu, caller, wall = _memory_mb(), time.process_time(), time.thread_time(), time.perf_counter()
    work()
    caller = time.thread_time() - caller
    sync()
    took = {"caller_s": caller, "cpu_s": time.process_time() - cpu, "wall_s": time.perf_counter() - wall}
    return took | {"count": count(), "memory_mb": _memory_mb(), "grown_mb": _memory_mb() - before}


def _memory_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


REQUESTS = {
    f"{kind}_{mode}": functools.partial(_requests, mode=mode, in_threads=kind == "threads")
    for kind in ("tasks", "threads")
    for mode in ("plain", "recorded", "nothing", "spans", "both")
}
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

    def overhead(mode: str, per: str = "count", of: str = "cpu_s") -> float:
        units = median[mode]["count"] if per == "count" else agents * STEPS
        return (median[mode][of] - plain[of]) / units * 1e6

    caller_us = overhead("spans", of="caller_s") if spans else None
    span_us = overhead("spans") if spans else None
    step_us = overhead("spans", "step") if spans else None
    rows = []
    for mode in ("recorder", "decorators"):
        one = median[mode]
        rate, peer_rate = one["count"] / one["wall_s"], spans["count"] / spans["wall_s"] if spans else None
        peer_mb, peer_grown_mb = (spans["memory_mb"], spans["grown_mb"]) if spans else (None, None)
        rows += [
            row(f"{mode}: caller's thread, per event (a span)", overhead(mode, of="caller_s"), caller_us, "us", limit=50.0),
            row(f"{mode}: of the process, per event (a span)", overhead(mode), span_us, "us"),
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
    modes = [mode for mode in REQUESTS if not mode.endswith(("spans", "both")) or _has_opentelemetry()]
    found: dict[str, list[dict[str, Any]]] = {mode: [] for mode in modes}
    each = 4  # two hundred requests: fewer than may wait to be sealed
    for _ in range(1 if quick else 5):
        for mode in modes:
            asked = [sys.executable, __file__, mode, str(each)]
            done = subprocess.run(asked, capture_output=True, text=True, check=True)
            found[mode].append(json.loads(done.stdout))
    median = {mode: _medians(runs) for mode, runs in found.items()}
    rows = []
    for name in modes:
        kind, _, mode = name.partition("_")
        if mode not in ("recorded", "nothing", "both"):
            continue
        ours, plain, spans = median[name], median[f"{kind}_plain"], median.get(f"{kind}_spans")
        for at in ("p50_s", "p99_s"):
            peer = None if spans is None else (spans[at] - plain[at]) * 1e3
            what = f"a request in {kind}, {mode}: {at[:3]} more than the {plain[at] * 1e3:.0f} ms without (spans)"
            rows.append(row(what, (ours[at] - plain[at]) * 1e3, peer, "ms"))
        for of, what in (("caller_s", "in the callers' threads"), ("cpu_s", "of the process, sealing included")):
            share = 1 if of == "caller_s" else AT_ONCE * each
            mine = (ours[of] - plain[of]) / share / ours["count"] * 1e6
            theirs = None if spans is None else (spans[of] - plain[of]) / share / (STEPS + 1) * 1e6
            limit = 50.0 if of == "caller_s" else None
            rows.append(row(f"the same, CPU {what}, per event (a span)", mine, theirs, "us", limit=limit))
        peer = None if spans is None else spans["per_s"]
        rows.append(row("the same, requests a second until all is sealed", ours["per_s"], peer, "1/s", is_rate=True))
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
