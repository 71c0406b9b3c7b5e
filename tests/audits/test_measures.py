"""Every measure by hand, and what is said when it cannot be had."""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np
import pytest

from audits.made import Story, fan_out
from counterpoint.audits.cost import Prices
from counterpoint.audits.measures import measures, summary
from counterpoint.audits.records import DEFINITIONS, Measure
from counterpoint.trace import Trace


def found(trace: Trace, **options: Any) -> dict[str, Measure]:
    return {m.name: m for m in measures(trace, **options)}


def test_every_definition_comes_out_once_and_in_order() -> None:
    assert [m.name for m in measures(fan_out().trace())] == list(DEFINITIONS)
    assert [m.name for m in measures(Story().trace())] == list(DEFINITIONS)


def test_a_trace_that_says_nothing_has_no_values_but_counts() -> None:
    bare = Story()
    bare.add("message", "solo")
    got = found(bare.trace())
    assert {n for n, m in got.items() if m.status != "missing"} == {
        "critical_steps", "parallelism_efficiency_steps", "critical_path_steps", "events", "messages", "tool_calls", "sub_agents", "depth"
    }  # fmt: skip
    assert all(m.value is None and m.rests_on for m in got.values() if m.status == "missing")


def test_parallelism_by_hand() -> None:
    got = found(fan_out(3).trace())
    # lead works 0-1, 8-10 and 10-11; each worker 1-8 without a gap
    assert got["parallelism_efficiency"].value == pytest.approx((4 + 3 * 7) / 11)
    assert got["parallelism_efficiency"].status == "measured"
    assert got["mean_parallelism"].value == pytest.approx(25 / 11)
    assert (got["max_parallelism"].value, got["max_parallelism"].event_count) == (3, 3)
    assert (got["critical_steps"].value, got["parallelism_efficiency_steps"].value) == (6, 2.0)
    assert got["critical_path_s"].value == 1 + 7 + 3
    assert got["critical_path_s"].events[:3] == ["e1", "e2", "e5"]
    assert got["critical_path_steps"].value == 6
    assert got["critical_path_tokens"].value == 15 + 3 * 30 + 45 + 60 + 11


def test_serial_work_has_efficiency_near_one_and_missing_durations_make_a_lower_bound() -> None:
    serial = found(fan_out(3, serial=True).trace())["parallelism_efficiency"]
    assert serial.value is not None
    assert 0.9 < serial.value <= 1
    story = fan_out(3)
    story.add("tool_call", "w0", t=3)
    part = found(story.trace())["parallelism_efficiency"]
    assert (part.status, part.bound) == ("estimated", "at least")
    assert "of 25 work events carry dur" in part.rests_on


def test_sub_agents_that_wait_for_each_other_make_critical_steps_a_bound() -> None:
    line = Story()
    line.add("spawn", "lead", to="a")
    line.add("spawn", "lead", to="b")
    first = line.add("tool_call", "a")
    line.add("tool_call", "b", reads=first)
    got = found(line.trace())
    assert (got["critical_steps"].value, got["critical_steps"].bound) == (1, "at least")
    assert got["parallelism_efficiency_steps"].bound == "at most"


def test_utilisation_counts_what_the_result_read() -> None:
    got = found(fan_out(4, unread=1).trace())["useful_agent_utilisation"]
    assert got.value == pytest.approx(12 / 16)
    assert (got.event_count, got.bound) == (4, "at most")
    assert found(Story().trace())["useful_agent_utilisation"].status == "missing"


def test_a_temporal_edge_between_agents_is_not_a_read() -> None:
    story = fan_out(2, unread=1)
    story.add("aggregate", "lead", reads="e16", by="temporal", t=30)
    assert found(story.trace())["useful_agent_utilisation"].value == pytest.approx(1 / 2)


