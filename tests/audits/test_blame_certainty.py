"""The word of a first suspect comes from a measured frequency: by hand, as a law, and for each kind of run."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.audits.blame.certainty import BAR, GUESS, LED_TEAMS, LIKELY, NOBODY, PANELS, WEAK_PANELS, Rate, kind_of, rate_of
from counterpoint.audits.blame.judge import blame
from counterpoint.audits.blame.steps import Steps
from counterpoint.lab.bench.expert_chat import broken_chats
from counterpoint.trace import Event, Trace, content_ref


@given(st.integers(0, 200), st.integers(1, 200), st.floats(0, 1))
def test_likely_needs_half_and_a_guess_more_than_the_rule(right: int, more: int, rule: float) -> None:
    rate = Rate(right=right, count=right + more, of="runs", rule=rule)
    assert (rate.word == LIKELY) == (2 * right >= right + more)
    assert (rate.word == NOBODY) == (2 * right < right + more and rate.share <= rule)


def test_the_words_of_today_by_hand() -> None:
    assert (PANELS.share, LED_TEAMS.share) == (pytest.approx(0.476, abs=5e-4), pytest.approx(0.103, abs=5e-4))
    assert [rate.word for rate in (PANELS, WEAK_PANELS, LED_TEAMS)] == [GUESS, NOBODY, NOBODY]
    rules = [PANELS.rule, WEAK_PANELS.rule, LED_TEAMS.rule]
    assert rules == [pytest.approx(0.31, abs=5e-4), pytest.approx(0.31, abs=5e-4), pytest.approx(0.155, abs=5e-4)]
    assert LED_TEAMS.words == "first suspects were right in 10% of 58 led teams"
    assert rate_of("panel", BAR) is PANELS
    assert rate_of("panel", BAR - 1e-9) is WEAK_PANELS
    assert rate_of("led", 0.99) is LED_TEAMS
    assert rate_of("alone", 0.99) is None


def test_no_share_of_a_led_team_names_a_step_and_the_verdict_has_its_frequency() -> None:
    (led,), (panel,) = (
        [next(t for t in broken_chats(range(40), shapes=[shape]) if blame(t).suspects[0].score >= BAR)]
        for shape in ("led", "panel")
    )
    told = blame(led)
    assert (told.sure, told.rate) == (NOBODY, LED_TEAMS)
    assert told.verdict == f"{NOBODY}; {LED_TEAMS.words}"
    told = blame(panel)
    assert (told.sure, told.rate) == (GUESS, PANELS)
    assert re.fullmatch(rf"a guess: .+ at step \d+ \(\d+%\); {re.escape(PANELS.words)}", told.verdict)


def test_one_agent_is_a_kind_that_nobody_has_labelled() -> None:
    texts = ["The sum is 12.", "Let's assume that it is 13.", "I confirm 13."]
    events = [Event(id=f"s{i}", t=i, type="message", agent="solo", content_ref=content_ref(text)) for i, text in enumerate(texts)]
    contents = {content_ref(text): text for text in texts}
    trace = Trace(trace_id="solo", task_id="solo", events=events, contents=contents, rewards={"team": 0.0})
    assert kind_of(Steps(trace)) == "alone"
    told = blame(trace)
    assert (told.stands_out, told.rate) == (False, None)
    assert "no labelled run of this kind" in told.verdict
