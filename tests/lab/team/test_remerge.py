"""The merges of a recorded team made again without some workers, and the credit that comes of it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

import counterpoint as cpt
from counterpoint.credits.choice import NoMechanism, choose
from counterpoint.credits.mechanisms.remerge import remerge
from counterpoint.errors import NotIdentified
from counterpoint.lab.team.remerge import Remerge
from counterpoint.lab.team.session import Spec, record_team
from counterpoint.lab.team.state import Limits
from counterpoint.store import Store
from counterpoint.trace import Trace


def recorded(folder: Path, task: str, topology: str, **more: int) -> Trace:
    spec = Spec(task=task, topology=topology, model="fake:0.8", seed=1, limits=Limits(width=3, **more))
    with Store(folder / f"{task}-{topology}") as store:
        return asyncio.run(record_team(spec, store, trace_id="run"))


@pytest.mark.parametrize(("task", "topology"), [("split_evidence", "debate"), ("timetables", "hierarchical")])
def test_workers_share_the_score_of_the_recorded_merge(tmp_path: Path, task: str, topology: str) -> None:
    trace = recorded(tmp_path, task, topology)
    merge = Remerge(trace)
    assert merge.score(()) == trace.rewards["team"]  # as it was recorded
    assert merge.score(["nobody"]) == trace.rewards["team"]
    found = cpt.credit(trace)
    assert found.mechanism == "remerge"
    assert "no model calls" in found.notes["chosen"]
    assert found.cost.forks == 0
    alone = {w: merge.score([v for v in merge.workers if v != w]) - merge.score(merge.workers) for w in merge.workers}
    if len(merge.workers) == 2:  # by hand: phi_1 = (v(1) - v() + v(12) - v(2)) / 2
        a, b = merge.workers
        assert found.of(0)[a] == pytest.approx((alone[a] + merge.score(()) - merge.score([a])) / 2)
        assert found.of(0)[b] == pytest.approx((alone[b] + merge.score(()) - merge.score([b])) / 2)
    assert sum(found.of(0).values()) == pytest.approx(merge.score(()) - merge.score(merge.workers))


def test_an_answer_that_is_no_merge_is_refused_and_the_choice_goes_on(tmp_path: Path) -> None:
    trace = recorded(tmp_path, "split_evidence", "debate")
    other = replace(trace, meta={**trace.meta, "answer": "c1=false"})
    with pytest.raises(NotIdentified, match="differs from its last merge"):
        remerge([other], merged=Remerge)
    with pytest.raises(NoMechanism) as chosen:
        choose([other], merged=Remerge)
    assert "differs from its last merge" in chosen.value.passed["remerge"]
    assert "one draft was scored" in chosen.value.passed["ledger"]


def test_somebody_elses_program_is_not_run_to_draw_a_picture(tmp_path: Path) -> None:
    trace = recorded(tmp_path, "module_dag", "centralized")
    with pytest.raises(NoMechanism) as chosen:
        choose([trace], merged=Remerge)
    assert "runs what the team wrote" in chosen.value.passed["remerge"]
