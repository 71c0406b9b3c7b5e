"""The Advise panel: what it tries, what it only lists, and what it says of runs that nothing can replay."""

from __future__ import annotations

from msgspec.structs import replace

import counterpoint as cpt
from counterpoint.app.viewer.panels.advise import advise
from counterpoint.lab.bench.expert_chat import expert_chat


def test_what_costs_nothing_is_tried_and_the_rest_is_listed() -> None:
    trace = cpt.world("W1", vote_items=8).run("spawn_all", [0], log=True).trace(0)
    told = advise.answer(trace)
    direct = cpt.advise(trace, budget=8 * len(told.changes))  # type: ignore[attr-defined]
    assert told.certificates == direct.certificates  # type: ignore[attr-defined]
    assert [c.says for c in told.changes] == [r.change.says for r in direct.rows]  # type: ignore[attr-defined]
    first = told.changes[0]  # type: ignore[attr-defined]
    assert (first.verdict, first.gain > 0, first.event is not None) == ("helps", True, True)
    assert advise.offline is not None
    listed = advise.offline(trace)
    assert {c.says for c in listed.changes} == {c.says for c in told.changes}  # type: ignore[attr-defined]
    assert all(c.gain is None for c in listed.changes)  # type: ignore[attr-defined]


def test_a_log_and_a_run_without_an_outcome_say_what_they_need() -> None:
    log = expert_chat(1)
    assert "cannot be replayed" in advise.answer(log).notes[0]  # type: ignore[attr-defined]
    silent = replace(log, rewards={})
    told = advise.answer(silent)
    assert told.changes == []
    assert "cannot be replayed and has no outcome" in told.notes[0]  # an outcome alone would not do
    world = cpt.world("W1", vote_items=4).run("reference", [0], log=True).trace(0)
    assert "counterpoint notes score" in advise.answer(replace(world, rewards={})).notes[0]  # type: ignore[attr-defined]
