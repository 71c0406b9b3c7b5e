"""A small real model as a team, as it is: six topologies on a short pointer chase and a small ledger hunt.

A 135M model with constrained decoding, on instances that a person solves in a minute. There is no target: the rows say what
comes out, with Student's interval over the seeds, however poor. E1 is the score and the share solved; E2 serial over parallel
time; E3 the share of messages that repeat one; E4 the share of tokens spent on orchestration; then events, tokens and malformed
answers per run.

Always true: every number is from runs that are made now; measures that a run cannot have (no message, no second agent) are left
out of its mean, and a row without any value is left out.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

import counterpoint.registry as registry
from counterpoint.audits.measures import measures
from counterpoint.display import tracked
from counterpoint.errors import InputError
from counterpoint.lab.bench.claim import ClaimRow, reported
from counterpoint.lab.lm.model import Call, Completion, Model
from counterpoint.lab.team.session import Spec, make_model, record_team
from counterpoint.lab.team.state import Limits
from counterpoint.store import Store
from counterpoint.trace import Trace

_LIMITS = Limits(width=2, turns=8, steps=4, rounds=1, repairs=1, max_tokens=24, context=4_000)
_EASY = {"distractors": 0.0, "alias_rate": 0.0, "superseded": 0.0, "contradictions": 0.0}
_TASKS: Mapping[str, Mapping[str, Any]] = {
    "pointer_chase": {"hops": 2, "parts": 2, "distractors": 4, "search_rate": 0.0, "superseded": 0.0},
    "ledger_hunt": {"documents": 8, "rows": 2, "parts": 2, "firms": 3} | _EASY,
}
_MEASURES = (
    ("E2 serial / parallel time", "parallelism_efficiency"),
    ("E3 messages that repeat", "message_redundancy"),
    ("E4 orchestration tokens", "protocol_overhead"),
)


class _Kept:
    """One model for many runs: a run's end does not close it."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.name, self.version = model.name, model.version
        self.is_instant = getattr(model, "is_instant", False)

    async def complete(self, call: Call) -> Completion:
        """As the model does."""
        return await self._model.complete(call)

    async def close(self) -> None:
        """Stay."""


def small_model(*, seed: int, seeds: int, model: str = "local:smollm2-135m") -> Iterator[ClaimRow]:
    """E1-E4 of a small model in every topology, on `seeds` instances of each task."""
    if seeds < 1:
        raise InputError(f"seeds is at least 1, not {seeds}")
    for name, config in _TASKS.items():
        traces = asyncio.run(_runs(name, config, range(seed, seed + seeds), model))
        for topology, found in traces.items():
            yield from _rows(f"{name} {topology}", found)


async def _runs(name: str, config: Mapping[str, Any], seeds: range, model: str) -> dict[str, list[Trace]]:
    """All topologies of a seed at once, so that the model reads and writes for all of them together."""
    out: dict[str, list[Trace]] = {topology: [] for topology in registry.ids("topology")}
    made = make_model(model, Spec(task=name, config=config).make_task())
    try:
        with tempfile.TemporaryDirectory() as folder, Store(folder) as store:
            for s in tracked(seeds, f"instances of {name}"):
                specs = [Spec(task=name, config=config, seed=s, topology=t, model=model, limits=_LIMITS) for t in out]
                runs = (record_team(spec, store, model=_Kept(made)) for spec in specs)
                for spec, trace in zip(specs, await asyncio.gather(*runs), strict=True):
                    out[spec.topology].append(trace)
    finally:
        await made.close()
    return out


def _rows(about: str, traces: list[Trace]) -> Iterator[ClaimRow]:
    yield reported(f"{about}: E1 score", [t.rewards["team"] for t in traces])
    yield reported(f"{about}: E1 solved", [(t.metrics or {})["task_success"] for t in traces])
    told = [{m.name: m.value for m in measures(t)} for t in traces]
    for label, measure in _MEASURES:
        values = [float(one[measure]) for one in told if one.get(measure) is not None]  # type: ignore[arg-type]
        if values:
            yield reported(f"{about}: {label}", values)
    yield reported(f"{about}: tokens", [t.costs["tokens"] for t in traces])
    yield reported(f"{about}: events", [len(t.events) for t in traces])
    yield reported(f"{about}: malformed answers", [sum(str(e.error).startswith("malformed") for e in t.events) for t in traces])
