"""Roll-ups by hand: own, with children, by role and tool, and what no event accounts for."""

from __future__ import annotations

import pytest

from audits.made import Story, fan_out
from counterpoint.audits.failures import failures
from counterpoint.audits.rollups import behind, coverage, rollup
from counterpoint.errors import InputError, NotFound
from counterpoint.testing import SIZES, synthetic_trace
from counterpoint.trace import Trace


def _nested() -> Trace:
    story = Story()
    story.add("orchestrator_decision", "lead", role="lead", tokens_in=10, tokens_out=1, dur=1, cost_usd=0.5)
    story.add("spawn", "lead", to="m", role="manager")
    story.add("message", "m", role="manager", tokens_in=20, t=1, dur=4)
    story.add("spawn", "m", to="w", role="worker")
    story.add("tool_call", "w", role="worker", tool="search", tokens_out=300, t=2, dur=2, ok=False, cost_usd=0.25)
    story.add("spawn", "m", to="idle", role="worker")
    return story.trace()


def test_own_and_total_of_agents() -> None:
    rows = {r.name: r for r in rollup(_nested())}
    assert list(rows) == ["lead", "m", "w", "idle"]
    assert [(r.tokens_own, r.tokens_total) for r in rows.values()] == [(11, 331), (20, 320), (300, 300), (None, None)]
    assert [(r.cost_own, r.cost_total) for r in rows.values()] == [(0.5, 0.75), (None, 0.25), (0.25, 0.25), (None, None)]
    assert [(r.parent, r.depth) for r in rows.values()] == [(None, 0), ("lead", 1), ("m", 2), ("m", 2)]
    assert [(r.busy_s, r.busy_total_s) for r in rows.values()][:3] == [(1.0, 7.0), (4.0, 6.0), (2.0, 2.0)]
    assert (rows["w"].calls, rows["w"].errors, rows["w"].tokens_in) == (1, 1, None)
    assert (rows["idle"].events, rows["idle"].first_t, rows["idle"].role) == (0, None, "worker")


def test_by_role_counts_a_subtree_once() -> None:
    story = Story()
    for agent, to in (("lead", "a"), ("a", "b")):
        story.add("spawn", agent, to=to, role="manager")
    for agent, tokens in (("lead", 1), ("a", 10), ("b", 100)):
        story.add("message", agent, role="lead" if agent == "lead" else "manager", tokens_in=tokens)
    rows = {r.name: r for r in rollup(story.trace(), "role")}
    assert (rows["manager"].tokens_own, rows["manager"].tokens_total) == (110, 110)
    assert (rows["lead"].tokens_own, rows["lead"].tokens_total, rows["lead"].events) == (1, 111, 2)
    story.add("message", "a", role="critic", tokens_in=5)
    several = {r.name: r for r in rollup(story.trace(), "role")}
    assert several["critic"].tokens_own == 5
    assert several["manager"].tokens_total is None


def test_what_a_tool_did_counts_for_the_model_that_its_agent_thinks_with() -> None:
    story = Story()
    story.add("message", "lead", model="large", tokens_in=10)
    story.add("tool_call", "lead", tool="read")
    story.add("tool_result", "lead", tool="read", ok=False)
    story.add("message", "lead", model="small", tokens_in=20)
    story.add("tool_result", "lead", tool="read", ok=False)
    story.add("return", "other", tokens_in=7)  # tokens of nobody's model stay nobody's
    trace = story.trace()
    rows = {r.name: (r.events, r.calls, r.errors, r.tokens_own) for r in rollup(trace, "model")}
    assert rows == {"large": (3, 1, 1, 10), "small": (2, 0, 1, 20), None: (1, 0, 0, 7)}
    assert [f.model for f in failures(trace)] == ["large", "small"]


def test_by_tool_type_and_model() -> None:
    tools = {r.name: r for r in rollup(_nested(), "tool")}
    assert (tools["search"].calls, tools["search"].tokens_own, tools[None].events) == (1, 300, 5)
    kinds = rollup(_nested(), "type")
    assert [(r.name, r.events) for r in kinds][:2] == [("tool_call", 1), ("message", 1)]
    assert [r.name for r in rollup(_nested(), "model")] == [None]
    with pytest.raises(InputError, match="did you mean 'agent'"):
        rollup(_nested(), "agents")  # type: ignore[arg-type]


def test_path_shares_sum_to_one() -> None:
    rows = rollup(fan_out(3).trace())
    assert sum(r.path or 0 for r in rows) == pytest.approx(1)
    assert {r.name: r.path for r in rows}["lead"] == pytest.approx(4 / 11)


def test_coverage_says_what_no_event_accounts_for() -> None:
    story = Story()
    story.add("message", "a", tokens_in=960)
    story.add("message", "a")
    got = coverage(story.trace(costs={"tokens": 1000, "wall_clock_s": 1}))
    assert (got.accounted, got.total, got.share, got.no_record) == (960, 1000, 0.96, 1)
    assert coverage(Story().trace()).share is None


def test_the_events_behind_a_row() -> None:
    trace = fan_out(2).trace()
    assert behind(trace, "agent", "lead") == [0, 1, 2, 17, 18]
    assert len(behind(trace, "tool", "search")) == 12
    with pytest.raises(NotFound, match="did you mean 'lead'"):
        behind(trace, "agent", "leed")


def test_the_totals_of_a_thousand_agents_are_those_of_the_trace() -> None:
    trace = synthetic_trace(*SIZES["x10"])
    rows = rollup(trace)
    assert rows[0].tokens_total == trace.costs["tokens"]
    assert rows[0].cost_total == pytest.approx(trace.costs["cost_usd"])
