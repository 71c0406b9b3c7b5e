"""Busy time against a plain count of seconds, and what is derived once per trace: totals, texts, orders of a hand."""

from __future__ import annotations

import random
from typing import Any
from unittest import mock

import msgspec
import numpy as np
import pytest

from counterpoint.trace import Event, Trace
from counterpoint.trace import trace as trace_module
from counterpoint.trace.critical_path import Pieces, pieces, profile
from counterpoint.trace.steering import STEERED, is_steered, order_of
from counterpoint.trace.team import TraceTeam
from counterpoint.trace.trace import content_ref, summed_costs


def team_of(spans: list[tuple[str, int, int]]) -> tuple[TraceTeam, np.ndarray, np.ndarray]:
    events = [Event(id=f"e{i}", t=t, type="tool_call", agent=a, dur=d) for i, (a, t, d) in enumerate(spans)]
    team = TraceTeam(Trace(trace_id="t", task_id="q", events=events))
    return team, np.array([float(t) for _, t, _ in spans]), np.array([float(d) for *_, d in spans])


@pytest.mark.parametrize("seed", range(25))
def test_every_busy_second_of_an_agent_belongs_to_one_event(seed: int) -> None:
    rng = random.Random(seed)
    spans = [(rng.choice("abc"), rng.randrange(12), rng.randrange(5)) for _ in range(rng.randrange(1, 9))]
    team, start, dur = team_of(spans)
    cut = pieces(team, start, dur)
    seconds = {(a, s) for a, t, d in spans for s in range(t, t + d)}
    owned: dict[tuple[str, int], int] = {}
    for i, (a, t, d) in enumerate(spans):
        assert t <= cut.start_E[i] <= cut.end_E[i] <= max(t + d, cut.start_E[i])
        for s in range(int(cut.start_E[i]), int(cut.end_E[i])):
            assert (a, s) not in owned
            owned[a, s] = i
    assert set(owned) == seconds
    # A second goes to the span that began first; of those that began together, to the first of the story.
    for (a, s), i in owned.items():
        began = [(t, k) for k, (b, t, d) in enumerate(spans) if b == a and t <= s < t + d]
        assert spans[i][1] == min(began)[0]
    times, running = profile(cut)
    for s in range(20):
        there = len({a for a, x in seconds if x == s})
        k = int(np.searchsorted(times, s, "right")) - 1
        assert (int(running[k]) if k >= 0 else 0) == there


def test_without_durations_nobody_is_busy() -> None:
    team, start, dur = team_of([("a", 3, 0), ("b", 5, 0)])
    cut = pieces(team, start, dur)
    assert cut.length_E.tolist() == [0, 0]
    assert cut.start_E.tolist() == cut.end_E.tolist() == [3, 5]
    times, running = profile(cut)
    assert (times.tolist(), running.tolist()) == ([], [])


def test_of_two_spans_that_begin_together_the_first_of_the_story_has_its_whole_length() -> None:
    team, start, dur = team_of([("a", 0, 5), ("a", 0, 3), ("a", 1, 9)])
    assert pieces(team, start, dur).length_E.tolist() == [5, 0, 5]


def test_a_profile_counts_who_starts_as_another_ends() -> None:
    times, running = profile(Pieces(np.array([0.0, 2.0, 2.0]), np.array([2.0, 3.0, 2.0])))
    assert (times.tolist(), running.tolist()) == ([0, 2, 3], [1, 1, 0])


# -- the trace itself --------------------------------------------------------------------------------------------


def one(**fields: Any) -> Trace:
    events = [
        Event(id="a", t=2, type="message", agent="y", content_ref="r1", tokens_in=3),
        Event(id="b", t=1, type="tool_call", agent="x", dur=6, tokens_out=4),
        Event(id="c", t=5, type="message", agent="y", dur=1),
    ]
    return Trace(trace_id="t1", task_id="q", events=events, **fields)