def _talk() -> Story:
    talk = Story()
    one = talk.add("message", "a", to="b", text="the gauge rose by two millimetres this year")
    talk.add("message", "a", to="c", text="the gauge rose by two millimetres this year")
    talk.add("message", "a", to="b", text="The gauge rose by two millimetres, this year.")
    talk.add("message", "b", to="c", text="nothing to add from my side at all", reads=one)
    talk.add("message", "b", to="user", text="nothing to add from my side at all")
    return talk


def test_redundancy_over_the_team_and_per_receiver() -> None:
    got = found(_talk().trace())
    assert got["message_redundancy"].value == pytest.approx(2 / 4)
    assert got["message_redundancy"].events == ["e2", "e3"]
    assert got["message_redundancy_receiver"].value == pytest.approx(1 / 4)
    assert got["message_redundancy"].status == "measured"
    assert got["messages_read"].value == pytest.approx(1 / 4)
    assert got["messages_read"].events == ["e2", "e3", "e4"]


def test_redundancy_by_embedding_and_by_reference() -> None:
    every = found(_talk().trace(), embed=lambda texts: np.ones((len(texts), 2)))
    assert every["message_redundancy"].value == pytest.approx(3 / 4)
    none = found(_talk().trace(), similarity=lambda a, b: 0.0)
    assert none["message_redundancy"].value == 0
    hashed = Story()
    for ref in ("x", "y", "x", None):
        hashed.add("message", "a", to="b", content_ref=ref)
    got = found(hashed.trace())["message_redundancy"]
    assert (got.value, got.status, got.bound) == (0.25, "estimated", "at least")
    assert "1 have neither" in got.rests_on


def test_messages_read_is_missing_where_reads_are_not_recorded() -> None:
    quiet = Story()
    quiet.add("message", "a", to="b")
    quiet.add("message", "b", to="a")
    assert found(quiet.trace())["messages_read"].status == "missing"


def test_protocol_overhead_by_hand() -> None:
    got = found(fan_out(2).trace())["protocol_overhead"]
    protocol = 15 + 2 * 15 + 60 + 11 + 2 * 3 * 10
    assert got.value == pytest.approx(protocol / (protocol + 2 * 30 + 2 * 3 * 20)), "of a return what it writes, as of a call"
    assert got.status == "measured"
    more = found(fan_out(2).trace(costs={"tokens": 1000, "wall_clock_s": 1}))["protocol_overhead"]
    assert more.status == "estimated"
    assert "belong to no event" in more.rests_on


def test_a_leaders_own_work_is_no_protocol() -> None:
    alone = Story()
    turn = alone.add("orchestrator_decision", "main", tokens_in=90, tokens_out=10)
    alone.add("tool_call", "main", tool="Bash", reads=turn, tokens_out=5)
    assert found(alone.trace())["protocol_overhead"].value == 0, "nobody to coordinate"
    team = Story()
    both = team.add("orchestrator_decision", "main", tokens_in=90, tokens_out=10, decision="spawn")
    spawn = team.add("spawn", "main", to="w", reads=both)
    team.add("tool_call", "main", tool="Bash", reads=both)
    team.add("message", "w", reads=spawn, tokens_in=40, extra={"aloud": True})
    team.add("orchestrator_decision", "main", reads=both, tokens_in=60)
    got = found(team.trace())
    assert got["protocol_overhead"].value == pytest.approx(50 / 200), "half of the turn that also works, none of thinking"
    assert got["messages"].value == 0
    team.add("orchestrator_decision", "main", reads=both, tokens_in=100, decision="stop")
    assert found(team.trace())["protocol_overhead"].value == pytest.approx(150 / 300)


def test_what_the_source_states_stands_in_as_an_estimate() -> None:
    bare = Story()
    bare.add("message", "a")
    got = found(bare.trace(metrics={"protocol_overhead": 0.18, "error_amplification": 0, "task_success": 1}))
    assert (got["protocol_overhead"].value, got["protocol_overhead"].status) == (0.18, "estimated")
    assert (got["error_amplification"].value, got["error_amplification"].status) == (0, "estimated")
    assert (got["task_success"].value, got["task_success"].rests_on) == (1, "metrics.task_success")


