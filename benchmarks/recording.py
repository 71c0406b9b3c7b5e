"""What recording one event costs the agent, before the disk; beside a span of the OpenTelemetry SDK.

Thread CPU time of the recording thread, so that the flusher's and the exporter's own threads do not count. OpenTelemetry is
given an exporter that discards: its real cost is higher.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from itertools import count
from typing import Any

from _timing import arguments, interleaved, report, row

from counterpoint.store import Run, Store
from counterpoint.trace import Event


def _fields(i: int) -> dict[str, Any]:
    return {"type": "tool_call", "agent": "a7", "role": "coder", "tool": "grep", "tokens_in": i, "tokens_out": 30, "dur": 0.25}


def _ours(run: Run, n: int, repeats: int) -> Callable[[], None]:
    # Ids are the agent's own; making their text is not recording.
    names = [[f"e{k}-{i}" for i in range(n)] for k in range(repeats + 1)]
    turns = count()

    def work() -> None:
        event = run.event
        for i, name in enumerate(names[next(turns)]):
            event(
                Event(id=name, t=i, type="tool_call", agent="a7", role="coder", tool="grep", tokens_in=i, tokens_out=30, dur=0.25)
            )

    return work


def _spans(n: int, *, batched: bool) -> Callable[[], None] | None:
    try:
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor, SpanExporter, SpanExportResult
    except ImportError:
        return None

    class Discard(SpanExporter):
        def export(self, spans: Any) -> Any:
            return SpanExportResult.SUCCESS

    provider = TracerProvider()
    provider.add_span_processor((BatchSpanProcessor if batched else SimpleSpanProcessor)(Discard()))
    tracer = provider.get_tracer("bench")

    def work() -> None:
        for i in range(n):
            tracer.start_span("tool_call", attributes={k: v for k, v in _fields(i).items() if k != "type"}).end()

    return work


def measure(*, quick: bool) -> list[dict[str, Any]]:
    n, repeats = (2_000, 5) if quick else (10_000, 15)
    with tempfile.TemporaryDirectory() as folder, Store(folder, flush_ms=60_000) as store:
        run = store.record("bench", task_id="bench")
        work: dict[str, Callable[[], None]] = {"ours": _ours(run, n, repeats)}
        peers = {"OpenTelemetry span, simple": _spans(n, batched=False), "OpenTelemetry span, batch": _spans(n, batched=True)}
        for name, peer in peers.items():
            if peer is None:
                print(f"{name}: opentelemetry-sdk is not installed, skipped")
            else:
                work[name] = peer
        taken = {name: seconds / n * 1e6 for name, seconds in interleaved(work, repeats, "thread").items()}
        run.release()
    rows = [row("record one event, before the disk", taken["ours"], None, "us", limit=1.0)]
    rows += [row(f"beside an {name}", taken["ours"], taken[name], "us", target=25.0) for name in peers if name in taken]
    return rows


def main() -> None:
    options = arguments(__doc__)
    report("Recording (thread CPU per event, median)", measure(quick=options.quick), as_json=options.json)


if __name__ == "__main__":
    main()
