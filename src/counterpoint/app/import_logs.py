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
from functools import partial
from pathlib import Path

from counterpoint.app.discover import LogFiles, find, importer
from counterpoint.app.editor_homes import editor_homes
from counterpoint.app.import_account import Outcome
from counterpoint.app.import_identity import put_away
from counterpoint.app.import_memory import ImportMemory, SessionRecord, fingerprint
from counterpoint.app.import_removed import seen_before
from counterpoint.errors import InputError
from counterpoint.formats.importer import Session
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
    """Where agents keep their sessions on this machine: the folders that are there."""
    env, home = os.environ.get, Path.home()
    claude = Path(env("CLAUDE_CONFIG_DIR") or home / ".claude")
    codex = Path(env("CODEX_HOME") or home / ".codex")
    kimi = Path(env("KIMI_CODE_HOME") or home / ".kimi-code")
    opencode = Path(env("XDG_DATA_HOME") or home / ".local" / "share") / "opencode"
    databases = ("opencode.db", "opencode.db-wal")  # what is in the storage folder was taken over into it
    known = [
        ("Claude Code", claude / "projects"),
        ("Codex", codex / "sessions"),
        ("Codex", codex / "archived_sessions"),
        ("Kimi", home / ".kimi" / "sessions"),
        ("Kimi", kimi / "sessions"),
        *(("OpenCode", opencode / name) for name in (databases if (opencode / databases[0]).exists() else ("storage",))),
        ("OpenHands", home / ".openhands" / "conversations"),
        ("OpenHands", home / ".openhands" / "sessions"),
        ("Strands", home / ".strands" / "sessions"),
        *_of_editors(home),
        *editor_homes(home),
    ]
    return [(name, path) for name, path in known if path.exists()]


def _of_editors(home: Path) -> Iterator[tuple[str, Path]]:
    """Those of GitHub Copilot, Amp, Amazon Q and Kiro, whichever system it is."""
    copilot = Path(os.environ.get("COPILOT_HOME") or home / ".copilot")
    yield from (("Copilot CLI", copilot / name) for name in ("session-state", "history-session-state"))
    settings, shared = home / ".config", Path(os.environ.get("XDG_DATA_HOME") or home / ".local" / "share")
    support, roaming = home / "Library" / "Application Support", home / "AppData" / "Roaming"
    for editor in ("Code", "Code - Insiders", "VSCodium"):
        for user in (place / editor / "User" for place in (settings, support, roaming)):
            yield from (("VS Code", path) for path in sorted(user.glob("workspaceStorage/*/chatSessions")))
            yield "VS Code", user / "globalStorage" / "emptyWindowChatSessions"
    yield "Amp", shared / "amp" / "threads"
    for place in (shared, support):
        for name in ("data.sqlite3", "data.sqlite3-wal"):
            yield from (("Amazon Q, Kiro", place / shop / name) for shop in ("amazon-q", "kiro-cli"))
    yield "Kiro", home / ".kiro" / "sessions" / "cli"


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
) -> LogFiles:
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
    memory = ImportMemory(store)
    try:
        yield from _import(sessions, store, memory, prices=prices, is_strict=is_strict, is_again=is_again)
    finally:
        memory.save()


def import_in_parallel(
    sessions: Sequence[tuple[str, Session]], store: Path, jobs: int, *, prices: Prices = PRICES, is_again: bool = False
) -> Iterator[Outcome]:
    """The same with several processes, each of which does the same with sessions of its own: the store takes many writers.

    The large sessions go first, so that none of them is left for the end.
    """
    from concurrent.futures import ProcessPoolExecutor  # as slow to import as a format, and seldom wanted
    from multiprocessing import get_context

    with Store(store) as opened:
        memory = ImportMemory(opened)
        changed = []
        for name, session in sessions:
            key = f"{name}:{session.key}"
            if memory.knows(key, fingerprint(session)) and not is_again:
                yield seen_before(Outcome(name, session.key, "unchanged", traces=memory.traces(key)), opened)
            else:
                changed.append((name, session))
        changed.sort(key=lambda row: -sum(f.size for f in row[1].files))
        parts = [changed[k : k + _TOGETHER] for k in range(0, len(changed), _TOGETHER)]
        given = [(part, memory.about(f"{name}:{session.key}" for name, session in part)) for part in parts]
        # Processes of their own, not forks: Arrow's threads and the store's do not survive a fork.
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
            try:
                for outcomes, learned in pool.map(partial(_part, store, prices), given):
                    memory.learn(learned)
                    yield from outcomes
            finally:
                pool.shutdown(wait=True, cancel_futures=True)
                memory.save()


def save_memory() -> None:
    """Let Arrow take its memory from where Python gives back its own: a process that reads and stores in turn needs less."""
    import pyarrow as pa

    pa.set_memory_pool(pa.system_memory_pool())


_Part = tuple[list[tuple[str, Session]], dict[str, SessionRecord]]


def _part(folder: Path, prices: Prices, given: _Part) -> tuple[list[Outcome], dict[str, SessionRecord]]:
    """In a worker: import some sessions; gives what became of them, and what there is to remember."""
    sessions, known = given
    save_memory()
    with Store(folder, create=False) as store:
        memory = ImportMemory(store, known)
        outcomes = list(_import(sessions, store, memory, prices=prices, is_strict=False, is_again=True))
        return outcomes, memory.learned


def _import(
    sessions: Iterable[tuple[str, Session]],
    store: Store | None,
    memory: ImportMemory,
    *,
    prices: Prices,
    is_strict: bool,
    is_again: bool,
) -> Iterator[Outcome]:
    """The one loop: every session is read, known again, stored and remembered, alone or beside other processes."""
    waiting: list[tuple[Outcome, Trace]] = []
    done: list[tuple[str, str, Outcome]] = []
    events = text = 0
    usual = gc.get_threshold()
    # Sessions are trees of small objects: looking for loops among them as often as usual costs a tenth of the time.
    gc.set_threshold(50_000, 20, 50)
    try:
        for name, session in sessions:
            session.prices = prices
            key, print_ = f"{name}:{session.key}", fingerprint(session)
            is_known = memory.knows(key, print_)
            if is_known and not is_again:
                yield seen_before(Outcome(name, session.key, "unchanged", traces=memory.traces(key)), store)
                continue
            outcome, traces = _read(name, session, is_strict=is_strict)
            outcome.is_reread, outcome.before = is_known, memory.traces(key) if is_known else []
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
        gc.set_threshold(*usual)


def _settle(
    waiting: list[tuple[Outcome, Trace]], done: list[tuple[str, str, Outcome]], store: Store | None, memory: ImportMemory
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
