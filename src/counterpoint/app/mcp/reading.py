"""The store that an agent asks, opened for reading alone, and the traces that names stand for.

Always true: nothing is written; a name is a trace of the store (an id, its beginning, its short name, or `last:N`) and never a
file; a trace is masked whole before anything is cut out of it. Traces that nobody has time for are counted.
"""

from __future__ import annotations

import re
import statistics
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from counterpoint.app.api.issues import Shown, look_ahead
from counterpoint.app.load_save import store_path
from counterpoint.app.mcp.answers import masks_of
from counterpoint.app.search import is_narrow, matcher
from counterpoint.display import counted
from counterpoint.errors import CounterpointError, InputError, NotFound
from counterpoint.formats.masking import masked
from counterpoint.store import Store
from counterpoint.store.masked_sql import MaskedSql
from counterpoint.store.query import Result
from counterpoint.store.summary import Summary
from counterpoint.trace import Trace

IMPORT = "counterpoint import, in a terminal, brings sessions in; these tools only read"
_LAST = re.compile(r"last:(\d{1,4})")
_KEPT, _KEPT_EVENTS = 6, 60_000
_EARLIER = 30
WITHIN_S = 0.3
"""How long traces are read for one answer."""
_SQL_S = 5.0


class Read(NamedTuple):
    """Traces that were read, and what was not."""

    traces: list[Trace]
    found: int
    """How many were asked for."""
    unread: int
    """How many cannot be read."""

    @property
    def words(self) -> list[str]:
        """What was left out."""
        left = self.found - self.unread - len(self.traces)
        known = f"only the newest {len(self.traces):,} of {counted(self.found, 'session')} were read: narrow the query"
        said = [known] if left else []
        return said + ([f"{counted(self.unread, 'session')} cannot be read: counterpoint store verify"] if self.unread else [])


