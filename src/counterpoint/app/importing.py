"""Logs into a store: session by session, again and again without doubling, with an account of what was found.

Always true: a session whose files have not changed since they were imported is not read again; one that grew replaces what it
was, and one of which less is left does not; one that fails is named and the rest goes on. What is remembered about imports
(`imports/` in the store) only saves work: without it everything is read again and the store stays the same. One session, and at
most `_BATCH` events that wait to be stored, are in memory.
"""

from __future__ import annotations

import gc
import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from hashlib import blake2b
from multiprocessing import get_context
from pathlib import Path

import msgspec

from counterpoint.app.import_account import Outcome
from counterpoint.app.import_identity import put_away
from counterpoint.app.logs import Found, find, importer
from counterpoint.errors import InputError
from counterpoint.files import put
from counterpoint.formats.importer import Session
from counterpoint.formats.importing.files import File
from counterpoint.formats.importing.report import Report
from counterpoint.formats.importing.usage import PRICES, Prices
from counterpoint.formats.masking import glance
from counterpoint.store import Store
from counterpoint.trace import Trace
from counterpoint.trace.keys import STATED

# Traces wait to be stored until there are so many events or characters of text: small sessions share a part of the lake.
_BATCH = 10_000
_BATCH_TEXT = 6_000_000
# Sessions that a worker takes at once: enough to share a part of the lake, few enough to share out the work.
_TOGETHER = 8
_UNIT = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def homes() -> list[tuple[str, Path]]:
    """Where Claude Code, Codex and Kimi keep their sessions on this machine: the folders that are there."""
    env, home = os.environ.get, Path.home()
    claude = Path(env("CLAUDE_CONFIG_DIR") or home / ".claude")
    codex = Path(env("CODEX_HOME") or home / ".codex")
    kimi = Path(env("KIMI_CODE_HOME") or home / ".kimi-code")
    known = [
        ("Claude Code", claude / "projects"),
        ("Codex", codex / "sessions"),
        ("Codex", codex / "archived_sessions"),
        ("Kimi", home / ".kimi" / "sessions"),
        ("Kimi", kimi / "sessions"),
    ]
    return [(name, path) for name, path in known if path.is_dir()]


def span(text: str) -> float:
    """Seconds of a span such as 7d, 12h or 90m."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw])", text.strip())
    if not found:
        raise InputError(f"{text!r} is not a span of time", where="--last", fix="write a number and s, m, h, d or w: 7d")
    return float(found[1]) * _UNIT[found[2]]


def sessions_under(
    paths: Sequence[str | os.PathLike[str]],
    *,
    format: str | None = None,
    since: float | None = None,
    project: str | None = None,
    limit: int | None = None,
) -> Found:
    """The sessions under some paths, newest last; of one project, of the last days, at most so many."""
    found = find(paths, format=format, since=since)
    if project is not None:
        found.sessions = [row for row in found.sessions if _is_of(row[1], project)]
    found.sessions.sort(key=lambda row: max((f.changed for f in row[1].files), default=0.0))
    if limit is not None:
        found.sessions = found.sessions[-limit:] if limit > 0 else []
    return found


def _is_of(session: Session, project: str) -> bool:
    """Whether a session's files lie in a folder of that name, or its first records say they were made there."""
    slug = re.sub(r"[^A-Za-z0-9]", "-", project)
    if any(project in f.name or slug in f.name for f in session.files):
        return True
    where = re.compile(rb'"cwd"\s*:\s*"[^"]*' + re.escape(project.encode()))
    return any(where.search(f.head()) for f in session.files)


