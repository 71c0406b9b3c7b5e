"""Bins: seconds by hand, sums over levels, and their size."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.viewer.small import team, unpacked
from counterpoint.app.viewer import trace_view as seen_
from counterpoint.app.viewer.columns import LEVELS, MOST, bins, cells, is_large, lanes
from counterpoint.app.viewer.shapes import FAMILIES
from counterpoint.app.viewer.trace_view import view_of
from counterpoint.testing import SHAPES, synthetic_trace
from counterpoint.trace import Event, Trace

THINK, ACT, COORDINATE, MERGE, STOP = range(len(FAMILIES))


def test_the_seconds_of_a_small_team() -> None:
    look = view_of(team())
    level = cells(look, [[0], [1]], 9)  # slices of one second
    assert level.seconds[THINK, 0].tolist() == [1, 0, 0, 0, 0, 0, 0, 0, 1]
    assert level.seconds[ACT, 0].tolist() == [0, 0, 0, 0, 0, 1, 1, 1, 0]
    assert level.seconds[ACT, 1].tolist() == [0, 1, 1, 1, 0, 0, 0, 0, 0]
    assert level.seconds[MERGE, 1].tolist() == [0, 0, 0, 0, 1, 0, 0, 0, 0]
    assert level.counts[COORDINATE, 0].tolist() == [0, 1, 0, 0, 0, 0, 0, 0, 0]
    assert level.seconds.sum() == 9
    assert level.counts.sum() == 7


def test_a_piece_is_shared_among_the_slices_that_it_lies_in() -> None:
    level = cells(view_of(team()), [[0], [1]], 2)  # slices of four and a half seconds
    assert level.seconds[ACT, 0].tolist() == pytest.approx([0, 3])
    assert level.seconds[ACT, 1].tolist() == pytest.approx([3, 0])
    assert level.seconds[MERGE, 1].tolist() == pytest.approx([0.5, 0.5])


def decoded(trace: Trace) -> tuple[dict, list[np.ndarray]]:  # type: ignore[type-arg]
    data = bins(trace)
    head, start = unpacked(data)
    shapes = [(len(head["lanes"]), level["bins"], 2) for level in head["levels"]]
    levels = [
        np.frombuffer(data, np.uint8, s[0] * s[1] * 2, start + level["offset"]).reshape(s)
        for s, level in zip(shapes, head["levels"], strict=True)
    ]
    return head, levels


def test_five_levels_coarse_to_fine_within_the_size() -> None:
    for agents, shape in ((6, "swarm"), (300, "hierarchical")):
        trace = synthetic_trace(agents, 900, shape)
        head, levels = decoded(trace)
        sizes = [level["bins"] for level in head["levels"]]
        assert len(levels) == LEVELS
        assert all(b == 2 * a for a, b in itertools.pairwise(sizes))
        assert len(bins(trace)) <= MOST
        assert sorted(a for group in head["members"] for a in group) == list(range(len(view_of(trace).team)))


def test_many_agents_are_folded_by_role_and_depth() -> None:
    trace = synthetic_trace(300, 900, "hierarchical")
    names, members = lanes(view_of(trace))
    assert len(names) < 20
    assert any("×" in name for name in names)
    depth = view_of(trace).team.depth_A
    assert all(len(set(depth[group].tolist())) == 1 for group in members)
    assert lanes(view_of(team())) == (["lead", "reader"], [[0], [1]])


def test_what_began_is_never_empty() -> None:
    for shape in SHAPES:
        trace = synthetic_trace(5, 40, shape)
        look = view_of(trace)
        head, levels = decoded(trace)
        span = head["end"] - head["start"]
        for level in levels:
            at = np.minimum((look.facts.t_E - head["start"]) / span * level.shape[1], level.shape[1] - 1).astype(int)
            assert (level[look.team.agent_E, at, 1] > 0).all()


def test_the_family_of_a_cell_is_that_of_most_time() -> None:
    head, levels = decoded(team())
    fine = levels[-1]
    middle = fine.shape[1] * 2 // 9  # t = 2: the reader calls
    assert fine[1, middle].tolist() == [ACT, 255]
    assert fine[0, middle, 1] == 0
    assert head["lanes"] == ["lead", "reader"]


def test_without_durations_counts_are_drawn() -> None:
    events = [Event(id=f"e{k}", t=k, type="message", agent="a") for k in range(4)]
    _, levels = decoded(Trace(trace_id="t", task_id="t", events=events))
    assert set(levels[0][0, :, 1].tolist()) == {0, 255}
    assert (levels[0][0, levels[0][0, :, 1] > 0, 0] == COORDINATE).all()


def test_a_trace_of_one_moment_or_none() -> None:
    one = Trace(trace_id="t", task_id="t", events=[Event(id="e", t=3, type="message", agent="a")])
    assert decoded(one)[1][0][0, 0, 1] == 255
    assert decoded(Trace(trace_id="t", task_id="t", events=[]))[0]["lanes"] == []


spans = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 30), st.sampled_from("ab"), st.booleans()), min_size=1, max_size=15)


@settings(max_examples=60, deadline=None)
@given(spans, st.sampled_from([16, 48, 112]))
def test_bins_add_up(rows: list[tuple[int, int, str, bool]], finest: int) -> None:
    events = [
        Event(id=f"e{k}", t=t / 4, dur=dur / 4, type="tool_call" if calls else "message", agent=agent)
        for k, (t, dur, agent, calls) in enumerate(rows)
    ]
    look = view_of(Trace(trace_id="t", task_id="t", events=events))
    level = cells(look, [[a] for a in range(len(look.team))], finest)
    busy = look.team.per_agent(look.facts.pieces.length_E)
    for _ in range(LEVELS):
        assert level.seconds.sum(axis=(0, 2)) == pytest.approx(busy)
        assert level.counts.sum() == len(events)
        assert level.seconds.min() > -1e-9
        width = (look.span[1] - look.span[0]) / level.seconds.shape[2]
        assert level.seconds.sum(axis=0).max() <= width + 1e-9  # no agent works more than all the time
        level = level.halved() if level.seconds.shape[2] % 2 == 0 else level


def test_large_is_a_number_of_events(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_large(team())
    monkeypatch.setattr(seen_, "LARGE", 6)
    assert is_large(team())
