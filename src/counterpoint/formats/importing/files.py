"""The files of a source, as an importer sees them: named bytes, unpacked, read line by line and within limits.

zstd, gzip, bzip2 and xz are unpacked on the way, whatever the name says, and UTF-16 becomes UTF-8.

Always true: nothing here opens a file; `File.open` is given by whoever found it. A line or document beyond its limit is an
`InputError` or a counted record, and never fills the memory.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, BinaryIO, NamedTuple

import msgspec
import zstandard

from counterpoint.errors import InputError
from counterpoint.formats.importing.values import apart

HEAD = 1 << 16
"""How many bytes a format is recognised by."""
MAX_LINE = 256 << 20
"""A record longer than this is counted and left out."""
MAX_DOCUMENT = 1 << 30
"""A document that must be read whole is refused beyond this."""
MAX_UNPACKED = 8 << 30
"""A packed file that unpacks to more than this is refused: it is a bomb, or not the log of one session."""

# A string that the head cuts off counts as ended there: it would otherwise be tried again from each quote inside it.
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\(?:.|\Z))*+(?:"|\Z)|[{}\[\]]|:\s*', re.S)
_VALUE_SHOWN = 64
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw] | list[dict[str, msgspec.Raw]]).decode
_PACKED: dict[bytes, Callable[[BinaryIO], Any]] = {
    b"\x28\xb5\x2f\xfd": lambda s: zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(s, read_across_frames=True),
    b"\x1f\x8b": lambda s: gzip.GzipFile(fileobj=s),
    b"BZh": bz2.BZ2File,
    b"\xfd7zX": lzma.LZMAFile,
}
"""How packed files begin, and what unpacks them."""
UNPACKING = (zstandard.ZstdError, gzip.BadGzipFile, lzma.LZMAError, EOFError, OSError)
"""What is raised where a packed file is broken, or not all of it is there."""


@dataclass(frozen=True)
class File:
    """One file: its name with slashes, its size, when it was last changed, and a way to read it."""

    name: str
    size: int
    open: Callable[[], BinaryIO]
    changed: float = 0.0
    part: str = ""
    """The session whose lines these are, where a file holds several."""

    @classmethod
    def of(cls, data: bytes | memoryview, name: str = "") -> File:
        """Bytes in memory as a file."""
        return cls(name, len(data), lambda: io.BytesIO(data))

    @property
    def last(self) -> str:
        """The last part of the name: what is left of it when the file is moved."""
        return self.name.rsplit("/", 1)[-1]

    @property
    def stem(self) -> str:
        """The last part of the name up to its first dot."""
        return self.last.split(".", 1)[0]

    def head(self, size: int = HEAD) -> bytes:
        """How the file begins, unpacked; empty when it cannot be read."""
        return _head(self)[:size] if size <= HEAD else self._begins(size)

    def _begins(self, size: int) -> bytes:
        try:
            with self.unpacked() as stream:
                return stream.read(size)
        except (InputError, *UNPACKING):
            return b""

    def unpacked(self) -> BinaryIO:
        """The file's bytes, with what they are packed by taken off, as UTF-8 where they were UTF-16."""
        stream = self.open()
        magic = stream.read(4)
        stream.seek(0)
        if unpack := next((unpack for begins, unpack in _PACKED.items() if magic.startswith(begins)), None):
            stream = bounded(unpack(stream), self.name)
            magic = stream.peek(4)[:4]  # type: ignore[attr-defined]
        coding = _utf16(magic)
        return stream if coding is None else io.BufferedReader(_Utf8Stream(stream, coding), 1 << 18)

    def lines(self) -> Iterator[tuple[int, bytes | None]]:
        """Number and bytes of each line, from 1; None for one beyond the limit. Blank ones are left out."""
        number = 0
        try:
            with self.unpacked() as stream:
                while line := stream.readline(MAX_LINE):
                    number += 1
                    if len(line) == MAX_LINE and not line.endswith(b"\n"):
                        while (rest := stream.readline(MAX_LINE)) and not rest.endswith(b"\n"):
                            pass
                        yield number, None
                    elif not line.isspace():
                        yield number, line
        except UNPACKING as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise InputError("cannot be unpacked to its end", where=f"{self.name}:{number + 1}", why=str(error)) from error

    def data(self, limit: int = MAX_DOCUMENT) -> bytes:
        """The whole file, unpacked."""
        try:
            with self.unpacked() as stream:
                data = stream.read(limit + 1)
        except UNPACKING as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            raise InputError("cannot be unpacked", where=self.name, why=str(error)) from error
        if len(data) > limit:
            raise InputError(f"is larger than {limit >> 20:,} MB, and must be read whole", where=self.name, fix="split it")
        return data


