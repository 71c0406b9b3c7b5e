"""Model calls as training rows: who gets which advantage, and that no credit is lost on the way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.credits.call_rows import call_rows, cause_of
from counterpoint.errors import InputError
from counterpoint.trace import Edge, Event, Trace
from counterpoint.trace.rows import Credit, CreditRow


def _call(prompt: list[int], said: list[int], **more: Any) -> dict[str, Any]:
    return {"call": {"prompt_ids": prompt, "token_ids": said, "logps": [-0.5] * len(said), **more}}


def _event(id_: str, t: float, type_: Any, agent: str, **fields: Any) -> Event:
    return Event(id=id_, t=t, type=type_, agent=agent, role="orchestrator" if agent == "lead" else "worker", **fields)


def _team(name: str = "t1") -> Trace:
    """A lead that spawns a worker, which uses a tool and returns; the lead merges and stops."""
    events = [
        _event("spawns", 0, "orchestrator_decision", "lead", turn=1, decision="spawn", tokens_out=2, extra=_call([1, 2, 3], [7, 8])),
        _event("spawn", 1, "spawn", "lead"),
        _event("asks", 2, "tool_call", "w", turn=1, tool="search", tokens_out=1, extra=_call([4, 5], [9])),
        _event("result", 3, "tool_result", "w", turn=1, tool="search", extra={"call": {"address": "tool:1"}}),
        _event("returns", 4, "return", "w", turn=2, tokens_out=3, extra=_call([4, 5, 9, 6], [1, 2, 3])),
        _event("merge", 5, "aggregate", "lead"),
        _event("stops", 6, "orchestrator_decision", "lead", turn=2, decision="stop", tokens_out=1, extra=_call([1, 2, 3, 7, 8, 5], [2])),
    ]
    edges = [
        Edge("spawns", "spawn", "spawn"),
        Edge("spawn", "asks", "spawn"),
        Edge("asks", "result", "tool_dependency"),
        Edge("result", "returns", "tool_dependency"),
        Edge("asks", "returns", "causal"),
        Edge("returns", "merge", "aggregate"),
        Edge("spawns", "merge", "causal"),
        Edge("merge", "stops", "aggregate"),
    ]
    return Trace(trace_id=name, task_id="demo", events=events, edges=edges, rewards={"team": 1.0})


def _credit(*rows: tuple[str, str, float], additive: bool = False) -> Credit:
    declared = np.array([1.0]) if additive else None
    return Credit("ours", "?", additive, ("t1",), tuple(CreditRow(0, *row) for row in rows), declared)


def _advantages(*rows: tuple[str, str, float]) -> dict[str, tuple[str | None, float | None]]:
    return {row.event: (row.level, row.advantage) for row in call_rows([_team()], _credit(*rows)).rows}


def test_an_effect_belongs_to_the_call_that_caused_it_and_not_to_what_it_read() -> None:
    trace = _team()
    name = [e.id for e in trace.events]
    assert {name[a]: name[b] for a, b in cause_of(trace).items()} == {
        "spawns": "spawns",
        "spawn": "spawns",
        "asks": "asks",
        "result": "asks",
        "returns": "returns",
        "merge": "spawns",
        "stops": "stops",
    }


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (("team", "", 0.5), {"spawns": 0.5, "asks": 0.5, "returns": 0.5, "stops": 0.5}),
        (("orchestrator", "lead", 0.5), {"spawns": 0.5, "stops": 0.5}),
        (("orchestrator", "stops", 0.5), {"stops": 0.5}),
        (("role", "worker", 0.5), {"asks": 0.5, "returns": 0.5}),
        (("agent", "w", 0.5), {"asks": 0.5, "returns": 0.5}),
        (("turn", "w#2", 0.5), {"returns": 0.5}),
        (("message", "spawn", 0.5), {"spawns": 0.5}),
        (("tool", "result", 0.5), {"asks": 0.5}),
        (("token", "returns#1", 0.5), {"returns": 0.5}),
    ],
)
def test_any_of_the_eight_units_reaches_calls(row: tuple[str, str, float], expected: dict[str, float]) -> None:
    found = call_rows([_team()], _credit(row))
    assert {r.event: r.advantage for r in found.rows if r.level} == expected
    assert sum(r.share for r in found.rows) == pytest.approx(0.5)
    assert found.placement.unplaced == ()


def test_the_most_specific_unit_wins_and_what_it_replaced_is_said() -> None:
    rows = ("team", "", 1.0), ("agent", "w", 0.6), ("message", "returns", 0.25)
    assert _advantages(*rows) == {"spawns": ("team", 1.0), "asks": ("agent", 0.6), "returns": ("event", 0.25), "stops": ("team", 1.0)}
    placed = call_rows([_team()], _credit(*rows)).placement
    assert {k: float(v[0]) for k, v in placed.carried.items()} == {"event": 0.25, "agent": 0.3, "team": 0.5}
    assert {k: float(v[0]) for k, v in placed.replaced.items()} == {"event": 0.0, "agent": 0.3, "team": 0.5}


def test_an_additive_credit_sums_a_call_and_its_effects_and_another_keeps_the_calls_own_advantage() -> None:
    rows = ("message", "spawn", 0.5), ("message", "merge", 0.75), ("message", "spawns", -0.25)
    assert call_rows([_team()], _credit(*rows, additive=True)).rows[0].advantage == 1.0
    found = call_rows([_team()], _credit(*rows))
    assert (found.rows[0].advantage, float(found.placement.replaced["event"][0])) == (-0.25, 1.25)
    assert _advantages(*rows[:2])["spawns"] == ("event", 1.25)  # effects alone are the call's


def test_what_a_limit_forced_was_caused_by_nobody() -> None:
    trace = _team()
    events = [*trace.events[:-1], _event("stops", 6, "orchestrator_decision", "lead", decision="stop", policy="forced")]
    ended = Trace(trace_id="t1", task_id="demo", events=events, edges=list(trace.edges), rewards={"team": 1.0})
    found = call_rows([ended], _credit(("orchestrator", "stops", 0.5)))
    assert [(u.unit_id, u.value) for u in found.placement.unplaced] == [("stops", 0.5)]


def test_what_finds_no_call_is_reported_with_its_amount() -> None:
    found = call_rows([_team()], _credit(("agent", "ghost", 0.4), ("message", "lost", 0.1), ("token", "merge#0", 0.2), ("turn", "w#9", 0.3)))
    assert [(u.level, u.unit_id, u.value) for u in found.placement.unplaced] == [
        ("token", "merge#0", 0.2),
        ("event", "lost", 0.1),
        ("turn", "w#9", 0.3),
        ("agent", "ghost", 0.4),
    ]
    assert "no event 'lost'" in found.placement.unplaced[1].why
    assert all(r.level is None and r.advantage is None and r.token_advantages is None for r in found.rows)


def test_tokens_get_their_own_credit_or_that_of_their_call() -> None:
    rows = {r.event: r for r in call_rows([_team()], _credit(("token", "returns#0", 0.1), ("token", "returns#2", 0.3), ("team", "", 1.0))).rows}
    assert rows["returns"].token_advantages.tolist() == [0.1, 0.0, 0.3]  # type: ignore[union-attr]
    assert rows["spawns"].token_advantages.tolist() == [1.0, 1.0]  # type: ignore[union-attr]
    with pytest.raises(InputError, match="token 3 of event 'returns', which wrote 3"):
        call_rows([_team()], _credit(("token", "returns#3", 0.1)))


def test_prompts_are_kept_once_and_read_back_whole() -> None:
    found = call_rows([_team(), _team("t2")], Credit("ours", "?", False, ("t1", "t2"), ()))
    assert [(r.trace, r.event, r.prefix, r.shared) for r in found.rows] == [
        (0, "spawns", None, 0),
        (0, "asks", None, 0),
        (0, "returns", 1, 3),
        (0, "stops", 0, 5),
        (1, "spawns", None, 0),
        (1, "asks", None, 0),
        (1, "returns", 5, 3),
        (1, "stops", 4, 5),
    ]
    assert found.rows[2].prompt_rest.tolist() == [6]  # type: ignore[union-attr]
    assert [found.prompt_ids(i).tolist() for i in range(4)] == [[1, 2, 3], [4, 5], [4, 5, 9, 6], [1, 2, 3, 7, 8, 5]]  # type: ignore[union-attr]
    assert [r.group for r in found.rows] == ["demo"] * 8


def test_an_answer_that_was_put_there_was_not_sampled_and_a_failed_call_is_no_row() -> None:
    trace = _team()
    events = list(trace.events)
    events[2] = _event("asks", 2, "tool_call", "w", policy="forced", extra=_call([4], [9]))
    events[4] = _event("returns", 4, "return", "w", extra={"call": {"failed": "down"}})
    changed = Trace(trace_id="t1", task_id="demo", events=events, edges=list(trace.edges), rewards={"team": 1.0})
    found = call_rows([changed], _credit(("team", "", 1.0)))
    assert [(r.event, r.sampled) for r in found.rows] == [("spawns", True), ("asks", False), ("stops", True)]


def test_rows_are_a_table_with_whole_prompts() -> None:
    found = call_rows([_team()], _credit(("agent", "w", 0.5), ("agent", "ghost", 0.25)))
    table = found.to_arrow().to_pylist()
    assert table[2] == {
        "trace_id": "t1", "event_id": "returns", "agent": "w", "role": "worker", "model": None, "policy": None, "version": None,
        "group": "demo", "sampled": True, "level": "agent", "advantage": 0.5, "share": 0.25, "prompt_ids": [4, 5, 9, 6], "completion_ids": [1, 2, 3],
        "completion_mask": [1, 1, 1], "logps": [-0.5] * 3, "token_advantages": [0.5] * 3,
    }  # fmt: skip
    assert found.caption() == "4 model calls of 1 traces, 2 with an advantage; 1 amounts, 0.25 in all, found no call"


def test_credit_of_other_traces_is_refused() -> None:
    with pytest.raises(InputError, match="other traces"):
        call_rows([_team("t2")], _credit(("team", "", 1.0)))


IDS = ["spawns", "spawn", "asks", "result", "returns", "merge", "stops", "ghost"]
ROWS = st.one_of(
    st.tuples(st.sampled_from(["message", "tool", "orchestrator"]), st.sampled_from(IDS)),
    st.tuples(st.just("agent"), st.sampled_from(["lead", "w", "ghost"])),
    st.tuples(st.just("role"), st.sampled_from(["worker", "orchestrator", "critic"])),
    st.tuples(st.just("turn"), st.sampled_from(["lead#1", "w#1", "w#2", "w#3"])),
    st.tuples(st.just("team"), st.just("")),
    st.tuples(st.just("token"), st.sampled_from(["spawns#0", "returns#2", "merge#0"])),
)


@given(st.lists(st.tuples(ROWS, st.floats(-10, 10)), max_size=12))
def test_no_credit_is_lost(rows: list[tuple[tuple[str, str], float]]) -> None:
    unique = dict(rows)
    found = call_rows([_team()], _credit(*((*unit, value) for unit, value in unique.items())))
    carried, replaced = (sum(float(a[0]) for a in d.values()) for d in (found.placement.carried, found.placement.replaced))
    missing = sum(u.value for u in found.placement.unplaced)
    assert carried + replaced + missing == pytest.approx(sum(unique.values()), abs=1e-9)
    assert sum(r.share for r in found.rows) == pytest.approx(carried, abs=1e-9)


def test_the_prompt_of_an_agents_thousandth_call_is_whole() -> None:
    events, prompt = [], [1, 2, 3]
    for i in range(1_200):
        events.append(_event(f"e{i}", i, "message", "lead", tokens_out=2, extra=_call(prompt, [7, 8])))
        prompt = [*prompt, 7, 8, i] if i % 5 else [*prompt[:4], i]  # now and then most of it is forgotten
    trace = Trace(trace_id="t1", task_id="long", events=events, rewards={"team": 1.0})
    rows = call_rows([trace], _credit(("team", "", 1.0)))
    for place in (0, 4, 5, 6, 1_000, 1_199):
        found = rows.prompt_ids(place)
        assert found is not None
        assert found.tolist() == (events[place].extra or {})["call"]["prompt_ids"]
    straight = [replace_prompt(event, [1, 2, 3, *([7, 8] * i)]) for i, event in enumerate(events)]
    deep = call_rows([Trace(trace_id="t1", task_id="long", events=straight, rewards={"team": 1.0})], _credit(("team", "", 1.0)))
    last = deep.prompt_ids(1_199)
    assert last is not None
    assert last.tolist() == [1, 2, 3, *([7, 8] * 1_199)]


def replace_prompt(event: Event, prompt: list[int]) -> Event:
    """The event, had its call read this."""
    return _event(event.id, event.t, event.type, event.agent, tokens_out=2, extra=_call(prompt, [7, 8]))
