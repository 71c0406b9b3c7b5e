"""Archives of logs: the files inside a zip or tar archive (tar also packed), each as if it lay in a folder.

Always true: nothing is written anywhere, so a name inside an archive is only a name; a member that cannot be read, or is no
plain file, is given with the reason; what an archive unpacks to has the limits of every packed file.
"""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from typing import BinaryIO, cast

from counterpoint.errors import InputError
from counterpoint.formats.importing.files import MAX_UNPACKED, UNPACKING, CountedStream, File, skip

_ZIP = b"PK\x03\x04"
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
_BLOCK = 1 << 20
# A packed tar archive that unpacks to no more than this is unpacked once; in a larger one each member is looked for anew.
_HELD = 256 << 20
_BROKEN = (tarfile.TarError, *UNPACKING, ValueError, InputError)


def is_zip(file: File) -> bool:
    """Whether a file begins as zip archives do (the logs of some sources are such archives themselves)."""
    return file.size > 0 and file.head(4) == _ZIP


def is_tar(file: File) -> bool:
    """Whether a file is a tar archive, packed or not: its first block has the checksum that such blocks have."""
    head = file.head(tarfile.BLOCKSIZE) if file.size else b""
    if len(head) < tarfile.BLOCKSIZE or head[0] == 0:
        return False
    try:
        tarfile.TarInfo.frombuf(head, "utf-8", "replace")
    except (tarfile.TarError, ValueError):
        return False
    return True


def members(archive: File) -> Iterator[tuple[File, str | None]]:
    """Every file in an archive, in order of name, with why it cannot be read where that is so."""
    yield from _in_tar(archive) if is_tar(archive) else _in_zip(archive)


# -- zip -------------------------------------------------------------------------------------------------------------------


def _in_zip(archive: File) -> Iterator[tuple[File, str | None]]:
    try:
        with archive.open() as stream, zipfile.ZipFile(stream) as opened:
            inside = sorted((i for i in opened.infolist() if not i.is_dir()), key=lambda i: i.filename)
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile) as error:
        yield archive, f"is a zip archive that cannot be read: {error}"
        return
    for info in inside:
        why = None
        if info.flag_bits & 1:
            why = "is encrypted"
        elif info.compress_type not in _METHODS:
            why = f"uses an unknown compression method ({info.compress_type})"
        elif info.file_size > MAX_UNPACKED:
            why = "unpacks to more than the limit"
        name = f"{archive.name}/{info.filename}"
        yield File(name, info.file_size, partial(_open_zipped, archive.open, info.filename), archive.changed), why


def _open_zipped(archive: Callable[[], BinaryIO], name: str) -> BinaryIO:
    stream = archive()
    try:
        return cast(BinaryIO, zipfile.ZipFile(stream).open(name))
    except (NotImplementedError, RuntimeError, zipfile.BadZipFile) as error:
        raise InputError("cannot be read from its archive", where=name, why=str(error)) from error


# -- tar -------------------------------------------------------------------------------------------------------------------


def _in_tar(archive: File) -> Iterator[tuple[File, str | None]]:
    inside: dict[str, tarfile.TarInfo] = {}
    broken: Exception | None = None
    try:
        # As a stream: it needs no seeking, and what is torn off at the end costs nothing before it.
        with archive.unpacked() as stream, tarfile.open(fileobj=stream, mode="r|", encoding="utf-8", errors="replace") as opened:
            for info in opened:
                if not info.isdir():
                    inside[info.name.removeprefix("./")] = info  # of two of one name the later counts, as when it is unpacked
    except _BROKEN as error:
        broken = error
    for name, info in sorted(inside.items()):
        why = None
        if not info.isreg():
            why = "is not a plain file"
        elif info.issparse():
            why = "is a sparse file, which is not supported"
        elif info.size > MAX_UNPACKED:
            why = "unpacks to more than the limit"
        opened_by = partial(_open_tarred, archive, info.offset_data, info.size)
        yield File(f"{archive.name}/{name}", info.size if why is None else 0, opened_by, archive.changed), why
    if broken is not None:
        yield archive, f"is a tar archive that cannot be read to its end: {broken}"


def _open_tarred(archive: File, start: int, size: int) -> BinaryIO:
    """A member of a tar archive, by where its bytes lie in what the archive unpacks to."""
    if (whole := _unpacked_once(archive)) is not None:
        return io.BytesIO(memoryview(whole)[start : start + size])
    return io.BufferedReader(_Piece(archive, start, size), 1 << 18)


def _unpacked_once(archive: File) -> bytes | None:
    """What a packed archive unpacks to, kept until another is asked for; None for a large one, and for one that is not packed."""
    key = archive.name, archive.size, archive.changed
    if key not in _kept:
        _kept.clear()
        with archive.unpacked() as stream:
            _kept[key] = None if stream.seekable() else _all(stream)
    return _kept[key]


def _all(stream: BinaryIO) -> bytes | None:
    """What a stream holds, as far as it can be unpacked; None where that is much."""
    found = bytearray()
    try:
        while data := stream.read(_BLOCK):
            found += data
            if len(found) > _HELD:
                return None
    except _BROKEN:
        pass  # torn: the list of members says so
    return bytes(found)


_kept: dict[tuple[str, int, float], bytes | None] = {}


class _Piece(CountedStream):
    """Some bytes of what an archive unpacks to; going back begins it anew where it is packed."""

    def __init__(self, archive: File, start: int, size: int) -> None:
        self._archive, self._start, self._size = archive, start, size
        self._stream: BinaryIO | None = None

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if at != self._at:
            self._leave()
            self._at = at
        return at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        if self._stream is None:
            self._stream = self._archive.unpacked()
            skip(self._stream, self._start + self._at)
        data = self._stream.read(max(min(len(buffer), self._size - self._at), 0))
        self._at += len(data)
        buffer[: len(data)] = data
        return len(data)

    def _leave(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def close(self) -> None:
        self._leave()
        super().close()
