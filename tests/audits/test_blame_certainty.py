"""The word of a first suspect comes from a measured frequency: by hand, as a law, and for each kind of run."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.audits.blame.certainty import (
    BAR,
    GUESS,
    LEDGER_SETS,
    LEDGERS,
    LIKELY,
    NOBODY,
    PANEL_SETS,
    PANELS,
    WEAK_LEDGERS,
    WEAK_PANELS,
    Rate,
    coverage_of,
    kind_of,
    rate_of,
)
from counterpoint.audits.blame.judge import blame
from counterpoint.audits.blame.steps import Steps
from counterpoint.lab.bench.expert_chat import broken_chats
from counterpoint.trace import Event, Trace, content_ref
from counterpoint.trace.statistics import wilson_ends


@given(st.integers(0, 200), st.integers(1, 200), st.floats(0, 1), st.booleans())
def test_likely_needs_half_of_unseen_runs_and_a_guess_more_than_the_rule(
    right: int, more: int, rule: float, is_unseen: bool
) -> None:
    rate = Rate(right=right, count=right + more, of="runs", rule=rule, is_unseen=is_unseen)
    assert (rate.word == LIKELY) == (is_unseen and 2 * right >= right + more)
    assert (rate.word == NOBODY) == (rate.word != LIKELY and wilson_ends(right, right + more)[0] <= rule)
    assert rate.word != GUESS or rate.share > rule


def test_a_guess_is_clearly_above_the_rule() -> None:
    # Wilson's lower end of 4 of 10 is 0.168, of 40 of 100 it is 0.309 (z = 1.96)
    words = [Rate(right=4 * n, count=10 * n, of="runs", rule=0.3).word for n in (1, 10)]
    assert words == [NOBODY, GUESS]


def test_the_words_of_today_by_hand() -> None:
    assert (PANELS.share, LEDGERS.share) == (pytest.approx(0.476, abs=5e-4), pytest.approx(0.689, abs=5e-4))
    assert [rate.word for rate in (PANELS, WEAK_PANELS, LEDGERS, WEAK_LEDGERS)] == [GUESS, NOBODY, GUESS, NOBODY]
    assert [rate.rule for rate in (PANELS, LEDGERS)] == [pytest.approx(0.31, abs=5e-4), pytest.approx(0.155, abs=5e-4)]
    assert PANELS.words == "first suspects were right in 48% of 84 unseen panels"
    assert rate_of("panel", BAR) is PANELS
    assert rate_of("panel", BAR - 1e-9) is WEAK_PANELS
    assert rate_of("ledger", BAR) is LEDGERS
    assert rate_of("ledger", BAR - 1e-9) is WEAK_LEDGERS
    assert rate_of("led", 0.99) is rate_of("alone", 0.99) is None
    assert [coverage_of(kind) for kind in ("panel", "ledger", "led")] == [PANEL_SETS, LEDGER_SETS, None]


def test_a_lead_without_a_ledger_is_a_kind_that_nobody_has_labelled_and_the_verdict_has_its_frequency() -> None:
    (led,), (panel,) = (
        [next(t for t in broken_chats(range(40), shapes=[shape]) if blame(t).suspects[0].score >= BAR)]
        for shape in ("led", "panel")
    )
    told = blame(led)
    assert (told.sure, told.rate, told.step_set) == (NOBODY, None, None)
    assert told.set_words.startswith("cannot say")
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
