"""What a change in totals is made of, and lists in which the runs of a session stand under it."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.app.api.compare_traces import compare_traces
from counterpoint.app.api.mix import change_of
from counterpoint.app.list_lines import fold_runs
from counterpoint.app.report_answer import change_words
from counterpoint.store import Store
from counterpoint.store.summary import Summary
from counterpoint.trace import Event, Trace
from counterpoint.trace.naming import parent_session
from ends_help import Ends

NOON = 1_793_534_400.0
"""2026-11-01 12:00 UTC."""


def run_of(name: str, project: str, tokens: int, *, at: float = NOON, **meta: object) -> Trace:
    event = Event(id="e", t=0, at=at, type="message", agent="a", tokens_out=tokens, cost_usd=tokens / 1e6, model="m", dur=10_790)
    return Trace(trace_id=name, task_id=name, events=[event], meta={"project": project, **meta})


def lines(*runs: tuple[str, int]) -> list[Summary]:
    return [Summary.of_trace(run_of(f"t{k}", project, tokens)) for k, (project, tokens) in enumerate(runs)]


def test_a_change_by_hand() -> None:
    # before: 3 of shop at 100, 1 of barn at 500: n 4, total 800, mean 200; shares 3/4 and 1/4
    # after: 1 of shop at 200, 2 of barn at 500, 1 of mill at 1000, 2 of shop at 200 more: n 6, total 2600, mean 1300/3
    before = lines(("shop", 100), ("shop", 100), ("shop", 100), ("barn", 500))
    after = lines(("shop", 200), ("barn", 500), ("barn", 500), ("mill", 1000), ("shop", 200), ("shop", 200))
    change = change_of(before, after, "tokens")
    assert change is not None
    assert (change.totals, change.traces, change.common) == ((800, 2600), (4, 6), (4, 5))
    assert change.means == pytest.approx((200, 1300 / 3))
    # count: (6 - 4) (200 + 1300/3) / 2 = 1900/3
    assert change.count == pytest.approx(1900 / 3)
    # mix, of 5 traces: shop (1/2 - 3/4) (100 + 200) / 2 = -37.5; barn (1/3 - 1/4) 500 = 125/3; mill (1/6 - 0) 1000 = 500/3
    assert change.mix == pytest.approx(5 * (-37.5 + 125 / 3 + 500 / 3))
    # alike: shop (3/4 + 1/2) / 2 * 100 = 62.5; barn and mill 0
    assert change.alike == pytest.approx(5 * 62.5)
    assert change.count + change.mix + change.alike == pytest.approx(1800)
    assert change_of(before, [], "tokens") is None
    assert change_of(before, after, "team_reward") is None


sides = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 10**9)), min_size=1, max_size=8)


@given(sides, sides)
def test_the_parts_sum_to_the_change_and_turn_with_the_sides(one: list[tuple[str, int]], two: list[tuple[str, int]]) -> None:
    there, back = change_of(lines(*one), lines(*two), "tokens"), change_of(lines(*two), lines(*one), "tokens")
    assert there is not None
    assert back is not None
    assert there.count + there.mix + there.alike == pytest.approx(there.totals[1] - there.totals[0], abs=1e-3)
    assert [there.count, there.mix, there.alike] == pytest.approx([-back.count, -back.mix, -back.alike], abs=1e-3)
    same = change_of(lines(*one), lines(*one), "tokens")
    assert same is not None
    assert (same.count, same.mix, same.alike) == (0, 0, 0)


def test_weeks_are_compared_by_totals_first_in_units_that_people_read(tmp_path: Path, run: Ends) -> None:
    day = 86_400.0
    long = run_of("long", "shop", 5_000_000, at=NOON)
    late = Event(id="f", t=7 * day, at=NOON + 7 * day, type="message", agent="a", tokens_out=3_000_000, cost_usd=3.0, model="m")
    with Store(tmp_path / "s") as store:
        store.add(Trace(trace_id="long", task_id="long", events=[*long.events, late], meta={"project": "shop"}))
        store.add(run_of("barn", "barn", 1_000_000, at=NOON + 8 * day))
    week = ["since:2026-11-01 until:2026-11-07", "since:2026-11-08 until:2026-11-14"]
    found = compare_traces(*week, store=tmp_path / "s")
    assert [(s.traces, s.tokens) for s in found.totals] == [(1, 5_000_000), (2, 4_000_000)], "each week has what was done in it"
    assert {name: [s.tokens for s in sums] for name, sums in found.projects} == {"shop": [5_000_000, 3_000_000], "barn": [None, 1_000_000]}
    code, out, _ = run("compare", "traces", *week, "--store", tmp_path / "s")
    assert code == 0
    assert out.splitlines()[0].split() == ["total", "of", "traces", "tokens", "cost", "time", "errors"]
    assert "e+" not in out
    assert "-1 M (-20 %)" in out
    assert "traces alike: 1 of 1 and 1 of 2 are of a kind that both have." in " ".join(out.split())
    told = json.loads(run("compare", "traces", *week, "--store", tmp_path / "s", "--json")[1])
    assert [s["tokens"] for s in told["totals"]] == [5_000_000, 4_000_000]
    assert {"projects", "models", "changes", "rows"} <= told.keys()
    assert change_words("seconds", 10_790.0) == "+3h00"
    assert change_words("cost_usd", -0.25) == "-$0.25"


# -- the list --------------------------------------------------------------------------------------------------------------


def review(name: str, parent: str, at: float) -> Trace:
    said = f"agent {name} (guardian): the log of its parent {parent} is not here"
    about = {"format": "codex", "unlinked_first": [said], "links": {"unlinked": 1}}
    return run_of(name, "shop", 100, at=at, title="Assess the next call", **{"import": about})


def test_the_list_is_sorted_by_last_activity_and_says_so(tmp_path: Path, run: Ends) -> None:
    with Store(tmp_path / "s") as store:
        store.add(run_of("late", "shop", 1, at=NOON + 3600))
        store.add(run_of("early", "shop", 2, at=NOON))
    lines = run("ls", "--store", tmp_path / "s")[1].splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["early", "late"]
    assert "active (" in lines[0]
    assert "↑" in lines[0]
    head = run("ls", "--sort", "tokens", "--store", tmp_path / "s")[1].splitlines()[0]
    assert "tokens ↑" in head
    assert "sorted by added" in run("ls", "--sort", "added", "--store", tmp_path / "s")[2]


def test_runs_that_a_session_made_for_itself_stand_under_it(tmp_path: Path, run: Ends) -> None:
    with Store(tmp_path / "s") as store:
        store.add(run_of("session-1", "shop", 1000, at=NOON, title="Mend the door"))
        store.add_many([review(f"r{k}", "session-1", NOON + k) for k in range(3)])
        store.add_many([review(f"g{k}", "gone-0000", NOON + 10 + k) for k in range(2)])
        store.add(run_of("other", "shop", 1, at=NOON + 20))
    out = run("ls", "--store", tmp_path / "s")[1].splitlines()
    assert len(out) == 1 + 4
    assert "Mend the door" in out[1]
    assert "└ 3 m runs of it" in out[2]
    assert "2 m runs, session gone-000 is not here" in out[3]
    with Store(tmp_path / "s") as store:
        store.add(review("h0", "gone-1111", NOON + 15))
    assert "3 m runs of 2 sessions that are not here" in run("ls", "--store", tmp_path / "s")[1]
    assert len(run("ls", "--ids", "--store", tmp_path / "s")[1].splitlines()) == 1 + 8
    assert len(run("ls", "parent:session-1", "--store", tmp_path / "s")[1].splitlines()) == 1 + 3
    told = [json.loads(line) for line in run("ls", "--json", "--store", tmp_path / "s")[1].splitlines()]
    assert sum(one["parent"] == "session-1" for one in told) == 3


def test_every_row_is_in_one_line_and_sums_are_of_all() -> None:
    rows = [Summary.of_trace(t) for t in [review("a", "s", NOON), run_of("s", "shop", 5), review("b", "s", NOON + 1), run_of("x", "shop", 1)]]
    found = fold_runs(rows)
    assert [line.row.id for line in found] == ["s", "b", "x"]
    assert [run.id for run in found[1].runs] == ["a", "b"]
    assert (found[1].row.tokens, found[1].row.agents) == (200, 2)
    assert parent_session({"parent_session": "s9"}) == "s9"
    assert parent_session({"import": {"unlinked_first": ["agent x: the log of its parent p is not here", "agent y: no spawn"]}}) is None
    assert time.time() > NOON
