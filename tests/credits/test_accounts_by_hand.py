"""The ledger where it is easily missed: levels and their twins, leaves of a given tree, tolerances, orders and notes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from counterpoint.credits.accounts import FIXED, Ledger, LedgerEntry, projected
from counterpoint.credits.mechanisms.ledger import accounts, doob, draft_values, ledger, parts_of
from counterpoint.errors import InputError, NotFound, NotIdentified
from counterpoint.trace import Edge, Event, Trace


def built() -> Ledger:
    book = Ledger(10.0)
    book.refine((), {"orchestrator:o": 3.0, "role:r": 6.0, "prior": 1.0})
    book.refine(("role:r",), {"agent:a": 4.0, "agent:b": 2.0})
    book.refine(("role:r", "agent:a"), {"turn:a#0": 4.0})
    book.refine(("role:r", "agent:a", "turn:a#0"), {"message:m": 1.0, "tool:t": 3.0})
    book.refine(("role:r", "agent:a", "turn:a#0", "tool:t"), {"token:t#0": 3.0})
    return book


A = ("role:r", "agent:a")
T = (*A, "turn:a#0")


def test_levels_of_a_tree() -> None:
    book = built()
    above = {("orchestrator:o",): 3.0, ("prior",): 1.0}
    assert book.cut("team") == {(): 10.0}
    assert book.cut("role") == book.cut("orchestrator") == {**above, ("role:r",): 6.0}
    assert book.cut("agent") == {**above, A: 4.0, ("role:r", "agent:b"): 2.0}
    assert book.cut("turn") == {**above, T: 4.0, ("role:r", "agent:b"): 2.0}
    assert book.cut("tool") == book.cut("message")
    assert book.cut("message") == {**above, (*T, "message:m"): 1.0, (*T, "tool:t"): 3.0, ("role:r", "agent:b"): 2.0}
    assert book.cut("token")[(*T, "tool:t", "token:t#0")] == 3.0
    assert list(book.cut("agent")) == [("orchestrator:o",), A, ("role:r", "agent:b"), ("prior",)]  # in the order of booking
    with pytest.raises(InputError, match="no unit 'agnt'; did you mean 'agent'"):
        book.cut("agnt")
    assert set(book.leaves()) == {
        ("orchestrator:o",),
        ("prior",),
        (*T, "message:m"),
        (*T, "tool:t", "token:t#0"),
        ("role:r", "agent:b"),
    }


def test_bookings_in_their_order() -> None:
    book = Ledger(2)
    assert book.amounts == {(): 2.0}
    book.refine((), {"agent:a": 0.5, "environment": 0.25}, unidentified=0.25)
    assert book.entries == [
        LedgerEntry((), ("agent:a",), 0.5),
        LedgerEntry((), ("environment",), 0.25),
        LedgerEntry((), ("unidentified",), 0.25),
        LedgerEntry((), ("residual",), 1.0),
    ]
    assert book.children[()] == [("agent:a",), ("environment",), ("unidentified",), ("residual",)]
    book.refine(("environment",), {"event:e": 0.25})  # luck may be told apart
    assert book.fixed() == {"prior": 0.0, "environment": 0.25, "unidentified": 0.25, "residual": 1.0}
    exact = Ledger(1.0)
    exact.refine((), {"agent:a": 1.0})
    assert list(exact.amounts) == [(), ("agent:a",)]  # nothing is missed: no residual
    assert FIXED == ("prior", "environment", "unidentified", "residual")


def test_variances_leave_room_for_what_is_not_identified() -> None:
    book = Ledger(4.0)
    book.refine((), {"agent:a": 1.0, "agent:b": 1.0}, variances={"agent:a": 1.0, "agent:b": 3.0}, unidentified=1.0)
    assert book.leaves() == pytest.approx({("agent:a",): 1.25, ("agent:b",): 1.75, ("unidentified",): 1.0})
    assert projected({"a": 1.0}, {"a": 2.0}, 5.0) == {"a": 5.0}
    assert projected({"a": 1.0, "b": 1.0}, {"a": 0.0, "b": 1.0}, 5.0) == {"a": 1.0, "b": 4.0}
    for wrong in ({"b": 1.0}, {"a": -1.0}, {"a": math.nan}, {}):
        with pytest.raises(InputError, match="every amount needs a variance of at least 0"):
            projected({"a": 1.0}, wrong, 1.0)
    with pytest.raises(InputError, match="all variances are 0"):
        projected({"a": 1.0}, {"a": 0.0}, 1.0)


def test_refinements_that_are_refused() -> None:
    book = built()
    for account in (("prior",), ("role:r", "residual")):
        if account not in book.amounts:
            book.amounts[account] = 0.0
        with pytest.raises(InputError, match="is a fixed leaf"):
            book.refine(account, {"agent:x": 1.0})
    with pytest.raises(NotFound, match="no account team/role:q") as error:
        book.refine(("role:q",), {"agent:x": 1.0})
    assert "team/role:r" in str(error.value)
    with pytest.raises(InputError, match="team/role:r was refined before"):
        book.refine(("role:r",), {"agent:x": 1.0})
    free = ("role:r", "agent:b")
    for wrong in ({}, {"turn:b#0": math.inf}, {"unidentified": 1.0}, {"residual": 1.0}):
        with pytest.raises(InputError, match="a refinement names finite amounts") as error:
            book.refine(free, wrong)
        assert error.value.where == "team/role:r/agent:b"
    with pytest.raises(InputError, match="finite amounts"):
        book.refine(free, {"turn:b#0": 1.0}, unidentified=math.nan)
    for total in (math.nan, math.inf):
        with pytest.raises(InputError, match="not a finite number"):
            Ledger(total)


def test_a_ledger_of_given_leaves() -> None:
    book = Ledger.of(5.0, {("role:r", "agent:a"): 1.0, ("role:r", "agent:b"): 2.0, ("residual",): 0.5})
    assert book.amounts == {
        (): 5.0,
        ("role:r",): 3.0,
        ("residual",): 2.0,  # its own, and what is missing
        ("role:r", "agent:a"): 1.0,
        ("role:r", "agent:b"): 2.0,
    }
    assert book.children[()] == [("role:r",), ("residual",)]
    assert book.check() == 0.0
    assert Ledger.of(1.0, {("agent:a",): 1.0}).amounts["residual",] == 0.0
    with pytest.raises(InputError, match="the team's account cannot be refined"):
        Ledger.of(1.0, {(): 1.0})
    with pytest.raises(InputError, match="team/role:r is a leaf and has children"):
        Ledger.of(1.0, {("role:r",): 0.5, ("role:r", "agent:a"): 0.5})


def test_errors_are_measured_against_the_largest_amount() -> None:
    book = Ledger.of(1.0, {("agent:a",): 1.0})
    book.amounts["agent:a",] += 0.9e-9
    assert book.check() == pytest.approx(0.9e-9, rel=1e-3)
    book.amounts["agent:a",] += 0.2e-9
    with pytest.raises(InputError, match=r"the accounts miss the team reward by 1\.1e-09"):
        book.check()
    big = Ledger.of(0.0, {("agent:a",): 1e6, ("agent:b",): -1e6})
    big.amounts["agent:a",] += 0.9e-3
    assert big.check() == pytest.approx(0.9e-3, rel=1e-3)
    big.amounts["agent:a",] += 0.2e-3
    with pytest.raises(InputError, match="miss the team reward"):
        big.check()
    middle = built()  # two errors that cancel in the leaves show in the accounts
    middle.amounts["role:r",] += 0.5
    assert middle.error() == pytest.approx(0.5)
    lost = built()
    del lost.amounts[(*T, "message:m")], lost.amounts["prior",]
    with pytest.raises(InputError, match=r"account team/prior is missing \(2 were booked and are not there\)"):
        lost.check()




# -- the partition ------------------------------------------------------------------------------------------------------


def event(i: int, type_: str = "message", agent: str = "lead", **more: Any) -> Event:
    return Event(id=f"e{i}", t=float(i), type=type_, agent=agent, **more)


def small(**fields: Any) -> Trace:
    events = [
        event(0, "orchestrator_decision", role="boss", turn=0),
        event(1, "spawn", to="w", role="hand"),
        event(2, "tool_call", "w", tool="s", turn=0),
        event(3, "tool_result", "w", tool="s", turn=0),
        event(4, "aggregate", role="boss", turn=1, reward={"draft": 0.25}),
        event(5, "message", "x"),
    ]
    return Trace(trace_id="small", task_id="q", events=events, rewards={"team": 1.0, "other": 3.0}, **fields)


def test_the_last_value_is_the_reward_and_inputs_stay() -> None:
    value = np.array([0.25, 9.0])
    parts = doob(value, 1.0)
    assert (parts.prior, parts.skill_E.tolist(), parts.luck_E.tolist(), parts.split_E.tolist()) == (0.25, [0.75], [0.0], [False])
    assert value.tolist() == [0.25, 9.0]
    told = doob([0.0, 0.5, 0.0], 1.0, [math.nan, 0.75])
    assert (told.skill_E.tolist(), told.luck_E.tolist(), told.split_E.tolist()) == ([0.5, 0.25], [0.0, 0.25], [False, True])


def test_paths_of_events() -> None:
    book = accounts(small(), parts_of(small(), value=[0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 0.0]), 1.0)
    leaves = {a: x for a, x in book.leaves().items() if a[0].startswith(("orch", "role"))}
    assert leaves == {
        ("orchestrator:lead", "agent:lead", "turn:lead#0", "message:e0"): 1.0,
        ("orchestrator:lead", "agent:lead", "turn:lead#-", "message:e1"): 1.0,
        ("role:hand", "agent:w", "turn:w#0", "tool:e2"): 2.0,
        ("role:hand", "agent:w", "turn:w#0", "tool:e3"): 4.0,
        ("orchestrator:lead", "agent:lead", "turn:lead#1", "message:e4"): 8.0,
        ("role:x", "agent:x", "turn:x#-", "message:e5"): -15.0,
    }
    assert book.fixed() == {"prior": 0.0, "environment": 0.0, "unidentified": 0.0, "residual": 0.0}


def test_rows_and_notes() -> None:
    value, q = [0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.0], [math.nan, math.nan, 0.75, *[math.nan] * 3]
    credit = ledger([small(), small()], value=[value, [0.0] * 7], q=[q, [math.nan] * 6], unit="all")
    assert credit.of(0, "message") == {"e0": 0.0, "e1": 0.0, "e2": 0.25, "e3": 0.0, "e4": 0.0, "e5": 0.5}
    assert credit.of(0, "turn") == {"lead#0": 0.0, "lead#-": 0.0, "lead#1": 0.0, "w#0": 0.25, "x#-": 0.5}
    assert credit.of(0, "agent") == {"lead": 0.0, "w": 0.25, "x": 0.5}
    assert credit.of(0, "role") == {"boss": 0.0, "hand": 0.25, "x": 0.5}
    assert credit.of(1, "agent") == {"lead": 0.0, "w": 0.0, "x": 1.0}
    assert credit.declared is not None
    assert credit.declared.tolist() == [0.75, 1.0]
    first, second = credit.notes["traces"]
    assert (first["reward"], first["prior"], first["environment"], first["unidentified"], first["residual"]) == (
        1.0,
        0.5,
        -0.25,
        0.0,
        0.0,
    )
    assert (first["error"], second["environment"], credit.notes["critic"]) == (0.0, 0.0, "given")
    assert first["accounts"] == 1 + 3 + 3 + 5 + 6 + 4 + 1  # team, parts, agents, turns, events, fixed leaves, luck
    assert (credit.mechanism, credit.additive) == ("ledger", True)
    assert [r.unit for r in ledger(small(), value=value).rows] == ["message"] * 6
    assert ledger(small(), value=value, unit="role").of(0) == {"boss": 0.0, "hand": 0.0, "x": 0.5}
    assert ledger(small(), value=value, channel="other").of(0)["e5"] == 2.5
    assert ledger(small()).notes["critic"] == "drafts"
    with pytest.raises(InputError, match="no rows by 'mesage'; did you mean 'message'"):
        ledger(small(), unit="mesage")
    one = ledger([small(), small()], value=value)  # one row of numbers serves every trace
    assert one.of(0) == one.of(1)


def test_roles_of_two_agents_are_one_row() -> None:
    events = [
        event(0, agent="lead", role="boss"),
        event(1, agent="a", role="hand"),
        event(2, agent="b", role="hand"),
        event(3, agent="c", role="boss"),
    ]
    trace = Trace(trace_id="t", task_id="q", events=events, rewards={"team": 8.0})
    found = ledger(trace, value=[0.0, 1.0, 3.0, 7.0, 0.0], unit="role").of(0)
    assert found == {"boss": 2.0, "hand": 6.0}  # the orchestrator's account stands under its role


def test_drafts_follow_the_graph_and_not_the_file() -> None:
    events = [event(0, "aggregate", reward={"draft": 0.75}), event(1, "aggregate", reward={"draft": 0.25}), event(2)]
    edges = [Edge("e1", "e0", "causal"), Edge("e2", "e1", "causal")]
    trace = Trace(trace_id="t", task_id="q", events=events, edges=edges, rewards={"team": 1.0})
    assert draft_values(trace).tolist() == [0.0, 0.0, 0.25, 0.75]
    parts = parts_of(trace)
    assert parts.skill_E.tolist() == [0.75, 0.25, 0.0]  # by event: the last in the graph meets the reward
    with pytest.raises(NotIdentified, match="no critic and no draft scores") as error:
        draft_values(Trace(trace_id="bare", task_id="q", events=[event(0)]))
    assert error.value.where == "bare"


def test_critics_of_a_wrong_shape() -> None:
    trace = small()
    with pytest.raises(InputError, match=r"value has shape \(6,\), not \(7,\)") as error:
        ledger(trace, value=lambda t: [0.0] * 6)
    assert error.value.where == "small"
    with pytest.raises(InputError, match=r"q has shape \(7,\), not \(6,\)"):
        ledger(trace, value=[0.0] * 7, q=[0.0] * 7)
    with pytest.raises(InputError, match="a value is NaN or infinite") as error:
        ledger(trace, value=[0.0, math.inf, *[0.0] * 5])
    assert error.value.where == "small"
    assert ledger(trace, value=[*[0.0] * 6, math.nan]).of(0)["e5"] == 1.0  # the last is the reward, whatever it says
    with pytest.raises(InputError, match="extensions need critics that can be called"):
        ledger(trace, value=lambda t, o: [0.0] * 7, q=[0.0] * 6, extensions=1)
    with pytest.raises(InputError, match="q knows one order only"):
        ledger(trace, value=lambda t, o: [0.0] * 7, q=lambda t: [0.0] * 6, extensions=1)


def parallel() -> Trace:
    events = [event(0), event(1), event(2)]
    return Trace(trace_id="p", task_id="q", events=events, edges=[Edge("e0", "e2", "causal")], rewards={"team": 6.0})


def test_extensions_are_averages_over_orders() -> None:
    seen: list[list[int]] = []

    def value(trace: Trace, order: np.ndarray) -> list[float]:
        seen.append(order.tolist())
        return [1.0 if order[0] == 1 else 3.0, 2.0, 4.0, 0.0]

    def q(trace: Trace, order: np.ndarray) -> list[float]:
        return [2.0 + (order[0] == 1), math.nan, math.nan]

    parts = parts_of(parallel(), value=value, q=q, extensions=4, seed=3)
    assert len(seen) == 8
    assert all(order.index(0) < order.index(2) for order in seen)
    orders = len(set(map(tuple, seen)))
    assert orders > 1
    prior = np.mean([1.0 if o[0] == 1 else 3.0 for o in seen])
    assert parts.prior == pytest.approx(prior)
    skill, luck = np.zeros((8, 3)), np.zeros((8, 3))
    for k, o in enumerate(seen):
        v = [1.0 if o[0] == 1 else 3.0, 2.0, 4.0, 6.0]
        asked = 2.0 + (o[0] == 1)
        skill[k, o] = [asked - v[0], 2.0, 2.0]
        luck[k, o[0]] = 2.0 - asked
    assert parts.skill_E == pytest.approx(skill.mean(axis=0))
    assert parts.luck_E == pytest.approx(luck.mean(axis=0))
    assert parts.split_E.tolist() == [any(o[0] == e for o in seen) for e in range(3)]
    drawn = []
    for k, seed in ((0, 3), (0, 3), (0, 4), (1, 3), (2, 3), (3, 3)):
        seen.clear()
        parts_of(parallel(), k, value=value, q=q, extensions=4, seed=seed)
        drawn.append(str(seen))
    assert drawn[0] == drawn[1]
    assert drawn[0] != drawn[2]  # another seed
    assert len(set(drawn[2:])) > 2  # every trace of a batch has its own orders
    credit = ledger(parallel(), value=value, q=q, extensions=4, seed=3)
    assert credit.notes["traces"][0]["prior"] == pytest.approx(prior)
    assert credit.of(0) == pytest.approx({f"e{i}": s for i, s in enumerate(skill.mean(axis=0))})
