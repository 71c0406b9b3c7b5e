"""An Inspect log as its header and its samples, however it was written: `.eval`, chunked `.eval`, or one JSON document.

A sample's `attachment://` references are resolved through `Sample.text`, its `input_refs` through `Sample.prompt`. Tokens,
scores and prompts are read at the end: a score that is no number is None and stays in `meta`.

Always true: samples come one at a time; an entry that cannot be read is counted and the others go on; a later entry of the
same name replaces an earlier one.
"""

from __future__ import annotations

import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import zstandard

from counterpoint.errors import InputError
from counterpoint.formats.importer import Session
from counterpoint.formats.importing.chat import Message, arguments_text, message_of
from counterpoint.formats.importing.files import MAX_DOCUMENT, MAX_UNPACKED, File
from counterpoint.formats.importing.usage import Usage
from counterpoint.formats.importing.values import as_dict, as_list, count, decode, number, text_of

# -- The entries of an `.eval` archive: a zip whose entries may be packed with zstd -----------------------------------
# Which Python's zipfile does not unpack.
#
# The directory is read by zipfile; the bytes of an entry are found by its offset and unpacked here. An archive without a
# directory, copied while it was written, is read entry by entry from its front as far as it goes.
#
# Always true: no entry is unpacked beyond `MAX_ENTRY` bytes, nor beyond `MAX_RATIO` times its packed size once it is large, nor
# the archive beyond `MAX_ARCHIVE`, whatever sizes it states: a bomb is an `InputError` and never fills the memory.

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
        if at < 0:  # the directory of an archive whose beginning is cut off
            return None
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
        total, remaining = 0, size
        while not reader.eof:
            data = reader.rest or self._stream.read(min(_CHUNK, remaining))
            remaining -= 0 if reader.rest else len(data)
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
    raise InputError(f"uses compression method {method}, which is not supported", where=name)


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


_SAMPLE = re.compile(
    r"samples/(?P<id>.+)_epoch_(?P<epoch>\d+)(?:\.json|/(?P<part>sample|metadata)\.json|/(?P<kind>\w+)/(?P<start>\d+)\.json)"
)
_SEQUENCES = ("messages", "events", "attachments")
_REFERENCE = "attachment://"


@dataclass
class EvalLog:
    """What a log says about all of its samples."""

    eval: dict[str, Any]
    status: str
    """`success`, `error`, `cancelled`, `started`; `running` where the header has not been written yet."""
    has_samples: bool = True


@dataclass
class Sample:
    """One sample of one epoch."""

    data: dict[str, Any]
    attachments: dict[str, Any]
    """By hash, or by number where the sample is chunked."""
    pool: list[Any] = field(default_factory=list)
    """Messages that `input_refs` point into."""
    missing: int = 0
    """References to attachments that are not there."""

    @classmethod
    def of(cls, data: dict[str, Any]) -> Sample:
        """A sample that was written as one object."""
        pool = as_list(data.get("message_pool")) or as_list(as_dict(data.get("events_data")).get("messages"))
        return cls(data, as_dict(data.get("attachments")), pool)

    def text(self, content: Any) -> str:
        """The text of a content, with references to attachments resolved."""
        if isinstance(content, str):
            if not content.startswith(_REFERENCE):
                return content
            attachment = self.attachments.get(content[len(_REFERENCE) :])
            self.missing += not isinstance(attachment, str)
            return attachment if isinstance(attachment, str) else content
        if isinstance(content, list):
            return "\n".join(t for t in map(self.text, content) if t)
        if isinstance(content, dict) and (content.get("type") == "text" or "text" in content):
            return self.text(content.get("text") or "")
        return text_of(content)

    def prompt(self, event: dict[str, Any], known: list[Any]) -> Iterator[Message]:
        """The messages that a model event was given. Those of the pool that the agent's `known` references cover are left out;
        `known` then holds the event's own."""
        refs = [r for r in as_list(event.get("input_refs")) if isinstance(r, list) and len(r) == 2]
        raw = as_list(event.get("input"))
        if refs and not raw:
            ranges = [(count(a) or 0, count(b) or 0) for a, b in refs]
            raw = [self.pool[i] for a, b in _beyond(known, ranges) for i in range(a, min(b, len(self.pool)))]
            known[:] = ranges
        for item in raw:
            if (message := message_of(item, self.text)) is not None:
                yield message


