"""The claims on live teams, small: every row comes, what must hold holds, and what is broken on purpose is seen."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
from msgspec.structs import replace

from counterpoint.audits.taint import influenced, may_taint, score
from counterpoint.errors import InputError
from counterpoint.lab.bench.claims._live import play_with, recorded, without
from counterpoint.lab.team.session import Spec
from counterpoint.lab.team.state import Limits


def _claim(name: str) -> Any:
    return importlib.import_module(f"counterpoint.lab.bench.claims.{name}")


def test_live_fork_in_small() -> None:
    rows = list(_claim("live_fork").rows(41, 1, {"centralized": (40, 4), "planner_executor_critic": (30, 3)}, 60))
    assert [r.name for r in rows if not r.ok] == []
    asked = next(r for r in rows if r.name == "centralized: model calls asked again")
    assert 0 < asked.value < 1


def test_live_coupling_in_small() -> None:
    teams = (("ledger_hunt", "centralized"), ("split_evidence", "planner_executor_critic"))
    rows = {r.name: r for r in _claim("live_coupling").rows(43, 1, teams, 3)}
    assert rows["forks, coupled less fresh"].ok
    assert rows["messages that nobody reads"].ok
    assert rows["credits of these other than exactly 0, coupled"].ok
    assert rows["coupled less fresh credit, in standard errors"].ok


def test_live_coupling_with_a_run_in_which_nobody_speaks() -> None:
    claim = _claim("live_coupling")
    silent = ("ledger_hunt", "planner_executor_critic")
    assert not claim._pair(*silent, 872, 1).coupled.rows
    rows = {r.name: r for r in claim.rows(872, 1, (silent, ("split_evidence", "centralized")), 2)}
    assert rows["coupled less fresh credit, in standard errors"].ok


def test_live_attack_in_small() -> None:
    scenes = (("ledger_hunt", "AV2", "centralized"), ("split_evidence", "AV3", "hierarchical"), ("ledger_hunt", "AV4", "swarm"))
    rows = list(_claim("live_attack").rows(44, 2, scenes, (("ledger_hunt", "benign", "harness"),)))
    assert [r.name for r in rows if not r.ok and "gullible = 1" not in r.name] == []
    assert any(r.value > 0 for r in rows if "success at gullible = 1" in r.name)


def test_an_edge_that_is_missing_breaks_the_recall_of_taint() -> None:
    config = {"documents": 24, "rows": 4, "parts": 3, "attack": "AV2", "attack_rate": 0.5}
    limits = Limits(width=3, steps=40)
    spec = Spec(task="ledger_hunt", config=config, seed=5, options={"explore": 0.0, "gullible": 1.0}, limits=limits)
    trace = recorded(spec)
    guilty = influenced(trace, play_with(spec, lambda given: without(given, "The lamp in the hall was mended.")))
    carriers = _claim("live_attack")._Neutral(spec.make_task().instance(5)).carriers(trace)
    assert score(may_taint(trace, carriers).tainted, guilty).recall == 1.0
    cut = replace(trace, edges=[e for e in trace.edges if e.src not in carriers])
    assert score(may_taint(cut, carriers).tainted, guilty).recall < 1.0


@pytest.mark.parametrize("name", ["live_attack", "live_coupling", "live_fork"])
def test_no_seeds_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="seeds"):
        next(iter(getattr(_claim(name), name)(seed=0, seeds=0)))
