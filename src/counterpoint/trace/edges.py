"""`Edges`: the edges of a decoded trace as three small arrays instead of a record for each.

Always true: an `Edges` belongs to one list of events with unique ids, and every edge in it joins two of them; read as a
sequence it is exactly the `Edge` records of the file, in file order. At a million events this saves half the memory that
the file takes, and the time to resolve two million ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

import msgspec
import numpy as np
from msgspec import Raw
from numpy.typing import NDArray

from counterpoint.trace.records import Edge, Event
from counterpoint.trace.vocabulary import EDGE_TYPES

# -- Numbers out of text, many at once: ids that are one prefix and a number, without a Python object for each --------
# Always true: a result says that every name is exactly the prefix and decimal digits with no leading zero, so that two names
# have one number only if they are the same name; anything else is None.

Bytes = NDArray[np.uint8]
Places = NDArray[np.intp]
_LONGEST = 17
# What is in hand at a time fits the processor's cache, and memory stays bounded.
_NAMES_AT_ONCE = 1 << 14


def prefix_of(name: str) -> bytes:
    """What stands before the digits at the end of a name."""
    return name.rstrip("0123456789").encode("utf-8", "surrogatepass")


def numbers(names: list[str], prefix: bytes) -> NDArray[np.int64] | None:
    """The number behind the prefix in each name."""
    out = np.empty(len(names), np.int64)
    for begin in range(0, len(names), _NAMES_AT_ONCE):
        some = names[begin : begin + _NAMES_AT_ONCE]
        text = np.frombuffer("\n".join(some).encode("utf-8", "surrogatepass"), np.uint8)
        breaks = np.flatnonzero(text == 10)
        if len(breaks) != len(some) - 1:
            return None
        start, end = np.empty(len(some), np.intp), np.empty(len(some), np.intp)
        start[0], end[-1] = 0, len(text)
        start[1:], end[:-1] = breaks + 1, breaks
        values = numbers_at(text, start, end, prefix)
        if values is None:
            return None
        out[begin : begin + len(some)] = values
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


Ints = NDArray[np.int32]
_CHUNK = 1 << 18
_BLANK = b" \t\r\n"
_edge = msgspec.json.Decoder(Edge)


class Edges(Sequence[Edge]):
    """Edges as event numbers `src`, `dst` and type codes, which read as `Edge` records."""

    __slots__ = ("dst", "events", "src", "type")

    def __init__(self, events: list[Event], src: Ints, dst: Ints, type_: NDArray[np.uint8]) -> None:
        self.events = events
        self.src, self.dst, self.type = src, dst, type_

    def __len__(self) -> int:
        return len(self.src)

    @overload
    def __getitem__(self, at: int) -> Edge: ...
    @overload
    def __getitem__(self, at: slice) -> list[Edge]: ...
    def __getitem__(self, at: int | slice) -> Edge | list[Edge]:
        if isinstance(at, slice):
            return list(Edges(self.events, self.src[at], self.dst[at], self.type[at]))
        return Edge(self.events[self.src[at]].id, self.events[self.dst[at]].id, EDGE_TYPES[self.type[at]])

    def __iter__(self) -> Iterator[Edge]:
        events = self.events
        for s, d, code in zip(self.src.tolist(), self.dst.tolist(), self.type.tolist(), strict=True):
            yield Edge(events[s].id, events[d].id, EDGE_TYPES[code])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Edges({len(self):,})"


def scan(raw: Raw | bytes, events: list[Event]) -> Edges | None:
    """The edges in the JSON array `raw`, found by looking at its quotes; None when that array needs a real decoder.

    A writer gives every edge the same shape, so the array is one pattern with three strings that vary. If the first edge is
    valid, every byte between the strings is the same in all of them, and no string holds an escape, then all are valid.
    Ids must be one prefix and a number, unique, and every end must be an event.
    """
    data = memoryview(raw)
    text = np.frombuffer(data, np.uint8)
    if len(data) < 40 or bool((text == ord("\\")).any()):
        return None
    ids = numbers([e.id for e in events], prefix_of(events[0].id)) if events else None
    place = None if ids is None else _places(ids)
    if place is None:
        return None
    shape, parts, begin = _Shape(data, prefix_of(events[0].id)), [], 0
    while begin < len(data):
        end = _next_break(text, begin + _CHUNK)
        part = shape.part(begin, end)
        if part is None:
            return None
        parts.append(part)
        begin = end
    if not shape.is_whole():
        return None
    src, dst, codes = (np.concatenate([part[k] for part in parts]) for k in range(3))
    low, places = place
    if min(src.min(), dst.min()) < low or max(src.max(), dst.max()) >= low + len(places):
        return None
    src, dst = places[src - low], places[dst - low]
    return Edges(events, src, dst, codes) if int(src.min()) >= 0 and int(dst.min()) >= 0 else None


def _places(ids: NDArray[np.int64]) -> tuple[int, Ints] | None:
    """A table from number to event; None when an id is repeated or the numbers are too sparse for a table."""
    low, span = int(ids.min()), int(ids.max()) - int(ids.min()) + 1
    if span > 8 * len(ids) + 1024:
        return None
    table = np.full(span, -1, np.int32)
    table[ids - low] = np.arange(len(ids), dtype=np.int32)
    return (low, table) if int((table >= 0).sum()) == len(ids) else None


def _next_break(text: NDArray[np.uint8], after: int) -> int:
    """The end of the first object that ends at or after a place."""
    if after >= len(text):
        return len(text)
    closing = np.flatnonzero(text[after : after + 4096] == ord("}"))
    return after + int(closing[0]) + 1 if len(closing) else len(text)


class _Shape:
    """The pattern that all edges of an array share, taken from the first."""

    def __init__(self, data: memoryview, prefix: bytes) -> None:
        self.text, self.prefix = np.frombuffer(data, np.uint8), prefix
        self.words: NDArray[np.uint64] = np.ndarray((len(data) - 7,), "<u8", data, 0, (1,))
        """The eight bytes that begin at each place, as one number."""
        self.patterns: list[bytes] | None = None
        self.begin = 0
        self.last: Places = np.empty(0, np.intp)
        """The closing quote of the edge before: the next one must follow it as all others follow theirs."""

    def part(self, begin: int, end: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.uint8]] | None:
        """The edges whose quotes lie from `begin` to `end`: their ends as numbers, and their types."""
        quotes = np.flatnonzero(self.text[begin:end] == ord('"')) + begin
        if not len(quotes) and len(self.last):
            return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.uint8)
        if len(quotes) % 12 or not len(quotes):
            return None
        q = np.ascontiguousarray(quotes.reshape(-1, 12).T)
        before, first = np.concatenate([self.last, q[11][:-1]]), q[0] if len(self.last) else q[0][1:]
        between = [(q[0], q[2]), (q[3], q[6]), (q[7], q[10]), (before, first)]
        if self.patterns is None:
            if not self._is_valid(q[:, 0]):
                return None
            self.begin = int(q[0][0])
            self.patterns = [self.text[a[0] : b[0]].tobytes() if len(a) else b"" for a, b in between]
        elif not self.patterns[3]:
            self.patterns[3] = self.text[before[0] : first[0]].tobytes()
        if self.patterns[3] and self.patterns[3].translate(None, _BLANK) != b'"},{':
            return None  # the pattern between edges was taken from the first gap, and must be no more than a comma
        if not all(self._follows(a, b, p) for (a, b), p in zip(between, self.patterns, strict=True)):
            return None
        self.last = q[11][-1:]
        src = numbers_at(self.text, q[2] + 1, q[3], self.prefix)
        dst = numbers_at(self.text, q[6] + 1, q[7], self.prefix)
        codes = self._types(q[10] + 1, q[11])
        return None if src is None or dst is None or codes is None else (src, dst, codes)

    def _is_valid(self, q: Places) -> bool:
        """Whether the first edge is an edge, its fields in the order that the pattern takes them for."""
        text = self.text
        begin = text[: q[0]].tobytes().rfind(b"{")
        right = text[q[11] : q[11] + 4096].tobytes().find(b"}") + int(q[11]) + 1
        try:
            edge = _edge.decode(text[max(begin, 0) : right].tobytes())
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return False
        strings = [text[q[k] + 1 : q[k + 1]].tobytes() for k in range(0, 12, 2)]
        return strings == [b"src", edge.src.encode(), b"dst", edge.dst.encode(), b"type", edge.type.encode()]

    def is_whole(self) -> bool:
        """Whether nothing stands before the first edge and after the last but the array's own brackets."""
        head = self.text[: self.begin].tobytes().translate(None, _BLANK)
        tail = self.text[int(self.last[0]) + 1 :].tobytes().translate(None, _BLANK)
        return head == b"[{" and tail == b"}]"

    def _follows(self, begin: Places, end: Places, pattern: bytes) -> bool:
        """Whether the bytes from `begin` up to `end` are the pattern, everywhere."""
        n = len(pattern)
        if not len(begin):
            return True
        if bool((end - begin != n).any()):
            return False
        if n < 8:
            return not any(bool((self.text[begin + k] != byte).any()) for k, byte in enumerate(pattern))
        places = [*range(0, n - 8, 8), n - 8]
        words = [np.uint64(int.from_bytes(pattern[k : k + 8], "little")) for k in places]
        return not any(bool((self.words[begin + k] != word).any()) for k, word in zip(places, words, strict=True))

    def _types(self, start: Places, end: Places) -> NDArray[np.uint8] | None:
        """The type between two quotes: its first eight bytes find the candidate, its length and last eight confirm it."""
        length = end - start
        if int(length.min()) < int(_LENGTHS.min()):
            return None  # no type is that short, and eight bytes from there might lie beyond the end
        head = self.words[start] & _HEAD_MASK[np.minimum(length, 8)]
        place = np.searchsorted(_HEADS, head).astype(np.uint8)
        place[place == len(_HEADS)] = 0
        codes: NDArray[np.uint8] = _CODE_OF_HEAD[place]
        is_right = (_HEADS[place] == head) & (_LENGTHS[codes] == length)
        long = np.flatnonzero(length > 8)
        is_right[long] &= self.words[end[long] - 8] == _TAILS[codes[long]]
        return codes if bool(is_right.all()) else None


def _words(parts: list[bytes]) -> NDArray[np.uint64]:
    return np.array([int.from_bytes(part, "little") for part in parts], np.uint64)


_NAMES = [name.encode() for name in EDGE_TYPES]
_HEAD_MASK = _words([b"\xff" * n for n in range(9)])
_CODE_OF_HEAD = np.argsort(_words([name[:8] for name in _NAMES])).astype(np.uint8)
_HEADS = _words([name[:8] for name in _NAMES])[_CODE_OF_HEAD]
_LENGTHS = np.array([len(name) for name in _NAMES])
_TAILS = _words([name[-8:] for name in _NAMES])
