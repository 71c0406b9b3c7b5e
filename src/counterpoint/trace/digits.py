"""Numbers out of text, many at once: ids that are one prefix and a number, without a Python object for each.

Always true: a result says that every name is exactly the prefix and decimal digits with no leading zero, so that two names
have one number only if they are the same name; anything else is None.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Places = NDArray[np.intp]
_LONGEST = 17
# What is in hand at a time fits the processor's cache, and memory stays bounded.
_CHUNK = 1 << 14


def prefix_of(name: str) -> bytes:
    """What stands before the digits at the end of a name."""
    return name.rstrip("0123456789").encode("utf-8", "surrogatepass")


def numbers(names: list[str], prefix: bytes) -> NDArray[np.int64] | None:
    """The number behind the prefix in each name."""
    out = np.empty(len(names), np.int64)
    for begin in range(0, len(names), _CHUNK):
        some = names[begin : begin + _CHUNK]
        text = np.frombuffer("\n".join(some).encode("utf-8", "surrogatepass"), np.uint8)
        breaks = np.flatnonzero(text == 10)
        if len(breaks) != len(some) - 1:
            return None
        start, end = np.empty(len(some), np.intp), np.empty(len(some), np.intp)
        start[0], end[-1] = 0, len(text)
        start[1:], end[:-1] = breaks + 1, breaks
        found = numbers_at(text, start, end, prefix)
        if found is None:
            return None
        out[begin : begin + len(some)] = found
    return out


def numbers_at(text: Bytes, start: Places, end: Places, prefix: bytes) -> NDArray[Any] | None:
    """The number behind the prefix in each of the names that lie in `text` from `start` to `end`."""
    length = end - start - len(prefix)
    shortest, longest = int(length.min()), int(length.max())
    if shortest < 1 or longest > _LONGEST:
        return None
    if any(bool((text[start + k] != byte).any()) for k, byte in enumerate(prefix)):
        return None
    if bool(((text[start + len(prefix)] == 48) & (length > 1)).any()):
        return None  # a leading zero: `e07` and `e7` are two ids of one number
    size = np.int32 if longest <= 9 else np.int64
    values: Any = np.zeros(len(start), size)
    for k in range(longest):
        # Where a name is shorter the byte belongs to its neighbour: it is read, and counts for nothing.
        digit = text[end - 1 - k] - np.uint8(48)
        if k >= shortest:
            digit *= length > k
        if int(digit.max()) > 9:
            return None
        values += digit * size(10**k)
    return values