def test_what_a_trace_says_of_itself() -> None:
    assert one().agents == ["y", "x"]
    assert one().index == {"a": 0, "b": 1, "c": 2}
    assert repr(one()) == "<Trace t1 of q: unknown, 3 events, 0 edges, 2 agents>"
    assert repr(one(rewards={"team": 0.5}, topology="swarm")) == "<Trace t1 of q: swarm, 3 events, 0 edges, 2 agents, team reward 0.5>"
    assert repr(one(rewards={"process": 1})) == repr(one())


def test_a_text_is_found_by_its_reference() -> None:
    trace = one(contents={"r1": "hello"})
    assert [trace.text(e) for e in trace.events] == ["hello", None, None]
    assert one().text(trace.events[0]) is None


def test_what_a_trace_does_not_say_is_not_written() -> None:
    assert list(msgspec.json.decode(msgspec.json.encode(one()))) == ["trace_id", "task_id", "events"]


def test_a_trace_is_frozen() -> None:
    with pytest.raises(AttributeError):
        one().task_id = "other"  # type: ignore[misc]


def test_one_text_has_one_reference_however_it_is_written() -> None:
    # sha256 of "abc", from FIPS 180-2.
    assert content_ref("abc") == "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert content_ref("a\r\nb\rc") == content_ref("a\nb\nc")
    assert content_ref("a\n\nb") != content_ref("a\nb")
    assert content_ref("e\u0301") == content_ref("\u00e9")
    assert content_ref("\ud800") != content_ref("")


def test_costs_are_counted_from_events() -> None:
    assert summed_costs(one().events) == {"tokens": 7, "wall_clock_s": 6, "tool_calls": 1, "messages": 2}
    assert summed_costs(one().events, 9.5)["wall_clock_s"] == 9.5
    assert summed_costs(one().events, 0)["wall_clock_s"] == 0
    assert summed_costs([]) == {"tokens": 0, "wall_clock_s": 0, "tool_calls": 0, "messages": 0}


def test_a_trace_asks_whoever_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    drawer = mock.Mock()
    monkeypatch.setattr(trace_module, "display", lambda: drawer)
    trace = one()
    assert trace.save_html("x.html") is drawer.save_html.return_value
    assert trace.view() is drawer.view.return_value
    trace.save_html("y.html", masked=False, overwrite=False)
    trace.view(height=3, masked=False)
    assert drawer.mock_calls == [
        mock.call.save_html(trace, "x.html", masked=True, overwrite=True),
        mock.call.view(trace, height=640, masked=True),
        mock.call.save_html(trace, "y.html", masked=False, overwrite=False),
        mock.call.view(trace, height=3, masked=False),
    ]


def test_a_notebook_gets_the_card() -> None:
    html = one(rewards={"team": 1.0})._repr_html_()
    assert html.startswith('<div class="cpt-card"')
    assert "R 1" in html


# -- the mark of a hand ------------------------------------------------------------------------------------------


def hand(extra: Any, type_: str = "human_intervention") -> Event:
    return Event(id="h", t=0, type=type_, agent="operator", extra=extra)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("event", "is_order"),
    [
        (hand({"order": {"id": "o1", "action": "stop"}}), True),
        (hand({"order": {"id": "o1"}}, "message"), False),
        (hand({"order": {"id": 1}}), False),
        (hand({"order": {}}), False),
        (hand({"order": "stop"}), False),
        (hand({"other": {"id": "o1"}}), False),
        (hand({}), False),
        (hand(None), False),
    ],
)
def test_an_order_says_so(event: Event, is_order: bool) -> None:
    assert (order_of(event) is not None) is is_order
    assert is_steered(Trace(trace_id="t", task_id="q", events=[one().events[0], event])) is is_order
    if is_order:
        assert order_of(event) == event.extra["order"]  # type: ignore[index]


@pytest.mark.parametrize(("mark", "found"), [(True, True), (False, False), (None, False), ("yes", False), (1, False)])
def test_the_mark_of_a_steered_trace_is_true_itself(mark: Any, found: bool) -> None:
    assert STEERED == "steered"
    assert is_steered(one(meta={"steered": mark})) is found
    assert is_steered(one()) is False
