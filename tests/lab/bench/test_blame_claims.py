"""Rows of the claims about blame: intervals over the runs, gains paired by run, and bars tried on runs that did not choose them."""

from __future__ import annotations

import numpy as np
import pytest

from counterpoint.audits.blame.steps import Steps
from counterpoint.lab.bench.blame_cases import GOLD_SIGNALS, LabelledRun, gold_signals, near_hits, ranks_of
from counterpoint.lab.bench.claims._blame import gain_over_runs, half_right_bar, likely_elsewhere, over_runs, share_row
from counterpoint.lab.bench.claims.blame_who_when import surprise_rows
from counterpoint.lab.bench.claims.repair import Case, cases_of, rows_of
from counterpoint.trace import Event, Trace, content_ref


def test_the_gain_of_a_surprise_is_paired_with_the_ranking_alone() -> None:
    known = [labelled("one", "two is odd and long", "three", gold="", truth=t) for t in (1, 1, 0)]
    scores = [[np.array([0.2, 0.1, 0.0])] * 3] * 2
    step, gain = surprise_rows("odd", known, scores, lambda texts: [float(len(text)) for text in texts])
    # the long text is by far the most surprising: tanh of (value - mean) / spread: -0.69, 0.89, -0.51; a half counts
    assert (step.value, gain.value) == (pytest.approx(2 / 3), pytest.approx(1 / 3))
    assert not gain.has_target
    (alone, none) = surprise_rows("even", known, scores, lambda texts: [1.0] * len(texts))
    assert (alone.value, none.value) == (pytest.approx(1 / 3), 0.0)


def test_more_splits_of_the_same_runs_do_not_narrow_the_interval() -> None:
    runs = [1.0] * 20 + [0.0] * 22
    few, many = over_runs("share", [runs] * 2), over_runs("share", [runs] * 50)
    assert few.value == many.value == pytest.approx(20 / 42)
    assert many.low is not None
    assert few.low is not None
    # Student's over 42 runs by hand: 0.476 -+ 2.02 * 0.5055 / sqrt(42)
    assert (many.low, many.high) == (pytest.approx(0.319, abs=0.01), pytest.approx(0.634, abs=0.01))
    assert abs(few.low - many.low) < 0.01
    assert not over_runs("share", [runs] * 50, 0.46).ok, "the mean is above the target, the interval's end is not"
    assert over_runs("share", [runs] * 50, 0.25).ok
    assert over_runs("rare", [[0.0] * 28 + [1.0]] * 3).low == 0.0


def test_a_gain_is_paired_by_run() -> None:
    rule = [1.0, 0.0] * 20
    both = [max(a, float(i % 3 == 0)) for i, a in enumerate(rule)]
    assert gain_over_runs("gain", [both] * 3, rule).ok
    assert not gain_over_runs("gain", [rule] * 3, rule).ok, "no better is not better"


def test_a_share_has_wilsons_interval_and_a_chance_none() -> None:
    row = share_row("constant", [1.0] * 6 + [0.0] * 52)
    assert (row.low, row.high) == (pytest.approx(0.0483, abs=1e-4), pytest.approx(0.2079, abs=1e-4))
    assert share_row("at random", [0.25, 0.5]).low is None


def test_a_bar_is_tried_where_it_was_not_fitted() -> None:
    shares = np.tile(np.linspace(0.1, 0.9, 40), (2, 1))
    told = (shares > 0.5).astype(float)
    assert half_right_bar(shares, told) == pytest.approx(0.2)  # 20 of the 36 from there on are right
    right, said = likely_elsewhere(shares, told, 0)
    assert right > 0.5 < said
    rng = np.random.default_rng(0)
    luck = (rng.random(40) < 0.4).astype(float)[None].repeat(2, axis=0)  # shares that say nothing
    assert likely_elsewhere(rng.random((1, 40)).repeat(2, axis=0), luck, 0)[0] < 0.5
    assert half_right_bar(shares, np.zeros_like(told)) is None
    assert np.isnan(likely_elsewhere(shares, np.zeros_like(told), 0)[0])


