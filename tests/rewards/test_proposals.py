"""What a log suggests about how it came out."""

from __future__ import annotations

import pytest

from counterpoint.rewards.proposals import judgement, proposals, test_run
from counterpoint.trace import Edge, Event, Trace

RUNS = [
    ("collected 3\n===== 2 passed, 1 warning in 0.12s =====", True),
    ("===== 1 failed, 2 passed in 0.12s =====", False),
    ("68 passed, 2 skipped in 4.22s", True),
    ("Tests:       1 failed, 12 passed, 13 total", False),
    ("test result: ok. 14 passed; 0 failed; 0 ignored", True),
    ("test result: FAILED. 13 passed; 1 failed; 0 ignored", False),
    ("  12 passing (31ms)\n  1 failing", False),
    ("Ran 3 tests in 0.001s\n\nOK", True),
    ("Ran 3 tests in 0.001s\n\nFAILED (failures=1)", False),
    ("ok  \texample.org/a\t0.1s\nFAIL\texample.org/b\t0.2s\nok  \texample.org/c\t0.1s", False),
    ("ok  \texample.org/a\t0.1s", True),
    # Run again: of each package the last line counts.
    ("FAIL\texample.org/a\t0.3s\nFAIL\n=== rerun ===\nok  \texample.org/a\t0.4s", True),
    ("FAIL\texample.org/a\t0.3s\nFAIL\texample.org/b\t0.3s\nok  \texample.org/a\t(cached)", False),
    ("FAIL\texample.org/a\t0.3s\nok  \texample.org/a\t(cached)", True),
    ("ok  \texample.org/a\t0.4s\nok  \texample.org/b\t0.1s\tcoverage: 61.2% of statements\nFAIL\texample.org/a\t0.3s", False),
    ("ok  \texample.org/a\t0.4s\nFAIL\texample.org/b [build failed]", False),
    ("ok  \texample.org/a\t(cached)", True),
    ("everything is ok, 3 passed the door", None),
    ("FAIL is a word", None),
]


@pytest.mark.parametrize(("text", "passed"), RUNS)
def test_a_test_run_is_read_from_its_summary(text: str, passed: bool | None) -> None:
    found = test_run(text)
    assert (found[0] if found else None) == passed


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Excellent work, thank you!", True),
        ("thanks, but it still fails on Windows", False),
        ("that's not what I asked for", False),
        ("a renderer that works with data only", None),
        ("now add a button", None),
        ("谢谢", True),
    ],
)
def test_words_that_judge(text: str, said: bool | None) -> None:
    assert judgement(text) is said


def test_proposals_name_what_they_rest_on_and_the_strongest_comes_first() -> None:
    texts = {
        "a": "Make it fast. Thanks!",  # the task, and no judgement
        "b": "== 2 failed in 1s ==",
        "c": "== 5 passed in 1s ==",
        "d": "gh pr merge 7",
        "e": "✓ Merged pull request #7",
        "f": "Great, thanks",
        "g": "<system>thanks</system>",
    }
    kinds = {"a": "human_intervention", "d": "tool_call", "f": "human_intervention", "g": "human_intervention"}
    events = [
        Event(id=k, t=i, type=kinds.get(k, "tool_result"), agent="user" if k in "afg" else "main", content_ref=k)  # type: ignore[arg-type]
        for i, k in enumerate(texts)
    ]
    trace = Trace(
        trace_id="t", task_id="q", events=events, edges=[Edge("d", "e", "tool_dependency")], contents=texts,
        metrics={"correct": 0.0, "duration_s": 1}, meta={"labels": {"is_correct": False}},
    )  # fmt: skip
    found = proposals(trace)
    assert [(p.kind, p.event, p.value) for p in found] == [
        ("grader", None, 0.0), ("label", None, 0.0), ("tests", "c", 1.0), ("merged", "e", 1.0), ("user", "f", 1.0)]  # fmt: skip
    assert found[3].says == "Merged pull request #7"
    assert found[2].basis == "tests c: == 5 passed in 1s =="
    scored = Trace(trace_id="t", task_id="q", events=events, contents=texts, rewards={"team": 1.0})
    assert proposals(scored) == []  # what is the reward already is not offered again
