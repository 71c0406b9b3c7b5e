"""Each alert of a run in which a language model learns, at its edge: one row says nothing, the next one says it."""

from __future__ import annotations

from typing import Any

import pytest

from counterpoint.lab.train.lm.alerts import AGAIN, WINDOW, language_alerts

FINE: dict[str, Any] = {"phase": "learn", "entropy": 1.0, "tokens_per_call": 10.0, "malformed": 0.0, "too_long": 0.0, "mismatch": 0.0,
                        "kl": 0.0, "roles": {"lead": 5, "worker": 5}, "flat_groups": 0.0}  # fmt: skip


def codes(rows: list[dict[str, Any]], alerts: list[dict[str, Any]] | None = None) -> list[str]:
    return [a.code for a in language_alerts([{**FINE, "update": i, **row} for i, row in enumerate(rows)], alerts or [])]


def last(count: int, **row: Any) -> list[dict[str, Any]]:
    """Five rows that are fine, and then so many that are not."""
    return [{}] * WINDOW + [row] * count


@pytest.mark.parametrize(
    ("name", "fine", "wrong", "code"),
    [
        # the mean of the last five rows, against that of the first five
        ("entropy", 0.01, 0.009, "entropy_collapse"),
        ("tokens_per_call", 20.0, 20.1, "length_drift"),
        ("tokens_per_call", 5.0, 4.9, "length_drift"),
        ("malformed", 0.05, 0.051, "malformed"),
        ("too_long", 0.05, 0.051, "too_long"),
        ("flat_groups", 0.49, 0.5, "zero_variance"),
        # the last row alone
        ("mismatch", 0.05, 0.051, "mismatch"),
        ("kl", 0.1, 0.101, "kl_jump"),
    ],
)
def test_an_alert_begins_at_its_bar(name: str, fine: float, wrong: float, code: str) -> None:
    assert codes(last(WINDOW, **{name: fine})) == []
    assert codes(last(WINDOW, **{name: wrong})) == [code]


def test_what_was_low_from_the_start_has_not_collapsed() -> None:
    """A quarter of what it was is not below a quarter of it."""
    assert codes([{"entropy": 0.008}] * 10) == []
    assert codes([{"entropy": 0.032}] * 5 + [{"entropy": 0.008}] * 5) == []
    assert codes([{"entropy": 0.033}] * 5 + [{"entropy": 0.008}] * 5) == ["entropy_collapse"]


@pytest.mark.parametrize(("row", "code"), [({"entropy": 0.0}, "entropy_collapse"), ({"tokens_per_call": 90.0}, "length_drift")])
def test_a_drift_takes_two_windows(row: dict[str, Any], code: str) -> None:
    assert codes([{}] * 5 + [row] * 4) == []
    assert codes([{}] * 5 + [row] * 5) == [code]


def test_means_are_of_the_last_five_rows_that_say_it() -> None:
    assert codes([{"malformed": 0.9}] + [{}] * 5) == []
    assert codes([{}] * 4 + [{"malformed": 0.3}]) == ["malformed"]  # 0.06 on average
    assert codes([{}] * 4 + [{"malformed": 0.24}]) == []
    assert codes([{"malformed": None}] * 4 + [{"malformed": 0.06}]) == ["malformed"]
    assert codes([{"malformed": None, "mismatch": None, "kl": "much"}] * 5) == []
    assert codes([{"flat_groups": 0.9}] * (WINDOW - 1)) == []
    assert codes([{"flat_groups": 0.9}] * WINDOW) == ["zero_variance"]


def test_a_role_is_silent_from_the_row_in_which_it_says_nothing() -> None:
    assert codes([{}, {"roles": {"lead": 5, "worker": 0}}]) == ["silent_role"]
    assert codes([{}, {"roles": {"lead": 5}}]) == ["silent_role"]
    assert codes([{}, {"roles": {"lead": 5}}, {}]) == []
    assert codes([{"roles": {"lead": 5, "worker": 0}}, {"roles": {"lead": 5}}]) == []  # it never spoke
    assert codes([{"roles": None}, {"roles": {"lead": 1}}]) == []
    told = language_alerts([{**FINE, "update": 0}, {**FINE, "update": 1, "roles": {}}], [])[0]
    assert told.what == "no agent plays lead or worker any more"


def test_an_alert_comes_again_after_twenty_updates_and_others_at_once() -> None:
    rows = last(WINDOW, kl=1.0)  # updates 0 to 9
    assert codes(rows, [{"code": "kl_jump", "update": 10 - AGAIN}]) == []
    assert codes(rows, [{"code": "kl_jump", "update": 9 - AGAIN}]) == ["kl_jump"]
    assert codes(rows, [{"code": "mismatch", "update": 9}]) == ["kl_jump"]


def test_rows_of_imitation_are_no_part_of_it() -> None:
    assert codes([{"phase": "imitate", "kl": 1.0}]) == []
    shown = {"phase": "imitate", "tokens_per_call": 100.0}
    assert codes([shown] * 5 + [{}] * 5) == []
    assert codes([shown] * 5 + [{"kl": 1.0}]) == ["kl_jump"]


def test_alerts_say_the_numbers() -> None:
    rows = [{**FINE, "update": i} for i in range(5)]
    rows += [{**FINE, "update": i, "entropy": 0.004, "tokens_per_call": 30.0, "malformed": 0.25, "too_long": 0.5} for i in range(5, 10)]
    said = {a.code: a.what for a in language_alerts(rows, [])}
    assert said["entropy_collapse"].startswith("surprise per token fell 1 -> 0.004")
    assert said["length_drift"] == "answers went from 10.0 to 30.0 tokens"
    assert said["malformed"].startswith("25% of the answers")
    assert said["too_long"].startswith("50% of the prompts")
