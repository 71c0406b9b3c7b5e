"""Whatever valid trace goes in comes out: through the store, through columns, through lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from counterpoint.store import Store
from counterpoint.testing import SHAPES, odd_trace, synthetic_trace
from counterpoint.trace import Edge, Event, Trace
from counterpoint.trace.batch import TraceBatch
from counterpoint.trace.lines import decode_lines, encode_lines
from counterpoint.trace.vocabulary import DECISIONS, EDGE_TYPES, EVENT_TYPES, SOURCES, TOPOLOGIES

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
name = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
floats = st.floats(allow_nan=False, allow_infinity=False)
huge = st.sampled_from([2**53, 2**53 + 1, 2**63, 2**64 + 1, 10**30, 10**300 + 1])
number = st.one_of(st.integers(-(10**6), 10**6), floats, huge, st.just(-(2**63) - 1))
amount = st.one_of(st.integers(0, 10**6), st.floats(min_value=0, allow_infinity=False), huge)
count = st.one_of(st.integers(0, 10**6), huge)
json_value = st.recursive(
    st.one_of(st.none(), st.booleans(), number, text),
    lambda v: st.one_of(st.lists(v, max_size=3), st.dictionaries(text, v, max_size=3)),
)
json_object = st.dictionaries(text, json_value, max_size=3)
numbers = st.dictionaries(text, number, max_size=3)

FIELDS: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(("role", "from_", "to", "tool", "content_ref", "model", "task", "policy", "key", "error"), text),
    **dict.fromkeys(("trusted", "ok"), st.booleans()),
    **dict.fromkeys(("dur", "cost_usd"), amount),
    **dict.fromkeys(("tokens_in", "tokens_out", "turn"), count),
    **dict.fromkeys(("logp", "at"), number),
    "decision": st.sampled_from(DECISIONS),
    "source": st.sampled_from(SOURCES),
    "options": st.lists(text, max_size=3),
    "reward": numbers,
    "extra": json_object,
}


@st.composite
def events(draw: st.DrawFn) -> list[Event]:
    out = []
    for i, own in enumerate(draw(st.lists(name, min_size=1, max_size=6, unique=True))):
        fields = draw(st.fixed_dictionaries({}, optional=FIELDS))
        t = draw(st.sampled_from([i, i + 0.5, float(i), 2**60 + i]))
        out.append(Event(id=own, t=t, type=draw(st.sampled_from(EVENT_TYPES)), agent=draw(name), **fields))  # type: ignore[arg-type]
    return out


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    made = draw(events())
    ids = st.sampled_from([e.id for e in made])
    edges = draw(st.lists(st.builds(Edge, ids, ids, st.sampled_from(EDGE_TYPES)), max_size=6))
    costs = draw(st.one_of(st.just({}), st.builds(lambda a, b: {"tokens": a, "wall_clock_s": b}, amount, amount)))
    return Trace(
        trace_id=draw(name),
        task_id=draw(name),
        system=draw(st.one_of(st.none(), text)),
        topology=draw(st.one_of(st.none(), st.sampled_from(TOPOLOGIES))),  # type: ignore[arg-type]
        events=made,
        edges=edges,
        rewards=draw(numbers),
        costs=costs,
        metrics=draw(st.one_of(st.none(), numbers)),
        meta=draw(json_object),
        contents=draw(st.dictionaries(text, text, max_size=3)),
    )


def _shape(value: Any) -> Any:
    """The value with every number's type, as 1 == 1.0 in Python."""
    if isinstance(value, (Trace, Event, Edge)):
        return [_shape(getattr(value, f)) for f in value.__struct_fields__]
    if isinstance(value, dict):
        return {k: _shape(v) for k, v in value.items()}
    return [_shape(v) for v in value] if isinstance(value, list) else (type(value).__name__, value)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("round"))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(trace=traces())
def test_any_valid_trace_comes_back(store: Store, trace: Trace) -> None:
    if trace.trace_id in store:
        store.remove(trace.trace_id)
    assert store.add(trace) == "added"
    for again in (store.get(trace.trace_id), TraceBatch.of([trace]).trace(0), decode_lines(encode_lines(trace))):
        assert _shape(again) == _shape(trace)
    assert store.add(trace) == "unchanged"


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(many=st.lists(traces(), min_size=2, max_size=6, unique_by=lambda t: t.trace_id))
def test_neighbours_in_one_row_group_stay_apart_and_survive_compaction(tmp_path_factory: Any, many: list[Trace]) -> None:
    folder: Path = tmp_path_factory.mktemp("many")
    with Store(folder) as store:
        assert store.add_many(many) == ["added"] * len(many)
        store.remove(many[0].trace_id)
        for _ in range(2):
            for trace in many[1:]:
                assert _shape(store.get(trace.trace_id)) == _shape(trace)
            assert store.batch([t.trace_id for t in many[1:]]).traces() == many[1:]
            store.compact(grace_s=0)


@pytest.mark.parametrize("shape", SHAPES)
def test_synthetic_traces_come_back(store: Store, shape: str) -> None:
    trace = synthetic_trace(6, 40, shape, contents=True)
    store.add(trace)
    assert _shape(store.get(trace.trace_id)) == _shape(trace)


def test_the_odd_trace_comes_back(store: Store) -> None:
    store.add(odd_trace())
    assert _shape(store.get(odd_trace().trace_id)) == _shape(odd_trace())


def test_a_large_trace_comes_back(store: Store) -> None:
    trace = synthetic_trace(100, 1500, "swarm")
    store.add(trace)
    assert store.get(trace.trace_id) == trace