def import_sessions(
    sessions: Iterable[tuple[str, Session]],
    store: Store | None,
    *,
    prices: Prices = PRICES,
    is_strict: bool = False,
    is_again: bool = False,
) -> Iterator[Outcome]:
    """Read sessions and put their traces into a store (None only reads). `is_again` reads what has not changed too."""
    memory = _Memory(store)
    waiting: list[tuple[Outcome, Trace]] = []
    done: list[tuple[str, str, Outcome]] = []
    events = text = 0
    usual = gc.get_threshold()
    # Sessions are trees of small objects: looking for loops among them as often as usual costs a tenth of the time.
    gc.set_threshold(50_000, 20, 50)
    try:
        for name, session in sessions:
            session.prices = prices
            key, print_ = f"{name}:{session.key}", _fingerprint(session)
            is_known = memory.knows(key, print_)
            if is_known and not is_again:
                yield Outcome(name, session.key, "unchanged", traces=memory.traces(key))
                continue
            outcome, traces = _read(name, session, is_strict=is_strict)
            outcome.is_reread = is_known
            memory.keep_identity(key, session, outcome, traces)
            waiting += [(outcome, trace) for trace in traces]
            done.append((key, print_, outcome))
            events += outcome.events
            text += sum(len(t) for trace in traces for t in trace.contents.values())
            del traces
            if events >= _BATCH or text >= _BATCH_TEXT:
                events = text = 0
                yield from _settle(waiting, done, store, memory)
        yield from _settle(waiting, done, store, memory)
    finally:
        # Also when the caller stops asking, or an error ends it: what was read is not lost.
        _settle(waiting, done, store, memory)
        memory.save()
        gc.set_threshold(*usual)


def import_in_parallel(
    sessions: Sequence[tuple[str, Session]], store: Path, jobs: int, *, prices: Prices = PRICES, is_again: bool = False
) -> Iterator[Outcome]:
    """The same with several processes, each of which reads sessions of its own and stores them: the store takes many writers.

    The large sessions go first, so that none of them is left for the end.
    """
    with Store(store) as opened:
        memory = _Memory(opened)
        changed = []
        for name, session in sessions:
            key = f"{name}:{session.key}"
            is_known = memory.knows(key, _fingerprint(session))
            if is_known and not is_again:
                yield Outcome(name, session.key, "unchanged", traces=memory.traces(key))
            else:
                changed.append((name, session, is_known))
        changed.sort(key=lambda row: -sum(f.size for f in row[1].files))
        parts = [changed[k : k + _TOGETHER] for k in range(0, len(changed), _TOGETHER)]
        # Processes of their own, not forks: Arrow's threads and the store's do not survive a fork.
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
            try:
                for done in pool.map(partial(_part, store, prices), parts):
                    for key, print_, outcome in done:
                        memory.note(key, print_, outcome)
                        yield outcome
            finally:
                pool.shutdown(wait=True, cancel_futures=True)
                memory.save()


def _part(folder: Path, prices: Prices, sessions: list[tuple[str, Session, bool]]) -> list[tuple[str, str, Outcome]]:
    """In a worker: read and store some sessions."""
    waiting: list[tuple[Outcome, Trace]] = []
    done = []
    with Store(folder, create=False) as store:
        for name, session, is_known in sessions:
            session.prices = prices
            outcome, traces = _read(name, session, is_strict=False)
            outcome.is_reread = is_known
            waiting += [(outcome, trace) for trace in traces]
            done.append((f"{name}:{session.key}", _fingerprint(session), outcome))
        _count_secrets(waiting)
        put_away(waiting, store)
    return done


def _settle(
    waiting: list[tuple[Outcome, Trace]], done: list[tuple[str, str, Outcome]], store: Store | None, memory: _Memory
) -> list[Outcome]:
    """Store what waits; only then is a session done, and remembered."""
    _count_secrets(waiting)
    put_away(waiting, store)
    settled, done[:] = list(done), []
    for key, print_, outcome in settled:
        memory.note(key, print_, outcome)
    return [outcome for _, _, outcome in settled]


def _count_secrets(waiting: list[tuple[Outcome, Trace]]) -> None:
    """Which secrets some traces hold, told with the last of them: looking at many at once is much faster."""
    if waiting:
        for kind, found in glance(*(trace for _, trace in waiting)).items():
            waiting[-1][0].secrets.setdefault(kind, set()).update(found)


