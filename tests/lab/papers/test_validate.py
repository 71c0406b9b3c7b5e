"""The controlled vocabulary."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from counterpoint.lab.papers import load
from counterpoint.lab.papers.records import PAPER_VOCABULARY, Paper, family
from counterpoint.lab.papers.validate import problems, shape_problems


def test_the_pool_has_no_problem() -> None:
    assert problems(load.papers(), load.excluded()) == []


@pytest.mark.parametrize("field", sorted(PAPER_VOCABULARY))
def test_an_unknown_word_is_found_in_every_tag(field: str) -> None:
    paper = msgspec.structs.replace(load.papers()[0], **{field: "agnet"})
    (found,) = problems([paper], [])
    assert (found.code, found.where) == ("vocabulary", f"magrpo.{field}")


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("key", "Has Space", "key"),
        ("key", "", "empty"),
        ("title", "  ", "empty"),
        ("title", "two\nlines", "unprintable"),
        ("one_liner", "\x1b[31mred", "unprintable"),
        ("year", 25, "year"),
        ("year", 2024, "year"),
        ("year", 10**30, "year"),
        ("arxiv_id", "2513.00001", "arxiv_id"),
        ("arxiv_id", "2508.04652v7", "arxiv_id"),
        ("arxiv_id", "", "empty"),
        ("url", "arxiv.org/abs/2508.04652", "url"),
        ("url", "https://a.org ; ftp://b.org", "url"),
        ("reward_type", "na", "vocabulary"),
        ("verified", "maybe", "vocabulary"),
    ],
)
def test_a_wrong_fact_is_found(field: str, value: Any, code: str) -> None:
    paper = msgspec.structs.replace(load.papers()[0], **{field: value})
    assert code in {p.code for p in problems([paper], [])}


def test_absent_id_and_na_are_fine() -> None:
    paper = msgspec.structs.replace(load.papers()[0], arxiv_id=None, reward_type="NA", notes="")
    assert problems([paper], []) == []


def test_an_old_style_arxiv_id_is_fine() -> None:
    paper = msgspec.structs.replace(load.papers()[0], arxiv_id="cs.AI/0301001", year=2003)
    assert problems([paper], []) == []


def test_doubled_records_are_found_once_each() -> None:
    first, record = load.papers()[0], load.excluded()[0]
    found = problems([first, first], [record, record])
    assert [(p.code, p.where) for p in found] == [("duplicate", "magrpo"), ("duplicate", "E001")]


@pytest.mark.parametrize(("field", "value"), [("date_screened", "26 April"), ("url", "x"), ("record_id", "X1")])
def test_a_wrong_exclusion_is_found(field: str, value: str) -> None:
    record = msgspec.structs.replace(load.excluded()[0], **{field: value})
    assert [p.code for p in problems([], [record])] == [field]


def test_shape_names_unknown_missing_and_mistyped(record: dict[str, Any]) -> None:
    del record["url"]
    found = shape_problems(record | {"titel": "x", "year": "2026", "venue": None})
    assert [p.code for p in found] == ["unknown_field", "missing_field", "type", "type"]
    assert found[0].hint == "did you mean 'title'?"
    assert found[1].what == "missing: url"


def test_true_is_not_a_year(record: dict[str, Any]) -> None:
    assert [p.code for p in shape_problems(record | {"year": True})] == ["type"]


def test_family_words(record: dict[str, Any]) -> None:
    assert [family(w) for w in ("shared", "tool", "debate", "verifier", "hybrid", "NA")] == [
        "R1",
        "R5",
        "R6",
        "R6",
        "R8",
        "-",
    ]
    paper = msgspec.convert(record | {"reward_type": "R6"}, Paper)
    assert problems([paper], [])[0].hint == "write 'debate' or 'verifier'"
