"""Lanes cell by cell: which kind an event is, who shares a lane, how time is folded, what a cell shows; and the card of a notebook."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from counterpoint.app.viewer import notebook as picture
from counterpoint.app.viewer.notebook import LIMIT
from counterpoint.app.viewer.notebook import picture as card
from counterpoint.trace import Edge, Event, Trace
from counterpoint.trace.lanes import EMPTY, FAMILIES, KINDS, WAIT, Clock, Lane, cells, folded, kind_of, stem
from counterpoint.trace.rows import Shares
from counterpoint.trace.team import TraceTeam

KIND = {kind.name: k for k, kind in enumerate(KINDS)}
LETTER = {EMPTY: ".", WAIT: "-"} | {k: kind.ascii for k, kind in enumerate(KINDS)}


def ev(name: str, t: float, agent: str, type_: Any = "message", **fields: Any) -> Event:
    return Event(id=name, t=t, type=type_, agent=agent, **fields)


def trace(events: list[Event], edges: list[tuple[str, str]] | None = None, **fields: Any) -> Trace:
    return Trace(trace_id="t", task_id="q", events=events, edges=[Edge(a, b, "causal") for a, b in edges or []], **fields)


# -- kinds and names ---------------------------------------------------------------------------------------------


def test_kinds_and_their_signs() -> None:
    """Every picture and the page's legend use them: a change is seen by people."""
    assert [(k.name, k.family, k.glyph, k.ascii) for k in KINDS] == [
        ("think", 0, "█", "#"),
        ("tool", 1, "⚙", "*"),
        ("message", 2, "✉", "@"),
        ("delegate", 2, "◇", "o"),
        ("spawn", 2, "▷", ">"),
        ("return", 3, "◁", "<"),
        ("aggregate", 3, "◆", "+"),
        ("stop", 4, "■", "="),
        ("error", 4, "✕", "x"),
    ]
    assert [f.name for f in FAMILIES] == ["think", "act", "coordinate", "merge", "stop, error"]
    assert (EMPTY, WAIT) == (-2, -1)


@pytest.mark.parametrize(
    ("type_", "fields", "kind"),
    [
        ("orchestrator_decision", {}, "think"),
        ("orchestrator_decision", {"decision": "delegate"}, "delegate"),
        ("orchestrator_decision", {"decision": "stop"}, "stop"),
        ("orchestrator_decision", {"decision": "spawn"}, "think"),
        ("spawn", {}, "spawn"),
        ("despawn", {}, "stop"),
        ("message", {}, "message"),
        ("tool_call", {}, "tool"),
        ("tool_result", {"ok": True}, "tool"),
        ("tool_result", {"ok": False}, "error"),
        ("message", {"ok": False}, "message"),
        ("message", {"error": ""}, "error"),
        ("return", {}, "return"),
        ("aggregate", {}, "aggregate"),
        ("human_intervention", {}, "message"),
        ("safety_event", {}, "stop"),
        ("orchestrator_decision", {"decision": "stop", "ok": False}, "error"),
    ],
)
def test_what_kind_an_event_is(type_: str, fields: dict[str, Any], kind: str) -> None:
    assert kind_of(ev("e", 0, "a", type_, **fields)) == KIND[kind]


@pytest.mark.parametrize(
    ("name", "bare"), [("reader-12", "reader"), ("reader_ #3", "reader"), ("a1b2", "a1b"), ("7", "7"), ("-7", "-7"), ("plain", "plain")]
)
def test_a_stem_is_the_name_without_its_number(name: str, bare: str) -> None:
    assert stem(name) == bare


# -- who shares a lane -------------------------------------------------------------------------------------------


