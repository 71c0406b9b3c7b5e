"""Where some words may begin in a text: one pass over its bytes for all of them.

Always true: no place is missed, some places are none (the caller looks again), and the time is linear: every four bytes in
a row are
one number, and a table says for each number whether a word begins so.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

_FACTOR = np.uint32(2654435761)  # of multiplicative hashing: the golden ratio of 2**32
_SHIFT = np.uint32(14)
_LETTERS = frozenset(b"abcdefghijklmnopqrstuvwxyz")


class Scan:
    """A table of the beginnings of words in lower-case ASCII. A word of three letters ends where no letter follows."""

    def __init__(self, words: Iterable[str]) -> None:
        self._table = np.zeros(1 << 18, bool)
        heads: list[bytes] = []
        for word in words:
            head = word.encode("latin-1")[:4]
            assert len(head) >= 3
            heads += (
                [head]
                if len(head) == 4
                else [head + bytes([c]) for c in range(256) if c not in _LETTERS or head[-1] not in _LETTERS]
            )
        self._heads = np.unique(np.frombuffer(b"".join(heads), "<u4"))
        self._table[(self._heads * _FACTOR) >> _SHIFT] = True

    def places(self, low: str) -> list[int]:
        """Every place of a text, whose ASCII letters are in lower case, where a word may begin."""
        data = low.encode("latin-1", "replace") + b"\0\0\0\0"
        numbers: NDArray[np.uint32] = np.ndarray((len(data) - 3,), "<u4", data, 0, (1,))
        maybe = np.flatnonzero(self._table[(numbers * _FACTOR) >> _SHIFT])
        near = np.searchsorted(self._heads, numbers[maybe])
        found: list[int] = maybe[self._heads[np.minimum(near, len(self._heads) - 1)] == numbers[maybe]].tolist()
        return found
