"""The edge audit: Clopper and Pearson by known values, complete worlds pass, a deleted edge is found."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

import counterpoint as cpt
from counterpoint.audits.blast import EdgeAudit, Miss, edge_audit, upper
from counterpoint.errors import InputError, NotIdentified
from counterpoint.trace import Event, Trace


def test_the_upper_end_is_clopper_and_pearsons() -> None:
    assert upper(0, 100) == pytest.approx(1 - 0.05 ** (1 / 100), abs=1e-12)  # 0.029513
    assert upper(1, 10) == pytest.approx(0.394163, abs=1e-6)  # Beta(0.95; 2, 9)
    assert upper(5, 5) == 1.0
    assert upper(0, 0) == 1.0
    with pytest.raises(InputError):
        upper(3, 2)


def test_a_complete_world_passes_and_the_same_seed_audits_the_same() -> None:
    world = cpt.world("W1", vote_items=24)
    trace = world.run("reference", [3], log=True).trace(0)
    found = edge_audit(trace, world, samples=12, seed=1)
    assert found.forks == 12
    assert found.changed > 20
    assert found.misses == ()
    assert found.rate == 0.0
    assert found == edge_audit(trace, world, samples=12, seed=1)


def test_deleted_edges_are_found_and_call_for_full_returns() -> None:
    world = cpt.world("W1", vote_items=24)
    trace = world.run("reference", [3], log=True).trace(0)
    blind = replace(trace, edges=[e for e in trace.edges if e.type != "return"])  # drafts read nothing
    found = edge_audit(blind, world, samples=12, seed=1)
    assert found.misses
    assert found.rate is not None
    assert found.rate > 0.01
    assert found.verdict == "fall back"
    assert "fall back to full-return advantages" in found.says
    assert all(miss.edited in trace.index and miss.changed in trace.index for miss in found.misses)


def test_verdicts_by_hand() -> None:
    miss = (Miss("e1", "e9"),)
    assert EdgeAudit(5, 0, 100, (), 0.01).verdict == "audit more"  # at most 2.95 %
    assert EdgeAudit(5, 0, 400, (), 0.01).verdict == "complete"  # at most 0.75 %
    assert EdgeAudit(5, 0, 50, miss, 0.01).verdict == "fall back"
    nothing = EdgeAudit(0, 4, 0, (), 0.01)
    assert nothing.rate is None
    assert nothing.verdict == "audit more"


def test_a_trace_that_nobody_can_replay_is_not_identified() -> None:
    trace = Trace(trace_id="t", task_id="t", events=[Event(id="a", t=0, type="message", agent="x")])
    with pytest.raises(NotIdentified):
        edge_audit(trace, cpt.world("W1"), samples=1, seed=0)
    with pytest.raises(InputError):
        edge_audit(trace, cpt.world("W1"), samples=0, seed=0)
