"""What the claims on live teams share: teams of fakes with drawn dials, recorded for real, and how their forks are compared.

Always true: a team is a function of its spec, recorded through a store's journal in a folder that is gone afterwards; the truth
run of an attacked team differs from it in the planted text alone. No clock and no stored result is read.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from counterpoint.audits.diff import fingerprint
from counterpoint.errors import InputError
from counterpoint.lab.bench.claim import NO_TARGET, ClaimRow
from counterpoint.lab.bench.intervals import mean_interval
from counterpoint.lab.lm.model import Model
from counterpoint.lab.tasks.task import Instance
from counterpoint.lab.team.session import Spec, about, assemble, end_of, make_model, play, record_team
from counterpoint.recorder.recorder import LogicalClock, MemorySink, Recorder
from counterpoint.store import Store
from counterpoint.trace import Event, Trace


def check_seeds(seeds: int) -> None:
    """One clear error for no seeds."""
    if seeds < 1:
        raise InputError(f"seeds is at least 1, not {seeds}")


def none(name: str, count: int) -> ClaimRow:
    """The row that says: this never happens."""
    return ClaimRow(name, float(count), None, None, "= 0", count == 0)


def reported(name: str, samples: Sequence[float]) -> ClaimRow:
    """A number that nobody promised anything about."""
    value, low, high = mean_interval(samples)
    return ClaimRow(name, value, low, high, NO_TARGET, True)


def recorded(spec: Spec, *, model: Model | None = None) -> Trace:
    """Run a team as `counterpoint play` does, and give its trace."""
    with tempfile.TemporaryDirectory() as folder, Store(folder) as store:
        name = f"{spec.task}-{spec.topology}-{spec.seed}"
        return asyncio.run(record_team(spec, store, trace_id=name, model=model))


def play_with(spec: Spec, change: Callable[[Instance], Instance]) -> Trace:
    """The same team on a changed instance, in memory: what would have been, run from the beginning and not forked."""
    task, sink = spec.make_task(), MemorySink()
    model = make_model(spec.model, task, **spec.options)
    team = assemble(spec, task, change(task.instance(spec.seed)), model, Recorder(sink, LogicalClock()))
    rewards, metrics, meta = end_of(team, asyncio.run(play(team, spec.make_topology())))
    return Trace(
        trace_id="truth",
        task_id=spec.task,
        events=list(sink.events.values()),
        edges=sink.edges,
        rewards=dict(rewards),
        metrics=dict(metrics),
        meta=about(spec, task, model, team.harness) | meta,
        contents=sink.contents,
    )


def without(instance: Instance, text: str) -> Instance:
    """The instance with a neutral text in the place of everything that was planted."""

    def calm(said: str) -> str:
        for one in instance.planted:
            said = said.replace(one.text, text)
        return said

    return replace(
        instance,
        documents=tuple(replace(d, text=calm(d.text)) for d in instance.documents),
        shards=tuple(tuple(calm(line) for line in shard) for shard in instance.shards),
        planted=tuple(replace(one, text=text) for one in instance.planted),
    )


def hashes(trace: Trace) -> dict[str | None, Any]:
    """What each event says, by its stable key."""
    return {e.key: fingerprint(e) for e in trace.events}


def messages(trace: Trace) -> list[Event]:
    """The messages between agents; of an agent that works alone, what its tools told it."""
    said = [e for e in trace.events if e.type in ("message", "return") and e.agent != "user" and e.content_ref is not None]
    return said or [e for e in trace.events if e.type == "tool_result"]


def other_text(trace: Trace, event: Event, rng: np.random.Generator) -> str:
    """Another content for a message: what another one of its kind says, or that nothing was found."""
    before = trace.text(event)
    texts = [trace.text(e) for e in messages(trace) if e.type == event.type]
    pool = sorted({t for t in texts if t is not None and t != before})
    return str(rng.choice(pool)) if pool and rng.random() < 0.5 else "Nothing was found."
