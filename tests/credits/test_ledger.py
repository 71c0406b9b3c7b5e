"""The ledger: accounts that always add up, refined once; the Doob partition of a team reward, exact for any critic."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import counterpoint as cpt
from counterpoint import registry
from counterpoint.credits.accounts import FIXED, Ledger, LedgerEntry, projected
from counterpoint.credits.games import extension
from counterpoint.credits.mechanisms.ledger import accounts, doob, draft_values, parts_of
from counterpoint.errors import InputError, NotFound, NotIdentified
from counterpoint.testing import synthetic_trace
from counterpoint.trace import Edge, Event, Trace

ledger = registry.get("mechanism", "ledger")
floats = st.floats(-1e6, 1e6, allow_nan=False)


def event(i: int, type_: str = "message", agent: str = "lead", **more) -> Event:
    return Event(id=f"e{i}", t=float(i), type=type_, agent=agent, **more)


def small_trace(reward: float = 1.0) -> Trace:
    """A lead decides, spawns a worker, is answered, drafts, passes over a decision and stops."""
    events = [
        event(0, "orchestrator_decision", decision="spawn", role="orchestrator", turn=0),
        event(1, "spawn", to="w", role="worker", turn=0),
        event(2, "tool_call", agent="w", role="worker", tool="find", turn=0),
        event(3, "return", agent="w", role="worker", to="lead", turn=0),
        event(4, "aggregate", role="orchestrator", turn=1, reward={"draft": 0.6}),
        event(5, "orchestrator_decision", decision="noop", role="orchestrator", turn=1),
        event(6, "orchestrator_decision", decision="stop", role="orchestrator", turn=2),
    ]
    edges = [Edge(f"e{i}", f"e{i + 1}", "causal") for i in range(6)]
    return Trace(trace_id="small", task_id="t", events=events, edges=edges, rewards={"team": reward})


# -- accounts --------------------------------------------------------------------------------------------------------


def test_a_refinement_books_what_it_misses_on_residual():
    book = Ledger(1.0)
    book.refine((), {"role:worker": 0.7, "prior": 0.1})
    assert book.amounts["residual",] == pytest.approx(0.2)
    book.refine(("role:worker",), {"agent:a": 0.5, "agent:b": 0.4})
    assert book.amounts["role:worker", "residual"] == pytest.approx(-0.2)
    assert book.fixed() == pytest.approx({"prior": 0.1, "environment": 0.0, "unidentified": 0.0, "residual": 0.0})
    assert book.entries[0] == LedgerEntry((), ("role:worker",), 0.7)
    assert math.fsum(book.leaves().values()) == pytest.approx(1.0, abs=1e-15)
    assert book.check() <= 1e-15


def test_with_variances_the_best_known_changes_least():
    # 1.0 is held, 1.3 was claimed, and b is known three times as badly: a gives 0.075, b 0.225.
    assert projected({"a": 0.8, "b": 0.5}, {"a": 1.0, "b": 3.0}, 1.0) == pytest.approx({"a": 0.725, "b": 0.275})
    book = Ledger(1.0)
    book.refine((), {"agent:a": 0.8, "agent:b": 0.5}, variances={"agent:a": 1.0, "agent:b": 3.0})
    assert book.amounts["agent:b",] == pytest.approx(0.275)
    assert abs(book.fixed()["residual"]) <= 1e-15
    with pytest.raises(InputError, match="variances are 0"):
        Ledger(1.0).refine((), {"a": 1.0}, variances={"a": 0.0})


def test_what_is_not_identified_has_its_own_leaf():
    book = Ledger(2.0)
    book.refine((), {"agent:a": 0.5}, unidentified=1.25)
    assert book.fixed() == pytest.approx({"prior": 0, "environment": 0, "unidentified": 1.25, "residual": 0.25})


def test_refining_twice_a_fixed_leaf_or_nothing_raises():
    book = Ledger(1.0)
    book.refine((), {"agent:a": 0.6, "prior": 0.4})
    with pytest.raises(InputError, match="refined before"):
        book.refine((), {"agent:b": 1.0})
    with pytest.raises(InputError, match="fixed leaf"):
        book.refine(("prior",), {"agent:b": 1.0})
    with pytest.raises(NotFound, match="no account team/agent:z"):
        book.refine(("agent:z",), {"agent:b": 1.0})
    with pytest.raises(InputError, match="finite"):
        book.refine(("agent:a",), {"turn:a#0": math.nan})
    with pytest.raises(InputError, match="residual to the ledger"):
        book.refine(("agent:a",), {"residual": 0.1})


@settings(max_examples=60, deadline=None)
@given(floats, st.lists(floats, min_size=2, max_size=12), st.data())
def test_leaves_always_hold_the_total_and_a_lost_leaf_is_noticed(total: float, amounts: list[float], data):
    book = Ledger(total)
    book.refine((), {f"agent:{i}": a for i, a in enumerate(amounts)})
    book.refine(("agent:0",), {f"turn:0#{i}": a for i, a in enumerate(reversed(amounts))})
    size = max(1.0, abs(total), sum(map(abs, amounts)))
    assert book.error() <= 1e-9 * size
    assert abs(math.fsum(book.cut("agent").values()) - math.fsum(book.cut("turn").values())) <= 1e-9 * size
    leaf = data.draw(st.sampled_from(sorted(book.leaves())))
    del book.amounts[leaf]
    with pytest.raises(InputError, match="missing"):
        book.check()


def test_a_changed_leaf_is_noticed():
    book = Ledger.of(1.0, {("role:w", "agent:a"): 0.25, ("role:w", "agent:b"): 0.5, ("prior",): 0.25})
    assert book.check() == 0.0
    book.amounts["role:w", "agent:a"] += 1e-6
    with pytest.raises(InputError, match="miss the team reward"):
        book.check()




# -- the Doob partition ----------------------------------------------------------------------------------------------


def test_skill_and_luck_by_hand():
    parts = doob([0.5, 0.6, 0.2, 0.0], 1.0, [0.7, math.nan, 0.9])
    assert parts.prior == 0.5
    assert parts.skill_E == pytest.approx([0.2, -0.4, 0.7])
    assert parts.luck_E == pytest.approx([-0.1, 0.0, 0.1])
    assert parts.prior + parts.skill_E.sum() + parts.luck_E.sum() == pytest.approx(1.0, abs=1e-15)


def test_accounts_of_a_small_trace():
    trace = small_trace()
    value = [0.4, 0.5, 0.5, 0.45, 0.6, 0.6, 0.58, 0.0]
    q = [0.55, *[math.nan] * 5, 0.9]
    book = accounts(trace, parts_of(trace, value=value, q=q), 1.0)
    assert book.amounts["orchestrator:lead",] == pytest.approx(0.15 + 0 + 0 - 0.02 + 0.32)
    assert book.amounts["role:worker", "agent:w"] == pytest.approx(-0.05 + 0.15)
    assert book.amounts["role:worker", "agent:w", "turn:w#0", "tool:e2"] == pytest.approx(-0.05)
    assert book.amounts["orchestrator:lead", "agent:lead", "turn:lead#2", "message:e6"] == pytest.approx(0.9 - 0.58)
    assert book.amounts["environment", "event:e0"] == pytest.approx(0.5 - 0.55)
    assert book.amounts["environment", "event:e6"] == pytest.approx(1.0 - 0.9)
    assert book.amounts["prior",] == 0.4
    assert {*FIXED} <= {a[0] for a in book.amounts if a}
    for unit in ("role", "agent", "turn", "message"):
        assert math.fsum(book.cut(unit).values()) == pytest.approx(1.0, abs=1e-15)


def test_every_level_of_rows_sums_to_what_events_earned_and_noops_have_rows():
    trace = small_trace()
    credit = ledger(trace, value=[0.4, 0.5, 0.5, 0.45, 0.6, 0.6, 0.58, 0.0], unit="all")
    assert credit.declared == pytest.approx([0.6])
    assert set(credit.of(0, "message")) == {f"e{i}" for i in range(7)}
    assert credit.of(0, "message")["e5"] == pytest.approx(-0.02)
    assert credit.of(0, "role") == pytest.approx({"orchestrator": 0.5, "worker": 0.1})
    assert credit.of(0, "turn")["lead#1"] == pytest.approx(-0.02)
    assert ledger(trace, value=lambda t: np.zeros(len(t.events) + 1)).of(0)["e6"] == 1.0


def test_without_a_critic_the_draft_scores_are_the_value():
    trace = small_trace(reward=0.5)
    assert draft_values(trace).tolist() == [0, 0, 0, 0, 0, 0.6, 0.6, 0.6]
    assert {k: v for k, v in ledger(trace).of(0).items() if v} == pytest.approx({"e4": 0.6, "e6": -0.1})
    with pytest.raises(NotIdentified, match="no critic and no draft scores"):
        ledger(synthetic_trace(3, 10))


def test_wrong_critics_are_one_clear_error():
    trace = small_trace()
    with pytest.raises(InputError, match=r"shape \(7,\), not \(8,\)"):
        ledger(trace, value=[0.0] * 7)
    with pytest.raises(InputError, match="NaN"):
        ledger(trace, value=[math.nan] * 8)
    with pytest.raises(InputError, match="can be called"):
        ledger(trace, value=[0.0] * 8, extensions=2)
    with pytest.raises(InputError, match="one order only"):
        ledger(trace, value=lambda t: [0.0] * 8, extensions=2)
    with pytest.raises(InputError, match="no rows by 'tokn'"):
        ledger(trace, unit="tokn")


@pytest.mark.parametrize("seed", [0, 1])
def test_the_partition_is_exact_at_ten_thousand_events_with_a_random_critic(seed: int):
    world = cpt.world("W1", vote_items=1000, max_agents=256)
    trace = world.run("reference", [seed], log=True).trace(0)
    n = len(trace.events)
    assert n > 10_000
    rng = np.random.default_rng(seed)
    value, q = rng.normal(0, 10, n + 1), np.where(rng.random(n) < 0.3, rng.normal(0, 10, n), np.nan)
    book = accounts(trace, parts_of(trace, value=value, q=q), trace.rewards["team"])
    leaves = book.leaves()
    assert abs(math.fsum(leaves.values()) - trace.rewards["team"]) <= 1e-9
    assert abs(book.fixed()["residual"]) <= 1e-9
    for unit in ("role", "agent", "turn", "message", "token"):
        assert abs(math.fsum(book.cut(unit).values()) - trace.rewards["team"]) <= 1e-9
    lost = next(a for a, x in leaves.items() if abs(x) > 1e-6)
    del book.amounts[lost]
    with pytest.raises(InputError, match="missing"):
        book.check()


def test_parallel_events_share_what_their_order_would_decide():
    # Two tools answer in parallel; the first to arrive is worth 1, the second nothing. Averaged over both orders: half each.
    events = [event(0), event(1, "tool_result", tool="a"), event(2, "tool_result", tool="b"), event(3)]
    edges = [Edge(s, d, "causal") for s, d in (("e0", "e1"), ("e0", "e2"), ("e1", "e3"), ("e2", "e3"))]
    trace = Trace(trace_id="p", task_id="p", events=events, edges=edges, rewards={"team": 1.0})
    first = lambda t, order: np.array([0.0, 0.0, 1.0, 1.0, 1.0])  # noqa: E731
    assert ledger(trace, value=lambda t: first(t, None)).of(0) == pytest.approx({"e0": 0, "e1": 1, "e2": 0, "e3": 0})
    # One antithetic pair holds both orders of two events.
    assert ledger(trace, value=first, extensions=1).of(0) == pytest.approx({"e0": 0, "e1": 0.5, "e2": 0.5, "e3": 0})


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6))
def test_an_average_over_extensions_is_exact_too(seed: int):
    trace = synthetic_trace(4, 12, "swarm", seed=seed % 7)
    rng = np.random.default_rng(seed)
    assert (np.diff(trace.graph.rank[[trace.graph.src, trace.graph.dst]], axis=0) > 0).all()
    order = extension(trace.graph, rng.random(trace.graph.n))
    place = np.argsort(order)
    assert (place[trace.graph.src] < place[trace.graph.dst]).all()
    scored = Trace(trace_id="s", task_id="s", events=trace.events, edges=trace.edges, rewards={"team": 3.0})
    credit = ledger(scored, value=lambda t, o: rng.normal(size=len(o) + 1), extensions=3, seed=seed)
    note = credit.notes["traces"][0]
    total = math.fsum([*credit.of(0).values(), note["prior"], note["environment"], note["residual"]])
    assert abs(total - 3.0) <= 1e-9