def _read(name: str, session: Session, *, is_strict: bool) -> tuple[Outcome, list[Trace]]:
    outcome, traces = Outcome(name, session.key, "added"), []
    begin = time.perf_counter()
    try:
        for trace in importer(name).read_session(session):
            files = [f.last for f in session.files]  # without folders: a session that was moved is the same session
            trace.meta["import"] = {"format": name, "files": files, **trace.meta.get("import", {})}
            traces.append(trace)
            outcome.report.add(Report.of(trace.meta["import"]))
    except InputError as error:
        outcome.status, outcome.error, traces = "failed", error.one_line(), []
    except Exception as error:
        # A defect of ours must not cost the user the other sessions.
        outcome.status, outcome.error, traces = "failed", f"defect: {type(error).__name__}: {error}", []
    outcome.report.add(session.report)
    if is_strict and (outcome.error or session.report.broken_count):
        raise _strictly(outcome)
    if not traces and outcome.status == "added":
        outcome.status = "empty"
    outcome.traces = [t.trace_id for t in traces]
    outcome.agents, outcome.events = sum(len(t.members) for t in traces), sum(len(t.events) for t in traces)
    outcome.tokens = sum(int(t.costs.get("tokens", 0)) for t in traces)
    stated = [e for t in traces for e in t.events if e.extra and STATED in e.extra]
    outcome.stated = sum((e.tokens_in or 0) + (e.tokens_out or 0) for e in stated)
    outcome.seconds = time.perf_counter() - begin
    return outcome, traces


def _strictly(outcome: Outcome) -> InputError:
    first = next(iter(outcome.report.broken), {"file": outcome.session, "line": None, "what": outcome.error})
    where = f"{first['file']}:{first['line']}" if first["line"] else str(first["file"])
    more = outcome.report.broken_count - 1
    what = str(first["what"]) + (f", and {more:,} more" if more > 0 else "")
    return InputError(what, where=where, fix="repair it, or import without --strict: the rest of the session is read")


def _fingerprint(session: Session) -> str:
    parts = [f"{f.name}\0{f.size}\0{f.changed!r}" for f in session.files]
    return blake2b("\n".join(parts).encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


def _beginning(file: File, size: int) -> str:
    """A digest of the first bytes of a file."""
    digest, left = blake2b(digest_size=16), size
    with file.open() as stream:
        while left > 0 and (data := stream.read(min(left, 1 << 20))):
            digest.update(data)
            left -= len(data)
    return digest.hexdigest()


class _Known(msgspec.Struct):
    """What is remembered about a session: the fingerprint of its files, and the traces they gave."""

    fingerprint: str
    traces: list[str]
    run: str | None = None
    """Of a file that holds one run without an id: what tells it from others, and how the file began."""
    size: int = 0
    began: str = ""


class _Memory:
    """What was imported when."""

    def __init__(self, store: Store | None) -> None:
        self._store = store
        self._path = None if store is None else store.path / "imports" / "sessions.json"
        self._known: dict[str, _Known] = {}
        self._files: dict[str, _Known] = {}
        self._new = False
        if self._path is not None and self._path.exists():
            try:
                self._known = msgspec.json.decode(self._path.read_bytes(), type=dict[str, _Known])
            except (msgspec.MsgspecError, UnicodeDecodeError, OSError):
                self._known = {}  # then everything is imported once more, which changes nothing

    def knows(self, key: str, fingerprint: str) -> bool:
        known = self._known.get(key)
        if not known or known.fingerprint != fingerprint or self._store is None:
            return False
        return all(name in self._store for name in known.traces)

    def traces(self, key: str) -> list[str]:
        return list(self._known[key].traces)

    def keep_identity(self, key: str, session: Session, outcome: Outcome, traces: list[Trace]) -> None:
        """A file of one run without an id that only grew since it was imported keeps the id it got then."""
        if len(traces) != 1 or len(session.files) != 1 or (run := traces[0].meta["import"].get("run")) is None:
            return
        file, before = session.files[0], self._known.get(key)
        self._files[key] = now = _Known("", [], run, file.size, _beginning(file, file.size))
        if not before or not before.run or len(before.traces) != 1 or not 0 < before.size <= file.size:
            return
        if _beginning(file, before.size) == before.began:
            now.run = before.run
            meta = {**traces[0].meta, "import": {**traces[0].meta["import"], "run": before.run}}
            traces[0] = msgspec.structs.replace(traces[0], trace_id=before.traces[0], meta=meta)
            outcome.traces = list(before.traces)

    def note(self, key: str, fingerprint: str, outcome: Outcome) -> None:
        if outcome.status not in ("failed", "kept"):  # kept: the files are not those of what is stored
            known = self._files.pop(key, None) or _Known("", [])
            known.fingerprint, known.traces = fingerprint, outcome.traces
            self._known[key] = known
            self._new = True

    def save(self) -> None:
        if self._path is not None and self._new:
            self._path.parent.mkdir(exist_ok=True)
            put([(self._path, msgspec.json.encode(self._known))])