def test_siblings_alike_share_a_lane_and_so_do_their_children() -> None:
    rows = [("lead", "r-1", "reader"), ("lead", "critic", None), ("lead", "r-2", "reader"), ("lead", "r-3", "writer"), ("r-1", "h1", None), ("r-2", "h2", None)]
    events = [ev(f"s{k}", k, a, "spawn", to=b, role=r) for k, (a, b, r) in enumerate(rows)]
    events += [ev("u1", 9, "user"), ev("x1", 10, "x1", "tool_result", tool="x"), ev("x2", 11, "x2", "tool_result", tool="x")]
    team = TraceTeam(trace(events))
    lanes = folded(team)
    assert [(x.label(), x.parent, x.depth, x.role) for x in lanes] == [
        ("lead", -1, 0, None),
        ("r ×2", 0, 1, "reader"),
        ("h ×2", 1, 2, None),
        ("critic", 0, 1, None),
        ("r-3", 0, 1, "writer"),
        ("user", -1, 0, None),
        ("x1", -1, 0, None),  # tools are no members: alike or not, they stay apart
        ("x2", -1, 0, None),
    ]
    assert [x.name for x in folded(team, is_whole=True)] == ["lead", "r-1", "h1", "critic", "r-2", "h2", "r-3", "user", "x1", "x2"]
    assert lanes[1].label("x") == "r x2"
    numbered = TraceTeam(trace([ev(f"s{k}", k, "lead", "spawn", to=f"lead.{k}", role="worker") for k in (1, 2)]))
    assert [lane.label() for lane in folded(numbered)] == ["lead", "worker ×2"]
    assert sorted(a for lane in lanes for a in lane.agents) == list(range(len(team)))


def test_who_only_answers_for_another_has_no_lane() -> None:
    call, answer = ev("c", 0, "w", "tool_call", tool="s"), ev("r", 1, "s", "tool_result", tool="s")
    assert [x.name for x in folded(TraceTeam(trace([call, answer], [("c", "r")])))] == ["w"]
    assert folded(TraceTeam(trace([]))) == []


# -- time --------------------------------------------------------------------------------------------------------


def placed(clock: Clock, *times: float) -> list[float]:
    return [round(float(x), 9) for x in clock.place(np.array(times, float))]


def test_time_without_silences_is_a_straight_line() -> None:
    clock = Clock(np.array([10.0, 14.0]), np.array([12.0, 20.0]))
    assert (clock.start, clock.end, clock.gaps) == (10.0, 20.0, [])
    assert placed(clock, 10, 12.5, 20) == [0.0, 0.25, 1.0]
    assert placed(Clock(np.array([3.0]), np.array([3.0])), 3) == [0.0]
    assert placed(Clock(np.empty(0), np.empty(0)), 0) == [0.0]


def test_a_silence_longer_than_the_longest_takes_a_fiftieth_of_the_rest() -> None:
    start, end = np.array([1050.0, 0.0, 10.0, 1000.0]), np.array([1100.0, 50.0, 20.0, 1010.0])
    clock = Clock(start, end)
    assert clock.gaps == [(50.0, 1000.0)]
    total = 150 + 3
    assert placed(clock, 0, 50, 1000, 1100) == [0.0, round(50 / total, 9), round(53 / total, 9), 1.0]
    assert placed(clock, 525) == [round(51.5 / total, 9)]
    assert Clock(start, end, longest=950.0).gaps == []
    assert Clock(start, end, longest=949.0).gaps == [(50.0, 1000.0)]
    assert Clock(np.array([0.0, 300.0, 601.0]), np.array([0.0, 300.0, 601.0])).gaps == [(300.0, 601.0)]
    two = Clock(np.array([0.0, 1000.0, 2000.0]), np.array([50.0, 1050.0, 2050.0]))
    assert two.gaps == [(50.0, 1000.0), (1050.0, 2000.0)]
    assert placed(two, 50, 1000, 1050, 2000) == [round(x / 156, 9) for x in (50, 53, 103, 106)]


# -- cells -------------------------------------------------------------------------------------------------------


def drawn(events: list[Event], width: int = 10, path: list[int] | None = None, lanes: list[Lane] | None = None) -> Any:
    team = TraceTeam(trace(events))
    return cells(team, folded(team) if lanes is None else lanes, width, path or [])


