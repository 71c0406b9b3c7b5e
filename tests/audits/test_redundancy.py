"""Repeated texts: shingles, the index against brute force, embeddings and any similarity."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.audits.redundancy import jaccard, repeats, repeats_by_embedding, repeats_by_similarity, shingles


def test_shingles_by_hand() -> None:
    assert shingles("The gauge rose, the GAUGE fell") == {
        ("the", "gauge", "rose"), ("gauge", "rose", "the"), ("rose", "the", "gauge"), ("the", "gauge", "fell")
    }  # fmt: skip
    assert shingles("Done!") == {("done",)}
    assert shingles("") == frozenset()
    assert shingles("…") == {"…"}


def test_jaccard_by_hand() -> None:
    assert jaccard(frozenset("abcd"), frozenset("bcde")) == pytest.approx(3 / 5)
    assert jaccard(frozenset(), frozenset()) == 1.0


def test_repeats_point_at_the_earlier_text() -> None:
    said = ["the gauge rose by two", "something else entirely here", "The gauge rose by two!", "the gauge rose by two millimetres"]
    sets = [shingles(text) for text in said]
    assert repeats(sets) == [-1, -1, 0, -1]
    assert repeats(sets, threshold=0.75) == [-1, -1, 0, 0]


@given(st.lists(st.frozensets(st.integers(0, 12), max_size=8), max_size=25), st.sampled_from([0.3, 0.5, 0.8, 1.0]))
def test_the_index_misses_nothing(sets: list[frozenset[int]], threshold: float) -> None:
    found = repeats(sets, threshold)
    for i, j in enumerate(found):
        has = [k for k in range(i) if jaccard(sets[k], sets[i]) >= threshold - 1e-12]
        assert (j >= 0) == bool(has)
        assert j < 0 or j in has


def test_what_is_said_again_is_found_among_thousands() -> None:
    rng = np.random.default_rng(0)
    words = np.array([f"w{k}" for k in range(2000)])
    said = [" ".join(words[rng.integers(2000, size=30)]) for _ in range(1500)]
    said += [text + " again" for text in said]
    found = repeats([shingles(text) for text in said])
    assert found[1500:] == list(range(1500))


def test_embeddings_and_similarity() -> None:
    assert repeats_by_embedding(np.array([[1, 0], [0, 1], [0.9, 0.1], [0, 0]])) == [-1, -1, 0, -1]
    assert repeats_by_embedding(np.zeros((0, 3))) == []
    assert repeats_by_similarity(["ab", "cd", "abx"], lambda a, b: float(a[:2] == b[:2])) == [-1, -1, 0]
    with pytest.raises(ValueError, match="not \\(n, d\\)"):
        repeats_by_embedding(np.zeros(3))
