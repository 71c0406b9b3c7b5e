"""Random draws that are the same bytes everywhere.

Always true: every draw is a raw 64-bit word of PCG64, whose stream NumPy promises never to change, and what is made of it is
integer arithmetic; so no library version, platform or hash seed moves a number.
"""

from __future__ import annotations

import numpy as np

_BUFFER = 4096


class Dice:
    """A stream of words for one purpose; streams of different purposes never meet."""

    def __init__(self, seed: int, purpose: int) -> None:
        self._bits = np.random.PCG64([seed, purpose])
        self._words: list[int] = []

    def word(self) -> int:
        """The next 64 random bits."""
        if not self._words:
            self._words = self._bits.random_raw(_BUFFER)[::-1].tolist()
        return self._words.pop()

    def below(self, n: int) -> int:
        """A number in 0..n-1."""
        return self.word() % n

    def hashes(self, n: int) -> list[str]:
        """`n` strings of 64 hexadecimal digits."""
        text = self._bits.random_raw(4 * n).astype("<u8").tobytes().hex()
        return [text[i : i + 64] for i in range(0, 64 * n, 64)]


def shares(dice: Dice, total: int, n: int, *, is_heavy: bool) -> list[int]:
    """`total` steps over `n` agents, at least one each: heavy-tailed (the largest about five times the mean) or near-equal."""
    if not n:
        return []
    weights = [2048 // (16 + dice.below(256)) if is_heavy else 64 + dice.below(32) for _ in range(n)]
    left, whole = total - n, sum(weights)
    out = [1 + left * w // whole for w in weights]
    short = total - sum(out)
    for i in range(short):
        out[i % n] += 1
    return out