def letters(rows: Any) -> list[str]:
    return ["".join(LETTER[k] for k in row) for row in rows.tolist()]


def test_a_cell_shows_what_took_most_of_it() -> None:
    events = [ev("a", 0, "w", "orchestrator_decision", dur=4), ev("b", 4, "w", "tool_call", dur=2), ev("c", 8, "v", "tool_call", dur=2)]
    found = drawn(events)
    assert letters(found.kind) == ["####**....", "........**"]
    assert letters(found.most) == letters(found.kind)
    assert found.busy.round(3).tolist() == [1, 1, 1, 1, 1, 1, 0, 0, 1, 1]
    assert not found.on_path.any()
    # Half of a cell for each: the first kind; a little more of one: that.
    assert letters(drawn([ev("a", 0, "w", "tool_call", dur=3), ev("b", 3, "w", "orchestrator_decision", dur=2)], 2).kind) == ["*#"]


def test_between_first_and_last_an_agent_waits() -> None:
    events = [ev("a", 0, "v", "tool_call", dur=10), ev("b", 2, "w", "tool_call", dur=1), ev("c", 7, "w", "tool_call", dur=1)]
    assert letters(drawn(events).kind) == ["**********", "..*----*.."]


def test_marks_lie_over_what_took_time_and_the_later_kind_over_the_earlier() -> None:
    events = [
        ev("a", 0, "w", "tool_call", dur=10),
        ev("b", 3, "w", "spawn", to="z"),
        ev("c", 3, "w", "return"),
        ev("d", 5, "w", "orchestrator_decision", decision="delegate"),
        ev("e", 7, "w", "message"),
        ev("f", 8, "w", "tool_result", ok=False),
        ev("z", 9, "z", "message"),
    ]
    found = drawn(events)
    assert letters(found.kind) == ["***<*o**x*", ".........@"]
    assert letters(found.most) == ["**********", ".........@"]


def test_a_despawn_shows_only_where_nothing_else_is() -> None:
    events = [ev("a", 0, "w", "tool_call", dur=4), ev("d", 2, "w", "despawn", to="v"), ev("e", 7, "w", "despawn", to="v"), ev("b", 9, "w", "tool_call", dur=1)]
    assert letters(drawn(events).kind) == ["****---=-*"]
    assert letters(drawn([*events, ev("s", 3, "w", "orchestrator_decision", decision="stop")]).kind) == ["***=---=-*"]


@pytest.mark.parametrize(("others", "shown"), [(7, "x"), (8, "@")])
def test_one_mark_in_a_crowd_is_not_the_cell(others: int, shown: str) -> None:
    crowd = [ev(f"m{k}", 0, "w", "message", dur=1) for k in range(others)]
    end = ev("z", 9, "w", "message", dur=1)
    assert letters(drawn([*crowd, ev("x", 0, "w", "tool_call", ok=False), end]).kind)[0][0] == shown
    assert letters(drawn([*crowd, ev("x", 0, "w", "orchestrator_decision", decision="stop"), end]).kind)[0][0] == "="


def test_what_is_no_work_takes_no_time() -> None:
    events = [ev("s", 0, "w", "spawn", to="v", dur=10), ev("h", 0, "w", "human_intervention", dur=10), ev("a", 8, "v", "tool_call", dur=2)]
    found = drawn(events)
    assert letters(found.kind) == [">.........", "........**"]
    assert found.busy.round(3).tolist() == [0] * 8 + [1, 1]


def test_where_the_critical_path_goes_and_how_many_work() -> None:
    events = [ev("a", 0, "r1", "tool_call", dur=5), ev("b", 0, "r2", "tool_call", dur=10), ev("c", 5, "r1", "tool_call", dur=5), ev("d", 0, "w", "tool_call", dur=10)]
    found = drawn(events, path=[0, 3])
    assert letters(found.kind) == ["**********"] * 2
    assert found.on_path.astype(int).tolist() == [[1] * 5 + [0] * 5, [1] * 10]
    assert found.busy.round(2).tolist() == [3.0] * 10
    # Two calls of one agent at once are one agent at work.
    twice = drawn([ev("a", 0, "w", "tool_call", dur=10), ev("b", 0, "w", "tool_call", dur=10)])
    assert twice.busy.round(2).tolist() == [1.0] * 10


