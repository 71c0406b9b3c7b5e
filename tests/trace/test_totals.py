"""Sums per agent: by hand, and against a plain loop."""

from __future__ import annotations

from counterpoint.testing import synthetic_trace
from counterpoint.trace import Event
from counterpoint.trace.totals import agent_totals


def test_by_hand() -> None:
    events = [
        Event(id="a", t=0, type="message", agent="x", tokens_in=3, tokens_out=4, dur=0.5, cost_usd=0.25),
        Event(id="b", t=1, type="message", agent="y", tokens_out=10),
        Event(id="c", t=2, type="message", agent="x", tokens_in=1, dur=2),
    ]
    totals = agent_totals(events)
    assert totals.names == ["x", "y"]
    assert [column.tolist() for column in totals[1:]] == [[2, 1], [4, 0], [4, 10], [2.5, 0], [0.25, 0]]


def test_counts_beyond_64_bits_stay_exact() -> None:
    events = [Event(id=str(i), t=0, type="message", agent="x", tokens_in=2**63) for i in range(2)]
    assert agent_totals(events).tokens_in.tolist() == [2**64]


def test_against_a_loop() -> None:
    events = synthetic_trace(20, 300, "swarm", 2).events
    totals = agent_totals(events)
    for k, name in enumerate(totals.names):
        own = [e for e in events if e.agent == name]
        assert totals.events[k] == len(own)
        assert totals.tokens_in[k] == sum(e.tokens_in or 0 for e in own)
        assert abs(totals.dur[k] - sum(e.dur or 0 for e in own)) < 1e-9


def test_no_events() -> None:
    assert agent_totals([]).names == []
