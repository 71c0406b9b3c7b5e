"""Columns and windows: bytes that decode back to the events."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from app.viewer.small import arrays_of, team
from counterpoint.app.viewer.columns import columns, window
from counterpoint.app.viewer.overview import overview
from counterpoint.app.viewer.shapes import COLUMNS, FLAGS
from counterpoint.testing import SHAPES, odd_trace, synthetic_trace
from counterpoint.trace import Edge, Event, Trace
from counterpoint.trace.vocabulary import EDGE_TYPES, EVENT_TYPES


def test_the_columns_of_a_small_team() -> None:
    head, arrays = arrays_of(columns(team()))
    assert head["ids"] == ["e0", "e1", "e2", "e3", "e4", "e5", "e6"]
    assert (head["events"], head["edges"]) == (7, 6)
    assert head["numbers"] == []
    assert list(arrays) == list(COLUMNS)
    assert arrays["t"].tolist() == [0, 1, 1, 4, 4, 5, 8]
    assert np.nan_to_num(arrays["dur"], nan=-1).tolist() == [1, -1, 3, -1, 1, 3, 1]
    assert arrays["agent"].tolist() == [0, 0, 1, 1, 1, 0, 0]
    assert arrays["tokens"].tolist() == [15, 0, 20, 0, 7, 0, 1]
    assert arrays["cost"].tolist() == [0.5, 0, 0, 0, 0, 0, 0]
    assert arrays["tool"].tolist() == [0, 0, 1, 1, 0, 2, 0]
    assert arrays["turn"].tolist() == [0, -1, 0, -1, -1, 1, 2]
    assert [EVENT_TYPES[k] for k in arrays["type"]][1:4] == ["spawn", "tool_call", "tool_result"]
    pairs = list(zip(arrays["src"].tolist(), arrays["dst"].tolist(), [EDGE_TYPES[k] for k in arrays["edge"]], strict=True))
    assert sorted(pairs)[:2] == [(0, 1, "temporal"), (1, 2, "spawn")]
    assert len(pairs) == 6


def test_the_flags_of_a_small_team() -> None:
    trace = replace(team(), meta={"open_events": ["e6", "gone"]})
    flags = arrays_of(columns(trace))[1]["flags"]
    marked = {name: np.flatnonzero(flags & bit).tolist() for name, bit in FLAGS.items()}
    assert marked == {
        "untrusted": [3], "tainted": [3, 4, 5, 6], "failed": [5], "on_path": [0, 1, 2, 3, 4, 5, 6], "open": [6], "text": [0, 3, 4],
        "human": [], "safety": [], "unlinked": [],
    }  # fmt: skip


def test_children_without_a_spawn_are_marked_where_the_importer_missed_some() -> None:
    trace = team()
    events = [*trace.events, Event(id="x0", t=6, type="message", agent="stray")]
    plain = replace(trace, events=events)
    assert not (arrays_of(columns(plain))[1]["flags"] & FLAGS["unlinked"]).any()
    missed = replace(plain, meta={"import": {"links": {"unlinked": 1}}})
    assert np.flatnonzero(arrays_of(columns(missed))[1]["flags"] & FLAGS["unlinked"]).tolist() == [6]


def test_arrays_begin_at_multiples_of_eight() -> None:
    for trace in (team(), odd_trace(), synthetic_trace(5, 31, "swarm")):
        head, _ = arrays_of(columns(trace))
        assert all(column["offset"] % 8 == 0 for column in head["columns"])


def test_a_window_has_what_touches_it() -> None:
    head, arrays = arrays_of(window(team(), 4, 5, 100))
    assert head["ids"] == ["e2", "e3", "e4", "e5"]
    assert head["numbers"] == [2, 3, 4, 5]
    # places in the window, and only edges inside it
    assert sorted(zip(arrays["src"].tolist(), arrays["dst"].tolist(), strict=True)) == [(0, 1), (1, 2), (2, 3)]
    assert arrays["t"].tolist() == [1, 4, 4, 5]


def test_a_crowded_window_keeps_the_longest() -> None:
    head, _ = arrays_of(window(team(), 0, 9, 2))
    assert head["ids"] == ["e2", "e5"]
    assert head["numbers"] == [2, 5]
    assert arrays_of(window(team(), 20, 30, 5))[0]["events"] == 0


def test_an_empty_trace_and_an_odd_one() -> None:
    assert arrays_of(columns(Trace(trace_id="none", task_id="t", events=[])))[0]["events"] == 0
    head, arrays = arrays_of(columns(odd_trace()))
    assert head["ids"] == ["=a", 'b,"\n', "c", "d"]
    assert arrays["tokens"].tolist() == [0, (1 << 32) - 1, 0, 0]


times = st.integers(0, 6)
records = st.lists(
    st.tuples(
        times,
        st.sampled_from(EVENT_TYPES),
        st.sampled_from("abc"),
        st.none() | st.integers(0, 3),
        st.none() | st.integers(0, 1 << 33),
        st.none() | st.sampled_from(["web", "calendar", "é"]),
        st.none() | st.booleans(),
    ),
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(records, st.data())
def test_columns_decode_back_to_the_events(rows: list[tuple], data: st.DataObject) -> None:  # type: ignore[type-arg]
    events = [
        Event(id=f"e{k}", t=t, type=kind, agent=agent, dur=dur, tokens_out=tokens, tool=tool, trusted=trusted)
        for k, (t, kind, agent, dur, tokens, tool, trusted) in enumerate(rows)
    ]
    pairs = st.tuples(st.integers(0, max(len(rows) - 1, 0)), st.integers(0, max(len(rows) - 1, 0)))
    ends = data.draw(st.lists(pairs, max_size=10)) if rows else []
    edges = [Edge(f"e{a}", f"e{b}", "causal") for a, b in ends if a < b]
    trace = Trace(trace_id="t", task_id="t", events=events, edges=edges)
    head, arrays = arrays_of(columns(trace))
    told = overview(trace)
    by_id = {e.id: e for e in events}
    assert sorted(head["ids"]) == sorted(by_id)
    for n, name in enumerate(head["ids"]):
        event = by_id[name]
        assert arrays["t"][n] == event.t
        assert EVENT_TYPES[arrays["type"][n]] == event.type
        assert np.isnan(arrays["dur"][n]) if event.dur is None else arrays["dur"][n] == event.dur
        assert arrays["tokens"][n] == min(event.tokens_out or 0, (1 << 32) - 1)
        assert ([None, *told.tools][arrays["tool"][n]]) == event.tool
        # a tool that answers under its own name counts for whoever called it
        assert told.agents[arrays["agent"][n]].name == event.agent or event.type == "tool_result"
        assert bool(arrays["flags"][n] & FLAGS["untrusted"]) == (event.trusted is False)
    back = {(head["ids"][s], head["ids"][d]) for s, d in zip(arrays["src"], arrays["dst"], strict=True)}
    assert back == {(e.src, e.dst) for e in edges}
    assert len(arrays["src"]) == len(edges)


def test_every_window_is_a_part_of_the_whole() -> None:
    for shape in SHAPES:
        trace = synthetic_trace(6, 40, shape)
        head, whole = arrays_of(columns(trace))
        end = overview(trace).end
        part_head, part = arrays_of(window(trace, end / 4, end / 2, 30))
        assert part_head["events"] <= 30
        for k, n in enumerate(part_head["numbers"]):
            assert part_head["ids"][k] == head["ids"][n]
            assert all(part[name][k] == whole[name][n] or name == "dur" for name in part if name not in ("src", "dst", "edge"))
