"""Logs on disk: which files there are, whose they are, which belong together, and the traces in them.

Always true: files are only read; a folder is entered once, however many links lead to it; a file that cannot be read, or is of
no source we know, is counted and named; one session is in memory at a time. The order of sessions does not depend on the
file system.
"""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import BinaryIO, cast

import counterpoint.registry as registry
from counterpoint.app.archives import is_tar, is_zip, members
from counterpoint.errors import InputError, NotFound, did_you_mean
from counterpoint.files import open_plain
from counterpoint.formats.importer import Importer, Session
from counterpoint.formats.importing.files import HEAD, File, first_keys
from counterpoint.formats.importing.values import is_broken
from counterpoint.trace import Trace

_BUFFER = 1 << 18
# Whose files most users have, and no other source's look like them: known without importing the importers of all sources.
_PLAIN = ("qwen_code", "claude_code", "codex")
# How far a file is looked into when its first part shows no source.
_FURTHER = (1 << 20, 1 << 24)
# How many lines in front of a log are looked past, to say what is behind them.
_ODD_LINES = 50
# What traces begin with that we wrote, as lines and as OTLP: they are loaded, whatever log their texts quote.
_OURS = (b'{"counterpoint":', b'"counterpoint.trace"')
_SCHEMA_WORDS = (b'"properties"', b'"$schema"', b'"$defs"', b'"definitions"', b'"openapi"', b'"swagger"')
# A source of which fewer signs are there is not near.
_NEAR = 0.4
# Signs that logs of all kinds have: a source of which nothing else is there is not near either.
_COMMON = frozenset(
    {"messages", "message", "timestamp", "content", "type", "source", "id", "name", "role", "events", "attributes", "tool_calls"}
)


@dataclass(frozen=True)
class Skipped:
    """A file that was not taken, and why."""

    name: str
    why: str
    file: File | None = None
    """The file itself, where it can be read and no importer knows it."""


@dataclass
class LogFiles:
    """What lies under some paths."""

    sessions: list[tuple[str, Session]] = field(default_factory=list)
    """The importer's id and a session of it, in order of name."""
    skipped: list[Skipped] = field(default_factory=list)
    files: int = 0
    bytes: int = 0


@cache
def importers() -> dict[str, Importer]:
    """Every importer by id, those that know a dialect before those that know the general form."""
    return _importers(registry.ids("format"))


def _importers(names: Iterable[str]) -> dict[str, Importer]:
    found = {name: registry.get("format", name) for name in names}
    only = [(name, format_) for name, format_ in found.items() if isinstance(format_, Importer)]
    return dict(sorted(only, key=lambda row: (-row[1].rank, row[0])))


def read_logs(path: str | os.PathLike[str], *, format: str | None = None) -> Iterator[Trace]:
    """The traces in a file or folder of logs, one session at a time; the format by content unless it is named.

    What each source lacks, and which links were inferred, is in `trace.meta["import"]`.

    >>> import counterpoint as cpt
    >>> from pathlib import Path
    >>> chat = [{"role": "assistant", "name": "Solver", "content": "The answer is 41."}]
    >>> import json
    >>> said = {"history": chat, "question": "6 times 7?", "ground_truth": "42", "mistake_agent": "Solver", "mistake_step": "0"}
    >>> _ = Path("run.json").write_text(json.dumps(said | {"question_ID": "q1"}))
    >>> [trace.system for trace in cpt.read_logs("run.json")]
    ['who_and_when']
    """
    found = find([path], format=format)
    if not found.sessions:
        why = f"{found.skipped[0].name}: {found.skipped[0].why}" if found.skipped else None
        fix = "known sources: " + ", ".join(importers())
        raise InputError("holds no log of a known format", where=os.fspath(path), why=why, fix=fix)
    for name, session in found.sessions:
        yield from importer(name).read_session(session)


def find(paths: Iterable[str | os.PathLike[str]], *, format: str | None = None, since: float | None = None) -> LogFiles:
    """The sessions under some paths; with `since`, those with a file changed at or after that moment."""
    forced = None if format is None else _named(format)
    found = LogFiles()
    files: dict[str, list[File]] = {}
    seen: set[tuple[int, int]] = set()
    for path in paths:
        # Absolute, so that who belongs together does not depend on how the path was typed.
        _sort(_walk(Path(os.path.abspath(path)), seen), forced, found, files)
    for name in sorted(files):
        for session in importer(name).group(files[name]):
            if since is None or any(f.changed >= since for f in session.files):
                found.sessions.append((name, session))
    return found


_Seen = Iterable[tuple[File, str | None]]


def _sort(some: _Seen, forced: str | None, found: LogFiles, files: dict[str, list[File]], *, is_inside: bool = False) -> None:
    """Put files to the importers that know them; what is in an archive that is no log itself is looked at one by one."""
    owner: str | None = None
    for file, why in some:
        found.files += 1
        found.bytes += file.size
        # A tar archive begins with its first file, and would pass for it.
        is_tarred = why is None and is_tar(file)
        if is_tarred and is_inside:
            why = "is an archive inside another: unpack the outer one"
        is_open = why is None and not is_tarred
        owner = None if not is_open else forced if forced and not _is_zip(file, forced) else _owner(file, owner)
        if owner is not None:
            files.setdefault(owner, []).append(file)
        elif why is None and not is_inside and (is_tarred or _is_zip(file, None)):
            _sort(members(file), forced, found, files, is_inside=True)
        else:
            found.skipped.append(Skipped(file.name, why or _nearest(file), None if why else file))


