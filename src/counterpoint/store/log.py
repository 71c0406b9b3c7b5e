"""The manifest: a log of numbered commits, each a small file, and now and then a checkpoint of the whole.

Always true: whoever commits, checkpoints or sweeps holds the lock of the head (`head.py`) from reading the newest state to the
end, so a commit follows what its writer has read, and no number at or below a checkpoint can be taken. The state is the
checkpoint and the commits after it, in order; it names every live trace and the part of the lake that it lies in. Readers take
no lock: a file is linked or renamed whole, ends with its sum, and one that was swept under a reader is looked for again.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import zstandard
from msgspec import Struct, field

import counterpoint.store.disk as disk
import counterpoint.store.pending as pending
from counterpoint.errors import InputError
from counterpoint.store.head import REPAIR, Head, Position
from counterpoint.trace.activity import Quarter, Waiting
from counterpoint.trace.sides import Sides

# A checkpoint is due when reading the commits since the last costs half of reading the state itself, counted in rows: opening a
# commit's file costs as much as decoding eight rows. So the log grows by half between checkpoints, and all of them together
# write a few times the state.
_ROWS_PER_FILE = 8
_CHECKPOINT_ROWS = 256
# Only the holder of the lock has a draft in the folder of the log: an older one has lost its writer.
_DRAFT_AGE_S = 60.0


class Span(Struct, frozen=True, array_like=True, gc=False):
    """Where the rows of a trace lie in a file: row group, first row in it, how many."""

    group: int
    start: int
    rows: int


class Row(Struct, frozen=True, kw_only=True, array_like=True, gc=False):
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
    problems: int = 0
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
    cost_usd: int | float | None = None
    title: str | None = None
    """What was asked, in one line."""
    project: str | None = None
    models: tuple[str, ...] = ()
    """Those with the most tokens first."""
    started: float | None = None
    """When the run began, seconds since the epoch; None where its source has no clock's time."""
    failures: int = 0
    """Events that went wrong; a call and its result are one."""
    unpriced: dict[str, int] = field(default_factory=dict)
    """Tokens that no cost covers, by model ("" where none is named)."""
    uncounted: int = 0
    """Agents and model calls whose tokens are not, or not truly, known."""
    quarters: tuple[Quarter, ...] | None = None
    """When it was at work, and what it spent then; None in rows that were written before this was kept."""
    waiting: tuple[Waiting, ...] = ()
    """Calls that it waits for where its record ends."""
    parent: str | None = None
    """The session that this run belongs to, where it is a trace of its own."""
    sides: Sides | None = None
    """What its main transcript and its sub-agents spent; None in rows that were written before this was kept."""
    further: str | None = None
    """The words of what was asked that stand behind the title."""


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


