"""Messages as bytes through a pipe or a socket: each is its length and then its bytes.

Always true: what comes out is what went in, whole and in order, however the bytes come.
"""

from __future__ import annotations

import struct

HEAD = struct.Struct("<I")


def frame(message: bytes) -> bytes:
    """A message as it goes through the pipe."""
    return HEAD.pack(len(message)) + message


class Frames:
    """Messages out of the bytes of a pipe, whole, however they come."""

    def __init__(self, longest: int = 1 << 30) -> None:
        self._bytes, self._longest = bytearray(), longest

    def add(self, data: bytes) -> list[bytes]:
        """More bytes; the messages that are whole now. `ValueError` for a length that none of ours has."""
        self._bytes += data
        out, at, size = [], 0, HEAD.size
        while len(self._bytes) - at >= size:
            (length,) = HEAD.unpack_from(self._bytes, at)
            if length > self._longest:
                raise ValueError(f"a message of {length:,} bytes")
            if len(self._bytes) - at - size < length:
                break
            out.append(bytes(self._bytes[at + size : at + size + length]))
            at += size + length
        del self._bytes[:at]
        return out
