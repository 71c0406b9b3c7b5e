"""`show` in a terminal: the tree with lanes, folded; fits the width, without colour or Unicode where there is none."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import counterpoint
from counterpoint.answer import Screen, cut, span
from counterpoint.app.cli import cli
from counterpoint.app.cli.show import credit_bar, lanes_text
from counterpoint.app.viewer.shapes import FAMILIES as PAGE_FAMILIES
from counterpoint.testing import synthetic_trace
from counterpoint.trace import Edge, Event, Trace
from counterpoint.trace.lanes import EMPTY, FAMILIES, KINDS, WAIT, Clock, cells, folded, kind_of
from counterpoint.trace.rows import Shares
from counterpoint.trace.team import TraceTeam

KIND = {kind.name: k for k, kind in enumerate(KINDS)}


def team_of_readers() -> Trace:
    """A lead who spawns six readers for ten seconds each, one after the other, and joins what they return."""
    events = [Event(id="plan", t=0, dur=5, type="orchestrator_decision", agent="lead", decision="spawn", role="lead")]
    edges = []
    for k in range(6):
        events += [
            Event(id=f"s{k}", t=5, type="spawn", agent="lead", to=f"reader-{k}", role="reader"),
            Event(id=f"w{k}", t=10 * k + 5, dur=9, type="tool_call", agent=f"reader-{k}", tool="read", ok=k != 3, tokens_out=10),
            Event(id=f"r{k}", t=10 * k + 14, type="return", agent=f"reader-{k}", to="lead"),
        ]
        edges += [Edge("plan", f"s{k}", "causal"), Edge(f"s{k}", f"w{k}", "spawn"), Edge(f"w{k}", f"r{k}", "causal")]
        edges += [Edge(f"r{k}", "join", "return")]
    events.append(Event(id="join", t=64, dur=1, type="aggregate", agent="lead"))
    return Trace(trace_id="readers", task_id="read", events=events, edges=edges, rewards={"team": 0.7})


def shown(path: Path, *more: str, columns: int = 100, charset: str = "utf-8", **env: str) -> str:
    runner = CliRunner(charset=charset)
    result = runner.invoke(cli, ["show", str(path), *more], env={"COLUMNS": str(columns), **env}, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def readers(tmp_path: Path) -> Path:
    return counterpoint.save(team_of_readers(), tmp_path / "readers.trace.json")


def test_agents_alike_are_one_lane_in_the_tree() -> None:
    team = TraceTeam(team_of_readers())
    lanes = folded(team)
    assert [(lane.label(), lane.parent, lane.depth) for lane in lanes] == [("lead", -1, 0), ("reader ×6", 0, 1)]
    assert len(folded(team, is_whole=True)) == 7
    assert sorted(a for lane in lanes for a in lane.agents) == list(range(7))


def test_a_cell_says_what_took_most_of_it_and_marks_win() -> None:
    team = TraceTeam(team_of_readers())
    drawn = cells(team, folded(team), 65, [])
    lead, reader = drawn.kind.tolist()
    assert lead[:5] == [KIND["think"]] * 5
    assert lead[5] == KIND["spawn"]
    assert lead[6:64] == [WAIT] * 58
    assert lead[64] == KIND["aggregate"]
    assert reader[:5] == [EMPTY] * 5
    assert reader[5:15] == [KIND["tool"]] * 9 + [KIND["return"]]
    assert reader[35] == KIND["error"]
    assert reader[36:44] == [KIND["error"]] * 8
    assert np.allclose(drawn.busy[6:13], 1, atol=1e-3)


def test_one_failure_in_a_crowd_is_not_the_cell() -> None:
    events = [Event(id=f"e{k}", t=k, dur=1, type="tool_call", agent="x", ok=k != 5) for k in range(100)]
    team = TraceTeam(Trace(trace_id="t", task_id="q", events=events))
    assert cells(team, folded(team), 2, []).kind.tolist() == [[KIND["tool"], KIND["tool"]]]
    assert KIND["error"] in cells(team, folded(team), 20, []).kind


def test_a_long_silence_takes_little_room() -> None:
    clock = Clock(np.array([0.0, 10_000.0]), np.array([100.0, 10_100.0]))
    assert clock.gaps == [(100.0, 10_000.0)]
    assert np.allclose(clock.place(np.array([0.0, 100.0, 10_000.0, 10_100.0])), [0, 100 / 204, 104 / 204, 1])


def test_families_are_those_of_the_page() -> None:
    of_type = {name: k for k, types in enumerate(PAGE_FAMILIES.values()) for name in types}
    assert KINDS[kind_of(Event(id="e", t=0, type="message", agent="a", extra={"aloud": True}))].family == of_type.pop("thinking")
    for name, family in of_type.items():
        assert KINDS[kind_of(Event(id="e", t=0, type=name, agent="a"))].family == family  # type: ignore[arg-type]
    assert len(FAMILIES) == len(PAGE_FAMILIES)


def test_show_draws_the_folded_tree_with_lanes(readers: Path) -> None:
    text = shown(readers)
    assert "└ reader ×6" in text
    assert re.search(r"^lead .*█+▷─+◆", text, re.MULTILINE)
    assert "slowest: reader ×6 (" in text
    assert "first failure: " in text
    assert "of reader-3 (w3)" in text
    assert "unassigned" not in text  # no texts, votes or drafts: nobody can say who earned it, and even shares are no answer
    assert "✕ error" in text
    whole = shown(readers, "--full")
    assert "├ reader-0" in whole
    assert "└ reader ×6" not in whole


@pytest.mark.parametrize("columns", [40, 60, 80, 120, 200])
@pytest.mark.parametrize("charset", ["utf-8", "ascii"])
def test_no_line_is_wider_than_the_screen(columns: int, charset: str, tmp_path: Path) -> None:
    path = counterpoint.save(synthetic_trace(30, 300, contents=True), tmp_path / "t.jsonl")
    text = shown(path, columns=columns, charset=charset)
    assert max(map(span, text.splitlines())) <= columns
    assert "\x1b" not in text


def test_ascii_where_the_output_has_no_signs(readers: Path) -> None:
    text = shown(readers, charset="ascii")
    assert text.isascii()
    assert "`-reader x6" in text
    assert re.search(r"^lead .*#+>-+\+", text, re.MULTILINE)


def test_names_in_any_script_and_hostile_ones(tmp_path: Path) -> None:
    names = ["研究員", "\u202egnp.exe", "a\x1b[2Jb", "\ud800", "x" * 300]
    events = [Event(id=f"e{k}", t=k, dur=1, type="message", agent=name) for k, name in enumerate(names) if name != "\ud800"]
    path = counterpoint.save(Trace(trace_id="t", task_id="q", events=events), tmp_path / "t.jsonl")
    for charset in ("utf-8", "ascii", "latin-1"):
        text = shown(path, charset=charset, columns=70)
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert max(map(span, text.splitlines())) <= 70


def test_colour_repeats_the_signs_and_nothing_else() -> None:
    team = TraceTeam(team_of_readers())
    lanes = folded(team)
    plain, colour = (
        lanes_text(team, lanes, [0], {}, Screen(80, True, is_colour), tainted=set(), limit=0) for is_colour in (False, True)
    )
    assert "\x1b[34m" in colour
    bare = re.sub(r"\x1b\[[0-9;]*m", "", colour)
    assert bare.splitlines()[:4] == plain.splitlines()[:4]
    assert "underlined: critical path" in bare


def test_the_credit_bar_has_signs_and_closes() -> None:
    team = TraceTeam(team_of_readers())
    shares = Shares("ledger", 0.7, {"lead": 0.6, "reader-1": -0.1}, 0.2)
    text = credit_bar(shares, folded(team), team.names, Screen(60, True, False))
    assert "R 0.7 = agents +0.5 + unassigned +0.2" in text
    assert re.search(r"lead +\+0.6 █+", text)
    assert re.search(r"reader ×6 +-0.1 ▒+", text)
    assert "unassigned" in text.splitlines()[-1]


def test_a_cut_text_fits() -> None:
    on = Screen(80, True, False)
    assert cut("研究員です", 5, on) == "研究…"
    assert cut("abc", 3, on) == "abc"
    assert cut("abcd", 3, Screen(80, False, False)) == "ab~"


def test_what_is_left_out_is_counted(tmp_path: Path) -> None:
    names = [f"{chr(97 + k % 26)}{chr(97 + k // 26)}" for k in range(60)]
    events = [Event(id=name, t=k, dur=1, type="message", agent=name) for k, name in enumerate(names)]
    path = counterpoint.save(Trace(trace_id="t", task_id="q", events=events), tmp_path / "t.trace.json")
    assert "20 more lanes, 20 agents: --full" in shown(path)
    assert "more lanes" not in shown(path, "--full")