def labelled(*texts: str, gold: str, truth: int) -> LabelledRun:
    """A conversation of two, after a question."""
    said = ["Which tower is the tallest?", *texts]
    events = [
        Event(id=f"s{i}", t=i, type="message" if i else "human_intervention", agent="ab"[i % 2] if i else "user",
              content_ref=content_ref(text)) for i, text in enumerate(said)
    ]  # fmt: skip
    contents = {content_ref(text): text for text in said}
    trace = Trace(trace_id="t", task_id="t", events=events, contents=contents, meta={"labels": {"ground_truth": gold}})
    return LabelledRun(trace, Steps(trace), truth, "a", "generated")


def test_the_right_answer_is_a_signal_of_its_own_and_asked_for_by_name() -> None:
    known = labelled("It is 12 m.", "No: the Red Tower, 1,300 m.", "It is 12 m.", gold="red tower", truth=2)
    found = {name: column.tolist() for name, column in gold_signals(known).items()}
    assert found == {"shows_gold": [0, 1, 0], "after_gold": [0, 0, 1]}
    assert known.case(GOLD_SIGNALS).x.tolist() == [[0, 0], [1, 0], [0, 1]]
    for gold in ("12", "tower", ""):  # too short, in the question, none
        assert not any(
            column.any() for column in gold_signals(labelled("It is 12 m.", "The tower.", gold=gold, truth=0)).values()
        )


def test_places_in_a_ranking_and_hits_within_one_entry_by_hand() -> None:
    known = labelled("one", "two", "three", gold="", truth=2)
    assert ranks_of([known], [np.array([0.2, 0.9, 0.5])]) == [2]
    assert near_hits([known], [np.array([0.2, 0.9, 0.5])]) == [1]
    assert near_hits([known], [np.array([0.9, 0.2, 0.5])]) == [0]
    nowhere = labelled("one", "two", gold="", truth=-1)
    assert ranks_of([nowhere], [np.array([0.9, 0.2])]) == [float("inf")]
    assert near_hits([nowhere], [np.array([0.9, 0.2])]) == [0]


def case(kind: str, **mended: bool) -> Case:
    """What came of a run whose arms cost ten calls each."""
    arms = {name.replace("_", " "): is_so for name, is_so in mended.items()}
    group = "planted mistakes" if kind else "failures of their own"
    return Case(group, kind, "T1", arms, dict.fromkeys(arms, 10), (1, 2), (False, True))


def test_arms_of_a_repair_are_paired_by_run() -> None:
    some = [case("wrong_fact", named_step=True, random_step=k < 4, last_step=False, retry=True) for k in range(12)]
    rows = {row.name: row for row in rows_of("planted mistakes", some, has_target=True)}
    share = rows["planted mistakes (12 runs): random step, mended"]
    assert (share.value, share.low, share.high) == (pytest.approx(1 / 3), pytest.approx(0.138, abs=1e-3), pytest.approx(0.609, abs=1e-3))
    over = rows["planted mistakes: named step over random step"]
    # Student's over 12 runs by hand: 2/3 -+ 2.201 * sqrt(8/12 * 4/12 * 12/11) / sqrt(12)
    assert (over.value, over.low, over.ok) == (pytest.approx(2 / 3), pytest.approx(0.354, abs=1e-3), True)
    assert over.target == ">= 0"
    assert not rows["planted mistakes: named step over retry"].has_target
    assert rows["planted mistakes: tries in which the advice was heard"].value == 0.5
    assert rows["planted mistakes: last step, calls"].value == 10
    level = [case("", named_step=k % 2 == 0, random_step=k % 2 == 1, last_step=False, retry=False) for k in range(12)]
    assert not {r.name: r for r in rows_of("own", level, has_target=True)}["own: named step over random step"].ok
    assert not list(rows_of("none", [], has_target=True))


def test_failed_runs_of_a_team_are_its_own_failures_and_successes_with_a_mistake() -> None:
    cases = cases_of(5, 6_000, 8)  # whose runs are quick
    assert cases == cases_of(5, 6_000, 8)
    assert {one.group for one in cases} == {"planted mistakes", "failures of their own"}
    for one in cases:
        arms = ["named step", "random step", "last step", "retry", "random steps", "back from the last"] + (["planted step"] if one.kind else [])
        assert list(one.mended) == list(one.calls) == arms
        assert max(one.calls.values()) == one.calls["retry"] > 0
    assert len({one.kind for one in cases if one.kind}) > 1, "kinds take turns"