def _beyond(known: list[Any], ranges: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """What ranges hold beyond those before: a prompt grows at its end, and only that is looked at."""
    for k, (start, end) in enumerate(ranges):
        if k < len(known) and known[:k] == ranges[:k] and known[k][0] == start:
            yield max(start, min(known[k][1], end)), end
        else:
            yield start, end


def read_log(session: Session, file: File) -> tuple[EvalLog, Iterator[Sample]] | None:
    """The log in a file, or None when it is none."""
    with file.open() as stream:
        is_zip = stream.read(4) == MAGIC
    if is_zip:
        try:
            archive = Archive(file)
        except InputError as error:
            session.report.broke(file.name, None, error.one_line())
            return None
        return _of_archive(session, file, archive)
    entries = [entry for _, entry in session.entries(file)]
    document = entries[0] if len(entries) == 1 else {}
    if not isinstance(document.get("eval"), dict):
        return _loose_samples(entries)
    samples = [Sample.of(s) for s in as_list(document.get("samples")) if isinstance(s, dict)]
    return EvalLog(document["eval"], str(document.get("status") or "unknown"), bool(samples)), iter(samples)


def _loose_samples(entries: list[dict[str, Any]]) -> tuple[EvalLog, Iterator[Sample]] | None:
    """Samples without their log: each an object, or all events of one."""
    whole = [entry for entry in entries if isinstance(entry.get("events"), list) or "epoch" in entry]
    events = [entry for entry in entries if isinstance(entry.get("event"), str)]
    if events and not whole:
        whole = [{"events": events}]
    for sample in whole:
        first = next((as_dict(as_dict(e).get("sample")) for e in as_list(sample.get("events")) if as_dict(e).get("sample")), {})
        for key in ("id", "input", "target", "metadata"):
            if sample.get(key) is None and first.get(key) is not None:
                sample[key] = first[key]
    return (EvalLog({}, "unknown", True), (Sample.of(sample) for sample in whole)) if whole else None


def _of_archive(session: Session, file: File, archive: Archive) -> tuple[EvalLog, Iterator[Sample]]:
    header = _entry(session, file, archive, "header.json") if "header.json" in archive.entries else None
    start = {} if header else as_dict(_entry(session, file, archive, "_journal/start.json"))
    if archive.is_cut:
        session.report.broke(file.name, None, "the archive has no directory: it is cut off, or still being written")
    names: dict[tuple[str, str], dict[str, str]] = {}
    for name in archive.entries:
        if match := _SAMPLE.fullmatch(name):
            part = match["part"] or (f"{match['kind']}/{match['start']}" if match["kind"] else "whole")
            names.setdefault((match["id"], match["epoch"]), {})[part] = name
    header = as_dict(header)
    status = str(header.get("status") or "unknown") if header else "running"
    log = EvalLog(as_dict(header.get("eval")) or as_dict(start.get("eval")), status, bool(names))
    return log, _samples(session, file, archive, list(names.values()))


def _samples(session: Session, file: File, archive: Archive, names: list[dict[str, str]]) -> Iterator[Sample]:
    try:
        for parts in names:
            if "whole" in parts:
                data = _entry(session, file, archive, parts["whole"])
                if isinstance(data, dict):
                    yield Sample.of(data)
            elif "sample" in parts:
                data = _entry(session, file, archive, parts["sample"])
                if isinstance(data, dict):
                    yield _chunked(session, file, archive, parts, data)
    finally:
        archive.close()


def _chunked(session: Session, file: File, archive: Archive, parts: dict[str, str], shell: dict[str, Any]) -> Sample:
    by_kind: dict[str, list[Any]] = {kind: [] for kind in _SEQUENCES}
    for kind in _SEQUENCES:
        starts = sorted(int(p.split("/")[1]) for p in parts if p.startswith(f"{kind}/"))
        for start in starts:
            # A chunk that is lost leaves its numbers empty, so that references to later ones stay right.
            by_kind[kind] += [None] * (start - len(by_kind[kind]) if start - len(by_kind[kind]) < 1_000_000 else 0)
            by_kind[kind] += as_list(_entry(session, file, archive, parts[f"{kind}/{start}"]))
    data = {**shell, "events": by_kind["events"]}
    if "metadata" in parts:
        data["metadata"] = _entry(session, file, archive, parts["metadata"])
    attachments = {str(i): text for i, text in enumerate(by_kind["attachments"])}
    sample = Sample(data, attachments, by_kind["messages"])
    refs = [r for r in as_list(shell.get("message_refs")) if isinstance(r, list) and len(r) == 2]
    data["messages"] = [m for a, b in refs for m in sample.pool[count(a) or 0 : count(b) or 0]]
    return sample


def _entry(session: Session, file: File, archive: Archive, name: str) -> Any:
    try:
        value = decode(archive.read(name))
    except KeyError:
        return None
    except InputError as error:
        session.report.broke(f"{file.name}/{name}", None, error.one_line())
        return None
    session.report.records += 1
    return value


# -- numbers and words ---------------------------------------------------------------------------------------------------------


_GRADES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0, "yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}


def usage_of(usage: Any) -> tuple[Usage | None, float | None]:
    """Tokens and cost of one call. Whether `input_tokens` holds the cached ones differs by provider; `total_tokens` tells."""
    got = as_dict(usage)
    tokens_in, out = count(got.get("input_tokens")), count(got.get("output_tokens"))
    if tokens_in is None and out is None:
        return None, None
    read, wrote = count(got.get("input_tokens_cache_read")) or 0, count(got.get("input_tokens_cache_write")) or 0
    reasoning, total = count(got.get("reasoning_tokens")) or 0, count(got.get("total_tokens"))
    cost = number(got.get("total_cost"))
    if (read or wrote) and total == (tokens_in or 0) + (out or 0):
        return Usage.whole(tokens_in, out, cached=read, written=wrote, reasoning=reasoning), cost
    return Usage(tokens_in or 0, read, wrote, out or 0, reasoning), cost


def score_number(value: Any) -> float | None:
    """A score's value as a number: Inspect's own grades, numbers, truth values."""
    if isinstance(value, bool):
        return float(value)
    if isinstance(value, str) and value in _GRADES:
        return _GRADES[value]
    if isinstance(value, str) and value.lower() in _GRADES:
        return _GRADES[value.lower()]
    return number(value)


def scores_of(scores: Any) -> dict[str, float]:
    """Every number among a sample's scores: `scorer`, or `scorer/key` where its value has parts."""
    out: dict[str, float] = {}
    for name, score in as_dict(scores).items():
        value = score.get("value") if isinstance(score, dict) else score
        parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
        named = {name: value} if parts is None else {f"{name}/{key}": part for key, part in parts}
        out.update({key: amount for key, part in named.items() if (amount := score_number(part)) is not None})
    return out


def prompt_of(arguments: Any) -> str:
    """What an agent is asked by a call: its one text argument, else all of them."""
    texts = [value for value in as_dict(arguments).values() if isinstance(value, str)]
    return texts[0] if len(texts) == 1 and len(as_dict(arguments)) == 1 else arguments_text(arguments)
