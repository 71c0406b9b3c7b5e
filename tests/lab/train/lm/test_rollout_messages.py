"""What goes through the pipe between driver and workers: whole messages however they come, traces as they were."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.lab.lm.frames import HEAD, Frames
from counterpoint.lab.train.lm.rollout_messages import (
    Failed,
    ModelAnswer,
    ModelRequest,
    Play,
    Quiet,
    Ready,
    Stop,
    TeamEnd,
    Unreadable,
    decode_orders,
    decode_reports,
    framed,
    packed_trace,
    unpacked_trace,
)
from counterpoint.trace.example import rollouts

REPORTS = [Ready(), ModelRequest(1, 2, b"p", 3, 0.5, 4, "shared", True, [([1, 2], 3)]), TeamEnd(1, b"t", 2, 0.25), Failed(-1, "what", "trace"), Quiet(7)]
ORDERS = [Play(1, b"w"), ModelAnswer(1, 2, b"ids", b"logps", "length"), Unreadable(1, 2, "why"), Stop()]


@given(st.lists(st.integers(1, 400), max_size=12))
def test_messages_are_whole_however_the_bytes_come(cuts: list[int]) -> None:
    data, frames, got, at = framed(REPORTS) + framed(ORDERS), Frames(), [], 0
    for size in [*cuts, len(data)]:
        got += frames.add(data[at : at + size])
        at += size
    assert [decode_reports(got[0]), decode_orders(got[1])] == [REPORTS, ORDERS]
    assert len(got) == 2
    assert frames.add(framed([Stop()])) == [framed([Stop()])[HEAD.size :]]  # nothing was left over


def test_a_message_of_the_longest_length_comes_and_a_longer_one_is_none() -> None:
    assert Frames(3).add(HEAD.pack(3) + b"abc") == [b"abc"]
    assert Frames(3).add(HEAD.pack(0)) == [b""]
    with pytest.raises(ValueError, match="a message of 4 bytes"):
        Frames(3).add(HEAD.pack(4))
    with pytest.raises(ValueError, match="bytes"):
        Frames().add(HEAD.pack((1 << 30) + 1))


def test_a_trace_comes_out_as_it_went_in() -> None:
    for trace in rollouts():
        whole = msgspec.structs.replace(
            trace, system="a system", topology="centralized", metrics={"task_score": 0.5}, meta={"run": "r", "deep": {"x": [1]}}
        )
        again = unpacked_trace(packed_trace(whole))
        assert msgspec.to_builtins(again) == msgspec.to_builtins(whole)
        assert [e.extra for e in again.events] == [e.extra for e in trace.events]
        assert whole.events == msgspec.structs.replace(trace).events  # and what went in is as it was
    with pytest.raises((msgspec.MsgspecError, ValueError)):
        unpacked_trace(b"no trace")
