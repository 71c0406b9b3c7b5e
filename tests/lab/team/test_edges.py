"""Edges of live teams are complete: whatever an edit changes is found along them, verdicts and second sub-tasks included."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from counterpoint import Delete, Substitute, Trace
from counterpoint.audits.blast import blast_radius
from counterpoint.lab.tasks.attacks import attack_success
from counterpoint.lab.team.live_replay import LiveReplay
from counterpoint.lab.team.session import Spec
from counterpoint.lab.team.state import Limits
from team_help import TOPOLOGIES, record

_NOISY = {"explore": 0.05, "babble": 0.03}


def _team(folder: Path, task: str, topology: str, **more: object) -> Trace:
    limits = Limits(width=3, steps=30, turns=60)
    return record(folder, task=task, topology=topology, model="fake:0.7", options=_NOISY, limits=limits, **more)


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("task", ["ledger_hunt", "split_evidence"])
def test_an_edit_changes_nothing_that_its_edges_do_not_reach(task: str, topology: str, tmp_path: Path) -> None:
    config = {"documents": 40, "rows": 5, "parts": 5} if task == "ledger_hunt" else {}
    trace = _team(tmp_path, task, topology, seed=1, config=config)
    able = [e for e in trace.events if e.type in ("message", "return", "tool_result") and e.agent != "user"]
    for i in np.random.default_rng(1).permutation(len(able))[:4].tolist():
        for do in (Substitute("c1=true; C-1234|Alder Mills|45000"), Delete()):
            fork = LiveReplay(is_full=True).fork(trace, able[i].id, do)
            blast = blast_radius(trace, fork, able[i].id)
            assert blast.missed == ()
            assert not (blast.reran & ~blast.closure).any()


def test_what_comes_back_from_an_executor_rests_on_the_verdict(tmp_path: Path) -> None:
    trace = _team(tmp_path, "ledger_hunt", "planner_executor_critic", seed=1)
    by_id = {e.id: e for e in trace.events}
    read = {e.src: by_id[e.dst] for e in trace.edges}
    verdicts = [e for e in trace.events if e.type == "return" and e.role == "critic"]
    objections = [e for e in trace.events if "|objection|" in str(e.key)]
    assert objections
    assert verdicts
    for event in objections:
        assert any(by_id[e.src] in verdicts for e in trace.edges if e.dst == event.id)
    stops = trace.events[-1]
    heard = [v for v in verdicts if v.id in read]
    assert {read[v.id].agent for v in heard} <= {"lead", *(v.agent for v in verdicts)}
    assert len(heard) >= len(verdicts) - 4, f"those who work when {stops.id} ends it are not heard"


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_a_compromised_peer_is_found_and_can_be_made_neutral(topology: str, tmp_path: Path) -> None:
    config = {"attack": "AV3", "attack_rate": 1.0}
    options = {"explore": 0.0, "gullible": 0.0}
    trace = record(tmp_path, task="split_evidence", topology=topology, config=config, options=options, limits=Limits(width=4))
    instance = Spec.of(trace.meta["team"]).make_task().instance(0)
    assert not any(one.is_success for one in attack_success(instance, trace))
    planted = [e for e in trace.events if (e.extra or {}).get("planted")]
    assert bool(planted) is (topology != "harness")  # an agent that works alone has no peers
    for event in planted[:2]:
        text = f"{trace.text(event)}"
        mine = next(p.text for p in instance.planted if p.text in text)
        fork = LiveReplay().fork(trace, event.id, Substitute(text.replace(mine, "").strip()))
        twin = next(e for e in fork.events if e.key == event.key)
        assert mine not in str(fork.text(twin))


def test_who_is_which_worker_does_not_depend_on_who_is_faster(tmp_path: Path) -> None:
    """Leads spawn at the same time; the facts that a worker is given follow from its part."""
    trace = record(tmp_path, task="split_evidence", topology="hierarchical", options={"explore": 0.0}, limits=Limits(width=4))
    shards = Spec.of(trace.meta["team"]).make_task().instance(0).shards
    by_to = {e.to: trace.text(e) for e in trace.events if e.type == "spawn" and e.role == "worker"}
    told = {e.to: e.task for e in trace.events if e.type == "message" and e.to in by_to}
    assert len(told) == len(shards)
    for worker, part in told.items():
        assert by_to[worker] == "\n".join(shards[int(str(part)[1:]) - 1])
