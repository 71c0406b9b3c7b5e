"""This week against the week before: what counts where, sums and intervals by hand, and the command."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

import counterpoint as cpt
from counterpoint.app.api.periods import WEEK_S, Comparing, Group, PeriodComparison, compare_periods, periods_of
from counterpoint.app.cli import cli
from counterpoint.app.search import undated
from counterpoint.errors import InputError

DAY = 86400.0
T0 = 1_790_000_100.0 // 900 * 900  # on a quarter of an hour
BEFORE, NOW = (T0 - WEEK_S, T0), (T0, T0 + WEEK_S)


def made(
    name: str, began: float | None, cost: float | None, *, project: str = "shop", model: str = "m-1", reward: float | None = None,
    task: str = "", fails: bool = False,
) -> cpt.Trace:  # fmt: skip
    """One step of a lead, and a call that may fail."""
    events = [
        cpt.Event(id="s", t=0, type="orchestrator_decision", agent="lead", role="planner", model=model, tokens_in=90, tokens_out=10,
                  cost_usd=cost),
        cpt.Event(id="c", t=1, type="tool_call", agent="lead", role="planner", tool="Bash"),
        cpt.Event(id="r", t=2, type="tool_result", agent="lead", role="planner", tool="Bash", ok=not fails),
    ]  # fmt: skip
    meta = {"project": project} | ({} if began is None else {"began": began})
    rewards = {} if reward is None else {"team": reward}
    edges = [cpt.Edge("c", "r", "tool_dependency")]
    return cpt.Trace(trace_id=name, task_id=task or name, events=events, edges=edges, meta=meta, rewards=rewards)


def compared(*traces: cpt.Trace) -> PeriodComparison:
    making = Comparing("", BEFORE, NOW)
    for trace in traces:
        making.take(trace)
    return making.done()


def group(told: PeriodComparison, by: str, name: str = "") -> Group:
    return next(one for one in told.groups if (one.by, one.name) == (by, name))


def test_a_run_counts_in_the_time_in_which_it_worked_and_one_of_no_known_time_in_none() -> None:
    told = compared(
        made("a", T0 - 3 * DAY, 1.0), made("b", T0 + DAY, 2.0, project="till"), made("c", T0 + 2 * DAY, 3.0, fails=True),
        made("d", T0 - 20 * DAY, 7.0), made("e", None, 9.0),
    )  # fmt: skip
    every = group(told, "all")
    assert (told.undated, every.runs) == (1, (1, 2))
    assert every.figures["cost"].totals == (1.0, 5.0)
    assert every.figures["errors"].totals == (0.0, 1.0)
    assert every.figures["tokens"].totals == (100.0, 200.0)
    assert group(told, "project", "till").figures["cost"].totals == (None, 2.0)
    assert group(told, "role", "planner").runs == (1, 2)
    assert group(told, "system").figures["cost"].totals == (1.0, 5.0)  # these runs do not say what made them
    assert "reward" not in every.figures  # nobody measured it
    assert [one.name for one in told.groups if one.by == "project"] == ["shop", "till"]


def test_a_run_over_the_border_is_cut_and_its_reward_counts_at_its_end() -> None:
    events = [
        cpt.Event(id=f"s{k}", t=k * DAY, type="orchestrator_decision", agent="lead", model="m-1", tokens_in=1, tokens_out=0,
                  cost_usd=float(k + 1)) for k in range(2)
    ]  # fmt: skip
    long = cpt.Trace(trace_id="long", task_id="long", events=events, meta={"began": T0 - DAY / 2}, rewards={"team": 0.5})
    told = compared(long)
    assert group(told, "all").figures["cost"].totals == (1.0, 2.0)
    assert group(told, "model", "m-1").figures["cost"].totals == (1.0, 2.0)
    assert group(told, "all").figures["reward"].totals == (None, 0.5)


def test_the_change_per_run_is_over_tasks_and_has_an_interval_only_where_both_sides_have_five() -> None:
    old = [made(f"a{k}", T0 - DAY, cost, task=f"t{k}") for k, cost in enumerate((1.0, 2.0, 3.0, 4.0, 5.0))]
    new = [made(f"b{k}", T0 + DAY, cost, task=f"u{k}") for k, cost in enumerate((3.0, 4.0, 5.0, 6.0, 7.0))]
    again = made("b9", T0 + DAY, 3.0, task="u0")  # a second run of a task weighs nothing more
    cost = group(compared(*old, *new, again), "all").figures["cost"]
    assert (cost.runs, cost.means, cost.diff) == ((5, 6), (3.0, 5.0), 2.0)
    assert cost.low == pytest.approx(2.0 - 2.306, abs=1e-3)  # Welch: s^2 = 2.5, se = 1, 8 degrees of freedom
    assert cost.high == pytest.approx(2.0 + 2.306, abs=1e-3)
    few = group(compared(*old[:4], *new), "all").figures["cost"]
    assert (few.diff, few.low, few.high) == (None, None, None)


def test_tasks_that_both_times_have_are_compared_one_by_one() -> None:
    old = [made(f"a{k}", T0 - DAY, 10.0 * k, task=f"t{k}") for k in range(5)]
    new = [made(f"b{k}", T0 + DAY, 10.0 * k + 1.0, task=f"t{k}") for k in range(5)]
    cost = group(compared(*old, *new), "all").figures["cost"]
    assert (cost.diff, cost.low, cost.high) == (1.0, 1.0, 1.0)


def test_spend_without_a_price_is_at_least() -> None:
    told = compared(made("a", T0 - DAY, None), made("b", T0 + DAY, 1.0))
    assert group(told, "model", "m-1").figures["cost"].is_least == (True, False)
    assert group(told, "all").figures["cost"].totals == (None, 1.0)


def test_the_time_is_that_of_the_query_or_the_week_that_ends_now() -> None:
    at = 1_800_000_000.0  # on a quarter of an hour
    assert periods_of("last:2d", None)[1][1] - periods_of("last:2d", None)[1][0] == pytest.approx(2 * DAY, abs=1800)
    assert periods_of("errors>0", at - DAY, now=at) == ((at + 900 - 2 * WEEK_S, at + 900 - WEEK_S), (at + 900 - WEEK_S, at + 900))
    assert periods_of("", at - 30 * DAY, now=at)[1][1] == at - 30 * DAY + 900  # nothing ran for two weeks
    before, now = periods_of("since:2026-03-02T00:00Z until:2026-03-03T23:59Z", None)
    assert (before[1], now[1] - now[0], before[1] - before[0]) == (now[0], 2 * DAY, 2 * DAY)
    with pytest.raises(InputError, match="no time lies in"):
        periods_of("since:2026-03-02 until:2026-02-02", None)


def test_a_query_without_its_dates_keeps_the_rest() -> None:
    assert undated('project:shop last:7d errors>0 date>=2026-01 "last words" active:2026-01') == (
        'project:shop errors>0 "last words" active:2026-01'
    )


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    now = time.time()
    with cpt.Store("traces") as store:
        store.add_many([made(f"a{k}", now - 9 * DAY, 1.0 + k % 3, reward=0.5) for k in range(6)])
        store.add_many([made(f"b{k}", now - 2 * DAY, 4.0 + k % 3, reward=0.9, project="till") for k in range(6)])
        store.add(made("undated", None, 50.0))
    return tmp_path


@pytest.mark.usefixtures("place")
def test_the_command_says_both_times_and_what_cannot_be_said() -> None:
    done = CliRunner().invoke(cli, ["report", "--compare", "--json"], catch_exceptions=False)
    told = json.loads(done.stdout)
    every = told["groups"][0]
    assert (every["runs"], told["undated"]) == ([6, 6], 1)
    assert every["figures"]["cost"]["totals"] == [12.0, 30.0]
    assert every["figures"]["reward"]["totals"] == [0.5, 0.9]
    text = CliRunner().invoke(cli, ["report", "model:m-1", "last:7d", "--compare"], catch_exceptions=False).output
    assert "Compared: model:m-1 last:7d" in text
    assert "+$3.00" in text
    assert "too few to say" in text  # of each project alone
    assert "Left out, for their time is not known: 1 run." in " ".join(text.split()), "on a screen of any width"


def test_a_page_of_it_and_one_clear_error(place: Path, run: Callable[..., tuple[int, str, str]]) -> None:
    assert CliRunner().invoke(cli, ["report", "--compare", "-o", "week.html"], catch_exceptions=False).output == (
        "Wrote week.html: 6 against 6 traces\n"
    )
    assert "By project" in (place / "week.html").read_text()
    ended, out, err = run("report", "a1", "--compare")
    assert (ended, out) == (2, "")
    assert "--compare takes a query" in err


def test_from_python() -> None:
    told = compare_periods([made("a", T0 - DAY, 1.0), made("b", T0 + DAY, 2.0)], "since:1d")
    assert told.groups == []  # long ago
