"""What people say about the traces and issues of a store, and the collections they make: one file beside the lake.

Always true: what `append` has acknowledged survives a power cut and a killed writer, whoever else writes; a group of records is
there whole or not at all. A writer holds the file's lock from reading the end to writing it; readers take none. Every group
has a sum over its bytes and its place, and the head says how far the file goes, so that a lost end is noticed too; the store's
mark says that there is such a file, so that a lost one is.
"""

from __future__ import annotations

import os
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Struct

import counterpoint.store.disk as disk
from counterpoint.errors import InputError
from counterpoint.store.append_file import AppendFile
from counterpoint.store.opening import ANNOTATIONS, has_annotations, note_annotations
from counterpoint.trace.annotation import Annotation

NAME = ANNOTATIONS
_HEAD = b'{"counterpoint_annotations":1,"bytes":%012d,'
_HEAD_SUM = b'"sum":%010d}\n'
HEAD_BYTES = len(_HEAD % 0 + _HEAD_SUM % 0)
_SUM = b'{"sum":%010d}\n'
_SUM_BYTES = len(_SUM % 0)


class Dataset(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A collection of traces: what a query finds, whenever it is asked, or a list."""

    name: str
    query: str | None = None
    """A query of `counterpoint ls`; None: a list."""
    ids: tuple[str, ...] = ()
    by: str
    at: float
    """When it was made, or last changed, seconds since the epoch."""
    note: str | None = None


class IssueMark(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What somebody decided about an issue: one key, the newest mark counts."""

    key: str
    state: str
    """`open`, `resolved` or `ignored`."""
    by: str
    at: float
    """When, seconds since the epoch."""
    note: str | None = None


class Change(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One record of the file; one of the fields is set."""

    annotate: Annotation | None = None
    withdraw: str | None = None
    """The id of an annotation."""
    forget: str | None = None
    """A trace that was removed: what was said about it goes, and it leaves every list."""
    dataset: Dataset | None = None
    """A collection, new or in place of the one of its name."""
    extend: Dataset | None = None
    """Traces that a list gains."""
    reduce: Dataset | None = None
    """Traces that a list loses."""
    drop: str | None = None
    """A collection that is no more."""
    issue: IssueMark | None = None
    """A decision about an issue, in place of the one before."""


_decode = msgspec.json.Decoder(list[Change]).decode


class AnnotationState:
    """All that the file says."""

    def __init__(self) -> None:
        self.annotations: dict[str, Annotation] = {}
        """By id, the oldest first."""
        self.by_trace: dict[str, dict[str, Annotation]] = {}
        self.datasets: dict[str, Dataset] = {}
        self.issues: dict[str, IssueMark] = {}
        """By the issue's key."""
        self.withdrawn: set[str] = set()
        """Annotations that were taken back: who brings them again, with a file, does not bring them back."""
        self.is_stale = False
        """Whether the file holds anything that counts no more."""

    def apply(self, change: Change) -> None:
        """Move to the next state."""
        self.is_stale |= (change.withdraw or change.forget or change.drop or change.reduce) is not None
        if (one := change.annotate) is not None:
            self.annotations[one.id] = one
            self.by_trace.setdefault(one.trace_id, {})[one.id] = one
        elif change.withdraw is not None:
            self._withdraw(change.withdraw)
            self.withdrawn.add(change.withdraw)
        elif change.forget is not None:
            for name in [*self.by_trace.get(change.forget, ())]:
                self._withdraw(name)
            for name, known in self.datasets.items():
                self.datasets[name] = msgspec.structs.replace(known, ids=tuple(i for i in known.ids if i != change.forget))
        elif change.drop is not None:
            self.datasets.pop(change.drop, None)
        elif change.issue is not None:
            self.is_stale |= change.issue.key in self.issues
            self.issues[change.issue.key] = change.issue
        else:
            self._collect(change)

    def _collect(self, change: Change) -> None:
        if change.dataset is not None:
            self.is_stale |= change.dataset.name in self.datasets
            self.datasets[change.dataset.name] = change.dataset
        if change.extend is not None:
            known = self.datasets.get(change.extend.name, change.extend)
            ids = tuple(dict.fromkeys((*known.ids, *change.extend.ids)))
            self.datasets[known.name] = msgspec.structs.replace(known, ids=ids, at=change.extend.at)
        if change.reduce is not None and (known := self.datasets.get(change.reduce.name, change.reduce)).query is None:
            ids = tuple(i for i in known.ids if i not in change.reduce.ids)
            self.datasets[known.name] = msgspec.structs.replace(known, ids=ids, at=change.reduce.at)

    def _withdraw(self, name: str) -> None:
        annotation = self.annotations.pop(name, None)
        if annotation is not None:
            of_trace = self.by_trace[annotation.trace_id]
            del of_trace[name]
            if not of_trace:
                del self.by_trace[annotation.trace_id]

    def of(self, trace_id: str) -> list[Annotation]:
        """What is said about a trace, the oldest first."""
        return list(self.by_trace.get(trace_id, {}).values())

    def changes(self) -> list[Change]:
        """The least that says the same."""
        said = [Change(annotate=a) for a in self.annotations.values()] + [Change(dataset=d) for d in self.datasets.values()]
        return said + [Change(issue=mark) for mark in self.issues.values()]


class _Place(NamedTuple):
    """How far a file has been read: which file, and the byte after its last whole group."""

    inode: int
    end: int


class AnnotationFile:
    """The file of one store, as one process sees it."""

    def __init__(self, store: Path) -> None:
        self.path = store / NAME
        self.state = AnnotationState()
        self._place: _Place | None = None
        self._lock = threading.RLock()

    @property
    def version(self) -> tuple[int, int]:
        """Something that is another one when the file says something else."""
        return (0, 0) if self._place is None else (self._place.inode, self._place.end)

    def refresh(self) -> AnnotationState:
        """All that is said now; cheap when nothing is new."""
        with self._lock, disk.translate_errors(self.path):
            try:
                fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                if has_annotations(self.path.parent) and not self.path.exists():
                    raise self._damaged("it is missing") from None
                self.state, self._place = AnnotationState(), None
                return self.state
            try:
                if not self._follow(fd):
                    disk.lock(fd, shared=True, wait=True)  # what a writer was writing is whole now
                    self._follow(fd, is_last_try=True)
            finally:
                os.close(fd)
            return self.state

    def _follow(self, fd: int, *, is_last_try: bool = False) -> bool:
        """Take in what is new; False where the file ends before its head says so."""
        about = os.fstat(fd)
        if self._place is None or self._place.inode != about.st_ino:
            self.state, self._place = AnnotationState(), _Place(about.st_ino, HEAD_BYTES)
        acknowledged = head_of(os.pread(fd, HEAD_BYTES, 0))
        if acknowledged is None:
            if is_last_try:
                raise self._damaged("its first line is not as it was written")
            return False
        begin = self._place.end
        if about.st_size > begin:
            for changes, end in groups(os.pread(fd, about.st_size - begin, begin), begin):
                for change in changes:
                    self.state.apply(change)
                self._place = _Place(about.st_ino, end)
        if self._place.end < acknowledged:
            if is_last_try:
                raise self._damaged(f"it can be read up to byte {self._place.end:,} of {acknowledged:,}")
            return False
        return True

    def _damaged(self, why: str) -> InputError:
        fix = f"counterpoint store repair --store {os.fspath(self.path.parent)} recovers what is intact"
        return InputError("the file of annotations is damaged", where=os.fspath(self.path), why=why, fix=fix)

    # -- writing -------------------------------------------------------------------------------------------------

    def append(self, decide: Callable[[AnnotationState], Sequence[Change]]) -> None:
        """Write the changes that `decide` gives, looking at all that is said; durable when this returns."""
        with self._alone() as file:
            changes = decide(self.state)
            if not changes:
                return
            note_annotations(self.path.parent)
            assert self._place is not None
            begin = self._place.end
            data = group(changes, begin)
            file.cut(begin)  # what a killed writer left of a group
            file.append(data)
            os.pwrite(file.fd, head(begin + len(data)), 0)
            for change in changes:
                self.state.apply(change)
            self._place = _Place(self._place.inode, begin + len(data))

    def rewrite(self) -> bool:
        """Leave out what was withdrawn, for good; False where there was nothing of it."""
        if not self.path.exists():
            return False
        with self._alone():
            if not self.state.is_stale:
                return False
            disk.replace_file(self.path, whole(self.state.changes()))
            return True

    @contextmanager
    def _alone(self) -> Iterator[AppendFile]:
        """The file, open for writing, its lock held and everything in it read."""
        with self._lock, disk.translate_errors(self.path):
            file = self._open_alone()
            try:
                self._follow(file.fd, is_last_try=True)
                yield file
            finally:
                file.close()

    def _open_alone(self) -> AppendFile:
        while True:
            is_known = has_annotations(self.path.parent)
            if not self.path.exists():
                if is_known:
                    raise self._damaged("it is missing")
                disk.create(self.path, head(HEAD_BYTES))
            file = AppendFile.open(self.path)
            try:
                disk.lock(file.fd, wait=True)
                if file.is_at(self.path):  # else somebody rewrote it while we waited
                    return file
            except BaseException:
                file.close()
                raise
            file.close()


# -- the bytes ---------------------------------------------------------------------------------------------------------


def head(end: int) -> bytes:
    """The first line of a file that goes to this byte."""
    line = _HEAD % end
    return line + _HEAD_SUM % zlib.crc32(line)


def head_of(data: bytes) -> int | None:
    """How far the first line says that the file goes; None where it is not as it was written."""
    try:
        end = int(data[len(_HEAD % 0) - 13 : len(_HEAD % 0) - 1])
    except ValueError:
        return None
    return end if head(end) == data else None


def group(changes: Sequence[Change], begin: int) -> bytes:
    """Records that belong together, as they stand from byte `begin` on."""
    data = b"".join(msgspec.json.encode(change) + b"\n" for change in changes)
    return data + _SUM % zlib.crc32(data, begin)


def groups(data: bytes, begin: int) -> Iterator[tuple[list[Change], int]]:
    """The whole groups at the beginning of these bytes, each with the byte after it; ends where one is not whole."""
    at = start = 0
    while (newline := data.find(b"\n", at)) >= 0:
        line, at = data[at : newline + 1], newline + 1
        if not line.startswith(b'{"sum":'):
            continue
        held = data[start : at - len(line)]
        if line != _SUM % zlib.crc32(held, begin + start):
            return
        try:
            changes = _decode(b"[" + held[:-1].replace(b"\n", b",") + b"]")  # inside a record a line break is written \\n
        except msgspec.MsgspecError:
            return
        start = at
        yield changes, begin + start


def whole(changes: Sequence[Change]) -> bytes:
    """A file that says this."""
    if not changes:
        return head(HEAD_BYTES)
    data = group(changes, HEAD_BYTES)
    return head(HEAD_BYTES + len(data)) + data


def salvage_changes(data: bytes) -> tuple[list[Change], int]:
    """What is whole in a damaged file, and how many of its lines are not: a group whose sum is wrong is not believed."""
    changes: list[Change] = []
    lost, start = 0, HEAD_BYTES
    while start < len(data):
        mark = data.find(b'\n{"sum":', start)
        end = len(data) if mark < 0 else min(len(data), mark + 1 + _SUM_BYTES)
        whole_group = next(groups(data[start:end], start), None)
        if whole_group is None:
            lost += data[start:end].count(b"\n")
        else:
            changes += whole_group[0]
        start = end
    return changes, lost
