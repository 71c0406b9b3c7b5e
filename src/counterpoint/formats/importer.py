"""What an importer is: the files of one session in, its traces and what there is to say about it out.

The same files give the same traces, and a session that grew keeps the ids of the events it had.

Always true: an importer opens no file and raises only `InputError`; a record it cannot read is counted with file and line,
one of a kind it does not know is counted and left out of the graph, and the rest goes on; every trace it gives passes `check`
without an error, because `Draft` sees to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from counterpoint.errors import InputError
from counterpoint.formats.draft import Draft
from counterpoint.formats.format import Data, Format
from counterpoint.formats.importing.files import HEAD, File
from counterpoint.formats.importing.report import Report
from counterpoint.formats.importing.usage import PRICES, Prices
from counterpoint.formats.importing.values import apart, clean_object, compact, decode, is_utf8
from counterpoint.trace import Trace

_FEW = 4
"""Lines at the beginning of a file, one of which is an object where each line is to be one."""


@dataclass
class Session:
    """Files that belong together, and what was found wrong with them."""

    key: str
    """Names the session among all of its source; the same after it has grown."""
    files: Sequence[File]
    prices: Prices = PRICES
    report: Report = field(default_factory=Report)
    """About records; what there is to say about a trace is in the draft's own report."""

    def records(self, file: File) -> Iterator[tuple[int, dict[str, Any]]]:
        """Line number and object of each record of a file of JSON lines; broken ones are counted."""
        try:
            for number, line in file.lines():
                if line is not None and (clean := clean_object(line)) is not None:
                    self.report.records += 1
                    yield number, clean
                    continue
                pieces = [None] if line is None else apart(line)
                if len(pieces) > 1:
                    self.report.mended["lines of several records: read apart"] += 1
                for piece in pieces:
                    record = self._record(file, number, piece)
                    if record is not None:
                        self.report.records += 1
                        yield number, record
        except InputError as error:
            self.report.broke(file.name, None, error.one_line())

    def _record(self, file: File, number: int, line: bytes | None) -> dict[str, Any] | None:
        if line is None:
            self.report.broke(file.name, number, "a record beyond the size limit")
            return None
        try:
            record = decode(line)
        except InputError as error:
            torn = "" if line.endswith(b"\n") else " (torn last line: the session may still be running)"
            self.report.broke(file.name, number, error.what + torn)
            return None
        if not isinstance(record, dict):
            self.report.broke(file.name, number, "a record that is not an object")
            return None
        self.check_coding(line)
        return record

    def check_coding(self, data: bytes) -> None:
        """Count a record in which bytes are no text: each of them was read as U+FFFD."""
        if not is_utf8(data):
            self.report.mended["records with bytes that are not UTF-8: read as U+FFFD"] += 1

    def document(self, file: File) -> Any:
        """The JSON document that a file is, or None when it is not one (which is counted)."""
        try:
            data = file.data()
            value = decode(data)
        except InputError as error:
            self.report.broke(file.name, None, error.one_line())
            return None
        self.check_coding(data)
        self.report.records += 1
        return value

    def documents(self, file: File) -> Iterator[Any]:
        """Each document of a file that is one JSON document, on one line or several, or that holds one on each line."""
        if _is_one_document(file.head(HEAD)):
            value = self.document(file)
            if value is not None:
                yield value
        else:
            yield from (record for _, record in self.records(file))

    def entries(self, file: File) -> Iterator[tuple[int, dict[str, Any]]]:
        """The runs in a file, each with its number from 1: the object it is, those of the list it is, or one per line."""
        if _is_lines(file):
            yield from self.records(file)
            return
        value = self.document(file)
        for number, entry in enumerate(value if isinstance(value, list) else [value] if isinstance(value, dict) else [], 1):
            if isinstance(entry, dict):
                yield number, entry
            else:
                self.report.broke(file.name, number, "an entry that is not an object")

    def draft(self, trace_id: str, task_id: str, *, system: str, run: str | None = None) -> Draft:
        """A trace to be. `run` tells it from other runs where the source has no id for it: `run_of` its records."""
        return Draft(trace_id, task_id, system=system, prices=self.prices, records=self.report, run=run)


def run_of(*records: Any) -> str:
    """What tells a run from all others where its source gives it no id of its own: a digest of all it says."""
    data = "\0".join(compact(record) for record in records).encode("utf-8", "replace")
    return blake2b(data, digest_size=8).hexdigest()


def _is_one_document(head: bytes) -> bool:
    """Whether a file that begins so is one document: a list, or an object over several lines."""
    begins = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if not begins.startswith(b"{"):
        return True
    *whole, last = begins.split(b"\n", _FEW)
    if whole and whole[0].rstrip().endswith((b"[", b"{", b",")):
        return True
    if not whole or any(_is_object(line) for line in whole):
        return False
    return len(whole) > 1 or not last.startswith(b"{")


def _is_object(line: bytes) -> bool:
    if not line.startswith(b"{"):
        return False
    try:
        decode(line)
    except InputError:
        return False
    return True


def _is_lines(file: File) -> bool:
    """Whether a file holds an object per line: by its name, or because the first line is a whole object and more follows."""
    if ".jsonl" in file.name:
        return True
    first, _, rest = file.head().lstrip(b"\xef\xbb\xbf \t\r\n").partition(b"\n")
    if not rest.strip():
        return False
    try:
        return isinstance(decode(first), dict)
    except InputError:
        return False


def _one_each(files: Sequence[File]) -> Iterable[Session]:
    return [Session(file.name, [file]) for file in files]


def _no_sidecar(name: str) -> bool:
    return False


@dataclass(frozen=True, kw_only=True)
class Importer(Format):
    """A foreign source. `lost` says what has no place in a trace, or is not in the source."""

    system: str
    """Who writes such records: `claude-code`, `codex`."""
    becomes: Mapping[str, tuple[str, ...]]
    """What its records become, by kind of record: types of events and edges, or fields of a trace or an event."""
    example: Callable[[], Mapping[str, bytes]] | None = None
    """The files of one small session or more, by name, on which it is tested; those of `examples/logs` where it has none."""
    read_session: Callable[[Session], Iterator[Trace]]
    """The traces of one session."""
    group: Callable[[Sequence[File]], Iterable[Session]] = _one_each
    """Which of the source's files belong together; one session per file where nothing is said."""
    sidecar: Callable[[str], bool] = _no_sidecar
    """Whether a file of this name (with its folders) belongs to the source though its content does not show it."""
    signs: tuple[str, ...] = ()
    """Names of keys that its files have: a file that nobody knows is told which source has the most of them."""
    rank: int = 0
    """Of two importers that know a file, the higher takes it: dialects above the general form."""
    versions: str = ""
    """The versions of the source that were seen, as its files or their publishers state them: "0.4 to 0.11"."""
    exact: str = ""
    """What the source states itself, and the trace has as stated: "tokens, costs, sub-agents"."""

    def __post_init__(self) -> None:
        if self.read is None:
            object.__setattr__(self, "read", self._read_alone)

    def _read_alone(self, data: Data) -> Iterator[Trace]:
        """The traces in the bytes of one file."""
        session = Session("", [File.of(data)])
        records = 0
        for trace in self.read_session(session):
            records += 1
            yield trace
        if not records:
            first = session.report.broken[0]["what"] if session.report.broken else None
            raise InputError(f"holds no session of {self.system}", why=first)
