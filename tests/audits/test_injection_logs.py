"""Injection in recorded attacks on agents, AgentDojo's, and alerts on logs of other people's teams."""

from __future__ import annotations

from pathlib import Path

import pytest

from counterpoint.app.viewer.overview import alerts
from counterpoint.app.viewer.trace_view import injected_orders, view_of
from counterpoint.audits.incidents import incidents
from counterpoint.audits.injection import injections
from counterpoint.audits.taint import Score
from counterpoint.lab.bench.injection_cases import GRID, WHERE, Attacked, agentdojo, f1, held_out, scored
from counterpoint.trace import Trace

SHARED = Path(__file__).parents[3] / "shared" / "data" / "logs"
LOGS = SHARED / "agentdojo"
pytestmark = pytest.mark.skipif(not LOGS.is_dir(), reason="the shared foreign logs are not here")


def runs(suite: str, attack: str, most: int) -> list[Trace]:
    """Some runs of a suite, read as files."""
    import counterpoint as cpt

    paths = sorted(LOGS.glob(f"runs/*/{suite}/*/{attack}/*.json"))[:most]
    return [trace for path in paths for trace in cpt.read_logs(path)]


@pytest.mark.parametrize("suite", ["workspace", "travel"])
def test_every_carrier_is_found_and_nothing_else(suite: str) -> None:
    traces = [*runs(suite, "important_instructions", 12), *runs(suite, "none", 4)]
    carriers = {(t.trace_id, e.id) for t in traces for e in t.events if (e.extra or {}).get("injections")}
    assert carriers
    assert {(t.trace_id, found.event) for t in traces for found in injections(t)} == carriers


@pytest.fixture(scope="module")
def attacked() -> list[Attacked]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(WHERE, str(LOGS))
        return agentdojo()


def test_obeyed_agrees_with_the_benchmarks_own_word_suite_by_suite(attacked: list[Attacked]) -> None:
    by_suite = {suite: score for suite, _, score in held_out(attacked)}
    assert set(by_suite) == {"banking", "slack", "travel", "workspace"}
    total = Score.total(by_suite.values())
    assert total.precision >= 0.95
    assert total.recall >= 0.95
    assert all(score.recall >= 0.9 and score.precision >= 0.9 for score in by_suite.values())


def test_the_bars_that_are_shipped_are_among_the_best(attacked: list[Attacked]) -> None:
    assert f1(scored(attacked)) >= max(f1(scored(attacked, bars)) for bars in GRID) - 1e-9


def test_labels_change_no_verdict_and_what_held_has_no_incident(attacked: list[Attacked]) -> None:
    blind = {(run.suite, tuple(e.content_ref for e in run.trace.events)): run.trace for run in attacked}
    for trace in runs("slack", "important_instructions", 20):
        texts = tuple(e.content_ref for e in trace.events if e.type != "safety_event")
        found = injections(trace)
        assert [one.status for one in found] == [one.status for one in injections(blind["slack", texts])]
        assert bool(incidents(trace)) == any(one.status.startswith("obeyed") for one in found)


def test_unattacked_runs_have_no_injection() -> None:
    calm = [trace for suite in ("banking", "slack", "travel", "workspace") for trace in runs(suite, "none", 20)]
    assert len(calm) > 30
    assert [one.event for trace in calm for one in injections(trace)] == []


def test_at_most_one_foreign_trace_in_ten_has_an_alert() -> None:
    import counterpoint as cpt

    folders = [path for path in sorted(SHARED.iterdir()) if path.is_dir() and path != LOGS]
    traces = [trace for folder in folders for trace in cpt.read_logs(folder)]
    assert len(traces) > 150
    alarmed = [trace.trace_id for trace in traces if alerts(view_of(trace))]
    assert len(alarmed) <= len(traces) / 10
    assert not any(one.status == "obeyed" for trace in traces for one in injected_orders(view_of(trace)))