def importer(name: str) -> Importer:
    """An importer by its id, or anybody's by "package.module:object"."""
    if name in _plain():
        return _plain()[name]
    if ":" not in name and name not in importers():
        raise NotFound(f"no importer named {name!r}", fix=did_you_mean(name, importers()))
    found = registry.get("format", name) if ":" in name else importers()[name]
    if not isinstance(found, Importer):
        raise InputError(f"{name} is a {type(found).__name__}, not an Importer", fix="formats.importer.Importer(...)")
    return found


def _named(name: str) -> str:
    importer(name)
    return name


@cache
def _plain() -> dict[str, Importer]:
    """The importers of `_PLAIN` in the order of all, as long as nobody has added another that may know their files."""
    is_ours = registry.packages("format") == ("counterpoint.formats",)
    return _importers(_PLAIN) if is_ours else {}


def _owner(file: File, before: str | None) -> str | None:
    """The first importer that knows the file: by its place, for files whose content does not show it, then by content.

    Whoever took the file before is asked first, as neighbours are mostly alike; the general forms must wait for the dialects.
    """
    plain = _plain()
    if (beside := _by_place(file, plain)) is not None:
        return beside
    head = file.head() if file.size else b""
    for name in dict.fromkeys((before, *plain) if before in plain else plain) if head else ():
        if plain[name].sniff(head):
            return name
    if (beside := _by_place(file, importers())) is not None:
        return beside
    if _is_schema(head) or _is_ours(head):
        return None  # it names the keys of a source's records, and holds none
    if head and before is not None and importer(before).rank >= 0 and importer(before).sniff(head):
        return before
    for size in (HEAD, *_FURTHER):
        if not head:
            return None
        found = next((name for name, importer in importers().items() if importer.sniff(head)), None)
        if found is not None or len(head) < size:
            return found
        head = file.head(size * 16)  # what tells a source apart may stand behind a long first record
    return None


def _by_place(file: File, known: Mapping[str, Importer]) -> str | None:
    return next((name for name, importer in known.items() if importer.sidecar(file.name)), None)


def _is_schema(head: bytes) -> bool:
    """Whether a file is a JSON Schema, or an OpenAPI document: what records look like, and no record."""
    if not any(word in head for word in _SCHEMA_WORDS):
        return False
    keys = first_keys(head)
    if b"json-schema.org" in keys.get("$schema", b"") or "openapi" in keys or "swagger" in keys:
        return True
    of_object = "properties" in keys and keys.get("type", b"").lstrip().startswith(b'"object"')
    return of_object or any(keys.get(name, b"").lstrip().startswith(b"{") for name in ("$defs", "definitions"))


def _is_ours(head: bytes) -> bool:
    return head.startswith(_OURS[0]) or _OURS[1] in head[:256]


def _is_zip(file: File, forced: str | None) -> bool:
    """Whether a file is a zip archive, and not one that is the log itself."""
    return is_zip(file) and (forced is None or not importer(forced).sniff(file.head()))


# -- what a file that nobody knows is nearest to ---------------------------------------------------------------------------


def _nearest(file: File) -> str:
    """Why a file was not taken: the source it looks most like, with what is missing for it; else what it is."""
    head = file.head(_FURTHER[0]) if file.size else b""
    if not head:
        return "cannot be unpacked" if file.size else "is empty"
    if _is_schema(head):
        return "is a JSON Schema: it says what records look like, and holds none"
    if _is_ours(head):
        return "is a trace that we wrote: `counterpoint import` takes it back, `counterpoint.load` reads it"
    if (odd := _behind_odd_lines(head)) is not None:
        return odd
    begins = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if begins[:1] not in (b"{", b"["):
        return "comes from no source we know: " + ("JSON without an object in it" if not is_broken(head) else "it is not JSON")
    best: tuple[float, str, list[str], list[str]] = (0.0, "", [], [])
    for name, one in importers().items():
        there = [sign for sign in one.signs if f'"{sign}"'.encode() in head]
        share = len(there) / len(one.signs) if one.signs else 0.0
        if share > best[0] and len(there) > 1 and not _COMMON.issuperset(there):
            best = share, name, there, [sign for sign in one.signs if sign not in there]
    if best[0] >= _NEAR:
        has, lacks = (", ".join(signs[:4]) for signs in best[2:])
        missing = f", and lacks {lacks}" if lacks else f", but not where {best[1]} has them (--format {best[1]} reads it as such)"
        return f"comes from no source we know; nearest is {best[1]}: it has {has}{missing}"
    keys = ", ".join(sorted(first_keys(head))[:6])
    return (
        f"comes from no source we know: JSON with {keys}"
        if keys
        else "comes from no source we know: JSON without keys at its top level"
    )


def _behind_odd_lines(head: bytes) -> str | None:
    """What a file is that begins with lines which are no objects, before those of a source that we know."""
    lines = head.split(b"\n")
    first = next((k for k, line in enumerate(lines[:_ODD_LINES]) if line.lstrip()[:1] == b"{" and not is_broken(line)), 0)
    if not any(line.strip() for line in lines[:first]):
        return None
    rest = b"\n".join(lines[first:])
    name = next((name for name, one in importers().items() if one.sniff(rest)), None)
    few = "line 1 is no record" if first == 1 else f"lines 1 to {first} are no records"
    return None if name is None else f"looks like {name} from line {first + 1} on, but {few} of it: take the beginning out"


# -- folders -------------------------------------------------------------------------------------------------------------------


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
    stream = open_plain(path)
    # Records are often longer than the usual buffer.
    return io.BufferedReader(cast(io.BufferedReader, stream).detach(), _BUFFER)