def test_only_the_lanes_asked_for_are_drawn() -> None:
    events = [ev("a", 0, "v", "tool_call", dur=5), ev("b", 5, "w", "tool_call", dur=5)]
    lanes = folded(TraceTeam(trace(events)))
    found = drawn(events, lanes=lanes[1:], path=[0, 1])
    assert letters(found.kind) == [".....*****"]
    assert found.on_path.astype(int).tolist() == [[0] * 5 + [1] * 5]
    assert drawn(events, lanes=[]).kind.shape == (0, 10)
    assert drawn([], 5).kind.shape == (0, 5)


# -- the card ----------------------------------------------------------------------------------------------------

WORK = [ev("a", 0, "lead", "orchestrator_decision", dur=50), ev("s", 50, "lead", "spawn", to="w"), ev("b", 50, "w", "tool_call", dur=50)]
WORKED = trace(WORK, [("a", "s"), ("s", "b")], rewards={"team": 0.12345}, costs={"tokens": 1234.4, "cost_usd": 1.5, "wall_clock_s": 100}, topology="swarm")


def test_the_title_says_who_what_and_how_much() -> None:
    html = card(WORKED)
    assert "R 0.1235 · 2 agents · 3 events · 1,234 tokens · $1.50 · 100.0 s · swarm" in html
    assert '<b>t</b> <span class="s" style="color:#595959">of q</span><br>' in html
    assert "1 agent · 1 event · unknown topology" in card(trace([ev("a", 0, "x")]))
    assert "Credit by agent" not in html


def paths(html: str, name: str) -> list[str]:
    return re.findall(rf'<path class="{name}"[^>]* d="([^"]*)"/>', html)


def test_bars_lie_where_the_time_was_spent() -> None:
    """The picture is 900 wide with 190 for the labels, so 710 for 100 seconds, in cells of 4; a row is 22 high."""
    html = card(WORKED)
    assert 'viewBox="0 0 900 64"' in html
    half = (900 - 190) // 4 / 2
    [think] = paths(html, "f0")
    x, y, wide = map(float, re.fullmatch(r"M(\d+) (\d+)h(\d+)", think).groups())  # type: ignore[union-attr]
    assert (x, y) == (190, 34)
    assert abs(wide - 4 * half) <= 4
    [tool] = paths(html, "f1")
    x, y, wide = map(float, re.fullmatch(r"M(\d+) (\d+)h(\d+)", tool).groups())  # type: ignore[union-attr]
    assert (y, x + wide) == (56, 190 + 4 * 177)
    assert abs(wide - 4 * half) <= 4
    assert 'stroke-width="8" fill="none" stroke-dasharray="3 1"' in html
    assert len(paths(html, "p")) == 2  # both rows are on the critical path, six below the bar
    assert {p.split(" ")[1].split("h")[0] for p in paths(html, "p")} == {"40", "62"}
    assert '<text class="g2" fill="#AA3377" font-size="9" y="28" x="540">▷</text>' in html
    assert 'x="0" y="38" font-size="12" fill="#1B1B1B" class="t">lead</text>' in html
    assert 'x="10" y="60" font-size="12" fill="#1B1B1B" class="t">w</text>' in html
    assert "█ think &nbsp; ⚙ tool &nbsp; ▷ spawn &nbsp; thin line: waits &nbsp; underlined: critical path" in html


