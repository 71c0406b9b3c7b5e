"""Prompts that are kept once: bytes of live traces with whole token ids of every prompt, and as they are recorded.

Teams of fakes whose prompts and answers are read and written by a real tokenizer; log-probabilities are drawn. The peer is the
same trace with every prompt whole, in ids and in texts, as recordings had it before. `COUNTERPOINT_TOKENIZER` names the folder of
a model, such as the one that `counterpoint models install smollm2-135m` makes; without it, tokens are bytes.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace as replaced
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from _timing import arguments, report, row
from msgspec.structs import replace

from counterpoint.lab.lm.chat import Chat
from counterpoint.lab.lm.model import Call, Completion, Model
from counterpoint.lab.team.session import Spec, make_model, record_team
from counterpoint.lab.team.state import Limits
from counterpoint.store import Store
from counterpoint.trace import Event, Trace, content_ref
from counterpoint.trace.lines import encode_lines
from counterpoint.trace.model_calls import prompt_ids_of
from counterpoint.trace.wire import encode_event

_LEAST = {"documents": 8, "rows": 2, "parts": 2, "firms": 6}
_SIZES: list[tuple[str, dict[str, Any], int]] = [
    ("ledger_hunt", _LEAST, 2),
    ("ledger_hunt", {"documents": 40, "rows": 4, "parts": 4}, 4),
    ("ledger_hunt", {}, 4),
    ("sql_audit", {}, 4),
]


class _Tokenised:
    """A fake whose answers come with token ids and log-probabilities."""

    is_instant = True

    def __init__(self, inner: Model, chat: Chat) -> None:
        self._inner, self._chat, self.name, self.version = inner, chat, inner.name, inner.version

    async def complete(self, call: Call) -> Completion:
        done = await self._inner.complete(call)
        prompt, said = self._chat.prompt(call.messages), self._chat.answer(done.text)
        draw = random.Random(call.seed)
        logps = tuple(-round(draw.expovariate(3.0), 7) for _ in said)
        about: dict[str, Any] = {"tokens_in": len(prompt), "tokens_out": len(said), "logps": logps, "start_logps": None}
        return replaced(done, prompt_ids=tuple(prompt), token_ids=tuple(said), **about)

    async def close(self) -> None:
        await self._inner.close()


def _recorded(task: str, dials: dict[str, Any], width: int, chat: Chat, seeds: Sequence[int]) -> list[Trace]:
    out = []
    with tempfile.TemporaryDirectory() as folder, Store(folder) as store:
        for seed in seeds:
            spec = Spec(task=task, config=dials, seed=seed, model="fake:0.9", limits=Limits(width=width, steps=24))
            model: Any = _Tokenised(make_model("fake:0.9", spec.make_task()), chat)
            out.append(asyncio.run(record_team(spec, store, model=model, trace_id=f"run-{seed}")))
    return out


def _whole(trace: Trace) -> Trace:
    """The same trace as it was recorded before: every prompt as it was read, and its messages as texts of their own."""
    prompts, contents = prompt_ids_of(trace), dict(trace.contents)

    def text_ref(kept: Any) -> str:
        if isinstance(kept, str):
            return kept
        text = f"{kept[0]}\n{contents[kept[1]]}"
        contents[content_ref(text)] = text
        return content_ref(text)

    def with_all(event: Event) -> Event:
        if event.id not in prompts or event.extra is None:
            return event
        call = event.extra["call"]
        said = {**call["prompt"], "more": [text_ref(kept) for kept in call["prompt"]["more"]]}
        return replace(event, extra={**event.extra, "call": {**call, "prompt": said, "prompt_ids": prompts[event.id].tolist()}})

    return replace(trace, events=[with_all(event) for event in trace.events], contents=contents)


def _stored(traces: Sequence[Trace]) -> float:
    """Bytes per trace in a store."""
    with tempfile.TemporaryDirectory() as folder:
        with Store(folder) as store:
            store.add_many(traces)
        return sum(p.stat().st_size for p in Path(folder).rglob("*") if p.is_file()) / len(traces)


def _measured(task: str, dials: dict[str, Any], width: int, chat: Chat, seeds: Sequence[int]) -> list[dict[str, Any]]:
    traces = _recorded(task, dials, width, chat, seeds)
    before = [_whole(trace) for trace in traces]
    n, calls = len(traces), sum(len(prompt_ids_of(t)) for t in traces)
    tokens = sum(len(ids) for t in traces for ids in prompt_ids_of(t).values())
    chosen = " ".join(f"{k}={v}" for k, v in dials.items()) or "as it comes"
    label = f"{task} {chosen}, {calls / n:.0f} calls of {tokens / calls:.0f} tokens"
    events = [sum(len(encode_event(e)) for t in side for e in t.events) / n for side in (traces, before)]
    lines = [sum(len(encode_lines(t)) for t in side) / n for side in (traces, before)]
    stored = [_stored(side) for side in (traces, before)]
    return [
        row(f"{label}: events", events[0], events[1], "B/trace", target=3),
        row(f"{label}: JSON lines, with texts", lines[0], lines[1], "B/trace", target=3),
        row(f"{label}: in a store", stored[0], stored[1], "B/trace"),
    ]


def main() -> None:
    """Measure and print."""
    options = arguments(__doc__)
    folder = os.environ.get("COUNTERPOINT_TOKENIZER")
    chat = Chat.read(folder) if folder else Chat.bytes()
    seeds = range(3 if options.quick else 12)
    sizes = _SIZES[: 2 if options.quick else None]
    rows = [r for task, dials, width in sizes for r in _measured(task, dials, width, chat, seeds)]
    report("prompts kept once", rows, as_json=options.json)


if __name__ == "__main__":
    main()
