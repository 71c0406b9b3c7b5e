"""What the driver and its workers tell each other, as bytes through a pipe.

Always true: what comes out is what went in, or an error: bytes that are no message of ours raise. Lists come out where tuples
went in, as from a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr, replace

from counterpoint.lab.lm.frames import frame
from counterpoint.trace import Edge, Event, Trace
from counterpoint.trace.vocabulary import Topology


class Ready(Struct, frozen=True, tag=True, array_like=True):
    """The worker has loaded what it needs."""


class ModelRequest(Struct, frozen=True, tag=True, array_like=True):
    """A team asks the model."""

    rollout: int
    call: int
    """Counted within the team."""
    prompt: bytes
    """Token ids, int32."""
    most: int
    temperature: float
    seed: int
    policy: str
    is_one_line: bool
    starts: list[tuple[list[int], int]]


class TeamEnd(Struct, frozen=True, tag=True, array_like=True):
    """A team has ended."""

    rollout: int
    trace: bytes
    calls: int
    cpu_s: float
    """CPU seconds of the worker since it started."""


class Failed(Struct, frozen=True, tag=True, array_like=True):
    """A team, or the worker where it says -1, came to nothing: what it raised, and the traceback."""

    rollout: int
    what: str
    trace: str


class Quiet(Struct, frozen=True, tag=True, array_like=True):
    """Every team of the worker waits for the parent, which has told it so many things until now."""

    heard: int


class Play(Struct, frozen=True, tag=True, array_like=True):
    """A team to be played."""

    rollout: int
    what: bytes


class Begin(Struct, frozen=True, tag=True, array_like=True):
    """Where a team of a person's own finds the model: an endpoint's address and its key."""

    url: str
    key: str


class ModelAnswer(Struct, frozen=True, tag=True, array_like=True):
    """The model's answer: token ids as int32, log-probabilities as float64."""

    rollout: int
    call: int
    token_ids: bytes
    logps: bytes
    finish: Literal["stop", "length"]


class Unreadable(Struct, frozen=True, tag=True, array_like=True):
    """A prompt that the model cannot read."""

    rollout: int
    call: int
    why: str


class Stop(Struct, frozen=True, tag=True, array_like=True):
    """Nothing more is wanted."""


Report = Ready | ModelRequest | TeamEnd | Failed | Quiet
"""What a worker reports."""
Order = Begin | Play | ModelAnswer | Unreadable | Stop
"""What a worker has to do."""
_encode = msgspec.msgpack.Encoder().encode
decode_reports = msgspec.msgpack.Decoder(list[Report]).decode
decode_orders = msgspec.msgpack.Decoder(list[Order]).decode


def framed(messages: Sequence[Report] | Sequence[Order]) -> bytes:
    """Messages as the bytes that go through the pipe."""
    return frame(_encode(messages))


# -- traces ----------------------------------------------------------------------------------------------------------------


class _PackedTrace(Struct, frozen=True, array_like=True):
    """A trace, its events and what they have beside their fields apart: several times faster to read than a pickle."""

    trace_id: str
    task_id: str
    system: str | None
    topology: Topology | None
    events: list[Event]
    extras: list[dict[str, Any] | None]
    edges: list[Edge]
    rewards: dict[str, int | float]
    costs: dict[str, int | float]
    metrics: dict[str, int | float] | None
    meta: dict[str, Any]
    contents: dict[str, str]


_read = msgspec.msgpack.Decoder(_PackedTrace).decode


def packed_trace(trace: Trace) -> bytes:
    """A trace as bytes."""
    t, bare = trace, [e if e.extra is None else replace(e, extra=None) for e in trace.events]
    extras, edges = [e.extra for e in t.events], list(t.edges)
    return _encode(
        _PackedTrace(
            t.trace_id, t.task_id, t.system, t.topology, bare, extras, edges, t.rewards, t.costs, t.metrics, t.meta, t.contents
        )
    )


def unpacked_trace(data: bytes) -> Trace:
    """The trace of such bytes; `msgspec.MsgspecError` or `ValueError` where they are none."""
    p = _read(data)
    for event, extra in zip(p.events, p.extras, strict=True):
        if extra is not None:
            force_setattr(event, "extra", extra)
    return Trace(
        trace_id=p.trace_id,
        task_id=p.task_id,
        system=p.system,
        topology=p.topology,
        events=p.events,
        edges=p.edges,
        rewards=p.rewards,
        costs=p.costs,
        metrics=p.metrics,
        meta=p.meta,
        contents=p.contents,
    )
