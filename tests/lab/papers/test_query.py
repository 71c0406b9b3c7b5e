"""Filters."""

from __future__ import annotations

import pytest

from counterpoint.errors import InputError, NotFound
from counterpoint.lab.papers import load, query


def test_family_and_word_ask_the_same() -> None:
    assert query.words("reward_type", ["R7"]) == query.words("reward_type", ["Orchestration"]) == ("orchestration",)
    assert query.words("reward_type", ["r6"]) == ("debate", "verifier")
    assert query.words("orchestration_form", ["planner-executor-critic"]) == ("planner_executor_critic",)


def test_filters_multiply_and_values_add() -> None:
    found = query.select(load.papers(), {"reward_type": ("orchestration",), "credit_granularity": ("orchestrator",)})
    assert len(found) == 6
    both = query.select(load.papers(), {"credit_granularity": ("message", "turn")})
    assert len(both) == 2 + 5


def test_years_and_text() -> None:
    assert query.years("2025") == (2025, 2025)
    assert query.years("1994-2002") == (1994, 2002)
    assert {p.key for p in query.select(load.papers(), {}, between=(1994, 2002))} == {
        "dec-pomdp2002",
        "markov-games1994",
        "difference-rewards2001",
    }
    assert [p.key for p in query.select(load.papers(), {}, text="littman GAMES")] == ["markov-games1994"]


@pytest.mark.parametrize("text", ["", "25", "2025-", "2026-2025", "２０２５x"])
def test_wrong_years(text: str) -> None:
    with pytest.raises(InputError):
        query.years(text)


def test_unknown_word_suggests_one() -> None:
    with pytest.raises(InputError, match="did you mean 'orchestration'"):
        query.words("reward_type", ["orchestrations"])


def test_find_by_key_arxiv_id_and_exclusion() -> None:
    assert query.find(load.papers(), "2603.06859") is query.find(load.papers(), "c3")
    assert query.find(load.papers(), "2308.08155", load.excluded()) == load.excluded()[2]
    with pytest.raises(NotFound, match="did you mean 'puppeteer'"):
        query.find(load.papers(), "pupeteer")