def test_the_ruler_begins_at_zero_and_names_the_silences() -> None:
    html = card(WORKED)
    assert '<text class="s" fill="#595959" font-size="11" x="190" y="12">0 s</text>' in html
    assert 'x="900" y="12" text-anchor="end">1m40</text>' in html
    assert "idle" not in html
    quiet = card(trace([ev("a", 0, "w", "tool_call", dur=10), ev("b", 4010, "w", "tool_call", dur=10)]))
    assert "1h07 idle</text>" in quiet
    assert 'd="M545 16V42"' in quiet  # the middle of 190 to 900, as high as one row
    many = [ev(f"e{k}", 1000 * k, "w", "tool_call", dur=1) for k in range(12)]
    assert card(trace(many)).count(" idle</text>") == 8


def test_lanes_beyond_the_first_are_counted() -> None:
    def alone(n: int) -> Trace:
        return trace([ev(f"e{k}", k, f"{chr(97 + k // 26)}{chr(97 + k % 26)}", "tool_call", dur=1) for k in range(n)])

    assert "more agents" not in card(alone(24))
    assert "and 1 more agents in 1 lanes" in card(alone(25))
    assert "and 16 more agents in 16 lanes" in card(alone(40))
    assert "Lanes of 40 agents over time" in card(alone(40))


def test_a_text_is_cut_cleaned_and_escaped() -> None:
    assert picture._text("x" * 40) == "x" * 40
    assert picture._text("x" * 41) == "x" * 39 + "…"
    assert picture._text("abcdef", 5) == "abcd…"
    assert picture._text("abcde", 5) == "abcde"
    assert picture._text("<a>\u202e&\n") == "&lt;a&gt;\ufffd&amp;\ufffd"


def test_glyphs_do_not_lie_on_each_other_and_the_later_kind_goes_first() -> None:
    kinds = np.full(20, WAIT, np.int8)
    kinds[[3, 5, 6, 12]] = KIND["spawn"]
    kinds[4] = KIND["error"]
    kinds[15] = KIND["delegate"]
    kinds[17] = KIND["message"]
    assert picture._glyphs(kinds) == {KIND["error"]: [4], KIND["spawn"]: [12], KIND["delegate"]: [15]}
    kinds[4] = WAIT
    assert picture._glyphs(kinds)[KIND["spawn"]] == [3, 6, 12]
    edge = np.full(4, WAIT, np.int8)
    edge[[0, 3]] = KIND["error"]
    assert picture._glyphs(edge) == {KIND["error"]: [0, 3]}
    one = np.array([WAIT, KIND["spawn"], WAIT, KIND["error"]])
    assert picture._glyphs(one) == {KIND["error"]: [3]}


def test_runs_of_cells_are_one_stroke_each() -> None:
    where = np.array([True, True, False, True])
    assert picture._line(where, 5, 2, "3 1", "n", "red") == (
        '<path class="n" stroke="red" stroke-width="2" fill="none" stroke-dasharray="3 1" d="M190 5h8M202 5h4"/>'
    )
    assert "dasharray" not in picture._line(where, 5, 2, "", "n", "red")
    assert picture._line(~where & where, 5, 2, "", "n", "red") == ""


# -- the credit bar ----------------------------------------------------------------------------------------------


def bar(agents: dict[str, float], unassigned: float = 0.0, method: str = "shapley") -> str:
    names = list(agents)
    lanes = [Lane(n, (k,), -1, 0, None) for k, n in enumerate(names)]
    return picture._credit(Shares(method, sum(agents.values()) + unassigned, agents, unassigned), lanes, names)


def rects(html: str) -> list[tuple[str, float, float, str]]:
    found = re.findall(r'<rect class="(\w+)" fill="[^"]*" fill-opacity="([\d.]+)" x="([\d.]+)" y="2" width="([\d.]+)"', html)
    return [(name, float(x), float(w), opacity) for name, opacity, x, w in found]


