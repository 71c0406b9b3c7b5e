"""Many traces as columns."""

from __future__ import annotations

import numpy as np
import pytest

from counterpoint.errors import InputError, InvalidTrace, NotFound
from counterpoint.testing import odd_trace, synthetic_trace
from counterpoint.trace import Edge, Event, Trace
from counterpoint.trace.batch import TraceBatch
from counterpoint.trace.vocabulary import EDGE_TYPES, EVENT_TYPES


def _trace(name: str, times: list[float], **fields: list[object]) -> Trace:
    events = [
        Event(id=f"e{i}", t=t, type="message", agent=f"a{i}", **{k: v[i] for k, v in fields.items()})  # type: ignore[arg-type]
        for i, t in enumerate(times)
    ]
    edges = [Edge(f"e{i}", f"e{i + 1}", "causal") for i in range(len(times) - 1)]
    return Trace(trace_id=name, task_id="d", events=events, edges=edges, rewards={"team": len(times)})


A, B = _trace("a", [0, 1.5, 2], tokens_in=[5, None, 7]), _trace("b", [4.0], tokens_in=[1])


def test_offsets_part_the_columns() -> None:
    batch = TraceBatch.of([A, B])
    assert (len(batch), batch.n_events, batch.n_edges) == (2, 4, 2)
    assert batch.offsets.tolist() == [0, 3, 4]
    assert batch.edge_offsets is not None
    assert batch.edge_offsets.tolist() == [0, 2, 2]
    assert batch.column("t").tolist() == [0, 1.5, 2, 4]
    assert batch.lengths.tolist() == [3, 1]
    assert batch.ids == ["a", "b"]


def test_absent_is_nan_and_never_zero() -> None:
    column = TraceBatch.of([A]).column("tokens_in")
    assert column[0] == 5
    assert np.isnan(column[1])
    assert TraceBatch.of([B]).column("tokens_in").dtype == np.int64


def test_codes_name_their_categories() -> None:
    batch = TraceBatch.of([A, B])
    codes, names = batch.codes("agent")
    assert [names[c] for c in codes] == ["a0", "a1", "a2", "a0"]
    assert batch.codes("role").codes.tolist() == [-1] * 4
    assert batch.codes("type").categories == list(EVENT_TYPES)
    assert set(batch.codes("type").codes) == {EVENT_TYPES.index("message")}


def test_edges_count_from_their_own_trace() -> None:
    batch = TraceBatch.of([B, A])
    assert (batch.src.tolist(), batch.dst.tolist()) == ([0, 1], [1, 2])
    assert batch.edge_type.tolist() == [EDGE_TYPES.index("causal")] * 2


def test_traces_come_back_whole() -> None:
    traces = [odd_trace(), A, synthetic_trace(4, 12, contents=True), B]
    batch = TraceBatch.of(traces)
    assert batch.traces() == traces
    assert batch.trace(-1) == B
    assert type(batch.trace(0).events[0].t) is int


def test_selecting_keeps_the_order_asked_for() -> None:
    batch = TraceBatch.of([A, B, odd_trace()]).select([2, 0])
    assert batch.traces() == [odd_trace(), A]
    assert TraceBatch.of([A, B])[1:].ids == ["b"]


def test_rewards_and_costs_per_trace() -> None:
    batch = TraceBatch.of([A, B])
    assert batch.reward().tolist() == [3, 1]
    assert np.isnan(batch.reward("process")).all()
    assert np.isnan(batch.cost("tokens")).all()


def test_wrong_questions_get_answers() -> None:
    batch = TraceBatch.of([A])
    with pytest.raises(InputError, match="at least one trace"):
        TraceBatch.of([])
    with pytest.raises(NotFound, match="did you mean 'tokens_in'"):
        batch.column("token_in")
    with pytest.raises(InputError, match="not a field of few words"):
        batch.codes("t")
    with pytest.raises(InputError, match=r"not in 0\.\.0"):
        batch.trace(1)
    with pytest.raises(InputError, match=r"not in 0\.\.0"):
        batch.select([3])
    with pytest.raises(InputError, match="at least one trace"):
        batch.select([])


@pytest.mark.parametrize(
    "trace",
    [
        Trace(trace_id="x", task_id="d", events=[A.events[0], A.events[0]]),
        Trace(trace_id="x", task_id="d", events=[A.events[0]], edges=[Edge("e0", "nowhere", "causal")]),
        Trace(trace_id="x", task_id="d", events=[Event(id="e", t=0, type="message", agent="a", tokens_in="many")]),  # type: ignore[arg-type]
    ],
)
def test_what_is_not_a_graph_is_no_batch(trace: Trace) -> None:
    with pytest.raises(InvalidTrace):
        TraceBatch.of([trace])
