"""What a guard remembers of a session between two calls: how far each file is read, and what was counted.

Always true: a state is written whole or not at all, and its counts belong to its offsets, so that a lost write costs reading
twice and never counts twice. One hook at a time works on a session; who waits too long goes on without writing.
"""

from __future__ import annotations

import os
import time
from zlib import crc32

from counterpoint.guard.limits import Tally
from counterpoint.guard.quick_json import dumps, loads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

try:
    import fcntl
except ImportError:  # Windows: hooks of one session may then read the same lines twice, and the last one's state stays
    fcntl = None  # type: ignore[assignment]

VERSION = 1
_WAIT_S, _CHUNK, _MARGIN, _MANY, _PENDING = 5.0, 1 << 23, 64, 100, 1000
_LOG_BYTES, _OLD_S = 1 << 20, 60 * 86400


def home() -> str:
    """The folder of the states: $COUNTERPOINT_GUARD, else below $XDG_STATE_HOME, else below the home folder."""
    folder = os.environ.get("COUNTERPOINT_GUARD")
    if folder:
        return folder
    base = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(base, "counterpoint", "guard")


def log(text: str) -> None:
    """One line into the log, which never grows past a megabyte; nothing where that is impossible."""
    try:
        os.makedirs(home(), mode=0o700, exist_ok=True)
        path = os.path.join(home(), "guard.log")
        if os.path.exists(path) and os.path.getsize(path) > _LOG_BYTES:
            os.replace(path, f"{path}.1")
        line = f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {' '.join(text.split())}\n"
        with open(path, "a", encoding="utf-8", errors="replace") as file:
            file.write(line)
    except OSError:
        return


def state_path(session: str) -> str:
    """The file of a session's state; its id comes from outside, so only harmless ones are names as they are."""
    plain = session.replace("-", "").replace("_", "")
    safe = session if plain.isascii() and plain.isalnum() and len(session) <= 100 else f"x{crc32(session.encode()):08x}"
    return os.path.join(home(), f"{safe}.json")