class Removal(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A trace that somebody removed and no import may bring back: hashes of what it was called, and nothing of what it said."""

    id: str
    """Of its id; it begins with its handle."""
    begin: str = ""
    """Of the first characters of its id."""
    source: str | None = None
    """Of where it came from."""
    events: tuple[str, ...] = ()
    """Of the ids of its first events."""
    at: float


class Commit(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One change: new parts with their rows, traces dropped, parts replaced by compaction."""

    at: float
    parts: list[Part] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    drop: list[str] = field(default_factory=list)
    replaces: list[str] = field(default_factory=list)
    """Parts whose live rows are all in `rows`, at their new place."""
    removed: list[Removal] = field(default_factory=list)
    """Those of `drop` that are to stay out."""
    restored: list[Removal] = field(default_factory=list)
    """Removals that are remembered no more."""


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
        self.removed: dict[tuple[str, str | None], Removal] = {}
        """What was removed and is to stay out, by its names."""

    def apply(self, commit: Commit) -> None:
        """Move to the next state."""
        for gone in commit.removed:
            self.removed[gone.id, gone.source] = gone
        for back in commit.restored:
            self.removed.pop((back.id, back.source), None)
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
    removed: list[Removal] = []

    def state(self) -> State:
        """The state that it stands for."""
        state = State()
        state.number, state.dead = self.number, self.dead
        state.parts = {p.name: p for p in self.parts}
        state.live = dict.fromkeys(state.parts, 0)
        state.rows = {r.id: r for r in self.rows}
        state.removed = {(gone.id, gone.source): gone for gone in self.removed}
        for row in self.rows:
            state.live[row.part] += 1
        return state


class Log:
    """The log of one store: reads the newest state, and commits changes to it."""

    def __init__(self, folder: Path, head: Path, *, is_summed: bool = True) -> None:
        """`is_summed` is False for a store of the first form, whose files had no sums and whose log had no head."""
        self.folder = folder
        self.state = State()
        self.head = Head(head)
        self.is_summed = is_summed
        self.damaged: dict[Path, InputError] = {}
        """Files that were met and cannot be read, each with the reason; what they said was read from older ones."""
        self._is_read = False
        self._since_checkpoint = 0
        self._checkpoint = 0
        self._lock = threading.RLock()
        _live.add(self)

    def close(self) -> None:
        """Let go of the head."""
        with self._lock:
            self.head.close()

    def commit_path(self, number: int) -> Path:
        """The file of a commit."""
        return self.folder / f"{number:012d}.json"

    def checkpoint_path(self, number: int) -> Path:
        """The file of a checkpoint."""
        return self.folder / f"{number:012d}.checkpoint"

    # -- reading -------------------------------------------------------------------------------------------------

    def refresh(self) -> State:
        """The newest state. Cheap when nothing is new: one look at the head, one for the next number."""
        pending.settle(self.folder.parent)
        with self._lock, disk.translate_errors(self.folder):
            # The head first: what it says is in the log already, so a log that is found shorter has lost something.
            position = self.head.read() if self.is_summed else Position()
            if self._is_read:
                self._follow()
            if not self._is_read or self.state.number < position.commit or not self.is_summed:
                if not self._reload(position):
                    # Others may have swept what we were about to read. While the lock is held nobody sweeps.
                    with self.head.lock(shared=True):
                        position = self.head.read()
                        self._reload(position, is_last_try=True)
                self._is_read = True
            if position.checkpoint > self._checkpoint:  # somebody else's: only what came after it is left to be read
                self._checkpoint = position.checkpoint
                self._since_checkpoint = max(0, self.state.number - self._checkpoint) * _ROWS_PER_FILE
        return self.state

    def _follow(self) -> None:
        """Apply the commits that come next."""
        while (data := _bytes_of(path := self.commit_path(self.state.number + 1))) is not None:
            self._apply(self.decode(data, Commit, path), path)

    def _apply(self, commit: Commit, path: Path) -> None:
        try:
            self.state.apply(commit)
        except KeyError as error:
            raise self._corrupt(path, f"it names the part {error}, which no commit has added") from error
        self.state.number += 1
        self._since_checkpoint += _ROWS_PER_FILE + len(commit.rows)

    def _reload(self, position: Position, *, is_last_try: bool = False) -> bool:
        """Begin from the newest checkpoint that can be read, when it is ahead of us; False when something was missing."""
        numbers = self.numbers()
        newest = max(numbers["json"] + numbers["checkpoint"], default=0)
        failed: InputError | None = None
        for number in sorted(numbers["checkpoint"], reverse=True):
            if number <= self.state.number:
                break
            try:
                self.state = self.read_checkpoint(number)
            except InputError as error:
                if (path := self.checkpoint_path(number)).exists():  # else it was swept while we looked
                    self.damaged[path] = error
                failed = failed or error
                continue
            self._since_checkpoint, self._checkpoint = 0, number
            break
        self._follow()
        if self.state.number >= max(newest, position.commit):
            return True
        if is_last_try or not self.is_summed:
            raise failed or self._missing(self.state.number + 1, max(newest, position.commit))
        return False

    def numbers(self) -> dict[str, list[int]]:
        """The numbers of the commits (`json`) and checkpoints that lie in the folder."""
        by_kind: dict[str, list[int]] = {"json": [], "checkpoint": []}
        for name in os.listdir(self.folder):
            number, _, kind = name.partition(".")
            if kind in by_kind and number.isdigit():
                by_kind[kind].append(int(number))
        return by_kind

    def read_commit(self, number: int) -> Commit:
        """One commit, from its file; `InputError` when it is not there or not as it was written."""
        path = self.commit_path(number)
        data = _bytes_of(path)
        if data is None:
            raise self._missing(number, number)
        commit: Commit = self.decode(data, Commit, path)
        return commit

    def read_checkpoint(self, number: int) -> State:
        """The state that a checkpoint holds."""
        path = self.checkpoint_path(number)
        data = _bytes_of(path)
        if data is None:
            raise InputError("the checkpoint is missing", where=str(path), fix="open the store again")
        try:
            return self.decode(data, _Checkpoint, path).state()
        except KeyError as error:
            raise self._corrupt(path, f"it names the part {error}, which it does not hold") from error

    def decode(self, data: bytes, kind: Any, path: Path) -> Any:
        """What a file of the log holds, its sum compared."""
        try:
            if self.is_summed or disk.is_summed(data):
                data = disk.without_sum(data, path.name)
            if kind is _Checkpoint:
                data = zstandard.ZstdDecompressor().decompress(data)
            return msgspec.json.decode(data, type=kind)
        except (disk.SumError, zstandard.ZstdError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise self._corrupt(path, error) from error

    def _corrupt(self, path: Path, error: object) -> InputError:
        why = f"{error}; the traces themselves are in lake/"
        return InputError("the store's log is damaged", where=os.fspath(path), why=why, fix=self._repair)

    def _missing(self, number: int, newest: int) -> InputError:
        why = f"commits up to {newest} were acknowledged; the traces themselves are in lake/"
        where = os.fspath(self.commit_path(number))
        return InputError("a commit of the store's log is missing", where=where, why=why, fix=self._repair)

    @property
    def _repair(self) -> str:
        return REPAIR.format(store=os.fspath(self.folder.parent))

    def names(self, part: str) -> bool:
        """Whether the newest state has this part: then its files are the store's, also after an error."""
        try:
            return part in self.refresh().parts
        except Exception:
            return True  # cannot tell, so keep them: a stray file does no harm

    # -- writing -------------------------------------------------------------------------------------------------

    def commit(self, change: Callable[[State], Commit | None]) -> Commit | None:
        """Make a change: `change` reads the newest state and gives the commit, or None for nothing to do, or raises."""
        with self.alone() as state:
            commit = change(state)
            if commit is None:
                return None
            path = self.commit_path(state.number + 1)
            if not disk.create(path, disk.with_sum(msgspec.json.encode(commit), path.name)):
                raise self._corrupt(path, "its writer did not hold the head's lock")
            self._apply(commit, path)
            with suppress(OSError):  # it is committed; that the head is behind does no harm
                self._say()
            self._maybe_checkpoint()
            return commit

    @contextmanager
    def alone(self) -> Iterator[State]:
        """The newest state, and nobody commits until the end."""
        with self._lock, disk.translate_errors(self.folder), self.head.lock():
            yield self.refresh()

    def _say(self, *, durably: bool = False) -> None:
        """Let the head say how far we got."""
        self.head.write(Position(self.state.number, self._checkpoint), durably=durably)

    def _maybe_checkpoint(self) -> None:
        if self._since_checkpoint >= max(_CHECKPOINT_ROWS, len(self.state.rows) // 2):
            # A checkpoint only makes opening quicker: a full disk must not fail the commit that is done already.
            with suppress(OSError):
                self._write_checkpoint()

    def checkpoint(self, *, sweep_all: bool = False) -> None:
        """Write the newest state, and sweep the commits that only the checkpoint before last needs.

        With `sweep_all` nothing older stays: what was dropped is then named nowhere in the log.
        """
        with self.alone():
            self._write_checkpoint(sweep_all=sweep_all)

    def _write_checkpoint(self, *, sweep_all: bool = False) -> None:
        state, path = self.state, self.checkpoint_path(self.state.number)
        whole = _Checkpoint(
            number=state.number, rows=list(state.rows.values()), parts=list(state.parts.values()), dead=dict(state.dead),
            removed=list(state.removed.values()),
        )  # fmt: skip
        data = zstandard.ZstdCompressor(level=3).compress(msgspec.json.encode(whole))
        numbers = self.numbers()
        disk.replace_file(path, disk.with_sum(data, path.name))
        self._since_checkpoint, self._checkpoint = 0, state.number
        self._say(durably=True)
        last = state.number if sweep_all else max((n for n in numbers["checkpoint"] if n < state.number), default=0)
        for number in numbers["json"]:
            if number <= last:
                disk.remove(self.commit_path(number))
        for number in numbers["checkpoint"]:
            if number < last:
                disk.remove(self.checkpoint_path(number))
        disk.sweep(self.folder, _DRAFT_AGE_S)

    def adopt(self, state: State) -> None:
        """Take a state that was made anew in place of what the log says, under a number that nobody has seen."""
        with self._lock, disk.translate_errors(self.folder), self.head.lock():
            numbers = self.numbers()
            state.number = max([state.number, *numbers["json"], *numbers["checkpoint"]]) + 1
            self.state, self._is_read = state, True
            self._write_checkpoint()


def _bytes_of(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


_live: weakref.WeakSet[Log] = weakref.WeakSet()


def _after_fork() -> None:
    """A forked child has its parent's lock only as a copy, and none of its parent's threads."""
    for log in list(_live):
        log._lock = threading.RLock()
        log.head.close()


os.register_at_fork(after_in_child=_after_fork)
