"""A draft is a sound trace, whatever an importer puts down."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.audits.facts import Facts
from counterpoint.audits.hacks import hacks
from counterpoint.formats.draft import Draft, ordered
from counterpoint.formats.importing.usage import PRICES, Prices, Usage
from counterpoint.trace import Trace
from counterpoint.trace.check import problems
from counterpoint.trace.vocabulary import EDGE_TYPES, EVENT_TYPES

NAMES = st.sampled_from(["main", "a", "b", "c", "\ud800x", ""])
TIMES = st.one_of(st.none(), st.floats(0, 100), st.just(float("nan")), st.just(float("inf")))


def made(draft: Draft) -> Trace:
    (trace,) = draft.traces()
    return trace


def errors(trace: Trace) -> list[str]:
    return [str(p) for p in problems(trace) if p.severity == "error"]


@st.composite
def drafts(draw: st.DrawFn) -> Draft:
    draft = Draft("t", "t", system="test")
    n = draw(st.integers(1, 12))
    for i in range(n):
        draft.event(
            draw(st.sampled_from(EVENT_TYPES)),
            draw(NAMES),
            id=draw(st.sampled_from([None, "x", "y", f"e{i}"])),
            at=draw(TIMES),
            to=draw(st.one_of(st.none(), NAMES)),
            tokens_in=draw(st.sampled_from([None, 3, -1, "7", 2.5, float("nan"), True, 10**30])),
            dur=draw(st.sampled_from([None, 1.5, -2, "3", float("inf")])),
            ok=draw(st.sampled_from([None, True, "yes"])),
            decision=draw(st.sampled_from([None, "stop"])),
            text=draw(st.sampled_from([None, "", "hello", "\udc00"])),
        )
    ids = [*draft.rows, "nowhere"]
    for _ in range(draw(st.integers(0, 25))):
        draft.edge(draw(st.sampled_from(ids)), draw(st.sampled_from(ids)), draw(st.sampled_from(EDGE_TYPES)))
    return draft


@given(drafts())
def test_check_finds_no_error(draft: Draft) -> None:
    trace = made(draft)
    assert errors(trace) == []
    assert len(trace.events) == len(draft.rows)


@given(
    st.lists(st.floats(0, 9), min_size=1, max_size=9).flatmap(
        lambda t: st.tuples(
            st.just(t), st.lists(st.tuples(st.integers(0, len(t) - 1), st.integers(0, len(t) - 1)).filter(lambda e: e[0] != e[1]))
        )
    )
)
def test_order_keeps_every_event_and_every_edge_it_can(case: tuple[list[float], list[tuple[int, int]]]) -> None:
    times, edges = case
    order, mended, dropped = ordered(times, edges)
    place = {i: k for k, i in enumerate(order)}
    assert sorted(order) == list(range(len(times)))
    kept = [edge for k, edge in enumerate(edges) if k not in dropped]
    assert all(place[s] < place[d] and mended[s] <= mended[d] for s, d in kept)
    assert all(m >= t for m, t in zip(mended, times, strict=True))
    if all(s < d for s, d in edges):
        assert not dropped


def test_parent_links_are_believed_before_clocks() -> None:
    draft = Draft("t", "t", system="test")
    cause = draft.event("tool_call", "main", at=10.0)
    effect = draft.event("tool_result", "main", at=4.0)
    draft.edge(cause, effect, "tool_dependency")
    trace = made(draft)
    assert [e.id for e in trace.events] == [cause, effect]
    assert [e.t for e in trace.events] == [6.0, 6.0]
    assert [e.at for e in trace.events] == [10.0, 4.0]
    assert trace.meta["import"]["mended"] == {"times that contradict the order of the records": 1}


def test_a_team_of_lanes() -> None:
    draft = Draft("t", "t", system="test")
    main = draft.lane("main", leads=True)
    main.prompt("do it", at=0.0)
    main.step(end=2.0, text="I will ask two", usage=Usage(10, 5, 0, 7), model="claude-sonnet-4-5")
    for child in ("a", "b"):
        main.spawn(child, role="Explore", text="look", at=2.0)
        lane = draft.lane(child)
        lane.step(end=3.0, only_calls=True, usage=Usage(1, 0, 0, 1))
        lane.call("WebFetch", call="c1", at=3.0)
        lane.result("c1", "evil", at=5.0)
        lane.step(end=6.0, text="found")
        lane.returns("main")
    main.step(end=8.0, text="done")
    main.stops()
    trace = made(draft)
    assert errors(trace) == []
    kinds = [e.type for e in trace.events]
    assert kinds.count("spawn") == 2
    assert kinds.count("return") == 2
    assert kinds.count("aggregate") == 1
    assert kinds.count("message") == 0
    edges = {(e.src, e.dst, e.type) for e in trace.edges}
    by = {e.id: e for e in trace.events}
    assert sum(k == "aggregate" and by[s].type == "return" for s, _, k in edges) == 2
    assert sum(k == "spawn" and by[d].type == "tool_call" for _, d, k in edges) == 2
    flows = [(by[s].type, by[d].type) for s, d, k in edges if k == "safety_flow"]
    assert flows == [("tool_result", "return")] * 2
    calls = [e for e in trace.events if e.type == "tool_call"]
    assert all(e.tokens_in == 1 and e.dur == 2.0 for e in calls)
    first = next(e for e in trace.events if e.type == "orchestrator_decision")
    assert (first.tokens_in, first.tokens_out, first.dur, first.decision) == (15, 7, 2.0, "spawn")
    # 10 fresh at 3 $, 5 read from the cache at 0.3 $, 7 written at 15 $, per million.
    assert first.cost_usd == pytest.approx((30 + 1.5 + 105) / 1e6)
    assert trace.topology == "centralized"


@pytest.mark.parametrize(
    ("model", "price"),
    [
        ("gpt-5", 1.25),
        ("gpt-5-2026-01-01", 1.25),
        ("openai/gpt-5-mini", 0.25),
        ("us.anthropic.claude-sonnet-4-20250514-v1:0", 3),
        ("gpt-50", None),
        ("gpt-5.9", None),
        ("llama", None),
        ("", None),
        (None, None),
    ],
)
def test_prices_go_by_the_exact_name(model: str | None, price: float | None) -> None:
    found = PRICES.of(model)
    assert (found.input if found else None) == price


def test_a_price_file_wins_and_says_what_it_lacks() -> None:
    prices = Prices.with_file({"llama": {"input": 1, "output": 2}}, where="prices.toml")
    assert prices.cost("org/Llama", Usage(1_000_000, 0, 0, 1_000_000)) == 3
    assert prices.cost("llama-4", Usage(1)) is None
    assert prices.of("gpt-5") == PRICES.of("gpt-5")
    for row in ({"input": 1}, {"input": 1, "output": -2}, 3, {}):
        with pytest.raises(ValueError, match="llama"):
            Prices.with_file({"llama": row}, where="prices.toml")


@pytest.mark.parametrize(
    ("usage", "wanted"),
    [
        (Usage.anthropic({"input_tokens": 3, "cache_read_input_tokens": 10, "output_tokens": 2}), (13, 2)),
        (Usage.anthropic({}), None),
        (Usage.whole(13, 2, cached=10), (13, 2)),
        (Usage.whole("13", "2", cached=50), (13, 2)),
        (Usage.whole(None, None), None),
    ],
)
def test_input_means_the_same_for_all_vendors(usage: Usage | None, wanted: Any) -> None:
    assert (None if usage is None else (usage.input, usage.output)) == wanted


def test_thinking_aloud_is_no_message_between_agents() -> None:
    draft = Draft("t", "t", system="test")
    main = draft.lane("main", leads=True)
    main.step(at=0.0, text="go")
    main.spawn("a", at=1.0)
    lane = draft.lane("a")
    for k in range(5):
        lane.step(at=2.0 + k, text=f"step {k}")
        lane.call("Read", call=f"c{k}", at=2.5 + k)
        lane.result(f"c{k}", "text", at=2.8 + k)
    lane.step(at=9.0, text="done")
    lane.returns("main")
    main.step(at=10.0, text="thanks")
    trace = made(draft)
    assert sum(e.type == "message" for e in trace.events) == 5
    assert Facts(trace).messages == []
    assert {f.hack: f.status for f in hacks(trace)}["communication_padding"] != "found"
