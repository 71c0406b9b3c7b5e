"""Many teams at once: the driver's worker processes beside one process that plays them all in one asyncio loop.

The same teams twice (T1 at its easiest, two workers each): by demonstrators, and with an engine that answers at once with what
a demonstrator said there, so that only the runtime is measured. Plain: `asyncio.gather` over `play_to_trace` in one process,
prompts tokenised whole with the same tokeniser, which is what one writes first. Each is played once before the clock runs. CPU
per call is that of the workers alone; the parent's is beside it. With `--chat FOLDER` the tokeniser is a model's, else bytes.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from _timing import report, row

from counterpoint.lab.lm.chat import Chat
from counterpoint.lab.lm.engine import Answer, Ask
from counterpoint.lab.lm.model import Call, Completion, Model
from counterpoint.lab.team.session import Spec, assemble, make_model, play_to_trace
from counterpoint.lab.team.state import Limits
from counterpoint.lab.train.lm.driver import Driver
from counterpoint.lab.train.lm.rollout_worker import Rollout
from counterpoint.recorder.recorder import LogicalClock, MemorySink, Recorder
from counterpoint.trace import Trace

DIALS = {"documents": 8, "rows": 2, "parts": 2, "firms": 6, "alias_rate": 0.0, "contradictions": 0.0}
LIMITS = Limits(width=2, turns=12, steps=14, max_tokens=96, context=5000)


def _spec(seed: int, model: str) -> Spec:
    return Spec(task="ledger_hunt", config=DIALS, seed=seed, model=model, options={"explore": 0.0}, limits=LIMITS)


class Recalling:
    """An engine that knows what a demonstrator answered to each prompt."""

    def __init__(self, traces: list[Trace]) -> None:
        calls = [e.extra["call"] for t in traces for e in t.events if e.extra and "token_ids" in e.extra.get("call", {})]
        self._known = {call["seed"]: tuple(call["token_ids"]) for call in calls}
        self._waiting: list[tuple[int, Ask]] = []
        self._next = 0

    @property
    def is_busy(self) -> bool:
        return bool(self._waiting)

    def add(self, ask: Ask) -> int:
        self._next += 1
        self._waiting.append((self._next, ask))
        return self._next

    def step(self) -> list[tuple[int, Answer]]:
        waiting, self._waiting = self._waiting, []
        return [(n, Answer(self._known[ask.seed], (0.0,) * len(self._known[ask.seed]), "stop", 0)) for n, ask in waiting]


class Plain:
    """A demonstrator whose prompts are tokenised whole, by the library alone."""

    is_instant = True

    def __init__(self, model: Model, chat: Chat) -> None:
        self.name, self.version, self._model, self._chat = model.name, model.version, model, chat

    async def complete(self, call: Call) -> Completion:
        done = await self._model.complete(call)
        text = "".join(f"<|im_start|>{m.role}\n{m.text}<|im_end|>\n" for m in call.messages) + "<|im_start|>assistant\n"
        prompt = tuple(self._chat.tokenizer.encode(text, add_special_tokens=False).ids)
        return replace(done, prompt_ids=prompt, token_ids=tuple(self._chat.answer(done.text)))

    async def close(self) -> None:
        await self._model.close()


def _plain(chat: Chat, teams: int) -> list[Trace]:
    async def one(seed: int) -> Trace:
        spec, sink = _spec(seed, "fake:1"), MemorySink()
        task = spec.make_task()
        model = Plain(make_model(spec.model, task, **spec.options), chat)
        team = assemble(spec, task, task.instance(seed), model, Recorder(sink, LogicalClock()))
        return await play_to_trace(team, spec, sink, trace_id=str(seed))

    async def every() -> list[Trace]:
        return list(await asyncio.gather(*(one(seed) for seed in range(teams))))

    return asyncio.run(every())


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _timed(work: Callable[[], Any], repeats: int) -> tuple[float, float]:
    """Median wall and own CPU seconds."""
    taken = []
    for _ in range(repeats + 1):
        wall, cpu = time.perf_counter(), _cpu_s()
        work()
        taken.append((time.perf_counter() - wall, _cpu_s() - cpu))
    return statistics.median(t[0] for t in taken[1:]), statistics.median(t[1] for t in taken[1:])


def measure(folder: Path, *, quick: bool) -> list[dict[str, Any]]:
    teams, repeats = (60, 1) if quick else (200, 3)
    chat = Chat.read(folder)
    plain_s, plain_cpu = _timed(lambda: _plain(chat, teams), repeats)
    with Driver(folder) as driver:
        shown = driver.play([Rollout(spec=_spec(s, "fake:1")) for s in range(teams)], None)
        calls = driver.stats.calls
        found: dict[str, tuple[float, float, float]] = {}
        for name, model in (("demonstrators", "fake:1"), ("an engine", "engine")):
            rollouts = [Rollout(spec=_spec(s, model)) for s in range(teams)]
            before = driver.stats.worker_cpu_s
            wall, own = _timed(lambda rollouts=rollouts: driver.play(rollouts, Recalling(shown)), repeats)  # type: ignore[misc]
            found[name] = wall, own, (driver.stats.worker_cpu_s - before) / (repeats + 1)
        batch = driver.stats.mean_batch
    out = []
    for name, (wall, own, workers) in found.items():
        per_call, parent = workers / calls * 1e3, own / calls * 1e3
        out.append(row(f"{name}: CPU of the workers per call (plain loop)", per_call, plain_cpu / calls * 1e3, "ms", limit=0.8))
        out.append(row(f"{name}: CPU of the parent per call", parent, None, "ms"))
        out.append(row(f"{name}: teams per second, {os.cpu_count()} cores", teams / wall, teams / plain_s, "1/s", is_rate=True))
    return [*out, row("calls under way in a step of the engine", batch, None, "calls")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smaller run")
    parser.add_argument("--json", action="store_true", help="machine-readable output")
    parser.add_argument("--chat", type=Path, help="the folder of a model's tokeniser")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.chat is None:
            Chat.bytes().save(Path(folder))
        found = measure(options.chat or Path(folder), quick=options.quick)
    report("Teams in worker processes, beside one asyncio loop (medians)", found, as_json=options.json)


if __name__ == "__main__":
    main()