@lru_cache(maxsize=4)  # everybody who wonders what a file is asks for its head, one after another
def _head(file: File) -> bytes:
    return file._begins(HEAD)


# -- some lines of a file ----------------------------------------------------------------------------------------------------


class Line(NamedTuple):
    """Where a line lies in what a file unpacks to."""

    start: int
    size: int
    number: int


def lines_of(file: File) -> Iterator[tuple[Line, bytes]]:
    """Every line with its place; one beyond the limit, or with several records, in several pieces of one number.

    Ends where the file cannot be unpacked.
    """
    start, number = 0, 1
    try:
        with file.unpacked() as stream:
            while line := stream.readline(MAX_LINE):
                for piece in apart(line):
                    yield Line(start, len(piece), number), piece
                    start += len(piece)
                number += line.endswith(b"\n")
    except (InputError, *UNPACKING):
        return


def part_of(file: File, name: str, lines: Iterable[Line]) -> File:
    """The lines of one session in a file that holds several: a file of the same name, in which every line keeps its number."""
    runs: list[tuple[Line, int]] = []
    for line in lines:
        before = runs[-1] if runs else None
        if before is not None and before[0].start + before[0].size == line.start:
            runs[-1] = before[0]._replace(size=before[0].size + line.size), line.number
        else:
            runs.append((line, line.number))
    size = sum(run.size for run, _ in runs)
    return File(file.name, size, partial(_open_part, file, tuple(runs)), file.changed, name)


def _open_part(file: File, runs: tuple[tuple[Line, int], ...]) -> BinaryIO:
    return io.BufferedReader(_Part(file, runs), 1 << 18)


def skip(stream: BinaryIO, start: int, at: int = 0) -> None:
    """Go on from `at` to `start`: a packed stream is read up to there."""
    if stream.seekable():
        stream.seek(start)
        return
    while at < start and (data := stream.read(min(start - at, 1 << 20))):
        at += len(data)


class CountedStream(io.RawIOBase):
    """A stream that knows how far it was read."""

    _at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at


class _Part(CountedStream):
    """Some runs of lines of a file (each with the number of its last line); blank lines stand for those between them."""

    def __init__(self, file: File, runs: tuple[tuple[Line, int], ...]) -> None:
        self._file, self._runs, self._left = file, runs, b""
        self._data = self._read()

    def _read(self) -> Iterator[bytes]:
        at, number, data = 0, 1, b"\n"
        with self._file.unpacked() as stream:
            for run, last in self._runs:
                yield b"\n" * (run.number - number + (not data.endswith(b"\n")))
                skip(stream, run.start, at)
                at, number, end = run.start, last + 1, run.start + run.size
                while at < end and (data := stream.read(min(end - at, 1 << 20))):
                    at += len(data)
                    yield data

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence != io.SEEK_SET or offset not in (0, self._at):
            raise io.UnsupportedOperation("only back to the beginning")
        if offset != self._at:
            self._at, self._left, self._data = 0, b"", self._read()
        return offset

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._left:
            data = next(self._data, None)
            if data is None:
                return 0
            self._left = data
        n = min(len(buffer), len(self._left))
        buffer[:n], self._left = self._left[:n], self._left[n:]
        self._at += n
        return n


