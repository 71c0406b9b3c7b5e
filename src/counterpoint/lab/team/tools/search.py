"""`search`: the documents that a few words are about, best first, by BM25.

Always true: one line `ID | title | snippet` per hit and nothing else, ties by id; the same words give the same lines, whatever
was asked before.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from counterpoint.lab.tasks.task import Document, Instance
from counterpoint.lab.team.tool import Effect, Place, ToolResult, fingerprint

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
    """An index over documents for BM25 (Robertson and Zaragoza 2009, doi:10.1561/1500000019); titles count as text.

        score(q, d) = sum over t in q of idf(t) * tf * (k1 + 1) / (tf + k1 * (1 - b + b * len(d) / mean len))
        idf(t)      = ln(1 + (N - n + 0.5) / (n + 0.5))

    tf: how often t occurs in d; n: in how many of the N documents. Departure: the 1 inside the logarithm, as in Lucene, so that
    a word of every document counts a little and never against a document; a word that a query repeats counts once.
    """

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


class search:
    """The tool `search` over an instance's documents."""

    name = "search"
    effect: Effect = "pure"
    about = "finds documents by words; argument: the words. Answers lines: ID | title | snippet"
    main = "query"
    example: Mapping[str, Any] = {"query": "harbour"}

    def __init__(self, instance: Instance, *, hits: int = 5, snippet: int = 120) -> None:
        """`hits`: how many lines unless the call says; `snippet`: how many characters of text a line shows."""
        self._documents, self._hits, self._snippet = instance.documents, hits, snippet
        self.version = f"1-{fingerprint(instance.documents, hits, snippet)}"
        self._index: Index | None = None
        self.arguments: Mapping[str, Any] = {
            "type": "object",
            "properties": {"query": {"type": "string", "minLength": 1}, "k": {"type": "integer", "minimum": 1, "maximum": 50}},
            "required": ["query"],
            "additionalProperties": False,
        }

    async def call(self, args: Mapping[str, Any], place: Place) -> ToolResult:
        """Search; a query that matches nothing is answered, not refused."""
        index = self._index = self._index or index_of(self._documents)  # to look it up, all documents are hashed
        query = args["query"]
        hits = index.search(query, args.get("k", self._hits))
        if not hits:
            return ToolResult("no document matches", extra={"documents": []})
        lines = [
            " | ".join((hit.document.id, " ".join(hit.document.title.split()), index.snippet(query, hit.document, self._snippet)))
            for hit in hits
        ]
        return ToolResult("\n".join(lines), extra={"documents": [hit.document.id for hit in hits]})

    async def close(self) -> None:
        """Nothing is held."""
