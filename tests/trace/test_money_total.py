"""Sums of money stay finite, and exact where a float can hold them."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import pytest

from counterpoint.store.store import Store
from counterpoint.trace import Event, Trace
from counterpoint.trace.quantities import money_total

MOST = sys.float_info.max


@dataclass(frozen=True)
class Case:
    amounts: list[float]
    total: float


@pytest.mark.parametrize(
    "case",
    [Case([], 0.0), Case([0.1] * 10, 1.0), Case([MOST, MOST], MOST), Case([-MOST, -MOST], -MOST), Case([MOST, MOST, -MOST], MOST)],
)
def test_a_sum_ends_at_the_largest_float(case: Case) -> None:
    assert money_total(case.amounts) == pytest.approx(case.total, rel=1e-12)


def test_a_trace_of_absurd_costs_is_stored(tmp_path: object) -> None:
    events = [Event(id=f"e{i}", t=float(i), type="tool_call", agent="a", at=1.7e9 + i, cost_usd=MOST) for i in range(2)]
    trace = Trace(trace_id="dear", task_id="t", events=events)
    with Store(str(tmp_path)) as store:
        assert store.add_many([trace]) == ["added"]
        assert store.get("dear").events == events