def bounded(stream: Any, name: str, limit: int = MAX_UNPACKED) -> BinaryIO:
    """A stream that refuses to give more than `limit` bytes."""
    return io.BufferedReader(_BoundedStream(stream, name, limit), 1 << 18)


def _utf16(begins: bytes) -> str | None:
    """The coding of a text in UTF-16: by its mark, or by the zero beside its first character, which is one of JSON's."""
    if begins[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "utf-16"
    if begins[1:2] == b"\0" and begins[3:4] == b"\0" and begins[:1] in (b"{", b"["):
        return "utf-16-le"
    if begins[:1] == b"\0" and begins[2:3] == b"\0" and begins[1:2] in (b"{", b"["):
        return "utf-16-be"
    return None


class _Utf8Stream(io.RawIOBase):
    """A text in another coding, as UTF-8; what cannot be read becomes question marks."""

    def __init__(self, stream: BinaryIO, coding: str) -> None:
        self._stream, self._left = stream, b""
        self._decoder = codecs.getincrementaldecoder(coding)("replace")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._left:
            data = self._stream.read(1 << 18)
            self._left = self._decoder.decode(data, final=not data).encode("utf-8", "replace")
            if not data:
                break
        n = min(len(buffer), len(self._left))
        buffer[:n], self._left = self._left[:n], self._left[n:]
        return n

    def close(self) -> None:
        self._stream.close()
        super().close()


class _BoundedStream(io.RawIOBase):
    def __init__(self, stream: Any, name: str, limit: int) -> None:
        self._stream, self._name, self._left = stream, name, limit

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data = self._stream.read(len(buffer)) or b""
        self._left -= len(data)
        if self._left < 0:
            raise InputError("unpacks to more than the limit", where=self._name, fix="is it a zip bomb? unpack it by hand first")
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._stream.close()
        super().close()


_DOCUMENT = re.compile(
    rb"\s*(?:#{1,3} (?!aider chat)\S|---\n\w[\w -]*:|```|<!DOCTYPE|<html|<\?xml|#!/|\"\"\"|'''|// |/\*"
    rb"|(?:import|from) [\w.]+(?: import .*)?\n)",
    re.I,
)


def is_document(head: bytes) -> bool:
    """Whether a text is a page or a program by how it begins (a title, a fence, a docstring): it may quote a log, and is none."""
    return _DOCUMENT.match(head.removeprefix(b"\xef\xbb\xbf")) is not None


def first_keys(head: bytes) -> dict[str, bytes]:
    """The keys of the first object in a JSON file, each with how its value begins, as far as the head of the file shows them.

    The object may stand in a list. Takes time in proportion to the head, whatever is in it, and never raises.
    """
    keys: dict[str, bytes] = {}
    head = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if head[:1] not in (b"{", b"["):
        return keys
    try:
        whole = _fields(head if head[:1] == b"[" or b"\n" not in head else head.partition(b"\n")[0])
        if isinstance(whole, list) and whole:
            whole = whole[0]
        if isinstance(whole, dict):
            return {name: bytes(value)[:_VALUE_SHOWN] for name, value in whole.items()}
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        pass  # it goes on behind the head, or over several lines
    top = 2 if head[:1] == b"[" else 1
    depth, word = 0, b""
    for match in _TOKEN.finditer(head):
        token = match[0]
        if token in (b"{", b"["):
            depth += 1
        elif token in (b"}", b"]"):
            depth -= 1
            if depth < top:
                break
        elif token[:1] == b":" and depth == top:
            name = word[1:-1].decode("utf-8", "replace")
            keys.setdefault(name, head[match.end() : match.end() + _VALUE_SHOWN])
        word = token
    return keys
