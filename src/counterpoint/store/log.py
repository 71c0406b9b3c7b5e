"""The manifest: a log of numbered commits, each a small file, and now and then a checkpoint of the whole.

Always true: commit n + 1 is a file that was written, synced and then linked under its number, which fails when the number is
taken; so of two writers one wins, and the other reads what won and tries the next number. The state is the checkpoint and
the commits after it, applied in order; it names every live trace and the part of the lake that it lies in. A reader never
sees half a commit. Commits older than the checkpoint before last are swept.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import zstandard
from msgspec import Struct, field

from counterpoint.errors import InputError, TryAgain
from counterpoint.store import disk

__all__ = ["Commit", "Log", "Part", "Row", "Span", "State"]

_ATTEMPTS = 200
# A checkpoint is due when reading the commits since the last costs half of reading the state itself, counted in rows: opening a
# commit's file costs as much as decoding eight rows. So the log grows by half between checkpoints, and all of them together
# write a few times the state.
_ROWS_PER_FILE = 8
_CHECKPOINT_ROWS = 256


class Span(Struct, frozen=True, array_like=True, gc=False):
    """Where the rows of a trace lie in a file: row group, first row in it, how many."""

    group: int
    start: int
    rows: int


class Row(Struct, frozen=True, kw_only=True, array_like=True):
    """One trace as the manifest knows it: enough to list it, and to find it. An array in JSON: new fields go to the end."""

    id: str
    task: str
    system: str | None = None
    topology: Any = None
    events: Span
    edges: Span
    contents: Span | None = None
    head: int
    """Its row in the part's table of traces."""
    agents: int
    tokens: int | float | None = None
    wall_clock_s: int | float | None = None
    rewards: dict[str, int | float] = field(default_factory=dict)
    costs: dict[str, int | float] = field(default_factory=dict)
    metrics: dict[str, int | float] | None = None
    has_meta: bool = False
    errors: int = 0
    """How many errors `check` finds; those that can be stored are flagged, not refused."""
    decisions: int = 0
    digest: str
    source: str | None = None
    added: float
    """When it was first added, seconds since the epoch."""
    part: str = ""
    present: int = 0
    """Which event columns hold anything, a bit each in the order of the columns: the others need not be read."""
    is_steered: bool = False
    """Whether an operator intervened while it was made."""


