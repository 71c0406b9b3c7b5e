"""Logs on disk: which files there are, whose they are, which belong together, and the traces in them.

Always true: files are only read; a folder is entered once, however many links lead to it; a file that cannot be read, or is of
no source we know, is counted and named; one session is in memory at a time. The order of sessions does not depend on the
file system.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import BinaryIO

import counterpoint.registry as registry
from counterpoint.errors import InputError, NotFound, did_you_mean
from counterpoint.files import open_plain
from counterpoint.formats.importer import Importer, Session
from counterpoint.formats.importing.files import File
from counterpoint.trace import Trace


@dataclass(frozen=True)
class Skipped:
    """A file that was not taken, and why."""

    name: str
    why: str


@dataclass
class Found:
    """What lies under some paths."""

    sessions: list[tuple[str, Session]] = field(default_factory=list)
    """The importer's id and a session of it, in order of name."""
    skipped: list[Skipped] = field(default_factory=list)
    files: int = 0
    bytes: int = 0


@cache
def importers() -> dict[str, Importer]:
    """Every importer by id, those that know a dialect before those that know the general form."""
    found = {name: registry.get("format", name) for name in registry.ids("format")}
    only = [(name, format_) for name, format_ in found.items() if isinstance(format_, Importer)]
    return dict(sorted(only, key=lambda row: (-row[1].rank, row[0])))


def read_logs(path: str | os.PathLike[str], *, format: str | None = None) -> Iterator[Trace]:
    """The traces in a file or folder of logs, one session at a time; the format by content unless it is named.

    What each source lacks, and which links were inferred, is in `trace.meta["import"]`.
    """
    found = find([path], format=format)
    if not found.sessions:
        why = f"{found.skipped[0].name}: {found.skipped[0].why}" if found.skipped else None
        fix = "known sources: " + ", ".join(importers())
        raise InputError("holds no log of a known format", where=os.fspath(path), why=why, fix=fix)
    for name, session in found.sessions:
        yield from importer(name).read_session(session)


def find(paths: Iterable[str | os.PathLike[str]], *, format: str | None = None, since: float | None = None) -> Found:
    """The sessions under some paths; with `since`, those with a file changed at or after that moment."""
    forced = None if format is None else _named(format)
    found = Found()
    files: dict[str, list[File]] = {}
    seen: set[tuple[int, int]] = set()
    owner: str | None = None
    for path in paths:
        for file, why in _walk(Path(path), seen):
            found.files += 1
            found.bytes += file.size
            owner = None if why else forced or _owner(file, owner)
            if owner is None:
                found.skipped.append(Skipped(file.name, why or ("is empty" if not file.size else "is of no source we know")))
            else:
                files.setdefault(owner, []).append(file)
    for name in sorted(files):
        for session in importer(name).group(files[name]):
            if since is None or any(f.changed >= since for f in session.files):
                found.sessions.append((name, session))
    return found


def importer(name: str) -> Importer:
    """An importer by its id, or anybody's by "package.module:object"."""
    if ":" not in name and name not in importers():
        raise NotFound(f"no importer named {name!r}", fix=did_you_mean(name, importers()))
    found = registry.get("format", name) if ":" in name else importers()[name]
    if not isinstance(found, Importer):
        raise InputError(f"{name} is a {type(found).__name__}, not an Importer", fix="formats.importer.Importer(...)")
    return found


def _named(name: str) -> str:
    importer(name)
    return name


def _owner(file: File, before: str | None) -> str | None:
    """The first importer that knows the file: by its place, for files whose content does not show it, then by content.

    Whoever took the file before is asked first, as neighbours are mostly alike; the general forms must wait for the dialects.
    """
    for name, importer in importers().items():
        if importer.sidecar(file.name):
            return name
    head = file.head() if file.size else b""
    if not head:
        return None
    if before is not None and importers()[before].rank >= 0 and importers()[before].sniff(head):
        return before
    return next((name for name, importer in importers().items() if importer.sniff(head)), None)


def _walk(path: Path, seen: set[tuple[int, int]]) -> Iterator[tuple[File, str | None]]:
    """Every plain file under a path, in order of name, with why it cannot be read where that is so."""
    try:
        status = path.stat()
    except OSError as error:
        if not path.is_symlink() and isinstance(error, FileNotFoundError):
            raise NotFound("no such file or folder", where=os.fspath(path), fix="check the path") from error
        yield File(path.as_posix(), 0, partial(_open, path)), error.strerror or "cannot be read"
        return
    if stat.S_ISREG(status.st_mode):
        yield File(path.as_posix(), status.st_size, partial(_open, path), status.st_mtime), _refusal(path)
    elif stat.S_ISDIR(status.st_mode):
        key = status.st_dev, status.st_ino
        if key in seen:
            return
        seen.add(key)
        try:
            inside = sorted(path.iterdir())
        except OSError as error:
            yield File(path.as_posix(), 0, partial(_open, path)), error.strerror or "cannot be read"
            return
        for child in inside:
            yield from _walk(child, seen)
    else:
        yield File(path.as_posix(), 0, partial(_open, path)), "is not a plain file"


def _refusal(path: Path) -> str | None:
    return None if os.access(path, os.R_OK) else "permission denied"


def _open(path: Path) -> BinaryIO:
    return open_plain(path)
