"""Injection in recorded attacks on agents: AgentDojo's suites that were not used to choose the words, and their unattacked runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from counterpoint.audit.injection import injections
from counterpoint.trace import Trace

LOGS = Path(__file__).parents[3] / "shared" / "data" / "logs" / "agentdojo"
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
