"""Two traces side by side: rows in order, every event counted, a fork's edit named."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from app.viewer.small import team
from counterpoint.app.viewer import trace_diff
from counterpoint.app.viewer.overview import overview
from counterpoint.app.viewer.trace_diff import diff
from counterpoint.audits.diff import diff as audited
from counterpoint.lab.worlds.world import world
from counterpoint.testing import synthetic_trace
from counterpoint.trace import Edge, Event, Trace, content_ref
from counterpoint.trace.replay import Delete


def other() -> Trace:
    """The small team again: the lead runs something else, the reader says one thing more, nobody stops."""
    trace = team()
    says = {content_ref("and 3 km"): "and 3 km", content_ref("pytest"): "pytest"}
    events = [replace(e, content_ref=content_ref("pytest"), ok=True) if e.id == "e5" else e for e in trace.events if e.id != "e6"]
    more = Event(id="m", t=4, type="message", agent="reader", to="lead", tokens_out=3, content_ref=content_ref("and 3 km"))
    edges = [e for e in trace.edges if e.dst != "e6"] + [Edge("e4", "m", "temporal")]
    return replace(trace, trace_id="other", events=[*events, more], edges=edges, rewards={}, contents=trace.contents | says)


def test_rows_stand_in_order_and_say_what_changed() -> None:
    told = diff(team(), other())
    assert [row.what for row in told.rows] == ["same", "same", "same", "same", "same", "only-b", "changed", "only-a"]
    assert (told.a, told.b, told.same, told.different) == ("small", "other", 5, 3)
    changed = next(row for row in told.rows if row.what == "changed")
    assert (changed.agent, changed.type, changed.before, changed.after) == ("lead", "tool_call", "shell", "pytest")
    new = next(row for row in told.rows if row.what == "only-b")
    assert (new.a, new.agent, new.after) == (-1, "reader", "and 3 km")
    assert told.rows[told.first].what != "same"
    assert all(row.what == "same" for row in told.rows[: told.first])


def test_where_both_go_on_alone_the_first_trace_comes_first_as_the_command_says() -> None:
    one, two = synthetic_trace(2, 6, trace_id="one"), team()
    told, found = diff(one, two), audited(one, two)
    assert found.first is not None
    assert (found.first.how, told.rows[told.first].what) == ("gone", "only-a")
    assert told.rows[told.first].a == 0
    kinds = [row.what for row in told.rows]
    assert kinds == ["only-a"] * len(one.events) + ["only-b"] * len(two.events)


def test_sums_and_agents() -> None:
    told = diff(team(), other())
    assert told.sums == {"tokens": [43.0, 45.0], "seconds": [9.0, 9.0], "cost_usd": [0.5, 0.5], "reward": [1.0, None]}
    assert told.agents == {"lead": [16.0, 15.0], "reader": [27.0, 30.0]}


def test_a_trace_and_itself() -> None:
    told = diff(team(), team())
    assert (told.same, told.different, told.first, told.agents) == (7, 0, -1, {})
    assert [(row.a, row.b) for row in told.rows] == [(n, n) for n in range(7)]


def test_a_fork_names_its_edit_and_its_parent() -> None:
    chosen = world("W1", vote_items=12)
    trace = chosen.run("reference", [0], log=True).trace(0)
    at = next(e.id for e in trace.events if e.type == "return")
    fork = chosen.fork(trace, at, Delete())
    told, found = diff(trace, fork), audited(trace, fork)
    (edited,) = [row for row in told.rows if row.what == "edited"]
    assert edited.type == "return"
    assert overview(fork).parent == trace.trace_id
    assert (told.same, told.different) == (found.same, len(found.changed) + len(found.new) + len(found.gone))


def test_a_long_pair_is_told_near_its_differences(monkeypatch: pytest.MonkeyPatch) -> None:
    a = synthetic_trace(6, 80, "swarm", contents=True)
    events = [replace(e, ok=False) if k == 40 else e for k, e in enumerate(a.events)]
    b = replace(a, trace_id="b", events=events)
    whole = diff(a, b)
    monkeypatch.setattr(trace_diff, "_WHOLE", 10)
    near = diff(a, b)
    assert (near.same, near.different) == (whole.same, whole.different)
    assert len(near.rows) == 7
    assert near.rows[near.first] == whole.rows[whole.first]
    msgspec.json.encode(near)
