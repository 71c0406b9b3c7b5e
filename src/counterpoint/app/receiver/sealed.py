"""What left the spool: the records of each trace that came to rest, packed, and which traces are over.

Always true: a file here holds every record of its key that was taken so far, each once, under a line that names what the key
was joined with; it is replaced whole or not at all. A trace is over when its file was kept long enough and deleted; that is
remembered in `over`.

    otlp/sealed/<hash of the key>.otlp.jsonl.zst   those that became traces
    otlp/sealed/<hash of a name>.joined            what a name without records of its own was joined with
    otlp/refused/...                               those that no importer or store would take; kept until somebody looks
    otlp/over                                      hashes of the keys whose file is gone, one per line
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec
import zstandard

from counterpoint.errors import InputError
from counterpoint.store import disk

_GRACE_S = 600.0
"""A file is deleted so long after its key is over, so that nothing that was just taken loses it."""


class _Head(msgspec.Struct):
    joined: list[str]


class Sealed:
    """The packed records by key."""

    def __init__(self, folder: Path, keep_s: float) -> None:
        self._keep_s = keep_s
        self.refused = folder / "refused"
        self._sealed, self._over_path = folder / "sealed", folder / "over"
        with disk.explained(folder):
            disk.make_folder(self._sealed)
            disk.make_folder(self.refused)
            self._over = set(self._over_path.read_text().split()) if self._over_path.exists() else set()

    def _path(self, key: str, *, is_refused: bool = False) -> Path:
        return (self.refused if is_refused else self._sealed) / f"{_hash(key)}.otlp.jsonl.zst"

    def _pointer(self, name: str) -> Path:
        return self._sealed / f"{_hash(name)}.joined"

    def read(self, key: str, *, only_refused: bool = False) -> tuple[list[str], list[bytes]]:
        """What a key was joined with, and its lines; both empty when nothing of it was packed."""
        joined: list[str] = []
        lines: list[bytes] = []
        refused = self._path(key, is_refused=True)
        for path in (refused,) if only_refused else (self._pointer(key), self._path(key), refused):
            if path.exists():
                names, found = _unpacked(path)
                joined += names
                lines += found
        return joined, lines

    def write(self, key: str, joined: Iterable[str], lines: Iterable[bytes], *, is_refused: bool) -> None:
        """Pack all lines of a key. What was sealed before stays beside what is refused now."""
        head, body = msgspec.json.encode(_Head(sorted(joined))) + b"\n", b"".join(lines)
        target = self._path(key, is_refused=is_refused) if body else self._pointer(key)
        with disk.explained(target):
            disk.replace_file(target, zstandard.ZstdCompressor(level=3, write_checksum=True).compress(head + body))
            if body and not is_refused:
                disk.remove(self._path(key, is_refused=True))
                disk.remove(self._pointer(key))

    def put_aside(self, lines: Iterable[bytes]) -> Path:
        """Keep lines that cannot be read, for somebody to look at; returns the file."""
        path = self.refused / f"damaged-{time.time_ns()}.jsonl"
        with disk.explained(path):
            disk.replace_file(path, b"".join(lines))
        return path

    def is_over(self, key: str) -> bool:
        """Whether a trace was sealed so long ago that a late record would take the place of those before it."""
        path = self._path(key)
        return _hash(key) in self._over or (path.exists() and _age_s(path) > self._keep_s)

    def expire(self, but: Iterable[str]) -> None:
        """Delete what was kept long enough, but not what is open."""
        is_open = {path for key in but for path in (self._path(key), self._pointer(key))}
        idle = (path for path in self._sealed.iterdir() if path not in is_open and not path.name.startswith(disk.TEMPORARY))
        old = [path for path in idle if _age_s(path) > self._keep_s + _GRACE_S]
        if not old:
            return
        names = [path.name.split(".")[0] for path in old if path.suffix == ".zst"]
        with disk.explained(self._over_path):
            fd = os.open(self._over_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            try:
                disk.write_all(fd, "".join(f"{name}\n" for name in names).encode())
                disk.sync_file(fd)
            finally:
                os.close(fd)
            self._over.update(names)
            for path in old:
                disk.remove(path)


def _unpacked(path: Path) -> tuple[list[str], list[bytes]]:
    try:
        head, *lines = zstandard.ZstdDecompressor().decompress(path.read_bytes()).splitlines(keepends=True)
        return msgspec.json.decode(head, type=_Head).joined, lines
    except (zstandard.ZstdError, msgspec.MsgspecError, ValueError) as error:
        raise InputError("the packed records of a trace are damaged", where=os.fspath(path), why=str(error)) from error


def _hash(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:32]


def _age_s(path: Path) -> float:
    return time.time() - path.stat().st_mtime
