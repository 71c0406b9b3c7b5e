"""What holds for every trace: sums, bounds, and that the order of a file means nothing."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audits.made import random_traces
from counterpoint.audits.facts import Facts
from counterpoint.audits.hacks import hacks
from counterpoint.audits.measures import measures
from counterpoint.audits.records import Measure
from counterpoint.audits.rollups import BY, rollup
from counterpoint.trace import Trace
from counterpoint.trace.team import begins

several = settings(max_examples=30, deadline=None)


def _values(trace: Trace) -> dict[str, Measure]:
    return {m.name: m for m in measures(trace)}


@given(random_traces())
@several
def test_own_rollups_sum_to_the_trace(trace: Trace) -> None:
    facts = Facts(trace)
    for by in BY:
        rows = rollup(trace, by)  # type: ignore[arg-type]
        assert sum(r.events for r in rows) == len(trace.events)
        assert sum(r.tokens_own or 0 for r in rows) == int(facts.tokens_E.sum())
        assert sum(r.cost_own or 0 for r in rows) == pytest.approx(float(facts.cost_E.sum()))
        assert sum(r.busy_s or 0 for r in rows) == pytest.approx(float(facts.pieces.length_E.sum()))
        assert all(r.tokens_total is None or r.tokens_total >= (r.tokens_own or 0) for r in rows)


@given(random_traces())
@several
def test_the_total_of_an_agent_is_the_own_of_its_subtree(trace: Trace) -> None:
    rows = {r.name: r for r in rollup(trace)}
    below: dict[str | None, set[str | None]] = {name: {name} for name in rows}
    for name, row in rows.items():
        up = row.parent
        while up is not None:
            below[up].add(name)
            up = rows[up].parent
    for name, names in below.items():
        assert (rows[name].tokens_total or 0) == sum(rows[n].tokens_own or 0 for n in names)


@given(random_traces())
@several
def test_bounds_of_the_measures(trace: Trace) -> None:
    got, facts = _values(trace), Facts(trace)
    assert list(got) == [m.name for m in measures(trace)]
    for name, m in got.items():
        assert (m.value is None) == (m.status == "missing")
        assert m.value is None or np.isfinite(m.value)
        assert len(m.events) <= m.event_count or not m.events
        if m.unit == "share" and m.value is not None:
            assert 0 <= m.value <= 1, name
    serial = float(facts.pieces.length_E.sum())
    if (path := got["critical_path_s"].value) is not None:
        assert path <= serial + 1e-9
        # What an event does before its causes, by a clock that contradicts them, is on no path.
        own = facts.pieces.end_E - np.maximum(facts.pieces.start_E, begins(trace))
        assert float(own.max()) - 1e-9 <= path <= (trace.duration_s or 0) + 1e-9
        assert facts.path is None or sum(facts.path.adds) == pytest.approx(facts.path.length)
    if (efficiency := got["parallelism_efficiency"].value) is not None:
        busy = serial / (got["mean_parallelism"].value or 1)
        assert busy / facts.makespan - 1e-9 <= efficiency <= (got["max_parallelism"].value or 0) + 1e-9
        assert (got["mean_parallelism"].value or 0) >= 1 - 1e-9
    if (steps := got["parallelism_efficiency_steps"].value) is not None:
        assert steps >= 1


@given(random_traces(), st.randoms(use_true_random=False))
@several
def test_the_order_of_a_file_means_nothing(trace: Trace, rng: st.Random) -> None:  # type: ignore[name-defined]
    events, edges = list(trace.events), list(trace.edges)
    rng.shuffle(events)
    rng.shuffle(edges)
    fields = {f: getattr(trace, f) for f in ("trace_id", "task_id", "contents", "costs", "rewards")}
    shuffled = Trace(events=events, edges=edges, **fields)
    assert measures(shuffled) == measures(trace)
    assert hacks(shuffled) == hacks(trace)
    assert rollup(shuffled) == rollup(trace)


@given(random_traces())
@several
def test_findings_are_whole(trace: Trace) -> None:
    known = {e.id for e in trace.events}
    for f in hacks(trace):
        assert (f.score is None) == (f.status == "missing")
        assert f.score is None or 0 <= f.score <= 1
        assert set(f.events) <= known
        assert (f.severity is not None) == (f.status == "found")
        assert f.status != "found" or f.events
