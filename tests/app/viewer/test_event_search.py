"""The search language over events: each field against events chosen by hand, and one language with `counterpoint ls`."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.viewer.small import team
from counterpoint.app.search import EVENT_FIELDS, EVENT_FLAGS, FIELDS, Term, terms
from counterpoint.app.viewer.event_search import find
from counterpoint.app.viewer.shapes import FLAGS
from counterpoint.errors import InputError
from counterpoint.testing import synthetic_trace
from counterpoint.trace.annotation import annotation, with_annotations


@pytest.mark.parametrize(
    ("query", "numbers"),
    [
        ("", [0, 1, 2, 3, 4, 5, 6]),
        ("kind:spawn", [1]),
        ("type:tool_", [2, 3, 5]),
        ("agent:READ", [2, 3, 4]),
        ("role=lead", [0, 1, 5, 6]),
        ("tool:web", [2, 3]),
        ("tool!=web", [0, 1, 4, 5, 6]),
        ("id:e5", [5]),
        ("to:lead", [4]),
        ("task:read", [1]),
        ("tokens>5", [0, 2, 4]),
        ("tokens<5", [6]),  # what carries no tokens is not less than five
        ("tokens>=0.02k", [2]),
        ("t<4", [0, 1, 2]),
        ("t>=5", [5, 6]),
        ("seconds=3", [2, 5]),
        ("cost>0", [0]),
        ("turn:0", [0, 2]),
        ("step=2", [6]),
        ("depth=1", [2, 3, 4]),
        ("n<2", [0, 1]),
        ("untrusted", [3]),
        ("tainted", [3, 4, 5, 6]),
        ("failed", [5]),
        ("tainted agent:lead", [5, 6]),
        ("open", []),
        ("text", [0, 3, 4]),
        ("12", [3, 4]),
        ("river", [3]),
        ("SHELL", [5]),
        ("reader", [2, 3, 4]),
        ('"rm -rf"', [3]),
        ('"kind:spawn"', []),
        ('agent:"lead" "plan it"', [0]),
        ("e3", [3]),
    ],
)
def test_a_query_finds_what_it_says(query: str, numbers: list[int]) -> None:
    assert find(team(), query) == numbers


@pytest.mark.parametrize("query", ["colour:red", "tokens>many", '"unclosed', "agent>5", "credit<0"])
def test_a_query_that_means_nothing_is_an_error(query: str) -> None:
    with pytest.raises(InputError):
        find(team(), query)


def test_terms_are_read_once_for_both() -> None:
    query = "tokens>5k open \"two words\" id:'a b' word"
    for fields, flags in ((FIELDS, {"open"}), (EVENT_FIELDS, EVENT_FLAGS)):
        assert terms(query, fields, flags) == [
            Term("tokens", ">", "5k"), Term("open", "", ""), Term("", "", "two words"), Term("id", ":", "a b"), Term("", "", "word"),
        ]  # fmt: skip


def test_every_mark_is_one_of_the_columns() -> None:
    assert set(EVENT_FLAGS.values()) == set(FLAGS)


@settings(max_examples=40, deadline=None)
@given(st.text(alphabet=" \"'abce<>=:!0k", max_size=14))
def test_any_text_is_a_query_or_one_clear_error(query: str) -> None:
    try:
        found = find(team(), query)
    except InputError:
        return
    assert found == sorted(set(found))
    assert set(found) <= set(range(7))


def test_words_are_found_in_the_texts_of_a_larger_trace() -> None:
    trace = synthetic_trace(8, 120, "hierarchical", contents=True)
    words = [e for e in trace.events if e.type == "tool_result" and "harbour" in (trace.text(e) or "").lower()]
    assert words
    assert len(find(trace, "kind:tool_result harbour")) == len(words)


def test_what_people_said_about_events_is_found() -> None:
    trace = team()
    notes = [
        annotation(trace.trace_id, by="ann", at=1.0, event="e3", name="verdict", label="wrong", text="made up"),
        annotation(trace.trace_id, by="bob", at=2.0, event="e5", name="helpful", score=4),
        annotation(trace.trace_id, by="bob", at=3.0, text="made up, all of it"),
    ]
    noted = with_annotations(trace, notes)
    asked = {"label:wrong": [3], "label:verdict": [3], "note:MADE": [3], "made": [3], "score>3": [5], "score:4": [5], "score<4": []}
    assert {query: find(noted, query) for query in asked} == asked