class Part(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A set of Parquet files that were written together."""

    name: str
    """Folder and beginning of the file names, under `lake/`."""
    day: str
    traces: int
    events: int
    bytes: int
    sums: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """By kind of file: where each row group ends, with the CRC-32 of its bytes; last the end of the file, with its footer's."""
    has_rewards: bool = False
    """Whether any event carries a reward."""


class Commit(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One change: new parts with their rows, traces dropped, parts replaced by compaction."""

    at: float
    parts: list[Part] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    drop: list[str] = field(default_factory=list)
    replaces: list[str] = field(default_factory=list)
    """Parts whose live rows are all in `rows`, at their new place."""


class State:
    """What is live: rows by trace id, parts by name, and parts that no live row needs any more."""

    def __init__(self) -> None:
        self.number = 0
        self.rows: dict[str, Row] = {}
        self.parts: dict[str, Part] = {}
        self.live: dict[str, int] = {}
        """Live rows per part; a part whose count is below its number of traces holds dead rows."""
        self.dead: dict[str, float] = {}
        """Parts that may be deleted, with the time they died."""

    def apply(self, commit: Commit) -> None:
        """Move to the next state."""
        for part in commit.parts:
            self.parts[part.name] = part
            self.live[part.name] = 0
        for name in commit.drop:
            self._forget(name)
        moved = set(commit.replaces)
        for row in commit.rows:
            old = self.rows.get(row.id)
            # A row that compaction moved may have been dropped or renewed while it worked: then it stays dead.
            if moved and (old is None or old.part not in moved):
                continue
            self._forget(row.id)
            self.rows[row.id] = row
            self.live[row.part] += 1
        for name in [p for p in self.live if self.live[p] == 0]:
            self.dead[name] = commit.at
            del self.live[name], self.parts[name]

    def _forget(self, trace_id: str) -> None:
        old = self.rows.pop(trace_id, None)
        if old is not None:
            self.live[old.part] -= 1


class _Checkpoint(Struct, kw_only=True):
    number: int
    rows: list[Row]
    parts: list[Part]
    dead: dict[str, float]


class Log:
    """The log of one store: reads the newest state, and commits changes to it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = State()
        self._seen_mtime = -1
        self._since_checkpoint = 0
        self._lock = threading.RLock()

    def _commit_path(self, number: int) -> Path:
        return self.folder / f"{number:012d}.json"

    # -- reading -------------------------------------------------------------------------------------------------

    def refresh(self) -> State:
        """The newest state. Cheap when nothing is new: one look for the next number, one at the folder's time."""
        with self._lock, disk.explained(self.folder):
            if self._seen_mtime >= 0 and self._follow():
                return self.state
            mtime = os.stat(self.folder).st_mtime_ns
            if mtime != self._seen_mtime:
                self._reload()
                self._seen_mtime = mtime
        return self.state

    def _follow(self) -> bool:
        """Apply the commits that come next; False when there is none."""
        moved = False
        while (data := _bytes_of(self._commit_path(self.state.number + 1))) is not None:
            path = self._commit_path(self.state.number + 1)
            self._apply(_decode(data, Commit, path))
            moved = True
        return moved

    def _apply(self, commit: Commit) -> None:
        self.state.apply(commit)
        self.state.number += 1
        self._since_checkpoint += _ROWS_PER_FILE + len(commit.rows)

    def _reload(self) -> None:
        """Begin from the newest checkpoint that can be read, when it is ahead of us."""
        names = sorted(os.listdir(self.folder), reverse=True)
        checkpoints = [n for n in names if n.endswith(".checkpoint")]
        newest = max((int(n.split(".")[0]) for n in names if n.endswith((".json", ".checkpoint"))), default=0)
        if newest <= self.state.number:
            return
        failed: InputError | None = None
        for name in checkpoints:
            if int(name.split(".")[0]) <= self.state.number:
                break
            try:
                self.state = self._read_checkpoint(self.folder / name)
            except InputError as error:
                failed = failed or error
                continue
            self._since_checkpoint = 0
            break
        self._follow()
        if self.state.number < newest:
            missing = self._commit_path(self.state.number + 1)
            raise failed or InputError("a commit of the store's log is missing", where=str(missing), fix="restore it from a copy")

    def _read_checkpoint(self, path: Path) -> State:
        data = _bytes_of(path)
        if data is None:
            raise InputError("the checkpoint is gone", where=str(path), fix="open the store again")
        try:
            data = zstandard.ZstdDecompressor().decompress(data)
        except zstandard.ZstdError as error:
            raise _corrupt(path, error) from error
        read = _decode(data, _Checkpoint, path)
        state = State()
        state.number, state.dead = read.number, read.dead
        state.parts = {p.name: p for p in read.parts}
        state.live = dict.fromkeys(state.parts, 0)
        state.rows = {r.id: r for r in read.rows}
        for row in read.rows:
            state.live[row.part] += 1
        return state

    # -- writing -------------------------------------------------------------------------------------------------

    def commit(self, change: Callable[[State], Commit | None]) -> Commit | None:
        """Make a change: `change` reads the newest state and gives the commit, or None for nothing to do, or raises."""
        for _ in range(_ATTEMPTS):
            with self._lock, disk.explained(self.folder):
                state = self.refresh()
                commit = change(state)
                if commit is None:
                    return None
                if disk.create(self._commit_path(state.number + 1), msgspec.json.encode(commit)):
                    self._apply(commit)
                    self._maybe_checkpoint()
                    return commit
        raise TryAgain("other writers were faster every time", where=str(self.folder), fix="run it again in a moment")

    def _maybe_checkpoint(self) -> None:
        if self._since_checkpoint >= max(_CHECKPOINT_ROWS, len(self.state.rows) // 2):
            # A checkpoint only makes opening quicker: a full disk must not fail the commit that is done already.
            with suppress(OSError):
                self.checkpoint()

    def checkpoint(self) -> None:
        """Write the state, and sweep the commits that only the checkpoint before last needs."""
        state = self.state
        whole = _Checkpoint(
            number=state.number, rows=list(state.rows.values()), parts=list(state.parts.values()), dead=dict(state.dead)
        )
        data = zstandard.ZstdCompressor(level=3).compress(msgspec.json.encode(whole))
        before = sorted(int(n.split(".")[0]) for n in os.listdir(self.folder) if n.endswith(".checkpoint"))
        disk.replace_file(self.folder / f"{state.number:012d}.checkpoint", data)
        self._since_checkpoint = 0
        last = before[-1] if before else 0
        for name in os.listdir(self.folder):
            number, _, kind = name.partition(".")
            if (kind == "json" and int(number) <= last) or (kind == "checkpoint" and int(number) < last):
                disk.remove(self.folder / name)


def _bytes_of(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def _decode(data: bytes, kind: Any, path: Path) -> Any:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise _corrupt(path, error) from error


def _corrupt(path: Path, error: Exception) -> InputError:
    why = f"{error}; the traces themselves lie in lake/ as plain Parquet"
    return InputError("the store's log is damaged", where=os.fspath(path), why=why, fix="restore the file from a copy")
