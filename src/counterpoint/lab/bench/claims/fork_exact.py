"""Forks are exact: an empty fork repeats 10,000 events to the byte, and an unread agent can vanish unnoticed.

F1  a fork that does nothing repeats every content hash, at any event
F2  deleting an agent that nobody reads changes no other hash
F3  another process, with other numbers of threads, gives the same bytes

Always true: every trace has more than 10,000 events and comes from fresh seeds; the value of a row is a count of differences.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256

import numpy as np

import counterpoint.registry as registry
from counterpoint.errors import InputError
from counterpoint.lab.bench.claim import ClaimRow
from counterpoint.lab.worlds.teamworld.world import TeamWorld
from counterpoint.trace import Event, Trace, encode
from counterpoint.trace.keyed import child_seed, purpose
from counterpoint.trace.replay import Delete

_EVENTS, _PLACES = 10_000, 5


def _wide() -> TeamWorld:
    return registry.get("world", "wide_verify").replace(vote_items=1000, max_agents=256)


def _project() -> TeamWorld:
    return registry.get("world", "project_graph").replace(
        node_modules=320, node_module_size=8, max_agents=400, node_cross_edges=200
    )


def digest(seed: int) -> str:
    """The hash of the bytes of one long episode."""
    return _digest(_wide().run("reference", [seed], log=True).trace(0))


def _digest(trace: Trace) -> str:
    return sha256(encode(trace)).hexdigest()


def fork_exact(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """F1, F2 and F3, on `seeds` long episodes each."""
    if seeds < 1:
        raise InputError(f"seeds is at least 1, not {seeds}")
    numbers = [child_seed(s, purpose("fork exact")) >> 16 for s in range(seed, seed + seeds)]
    wide = [_wide().run("reference", [s], log=True).trace(0) for s in numbers]
    least = min(len(t.events) for t in wide)
    yield ClaimRow("events of the shortest episode", float(least), None, None, f">= {_EVENTS}", least >= _EVENTS)
    yield _none("F1 hashes that an empty fork changes", sum(_f1(t, s) for t, s in zip(wide, numbers, strict=True)))
    yield _none("F2 hashes that deleting an unread agent changes", sum(_f2(s) for s in numbers))
    yield _none("F3 episodes whose bytes differ in another process", sum(_f3(t, s) for t, s in zip(wide, numbers, strict=True)))


def _none(name: str, count: int) -> ClaimRow:
    return ClaimRow(name, float(count), None, None, "= 0", count == 0)


def _hash(event: Event) -> tuple[object, ...]:
    return (event.key, event.content_ref, event.t, event.agent, event.to)


def _f1(trace: Trace, seed: int) -> int:
    """Differing events over forks at some places, first and last among them."""
    places = np.random.default_rng(seed).integers(0, len(trace.events), _PLACES)
    bad = 0
    for place in {0, len(trace.events) - 1, *places.tolist()}:
        again = _wide().fork(trace, trace.events[place].id)
        bad += abs(len(again.events) - len(trace.events))
        bad += sum(_hash(a) != _hash(b) for a, b in zip(trace.events, again.events, strict=False))
    return bad


def _f2(seed: int) -> int:
    """Events of others that differ when the last agent spawned, which never works, is not spawned."""
    world = _project()
    trace = world.run("spawn_all", [seed], log=True).trace(0)
    idle = [e for e in trace.events if e.type == "spawn"][-1]
    without = world.fork(trace, idle.id, Delete())
    others = [_hash(e) for e in trace.events if e.id != idle.id]
    return abs(len(others) - len(without.events)) + sum(a != _hash(b) for a, b in zip(others, without.events, strict=False))


def _f3(trace: Trace, seed: int) -> int:
    """1 if one of two other processes, with one thread and with four, disagrees with the trace."""
    code = f"from counterpoint.lab.bench.claims.fork_exact import digest; print(digest({seed}))"
    seen = {_digest(trace)}
    for threads in ("1", "4"):
        env = os.environ | dict.fromkeys(
            ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS", "MKL_NUM_THREADS"), threads
        )
        out = subprocess.run(
            [sys.executable, "-c", code], env=env | {"PYTHONHASHSEED": threads}, capture_output=True, text=True, check=True
        )
        seen.add(out.stdout.strip())
    return int(len(seen) > 1)
