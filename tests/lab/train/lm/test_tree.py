"""Where teams branch off, by hand."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

from counterpoint.lab.team.edits import Edits
from counterpoint.lab.team.session import Spec
from counterpoint.lab.train.lm.rollout_worker import Rollout
from counterpoint.lab.train.lm.tree import branches
from counterpoint.trace import Event, Trace


def event(i: int, *, call: bool = True, kind: Any = "message") -> Event:
    return Event(id=f"e{i}", t=i, type=kind, agent="a", key=f"k{i}", extra={"call": {}} if call else None)


def team(*events: Event) -> Trace:
    return Trace(trace_id="u0-7-0", task_id="q", events=list(events))


ROLLOUT = Rollout(spec=Spec(task="T1"), seed=5, trace_id="u0-7-0")


def test_branches_part_at_a_call_and_keep_the_noise_before_it() -> None:
    trace = team(event(0, call=False), event(1), event(2, kind="tool_result"), event(3, call=False), event(4))
    made = branches(ROLLOUT, trace, 4, 1)
    assert [r.trace_id for r in made] == ["u0-7-1", "u0-7-2", "u0-7-3"]
    assert {r.notes[0]["count"] for r in made} in ({1}, {4})  # one of the two calls, the same for all
    own = Edits(ROLLOUT.draws)
    seeds = []
    for rollout in made:
        edits, count = Edits.of(rollout.draws, rollout.notes, rollout.keys), rollout.notes[0]["count"]
        assert [edits.seed(f"k{i}") for i in range(count)] == [own.seed(f"k{i}") for i in range(count)]
        seeds.append([edits.seed(f"k{i}") for i in range(count, 6)])
    assert len({own.seed("k5"), *(s[-1] for s in seeds)}) == 4
    assert branches(ROLLOUT, trace, 4, 1) == made


def test_a_branch_of_a_branch_parts_later_or_not_at_all() -> None:
    trace = team(*(event(i) for i in range(6)))
    (first,) = branches(ROLLOUT, trace, 2, 4)
    assert first.trace_id == "u0-7-4"
    later = branches(first, trace, 2, 1)
    if first.notes[0]["count"] == 5:
        assert later == []
    else:
        assert later[0].notes[0] == first.notes[0]
        assert later[0].notes[1]["count"] > first.notes[0]["count"]
    assert branches(ROLLOUT, team(event(0, call=False)), 2, 1) == []
