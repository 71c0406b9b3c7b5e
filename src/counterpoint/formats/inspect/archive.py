"""The entries of an `.eval` archive: a zip whose entries may be packed with zstd, which Python's zipfile does not unpack.

The directory is read by zipfile; the bytes of an entry are found by its offset and unpacked here. An archive without a
directory, copied while it was written, is read entry by entry from its front as far as it goes.

Always true: no entry is unpacked beyond `MAX_ENTRY` bytes, nor beyond `MAX_RATIO` times its packed size once it is large, nor
the archive beyond `MAX_ARCHIVE`, whatever sizes it states: a bomb is an `InputError` and never fills the memory.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import zstandard

from counterpoint.errors import InputError
from counterpoint.formats.importing.files import MAX_DOCUMENT, MAX_UNPACKED, File

MAGIC = b"PK\x03\x04"
MAX_ENTRY = MAX_DOCUMENT
MAX_ARCHIVE = MAX_UNPACKED
MAX_RATIO = 500
"""Logs repeat themselves, but not so: deflate ends at about 1,000, zstd does not end."""
RATIO_FROM = 16 << 20
"""Entries that unpack to less than this are not suspected."""

_LOCAL = struct.Struct("<4s5H3L2H")
_CHUNK = 1 << 18
_STORED, _DEFLATE, _ZSTD = 0, 8, 93
_HAS_DESCRIPTOR = 0x8
_ENCRYPTED = 0x1
_UNPACKING = (zlib.error, zstandard.ZstdError, struct.error, EOFError)


class ZipEntry(NamedTuple):
    """Where an entry lies."""

    name: str
    offset: int
    method: int
    size: int | None
    """Packed size; None where only its end shows it."""


class Archive:
    """The entries by name; of two with one name the later counts."""

    def __init__(self, file: File) -> None:
        self._name, self._stream, self._size = file.name, file.open(), file.size
        self._unpacked = 0
        self.is_cut = False
        """Whether the directory was missing."""
        try:
            entries = self._listed()
        except (zipfile.BadZipFile, struct.error, ValueError, NotImplementedError, EOFError, OSError):
            self.is_cut = True
            entries = list(self._walked())
        if sum(e.size or 0 for e in entries) > self._size:
            raise InputError("entries overlap", where=self._name, fix="is it a zip bomb?")
        self.entries = {entry.name: entry for entry in entries}

    def close(self) -> None:
        """Let the file go."""
        self._stream.close()

    def _listed(self) -> list[ZipEntry]:
        with zipfile.ZipFile(self._stream) as directory:
            return [ZipEntry(i.filename, i.header_offset, i.compress_type, i.compress_size) for i in directory.infolist()]

    def _walked(self) -> Iterator[ZipEntry]:
        """Entries from the front, until something is no entry or not whole."""
        at = 0
        while (head := self._local(at)) is not None:
            name, data_at, flags, method, size = head
            try:
                size = self._measured(name, data_at, method) if flags & _HAS_DESCRIPTOR else size
            except (InputError, *_UNPACKING):
                return
            if data_at + size > self._size:
                return
            yield ZipEntry(name, at, method, size)
            at = data_at + size
            if flags & _HAS_DESCRIPTOR:
                self._stream.seek(at)
                at += 16 if self._stream.read(4) == b"PK\x07\x08" else 12

    def _local(self, at: int) -> tuple[str, int, int, int, int] | None:
        """Name, place of the data, flags, method and packed size, as the entry itself states them."""
        self._stream.seek(at)
        raw = self._stream.read(_LOCAL.size)
        if len(raw) < _LOCAL.size or raw[:4] != MAGIC:
            return None
        _, _, flags, method, _, _, _, size, _, name_size, extra_size = _LOCAL.unpack(raw)
        name = self._stream.read(name_size).decode("utf-8", "replace")
        return name, at + _LOCAL.size + name_size + extra_size, flags, method, size

    def _measured(self, name: str, at: int, method: int) -> int:
        """The packed size of an entry that states none: unpacked, and thrown away."""
        self._stream.seek(at)
        reader = _unpacker(name, method)
        for _ in self._pieces(name, reader, self._size - at):
            pass
        return self._stream.tell() - at - len(reader.unused_data)

    def read(self, name: str) -> bytes:
        """The bytes of an entry."""
        entry = self.entries[name]
        try:
            return self._read(entry)
        except _UNPACKING as error:
            raise InputError("cannot be unpacked", where=f"{self._name}/{name}", why=str(error)[:200]) from error

    def _read(self, entry: ZipEntry) -> bytes:
        head = self._local(entry.offset)
        if head is None or entry.size is None:
            raise InputError("is not where the archive's directory says", where=f"{self._name}/{entry.name}")
        if head[2] & _ENCRYPTED:
            raise InputError("is encrypted", where=f"{self._name}/{entry.name}")
        self._stream.seek(head[1])
        if entry.method == _STORED:
            self._limit(entry.name, entry.size, entry.size)
            self._count(entry.size)
            return self._stream.read(entry.size)
        return b"".join(self._pieces(entry.name, _unpacker(entry.name, entry.method), entry.size))

    def _pieces(self, name: str, reader: _Pieces, size: int) -> Iterator[bytes]:
        """What up to `size` bytes from here unpack to, never much of it at once."""
        total, left = 0, size
        while not reader.eof:
            data = reader.rest or self._stream.read(min(_CHUNK, left))
            left -= 0 if reader.rest else len(data)
            piece = reader.unpack(data)
            if not data and not piece:  # nothing left, in the file or in the unpacker
                raise EOFError("the entry ends too soon")
            total += len(piece)
            self._limit(name, total, size)
            self._count(len(piece))
            yield piece

    def _limit(self, name: str, total: int, packed: int) -> None:
        if total > MAX_ENTRY or (total > RATIO_FROM and total > MAX_RATIO * max(packed, 1)):
            raise InputError(
                f"unpacks to more than {total:,} bytes from {packed:,}",
                where=f"{self._name}/{name}",
                fix="is it a zip bomb? unpack it by hand first",
            )

    def _count(self, size: int) -> None:
        self._unpacked += size
        if self._unpacked > MAX_ARCHIVE:
            raise InputError("unpacks to more than the limit", where=self._name, fix="is it a zip bomb? unpack it by hand first")


def _unpacker(name: str, method: int) -> _Pieces:
    if method == _DEFLATE:
        return _Pieces(zlib.decompressobj(-15), _CHUNK, is_zlib=True)
    if method == _ZSTD:
        # 1 KiB of zstd makes 33 MB at the very most, so that the limits are looked at in time.
        return _Pieces(zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj(), 1 << 10, is_zlib=False)
    raise InputError(f"is packed by method {method}, which we cannot unpack", where=name)


class _Pieces:
    """An unpacker that gives a bounded piece at a time."""

    def __init__(self, reader: Any, step: int, *, is_zlib: bool) -> None:
        self._reader, self._step, self._is_zlib = reader, step, is_zlib
        self.rest = b""
        """Input that was given and is still to be unpacked."""

    @property
    def eof(self) -> bool:
        """Whether the packed data has come to its end."""
        return bool(self._reader.eof)

    @property
    def unused_data(self) -> bytes:
        """Input behind that end."""
        return bytes(self._reader.unused_data) + (b"" if self._is_zlib else self.rest)

    def unpack(self, data: bytes) -> bytes:
        """A piece; what of the data was not needed for it is in `rest`."""
        if self._is_zlib:
            piece = self._reader.decompress(data, 4 * _CHUNK)
            self.rest = self._reader.unconsumed_tail
            return bytes(piece)
        self.rest = data[self._step :]
        return bytes(self._reader.decompress(data[: self._step]))
