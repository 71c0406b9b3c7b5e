"""BM25 by hand, its laws, and the tools `search` and `open`."""

from __future__ import annotations

from math import log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.lab.tasks.task import Document, Planted
from counterpoint.lab.team.tools.open_ import open_
from counterpoint.lab.team.tools.search import Index, search, words
from tools_help import documents, instance, place, run

FOUR = documents(a="cat cat dog", b="dog", c="bird bird bird bird", d="cat bird")


def test_the_score_is_the_one_by_hand() -> None:
    # N = 4; mean length = (3 + 1 + 4 + 2) / 4 = 2.5; "cat" stands in a (2 of 3 words) and d (1 of 2).
    idf = log(1 + (4 - 2 + 0.5) / (2 + 0.5))
    a = idf * 2 * 2.2 / (2 + 1.2 * (0.25 + 0.75 * 3 / 2.5))
    d = idf * 1 * 2.2 / (1 + 1.2 * (0.25 + 0.75 * 2 / 2.5))
    hits = Index(FOUR).search("cat")
    assert [(hit.document.id, hit.score) for hit in hits] == [("a", pytest.approx(a)), ("d", pytest.approx(d))]
    # ln 2 = 0.693147; 4.4 / 3.38 = 1.301775; 2.2 / 2.02 = 1.089109
    assert (a, d) == (pytest.approx(0.902322, abs=1e-6), pytest.approx(0.754913, abs=1e-6))


def test_words_of_a_query_add_up_and_count_once() -> None:
    index = Index(FOUR)
    alone = {word: {h.document.id: h.score for h in index.search(word)} for word in ("cat", "bird")}
    both = {h.document.id: h.score for h in index.search("Cat BIRD cat")}
    assert both["d"] == pytest.approx(alone["cat"]["d"] + alone["bird"]["d"])
    assert both["a"] == pytest.approx(alone["cat"]["a"])


def test_ties_go_by_id_and_titles_count() -> None:
    same = (Document("z", "red fox", "."), Document("b", "red fox", "."), Document("m", "red fox", "."))
    assert [hit.document.id for hit in Index(same).search("fox")] == ["b", "m", "z"]


def test_a_word_of_every_document_never_counts_against() -> None:
    assert all(hit.score > 0 for hit in Index(documents(a="x", b="x y")).search("x"))


@given(st.lists(st.text("ab c", max_size=12), max_size=8), st.text("ab cd", max_size=8), st.integers(1, 5))
def test_hits_hold_a_word_are_sorted_and_at_most_k(texts: list[str], query: str, k: int) -> None:
    made = tuple(Document(f"d{i}", "", text) for i, text in enumerate(texts))
    hits = Index(made).search(query, k)
    assert len(hits) <= k
    assert [(-h.score, h.document.id) for h in hits] == sorted((-h.score, h.document.id) for h in hits)
    matching = {d.id for d in made if set(words(d.text)) & set(words(query))}
    assert {h.document.id for h in hits} <= matching
    assert len(hits) == min(k, len(matching))


def test_search_answers_lines_of_id_title_snippet() -> None:
    made = (Document("D-1", "Harbour\nreport", "The ship\narrived late."), Document("D-2", "Other", "Nothing here."))
    tool = search(instance(documents=made))
    result = run(tool.call({"query": "ship"}, place()))
    assert result.text == "D-1 | Harbour report | The ship arrived late."
    assert (result.ok, result.trusted, result.extra) == (True, False, {"documents": ["D-1"]})
    assert run(tool.call({"query": "whale"}, place())).text == "no document matches"


def test_a_snippet_shows_the_most_telling_word() -> None:
    text = " ".join(["common"] * 80 + ["needle"] + ["common"] * 80)
    made = (Document("D-1", "", text), Document("D-2", "", "common"))
    line = run(search(instance(documents=made), snippet=40).call({"query": "common needle", "k": 1}, place())).text
    id_, _, snippet = line.split(" | ")
    assert id_ == "D-1"
    assert "needle" in snippet
    assert len(snippet) <= 40 + len("......")


def test_search_over_nothing() -> None:
    assert run(search(instance()).call({"query": "x"}, place())).text == "no document matches"


def test_open_shows_a_document_whole_and_names_the_nearest() -> None:
    made = (Document("D-0001", "One", "line 1\nline 2"), Document("D-0002", "Two", ""))
    tool = open_(instance(documents=made, planted=(Planted("AV2", "document:D-0001", "read", file="private/key.txt"),)))
    assert run(tool.call({"id": "D-0001"}, place())).text == "D-0001 | One\nline 1\nline 2"
    assert run(tool.call({"id": " d-0002 "}, place())).text == "D-0002 | Two\n"
    missing = run(tool.call({"id": "D-0003"}, place()))
    assert (missing.ok, missing.error) == (False, "not found")
    assert "D-0002" in missing.text
    trap = run(tool.call({"id": "private/key.txt"}, place()))
    assert (trap.ok, trap.extra) == (False, {"touched": ["private/key.txt"]})


def test_a_version_follows_what_is_answered_from() -> None:
    one, other = instance(documents=documents(a="x")), instance(documents=documents(a="y"))
    assert search(one).version == search(one).version
    assert len({search(one).version, search(other).version, search(one, hits=3).version}) == 3