class GuardState:
    """One session as it was last read."""

    def __init__(self, path: str | None = None) -> None:
        """With a path, what is kept there goes on; a state of another version, or one that cannot be read, starts again."""
        self.path = path
        self.format = ""
        self.files: dict[str, list[Any]] = {}
        """Path to how far it is read, a sum of the bytes before that, and the agent whose file it is."""
        self.foreign: dict[str, int] = {}
        """Files that were looked at and belong to other sessions."""
        self._ids = b""
        self._fresh: list[str] = []
        self._all: set[str] | None = None
        # Records, messages and calls that were counted: sums and ends of their ids. Old ones are one text, which is searched as
        # it is; only who reads very much makes a set of it.
        self.recent: dict[str, list[Any]] = {}
        """The last messages with their tokens: a message is written in several records, each with its usage so far."""
        self.pending: dict[str, list[Any]] = {}
        """Calls without a result: what they are, and whose."""
        self.spawns: dict[str, list[Any]] = {}
        """Calls that start an agent: who made it, the agent, a sum of its prompt, whether it started."""
        self.unread = 0
        """Lines that could not be read."""
        self.notes: dict[str, Any] = {}
        """What the reader of a format, the hook and the advice keep for themselves."""
        self.tally = Tally()
        if path is not None:
            self._load(path)

    def _load(self, path: str) -> None:
        try:
            with open(path, "rb") as file:
                got = loads(file.read())
            if got["version"] != VERSION:
                return
            tally = Tally.of(got["tally"])
            with open(f"{path}.seen", "rb") as file:
                ids = file.read(got["seen"])
            for name in ("format", "files", "foreign", "recent", "pending", "spawns", "unread", "notes"):
                setattr(self, name, got[name])
            self._ids, self.tally = ids, tally
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError) as error:
            log(f"{path}: starting again, because the state cannot be read: {error}")
            self.__init__(None)  # type: ignore[misc]
            self.path = path

    def save(self) -> None:
        """Write it, whole or not at all."""
        assert self.path is not None
        names = ("format", "files", "foreign", "recent", "pending", "spawns", "unread", "notes")
        out = {"version": VERSION, **{name: getattr(self, name) for name in names}}
        added = "".join(f"{end}\n" for end in self._fresh).encode()
        out |= {"seen": len(self._ids) + len(added), "tally": self.tally.as_dict()}
        draft = f"{self.path}.{os.getpid()}"
        # The ids first: if the state is not written, what is behind its own length is cut off the next time.
        with open(f"{self.path}.seen", "r+b" if self._ids else "wb") as file:
            file.seek(len(self._ids))
            file.truncate()
            file.write(added)
        try:
            with open(draft, "w", encoding="utf-8") as file:
                file.write(dumps(out))
            os.replace(draft, self.path)
        except OSError:
            if os.path.exists(draft):
                os.remove(draft)
            raise

    @property
    def is_empty(self) -> bool:
        """Whether nothing was counted."""
        return not (self._ids or self._fresh or self.tally.models)

    def waits(self, call: str, about: list[Any]) -> None:
        """A call was made, and its result has not come; those that never come are forgotten after many others."""
        self.pending[call] = about
        if len(self.pending) > _PENDING:
            del self.pending[next(iter(self.pending))]

    def is_new(self, kind: str, name: str) -> bool:
        """Whether this id of a record, message or call was not counted before; from now on it is."""
        end = f"{kind}{crc32(name.encode('utf-8', 'replace')):08x}{name[-4:]}".replace("\n", " ")
        if self._all is None and len(self._fresh) < _MANY:
            if end in self._fresh or f"{end}\n".encode() in self._ids:
                return False
        else:
            if self._all is None:
                self._all = {*self._fresh, *self._ids.decode().split("\n")}
            if end in self._all:
                return False
            self._all.add(end)
        self._fresh.append(end)
        return True

    def lines(self, path: str, agent: str, *, to_end: bool = False) -> Iterator[dict[str, Any]]:
        """The records that a file has got since the last time; all of it where it was cut or written anew.

        A last line without an end is left for the next time, or with `to_end` read if it is whole.
        """
        entry = self.files.setdefault(path, [0, 0, agent])
        size = os.path.getsize(path)
        if size == entry[0]:
            return
        with open(path, "rb") as file:
            if entry[0] and (size < entry[0] or _sum_before(file, entry[0]) != entry[1]):
                entry[0] = 0
            file.seek(entry[0])
            rest = b""
            while chunk := file.read(_CHUNK):
                whole, end, rest = (rest + chunk).rpartition(b"\n")
                entry[0] += len(whole) + len(end)
                for line in whole.split(b"\n"):
                    yield from self._record(line)
            if to_end and rest.strip():
                entry[0] += len(rest)
                yield from self._record(rest)
            entry[1] = _sum_before(file, entry[0])

    def _record(self, line: bytes) -> Iterator[dict[str, Any]]:
        if not line.strip():
            return
        try:
            record = loads(line)
        except (ValueError, RecursionError):
            self.unread += 1
            return
        if isinstance(record, dict):
            yield record
        else:
            self.unread += 1


def _sum_before(file: Any, offset: int) -> int:
    file.seek(max(0, offset - _MARGIN))
    return crc32(file.read(min(offset, _MARGIN)))


class StateLock:
    """Holds a session's state for one hook: `is_held` says whether it is ours to write."""

    def __init__(self, path: str) -> None:
        self._path, self._file = f"{path}.lock", -1
        self.is_held = False

    def __enter__(self) -> StateLock:
        os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
        if fcntl is None:
            self.is_held = True
            return self
        end = time.monotonic() + _WAIT_S
        while not self.is_held:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self.is_held = True
            except BlockingIOError:
                if time.monotonic() > end:
                    break
                time.sleep(0.005)
        return self

    def __exit__(self, *about: object) -> None:
        os.close(self._file)


def remove_old(now: float) -> None:
    """Remove the states of sessions that nobody has touched for two months."""
    with os.scandir(home()) as entries:
        for entry in entries:
            if entry.name.endswith((".json", ".lock", ".seen", ".advice")) and now - entry.stat().st_mtime > _OLD_S:
                os.remove(entry.path)