def _infected(mark: dict[str, Any] | None, *, later: dict[str, Any] | None = None) -> Trace:
    line = Story()
    a = line.add("message", "a", extra=mark)
    b = line.add("message", "b", reads=a, extra=later)
    line.add("message", "c", reads=b, extra=later)
    line.add("message", "d")
    return line.trace()


def test_error_amplification_measured_bounded_and_missing() -> None:
    def amplified(*args: Any, **options: Any) -> Measure:
        return found(_infected(*args, **options))["error_amplification"]

    both = amplified({"planted": True}, later={"corrupt": True})
    assert (both.value, both.status, both.bound, both.events) == (2.0, "measured", "exact", ["e1", "e2", "e3"])
    assert amplified({"corrupt": True}, later={"corrupt": True}).value == 2.0
    sources = amplified({"planted": True})
    assert (sources.value, sources.status, sources.bound) == (2.0, "estimated", "at most")
    stopped = amplified({"planted": True}, later={"corrupt": False})
    assert (stopped.value, stopped.status) == (0.0, "measured")
    assert amplified(None).status == "missing"


def test_untrusted_reach() -> None:
    line = Story()
    a = line.add("tool_result", "a", trusted=False)
    line.add("message", "a", reads=a)
    line.add("message", "b", trusted=True)
    got = found(line.trace())["untrusted_reach"]
    assert (got.value, got.bound, got.events) == (pytest.approx(2 / 3), "at most", ["e1", "e2"])


def test_rollout_cost_uses_each_call_once() -> None:
    prices = Prices(token=0.001, tool=0.5, spawn=2.0, event=0.01)
    trace = fan_out(2).trace()
    tokens, calls, events = 15 + 2 * (90 + 45) + 60 + 11, 6, len(trace.events)
    got = found(trace, prices=prices)["rollout_cost"]
    assert got.value == pytest.approx(tokens * 0.001 + calls * 0.5 + 2 * 2.0 + events * 0.01)
    assert got.status == "estimated"
    own = found(trace, prices=Prices(token=0.0, orchestration=lambda k, g: 100.0 * k + g))["rollout_cost"]
    assert own.value == 200.0 + events
    assert found(trace)["rollout_cost"].status == "missing"


def test_recorded_cost_says_when_it_is_partial() -> None:
    paid = Story()
    paid.add("message", "a", tokens_in=5, cost_usd=0.5)
    assert found(paid.trace())["recorded_cost"].status == "measured"
    paid.add("message", "a", tokens_in=5)
    got = found(paid.trace())["recorded_cost"]
    assert (got.value, got.status, got.bound) == (0.5, "estimated", "at least")


def test_zero_stated_tokens_are_missing_not_zero() -> None:
    bare = Story()
    bare.add("message", "a")
    got = found(bare.trace(costs={"tokens": 0, "wall_clock_s": 0}))
    assert (got["tokens"].status, got["wall_clock"].status) == ("missing", "missing")


def test_scale() -> None:
    got = found(fan_out(3).trace())
    assert [got[n].value for n in ("events", "tool_calls", "sub_agents", "depth", "wall_clock")] == [27, 9, 3, 1, 11]


def test_summary_means_intervals_and_gaps() -> None:
    batch = [fan_out(k).trace() for k in (1, 2, 3, 4)]
    rows = {s.name: s for s in summary(batch)}
    events = rows["events"]
    assert (events.n, events.mean) == (4, 23.0)
    counts = [len(trace.events) for trace in batch]
    half = 3.182446 * statistics.stdev(counts) / 2  # t(0.975, 3), n = 4
    assert (events.low, events.high) == pytest.approx((23 - half, 23 + half), rel=1e-6)
    assert (rows["error_amplification"].n, rows["error_amplification"].missing, rows["error_amplification"].mean) == (0, 4, None)
    assert summary(batch) == summary(batch)
    assert summary(batch[:1])[0].low is None
