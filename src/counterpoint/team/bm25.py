"""BM25: which documents a query is about (Robertson and Zaragoza 2009, doi:10.1561/1500000019).

    score(q, d) = sum over t in q of idf(t) * tf * (k1 + 1) / (tf + k1 * (1 - b + b * len(d) / mean len))
    idf(t)      = ln(1 + (N - n + 0.5) / (n + 0.5))

tf: how often t stands in d; n: in how many of the N documents. Departure: the 1 inside the logarithm, as in Lucene, so that a
word of every document counts a little and never against; a word that a query repeats counts once.

Always true: the same documents and query give the same hits in the same order, whatever was asked before; ties go by id.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from counterpoint.envs.task import Document

_WORD = re.compile(r"\w+")
_Postings = tuple[np.ndarray, np.ndarray]


def words(text: str) -> list[str]:
    """The words of a text: runs of letters and digits, case folded."""
    return _WORD.findall(text.casefold())


class Hit(NamedTuple):
    """A document that matches, and how well."""

    document: Document
    score: float


class Index:
    """An index over documents; titles count as text."""

    def __init__(self, documents: Sequence[Document], *, k1: float = 1.2, b: float = 0.75) -> None:
        self._documents = sorted(documents, key=lambda document: document.id)
        self._k1 = k1
        found: dict[str, tuple[list[int], list[int]]] = {}
        lengths = np.zeros(len(self._documents))
        for place, document in enumerate(self._documents):
            counts = Counter(words(f"{document.title} {document.text}"))
            lengths[place] = counts.total()
            for word, count in counts.items():
                places, times = found.setdefault(word, ([], []))
                places.append(place)
                times.append(count)
        self._found = found
        self._arrays: dict[str, _Postings] = {}
        mean = lengths.mean() if lengths.any() else 1.0
        self._dampening = k1 * (1 - b + b * lengths / mean)

    def idf(self, word: str) -> float:
        """How much a word tells; 0 for one that stands nowhere."""
        if word not in self._found:
            return 0.0
        n = len(self._found[word][0])
        return float(np.log1p((len(self._documents) - n + 0.5) / (n + 0.5)))

    def search(self, query: str, k: int = 5) -> list[Hit]:
        """The best k documents that hold a word of the query."""
        scores = np.zeros(len(self._documents))
        for word in sorted(set(words(query))):
            if word in self._found:
                places, times = self._postings(word)
                scores[places] += self.idf(word) * times * (self._k1 + 1) / (times + self._dampening[places])
        best = np.argsort(-scores, kind="stable")[:k]
        return [Hit(self._documents[place], float(scores[place])) for place in best if scores[place] > 0]

    def _postings(self, word: str) -> _Postings:
        if word not in self._arrays:
            places, times = self._found[word]
            self._arrays[word] = (np.array(places), np.array(times, dtype=float))
        return self._arrays[word]

    def snippet(self, query: str, document: Document, length: int) -> str:
        """One line of the text around the query's most telling word; its beginning where only the title matches."""
        text = " ".join(document.text.split())
        wanted = sorted(set(words(query)), key=lambda word: (-self.idf(word), word))
        places: dict[str, int] = {}
        for match in _WORD.finditer(text):
            places.setdefault(match.group().casefold(), match.start())
        at = next((places[word] for word in wanted if word in places), 0)
        begin = max(0, min(at - length // 3, len(text) - length))
        if begin:
            begin = text.find(" ", begin, at) + 1 or begin
        cut = text[begin : begin + length]
        return ("..." if begin else "") + cut + ("..." if begin + length < len(text) else "")


@lru_cache(maxsize=8)
def index_of(documents: tuple[Document, ...]) -> Index:
    """The index over these documents, built once however many teams work on them."""
    return Index(documents)
