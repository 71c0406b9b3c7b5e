"""Which texts repeat an earlier one: token shingles by default, embeddings or any similarity on request.

Always true: `repeats` is exact, not a sketch. Two sets whose Jaccard similarity reaches the threshold must share one of the
rarest few shingles of each (prefix filtering, Chaudhuri et al. 2006; AllPairs, Bayardo et al. 2007), so an inverted index over
those finds every pair without comparing all; a text needs only one earlier match, so ten thousand copies cost no more than
ten thousand texts.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

THRESHOLD = 0.8
"""Similarity from which two messages say the same: the usual bar for near-duplicates over word shingles (Broder 1997)."""

Shingles = frozenset[Hashable]
_WORD = re.compile(r"\w+")


def shingles(text: str, k: int = 3) -> Shingles:
    """The runs of k words in a text, in lower case; all of it where it has fewer words."""
    words = _WORD.findall(text.lower())
    if not words:
        return frozenset((text.strip(),)) if text.strip() else frozenset()
    return frozenset(tuple(words[i : i + k]) for i in range(max(1, len(words) - k + 1)))


def jaccard(a: Shingles, b: Shingles) -> float:
    """|a & b| / |a | b|; two empty sets are alike."""
    return len(a & b) / len(a | b) if a or b else 1.0


def repeats(sets: Sequence[Shingles], threshold: float = THRESHOLD) -> list[int]:
    """For each set the place of an earlier one with Jaccard >= threshold, or -1. Places follow the given order."""
    if len(sets) < 2:
        return [-1] * len(sets)
    rarity = Counter(x for s in set(sets) for x in s)
    index: dict[Hashable, list[int]] = {}
    first: dict[Shingles, int] = {}
    out: list[int] = []
    for i, s in enumerate(sets):
        if s in first:
            out.append(first[s])
            continue
        first[s] = i
        # The rarest shingles first; ties by text, so that the same sets give the same index.
        ranked = sorted(s, key=lambda x: (rarity[x], x))
        head = ranked[: len(s) - math.ceil(threshold * len(s) - 1e-9) + 1]
        out.append(_match(s, sets, (j for x in head for j in index.get(x, ())), threshold))
        for x in head:
            index.setdefault(x, []).append(i)
    return out


def _match(s: Shingles, sets: Sequence[Shingles], candidates: Any, threshold: float) -> int:
    tried: set[int] = set()
    for j in candidates:
        if j in tried:
            continue
        tried.add(j)
        shorter, longer = sorted((len(s), len(sets[j])))
        if shorter >= threshold * longer - 1e-9 and jaccard(s, sets[j]) >= threshold - 1e-12:
            return int(j)
    return -1


def repeats_by_similarity(
    texts: Sequence[str], similarity: Callable[[str, str], float], threshold: float = THRESHOLD
) -> list[int]:
    """The same with any similarity of two texts: every pair is compared until the first match."""
    out: list[int] = []
    for i, text in enumerate(texts):
        out.append(next((j for j in range(i) if similarity(texts[j], text) >= threshold), -1))
    return out


def repeats_by_embedding(vectors: NDArray[Any], threshold: float = THRESHOLD) -> list[int]:
    """The same by the cosine of embeddings, an (n, d) array. Blocks of rows, so memory stays flat."""
    vectors = np.asarray(vectors, np.float64)
    if vectors.ndim != 2:
        raise ValueError(f"embeddings have shape {vectors.shape}, not (n, d)")
    norm = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = vectors / np.where(norm > 0, norm, 1.0)
    out: list[int] = []
    for begin in range(0, len(unit), 512):
        block = unit[begin : begin + 512]
        alike = block @ unit[: begin + len(block)].T >= threshold - 1e-12
        for row, hits in enumerate(alike):
            earlier = hits[: begin + row]
            out.append(int(np.argmax(earlier)) if bool(earlier.any()) else -1)
    return out
