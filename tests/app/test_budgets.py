"""Budgets of a month: what is spent, the forecast with its interval, and when it cannot be said."""

from __future__ import annotations

import json
from datetime import date, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import counterpoint as cpt
from counterpoint.app.api.budgets import NAME, Budget, budgets, differ_by_weekend, left_of_month, read_budgets
from counterpoint.app.cli import cli
from counterpoint.errors import InputError
from counterpoint.store.summary import Summary


def spent(name: str, day: datetime, cost: float | None, project: str = "shop") -> cpt.Trace:
    event = cpt.Event(id="s", t=0, type="orchestrator_decision", agent="lead", model="m", tokens_in=5, tokens_out=5, cost_usd=cost)
    return cpt.Trace(trace_id=name, task_id=name, events=[event], meta={"began": day.timestamp(), "project": project})


def rows(costs: dict[datetime, float | None], project: str = "shop") -> list[Summary]:
    return [Summary.of_trace(spent(f"{project}{k}", day, cost, project)) for k, (day, cost) in enumerate(costs.items())]


NOON = datetime(2026, 11, 16, 0, 0)


def days_before(n: int, cost: float = 2.0) -> dict[datetime, float | None]:
    return {NOON - timedelta(days=k, hours=-12): cost for k in range(1, n + 1)}


def one(found: list[Budget]) -> Budget:
    (budget,) = found
    return budget


def test_the_same_spend_every_day_foretells_the_month_to_the_cent() -> None:
    told = one(budgets(rows(days_before(15)), {"shop": 50.0}, now=NOON.timestamp()))
    assert (told.month, told.spent, told.days) == ("2026-11", 30.0, 15)
    assert (told.forecast, told.low, told.high) == (60.0, 60.0, 60.0)  # 15 days with the 16th, of $2 each
    assert (told.chance, told.state) == (1.0, "likely")
    assert one(budgets(rows(days_before(15)), {"shop": 61.0}, now=NOON.timestamp())).state == "kept"
    assert one(budgets(rows(days_before(15)), {"shop": 29.0}, now=NOON.timestamp())).state == "passed"


def test_under_seven_days_with_spend_nothing_is_foretold() -> None:
    told = one(budgets(rows(days_before(6)), {"shop": 20.0}, now=NOON.timestamp()))
    assert (told.spent, told.forecast, told.chance, told.state) == (12.0, None, None, "unknown")
    assert one(budgets(rows(days_before(6)), {"shop": 11.0}, now=NOON.timestamp())).state == "passed"
    assert one(budgets(rows(days_before(7)), {"shop": 20.0}, now=NOON.timestamp())).forecast is not None


def test_idle_days_are_days_and_spend_of_another_month_or_project_is_not_of_this_one() -> None:
    costs: dict[datetime, float | None] = {NOON - timedelta(days=2 * k): 4.0 for k in range(1, 15)}
    told = one(budgets([*rows(costs), *rows(days_before(9, 100.0), "till")], {"shop": 500.0}, now=NOON.timestamp()))
    assert (told.spent, told.days) == (28.0, 14)  # the 2nd, 4th ... 14th of November
    assert told.forecast == pytest.approx(28 + 15 * 2, abs=6)
    assert told.low is not None
    assert told.high is not None
    assert told.low < 58 < told.high
    every = one(budgets([*rows(costs), *rows(days_before(9, 100.0), "till")], {None: 5.0}, now=NOON.timestamp()))
    assert (every.spent, every.state) == (928.0, "passed")


def test_those_passed_come_first_then_those_likely_and_what_has_no_price_is_said() -> None:
    found = [*rows(days_before(15)), *rows(days_before(15, 9.0), "till"), *rows({NOON - timedelta(days=1): None}, "hall")]
    told = budgets(found, {"hall": 3.0, "shop": 50.0, "till": 100.0}, now=NOON.timestamp())
    assert [(b.project, b.state) for b in told] == [("till", "passed"), ("shop", "likely"), ("hall", "unknown")]
    assert [b.is_least for b in told] == [False, False, True]
    assert budgets(found, {}) == []


def test_weekends_are_drawn_apart_only_where_that_foretells_better() -> None:
    weeks = [date(2026, 10, 19) + timedelta(days=k) for k in range(28)]
    quiet = [(day, 0.5 if day.weekday() >= 5 else 10.0 + day.day % 3) for day in weeks]
    draw = np.random.default_rng(3)
    alike = [(day, float(draw.choice([1.0, 9.0]))) for day in weeks]
    assert differ_by_weekend(quiet)
    assert not differ_by_weekend([(day, 5.0) for day in weeks])
    assert not differ_by_weekend(quiet[:10])
    ends = left_of_month(quiet, NOON, np.random.default_rng(0))  # 16 to 30 November: 11 working days and 4 of weekends
    assert np.median(ends) == pytest.approx(11 * 11 + 4 * 0.5, abs=4)
    assert ends.std() < left_of_month(alike, NOON, np.random.default_rng(0)).std()


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("month = 0", "month is 0, not a number of dollars"),
        ("month = true", "month is True"),
        ("[project]\nshop = 'much'", "project 'shop' is 'much'"),
        ("week = 3", "'week' is no setting"),
        ("project = 4", "project is not a table"),
        ("month = nan", "month is nan"),
        ("month", "is not valid TOML"),
    ],
)
def test_a_file_that_is_no_budget_is_one_clear_error(tmp_path: Path, text: str, what: str) -> None:
    (tmp_path / NAME).write_text(text)
    with pytest.raises(InputError, match=what):
        read_budgets(tmp_path)


def test_the_report_says_first_what_is_passed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    now = datetime.now()
    with cpt.Store("traces") as store:
        store.add(spent("a", now - timedelta(seconds=5), 8.0))
    assert read_budgets(tmp_path / "traces") == {}
    (tmp_path / "traces" / NAME).write_text('month = 100\n[project]\n"shop" = 5\n')
    text = CliRunner().invoke(cli, ["report"], catch_exceptions=False).output
    assert text.index("Budgets") < text.index("In all")
    assert f"The budget of {now:%Y-%m}, shop is passed: $8.00 of $5.00." in text
    assert "cannot say" in text
    told = json.loads(CliRunner().invoke(cli, ["report", "--json"], catch_exceptions=False).stdout)["budgets"]
    assert [(b["project"], b["spent"], b["state"]) for b in told] == [("shop", 8.0, "passed"), (None, 8.0, "unknown")]
    assert CliRunner().invoke(cli, ["store", "verify"]).exit_code == 0