def test_what_was_earned_lies_right_of_the_line_and_what_was_lost_left() -> None:
    html = bar({"a": 2.0, "b": -1.0, "c": 1.0, "none": 0.0})
    assert rects(html) == [("up", 226.0, 447.0, "1"), ("dn", 2.0, 223.0, "0.7"), ("up", 674.0, 223.0, "1")]
    assert 'd="M226.0 0v18"' in html
    assert "<div>R 2 by shapley: a <b>+2</b> · b <b>-1</b> · c <b>+1</b></div>" in html
    assert rects(bar({"a": 1.0, "b": -2.0, "c": -1.0})) == [("dn", 226.0, 447.0, "1"), ("up", 674.0, 223.0, "0.7"), ("dn", 2.0, 223.0, "1")]


def test_the_rest_and_the_unassigned_have_bars_of_their_own() -> None:
    html = bar({f"n{k}": 12.0 - k for k in range(12)}, unassigned=0.5)
    assert len(rects(html)) == 12
    assert "2 more <b>+3</b> · unassigned <b>+0.5</b>" in html
    assert "more" not in bar({f"n{k}": 1.0 for k in range(10)})
    assert "1 more" in bar({f"n{k}": 1.0 for k in range(11)})
    assert "unassigned" not in bar({"a": 1.0}, unassigned=1e-10)
    assert "unassigned <b>-0.5</b>" in bar({"a": 1.0}, unassigned=-0.5)


def test_nothing_to_share_out_is_told() -> None:
    assert bar({"a": 0.0}) == "<div>R 0: nothing to share out</div>"


def test_agents_of_one_lane_share_a_bar() -> None:
    shares = Shares("m", 3.0, {"r1": 1.0, "r2": 2.0}, 0.0)
    html = picture._credit(shares, [Lane("r", (0, 1), -1, 0, None)], ["r1", "r2"])
    assert "r ×2 <b>+3</b>" in html
    assert "r ×2 <b>+2</b>" in picture._credit(shares, [Lane("r", (0, 1), -1, 0, None)], ["gone", "r2"])


# -- limits ------------------------------------------------------------------------------------------------------


def test_fewer_lanes_are_drawn_until_it_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    assert LIMIT == 60_000
    asked: list[int] = []

    def drawn_at(trace: Trace, shares: Any, most: int) -> str:
        asked.append(most)
        return "x" * (LIMIT if most > 8 else LIMIT - 1)

    monkeypatch.setattr(picture, "_card", drawn_at)
    assert len(card(WORKED)) == LIMIT - 1
    assert asked == [24, 16, 8]
    monkeypatch.setattr(picture, "_card", lambda *_: "é" * LIMIT)
    assert card(WORKED).count("<svg") == 0
    assert "3 events" in card(WORKED)


def test_what_is_no_graph_has_a_card_with_the_reason() -> None:
    html = card(trace([ev("a", 0, "x"), ev("a", 1, "y")]))
    assert "event id &#x27;a&#x27; is used twice" in html
    assert "<svg" not in html
    assert "2 events · unknown topology" in html


def test_dark_ground_has_its_own_ink() -> None:
    style = picture._style()
    assert style.count("@media (prefers-color-scheme:dark)") == 1
    for lead in ("", '[data-jp-theme-light="false"] ', ".vscode-dark ", 'html[theme="dark"] '):
        assert f"{lead}.cpt-card{{background:#16181C!important;color:#F2F2F2!important;border-color:#4A4A4A!important}}" in style
        for k, family in enumerate(FAMILIES):
            assert f"{lead}.cpt-card .f{k}{{stroke:{family.dark}}}" in style
            assert f"{lead}.cpt-card .g{k}{{fill:{family.dark}}}" in style
        assert f"{lead}.cpt-card .t{{fill:#F2F2F2}}" in style
        assert f"{lead}.cpt-card .up{{fill:#88CCEE}}{lead}.cpt-card .dn{{fill:#E69F00}}" in style
        assert f"{lead}.cpt-card .w{{stroke:#B5B5B5}}{lead}.cpt-card .p{{stroke:#F2F2F2}}" in style
    assert card(WORKED).startswith('<div class="cpt-card" style="background:#FFFFFF;color:#1B1B1B;border:1px solid #C9C9C9;')
