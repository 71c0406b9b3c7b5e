"""Live forks: after an edit in a long run little is asked again, and all is as if everything had been.

Teams of fake models on T1 in five topologies (the sixth, `harness`, is one agent alone: it has no messages), over a thousand
events each, dials drawn from the seed: papers, books, amendments, width, rounds, skill. Each run is recorded through the store;
one message of each, drawn, gets another text. The fork that reuses the recording
is held against one that asks every model and tool anew. How much is asked again is reported and held to nothing: it follows from
the topology, from where the message stands, and from agents that remember, so that whoever read it is asked again to its end.

The fence: workers send lines outside (the tool `outbox`), and what they send rests on what they read. Forks without consent must
leave the outside as it is, also where the edit changes what would be sent.

Always true: every number is measured on runs of fresh seeds; a full replay shares no answer with the recording.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from counterpoint.audits.blast import blast_radius
from counterpoint.display import tracked
from counterpoint.lab.bench.claim import ClaimRow, at_least
from counterpoint.lab.bench.claims._live import check_seeds, hashes, messages, none, other_text, recorded, reported
from counterpoint.lab.lm.model import Call, Completion
from counterpoint.lab.lm.models.fake import Fake
from counterpoint.lab.tasks import grammar
from counterpoint.lab.tasks.task import Act
from counterpoint.lab.team.live_replay import LiveReplay
from counterpoint.lab.team.session import Spec
from counterpoint.lab.team.state import Limits
from counterpoint.trace import Trace
from counterpoint.trace.keyed import child_seed, purpose
from counterpoint.trace.replay import Substitute

_EVENTS, _FENCED = 1000, 3
# Papers and books that give a thousand events, with room: what a team opens depends on how it works.
_SIZES = {
    "centralized": (560, 40),
    "debate": (85, 8),
    "hierarchical": (380, 34),
    "planner_executor_critic": (270, 22),
    "swarm": (280, 22),
}


class _Edit(NamedTuple):
    """What one edit did."""

    asked: float
    """Model calls asked again, of all."""
    changed: float
    """Events that are other now, of all recorded."""
    differs: int
    """Hashes that a full replay has otherwise."""
    recall: float
    outside: int
    """Events re-executed, or model calls asked again, outside the closure."""


def live_fork(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """Each seed: a run of over a thousand events in each of five topologies, one edit of each, and forks at a fence."""
    yield from rows(seed, seeds, _SIZES, _EVENTS)


def rows(seed: int, seeds: int, sizes: dict[str, tuple[int, int]], least: int) -> Iterator[ClaimRow]:
    """The claim at any size."""
    check_seeds(seeds)
    edits: dict[str, list[_Edit]] = {name: [] for name in sizes}
    shortest, empty = 10**9, 0
    for s in tracked(range(seed, seed + seeds), "seeds"):
        for name, size in sizes.items():
            rng = np.random.default_rng(child_seed(s, purpose(f"live fork {name}")) >> 16)
            trace = _long(name, size, rng, least)
            shortest = min(shortest, len(trace.events))
            empty += _empty(trace, rng)
            edits[name].append(_edited(trace, rng))
    yield at_least("events of the shortest run", float(shortest), least)
    yield none("F1: events that an empty fork changes", empty)
    every = [e for found in edits.values() for e in found]
    share = float(np.mean([e.differs == 0 for e in every]))
    yield at_least(f"forks with the hashes of a full replay, of {len(every)}", share, 1.0)
    yield at_least("changed events that cut-off re-executes, smallest share", min(e.recall for e in every), 1.0)
    yield none("events re-executed outside the closure", sum(e.outside for e in every))
    for name, found in edits.items():
        yield reported(f"{name}: model calls asked again", [e.asked for e in found])
        yield reported(f"{name}: events changed", [e.changed for e in found])
    yield from _fence(seed, seeds)


def _long(topology: str, size: tuple[int, int], rng: np.random.Generator, least: int) -> Trace:
    """A run that is long enough: one that comes out shorter is drawn again, with more papers."""
    while True:
        trace = recorded(_spec(topology, size, rng))
        if len(trace.events) >= least:
            return trace
        size = size[0] * 6 // 5, size[1]


def _spec(topology: str, size: tuple[int, int], rng: np.random.Generator) -> Spec:
    documents, parts = (int(n * rng.uniform(1, 1.15)) for n in size)
    config: dict[str, Any] = {
        "documents": documents,
        "parts": parts,
        "rows": max(2, documents // 20),
        "alias_rate": round(rng.uniform(0, 0.5), 2),
        "superseded": round(rng.uniform(0.1, 0.4), 2),
        "contradictions": round(rng.uniform(0, 0.2), 2),
    }
    limits = Limits(width=int(rng.integers(7, 10)), steps=400, turns=900, rounds=int(rng.integers(1, 3)))
    options = {"explore": 0.0, "gullible": 0.0}
    model = f"fake:{rng.uniform(0.6, 1.0):.2f}"
    number = int(rng.integers(1 << 31))
    return Spec(task="ledger_hunt", config=config, seed=number, topology=topology, model=model, options=options, limits=limits)


def _empty(trace: Trace, rng: np.random.Generator) -> int:
    """Events that are not the same, in content, time or place, when nothing is done at an event."""
    at = trace.events[int(rng.integers(len(trace.events)))]
    fork = LiveReplay().fork(trace, at.id)
    before, after = ([(e.id, e.key, e.t, e.dur, e.content_ref) for e in t.events] for t in (trace, fork))
    return abs(len(before) - len(after)) + sum(a != b for a, b in zip(before, after, strict=False))


def _edited(trace: Trace, rng: np.random.Generator) -> _Edit:
    said = messages(trace)
    at = said[int(rng.integers(len(said)))]
    do = Substitute(other_text(trace, at, rng))
    fork, full = LiveReplay().fork(trace, at.id, do), LiveReplay(is_full=True).fork(trace, at.id, do)
    one, two = hashes(fork), hashes(full)
    differs = sum(one.get(key) != two.get(key) for key in one.keys() | two.keys())
    differs += fork.rewards != full.rewards
    blast = blast_radius(trace, full, at.id)
    inside = {trace.events[i].key for i in np.flatnonzero(blast.closure)}
    known = {e.key for e in trace.events}
    asked = [e.key for e in fork.events if e.model is not None and (e.extra or {})["badge"] == "re-run"]
    calls = fork.meta["fork"]["calls"]
    return _Edit(
        asked=calls["re-run"] / (calls["re-run"] + calls["recorded"]),
        changed=float(blast.changed.mean()),
        differs=differs,
        recall=blast.recall,
        outside=int((blast.reran & ~blast.closure).sum()) + sum(key in known and key not in inside for key in asked),
    )


# -- the fence -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Sender(Fake):
    """A fake that now and then sends outside what it has just read."""

    chance: float = 0.15

    async def complete(self, call: Call) -> Completion:
        """Play, or send."""
        view = call.view
        rng = np.random.default_rng(call.seed)
        if view is not None and any(c.target == "outbox" for c in view.choices) and rng.random() < self.chance:
            heard = " ".join(view.seen[-1].text.split())[:80]
            return Completion(text=grammar.write(Act("tool", "outbox", f"read: {heard}")), extra={"seconds": 0.2})
        return await super().complete(call)


def _fence(seed: int, seeds: int) -> Iterator[ClaimRow]:
    crossed = held = sent = wrong = 0
    for s in tracked(range(seed, seed + seeds), "seeds"):
        for name in ("centralized", "swarm"):
            rng = np.random.default_rng(child_seed(s, purpose(f"live fence {name}")) >> 16)
            with tempfile.TemporaryDirectory() as folder:
                found = _fenced(name, Path(folder) / "outbox.jsonl", rng)
            crossed, held, sent, wrong = (a + b for a, b in zip((crossed, held, sent, wrong), found, strict=True))
    yield none("irreversible calls made without consent", crossed)
    yield ClaimRow("irreversible calls that forks held back", float(held), None, None, ">= 1", held >= 1)
    yield ClaimRow("irreversible calls made with consent", float(sent), None, None, ">= 1", sent >= 1)
    yield none("lines sent with consent other than what the fork re-ran", wrong)


def _fenced(topology: str, path: Path, rng: np.random.Generator) -> tuple[int, int, int, int]:
    """Lines sent without consent, calls held, lines sent with consent, and those that the fork does not account for."""
    spec = Spec(
        task="ledger_hunt",
        config={"documents": 60, "rows": 6, "parts": 6},
        seed=int(rng.integers(1 << 31)),
        topology=topology,
        limits=Limits(width=3, steps=60),
        tools={"outbox": {"path": str(path)}},
    )
    model = _Sender(task=spec.make_task(), explore=0.0)
    trace = recorded(spec, model=model)
    crossed = held = sent = wrong = 0
    sends = {e.id for e in trace.events if e.type == "tool_call" and e.tool == "outbox"}
    heard = {e.src for e in trace.edges if e.dst in sends}  # what was sent rests on these: their edit changes it
    able = [e for e in trace.events if e.id in heard and e.type in ("message", "tool_result")]
    for i in rng.integers(0, len(able), _FENCED).tolist():
        do = Substitute("Nothing was found.")
        before = _lines(path)
        shut = LiveReplay(model=model).fork(trace, able[i].id, do)
        crossed += _lines(path) - before
        held += len(shut.meta["fork"]["held"])
        before = _lines(path)
        open_ = LiveReplay(model=model, allow=("outbox",)).fork(trace, able[i].id, do)
        results = [e for e in open_.events if e.type == "tool_result" and e.tool == "outbox" and e.ok]
        again = sum((e.extra or {})["badge"] == "re-run" and not (e.extra or {}).get("edited") for e in results)
        sent += _lines(path) - before
        wrong += abs(_lines(path) - before - again)
    return crossed, held, sent, wrong


def _lines(path: Path) -> int:
    return len(path.read_bytes().splitlines()) if path.exists() else 0