class Reading:
    """One store, for as long as the agent's client keeps the server."""

    def __init__(self, path: Path | None = None, project: str | None = None, *, is_ahead: bool = False) -> None:
        """`project` is what sessions of the working folder are called; with `is_ahead` a thread reads on between calls, where a
        board of issues had no time for all."""
        self.path = store_path(path)
        self.project = project if project is not None else _here()
        self._store: Store | None = None
        self._sql: MaskedSql | None = None
        self._rows: list[Summary] | None = None
        self._files: list[tuple[str, int, int]] = []
        self._kept: OrderedDict[tuple[str, str], Trace] = OrderedDict()
        self.shown: Shown = {}
        """What runs showed, for boards of issues."""
        self._masks: dict[str, str] = {}
        self._is_ahead, self._is_over = is_ahead, False
        self.idle = threading.Event()
        """Whether no call is under way; nothing is read ahead while one is."""
        self._ahead: threading.Thread | None = None

    def close(self) -> None:
        """Let go of all files."""
        self._is_over = True
        self.idle.set()
        for opened in (self._store, self._sql):
            if opened is not None:
                opened.close()
        self._store = self._sql = None

    @property
    def store(self) -> Store:
        """The store; `NotFound` where there is none yet."""
        if self._store is None:
            self._check()
            self._store = Store(self.path, create=False, read_only=True)
        return self._store

    def _check(self) -> None:
        if not self.path.exists():
            raise NotFound("there are no sessions yet", fix=IMPORT)

    def sql(self, query: str, limit: int) -> Result:
        """The first rows of an answer in SQL; the query sees masked texts alone."""
        if self._sql is None:
            self._check()
            self._sql = MaskedSql(self.path, lambda texts: masks_of(self._masks, texts))
        return self._sql.ask(query, limit=limit, within_s=_SQL_S)

    # -- which -------------------------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Look at the store again, where a file of it is another one: what one call is told is of one moment."""
        now = _files(self.path)
        if now != self._files:
            self._rows, self._files = None, now

    def rows(self, query: str = "") -> list[Summary]:
        """What matches a query, the newest first."""
        if self._rows is None:
            self._rows = sorted(self.store.rows(), key=lambda row: -row.active)
        matches = matcher(query, self.store.datasets())
        return [row for row in self._rows if matches(row)]

    def sessions(self) -> list[Summary]:
        """Sessions of this folder's project, the newest first, those without a date last; of every project where it has none.
        Runs that a session made for itself are no sessions."""
        every = sorted((row for row in self.rows() if not row.parent), key=lambda row: row.started is None and not row.is_open)
        return [row for row in every if self.is_here(row)] or every

    def is_here(self, row: Summary) -> bool:
        """Whether a session is of this folder's project."""
        return bool(self.project) and (row.project or "").lower() == self.project.lower()

    def remarks(self, names: Iterable[object]) -> list[str]:
        """What to say about names that count from the newest session."""
        is_counted = any(isinstance(name, str) and _LAST.fullmatch(name.strip()) for name in names)
        if not is_counted or any(map(self.is_here, self.rows())):
            return []
        return ["no session here is of this folder's project: last:N counts those of all projects"]

    def one(self, name: str) -> str:
        """The id of the one trace that a name stands for."""
        last = _LAST.fullmatch(name.strip())
        if last is None:
            return self._found(name.strip())
        number, rows = int(last[1]), self.sessions()
        if not rows:
            raise NotFound("there are no sessions yet", fix=IMPORT)
        if not 1 <= number <= len(rows):
            raise NotFound(f"no session {name!r}", fix=f"last:1 is the newest, last:{len(rows)} the oldest")
        return rows[number - 1].id

    def one_or_many(self, which: str) -> str | list[Summary]:
        """The one trace that is meant, or what a query finds, the newest first."""
        if _LAST.fullmatch(which.strip()):
            return self.one(which)
        try:
            return self._found(which.strip())
        except NotFound:
            if which and not is_narrow(which) and " " not in which:
                raise
        found = self.rows(which)
        if not found:
            raise NotFound("no session matches the query", fix="search finds what there is" if len(self.store) else IMPORT)
        return found

    def _found(self, name: str) -> str:
        """The id that a name begins; errors quote what was asked alone, for ids are texts of logs."""
        try:
            return self.store.find(name)
        except NotFound:
            raise NotFound(f"no session {name[:80]!r}", fix="search lists them") from None
        except InputError:
            raise InputError(f"several sessions have ids that begin with {name[:80]!r}", fix="give more of the id") from None

    # -- what they are -----------------------------------------------------------------------------------------------------

    def trace(self, trace_id: str) -> Trace:
        """A trace without its secrets."""
        key = (trace_id, self.store.version(trace_id) or "")
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        trace = masked(self.store.get(trace_id))[0]
        self._kept[key] = trace
        while len(self._kept) > 1 and (len(self._kept) > _KEPT or sum(len(t.events) for t in self._kept.values()) > _KEPT_EVENTS):
            self._kept.popitem(last=False)
        return trace

    def named(self, name: str) -> Trace:
        """The same by its name."""
        return self.trace(self.one(name))

    def read(self, rows: Sequence[Summary]) -> Read:
        """As many of these as there is time for."""
        end, out, unread = time.monotonic() + WITHIN_S, [], 0
        for row in rows:
            try:
                out.append(self.trace(row.id))
            except (CounterpointError, OSError):
                unread += 1
            if time.monotonic() > end:
                break
        if not out:
            raise InputError("none of these sessions can be read", fix="counterpoint store verify says why")
        return Read(out, len(rows), unread)

    def usual(self, row: Summary) -> tuple[float, int] | None:
        """The median cost of the sessions of a project before this one, and how many they are; None for fewer than three."""
        if not row.project:
            return None
        before = [
            float(one.cost_usd) for one in self.rows()
            if one.cost_usd is not None and one.id != row.id and one.project == row.project and not one.parent
            and one.active < row.active
        ][:_EARLIER]  # fmt: skip
        return (statistics.median(before), len(before)) if len(before) > 2 else None

    def in_time(self, rows: Sequence[Summary], seen: list[str]) -> Iterator[Summary]:
        """The newest first: those whose symptoms are known, and of the others one, and more until the time is over. `seen` takes
        their ids."""
        end, fresh = time.monotonic() + WITHIN_S, 0
        for row in sorted(rows, key=lambda row: -row.active):
            if row.id not in self.shown:
                if fresh and time.monotonic() > end:
                    continue
                fresh += 1
            seen.append(row.id)
            yield row


    def read_ahead(self, rows: Sequence[Summary]) -> bool:
        """Read the others of these, the newest first, until the next calls; whether that is so."""
        if self._is_ahead and (self._ahead is None or not self._ahead.is_alive()):
            names = [row.id for row in sorted(rows, key=lambda row: -row.active) if row.id not in self.shown]
            self._ahead = threading.Thread(target=self._look_ahead, args=(names,), name="read ahead", daemon=True)
            self._ahead.start()
        return self._is_ahead

    def _look_ahead(self, names: Sequence[str]) -> None:
        with suppress(CounterpointError, OSError), Store(self.path, create=False, read_only=True) as store:
            look_ahead(store, self.shown, names, self._waits)

    def _waits(self) -> bool:
        self.idle.wait()
        return self._is_over


def _files(store: Path) -> list[tuple[str, int, int]]:
    """The files that say what a store holds, each with its time and size."""
    out = []
    for folder in (store, store / "log", store / "journal"):
        with suppress(OSError):
            for one in folder.iterdir():
                about = one.stat()
                out.append((one.name, about.st_mtime_ns, about.st_size))
    return sorted(out)


def _here() -> str:
    try:
        return Path.cwd().name
    except OSError:  # the working folder was deleted
        return ""
