"""`counterpoint.record`: a team that is not ours, recorded as it works; a context around it, decorators on its functions.

    rec = counterpoint.record(task="demo", agent="lead")

    @rec.tool
    async def search(words): ...

    @rec.agent(role="worker")
    async def worker(part): ...

    with rec:
        asyncio.run(lead("find it"))     # @rec.agent functions called inside others are their sub-agents

Always true: what is recorded behaves as it did without: no call here raises once recording has begun (but where limits were
given and are reached), and where it has not, a decorated function is the function. Leaving the context seals the trace; by an
exception too, and `meta["failed"]` names it; but what breaks a program off (Ctrl-C, a cancelled task, exit with a code) leaves
the trace unfinished in the journal, its open events marked.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import secrets
import time
from collections.abc import Mapping
from concurrent.futures import Future
from random import Random
from types import TracebackType
from typing import Any

import counterpoint.recorder.hops as hops
import counterpoint.recorder.sealing as sealing
import counterpoint.recorder.witness as witness
import counterpoint.store.pending as pending
from counterpoint.errors import CounterpointError, InputError, did_you_mean
from counterpoint.formats.spans.spellings import written_of
from counterpoint.guard.limits import GuardLimits
from counterpoint.recorder.acts import Acts
from counterpoint.recorder.lanes import RecordingSession, current
from counterpoint.recorder.live_guard import LiveGuard, given_limits
from counterpoint.recorder.live_spans import tracer_of
from counterpoint.recorder.orders import ORDERS, control_path
from counterpoint.recorder.problems import error_text, say_once
from counterpoint.recorder.replaying import playing
from counterpoint.recorder.safe_points import SafePoints, StoppedByOperator, untold
from counterpoint.recorder.shared_store import FLUSH_S, LateJournal, SharedStore, flusher, shared
from counterpoint.store import Run, Store
from counterpoint.store.flusher import Flusher
from counterpoint.store.place import store_path
from counterpoint.store.writing import check
from counterpoint.trace import Trace
from counterpoint.trace.hops import caller_of, name_for_call
from counterpoint.trace.keys import BEGAN, REPLAY, TITLE
from counterpoint.trace.vocabulary import TOPOLOGIES

ROOT = "main"
_draws = Random(secrets.randbits(128))
"""Seeds and names, without a system call for each recording."""
os.register_at_fork(after_in_child=lambda: _draws.seed(secrets.randbits(128)))


class Recording(Acts):
    """A recording of one team; made by `counterpoint.record`. Entered again after its end, it begins another trace."""

    def __init__(
        self,
        store: Store | str | os.PathLike[str] | None,
        task: str,
        trace_id: str | None,
        agent: str,
        about: Mapping[str, Any],
        limits: GuardLimits | None = None,
        sample: float = 1.0,
        tracer: Any = None,
    ) -> None:
        """Use `counterpoint.record`."""
        super().__init__()
        self._limits, self._tracer = limits, tracer
        self.task, self.agent_name = task, agent
        self.trace_id: str | None = trace_id
        """The trace's id; if none was given, it is made on entering."""
        self._wanted_id, self._about, self._store, self._share = trace_id, dict(about), store, sample
        self._where: tuple[SharedStore, LateJournal] | None = None
        self._sealed: Future[Trace | None] | None = None
        self._problems: list[str] = []
        self._is_drawn, self._pid = True, os.getpid()
        self._token: Any = None

    @property
    def trace(self) -> Trace | None:
        """The finished trace, after the end: waits until it is sealed. None where nothing was recorded, or not kept."""
        return None if self._sealed is None or self._pid != os.getpid() else self._sealed.result()

    @property
    def problems(self) -> list[str]:
        """What went wrong with recording, with sealing too after the end. The recorded program never notices."""
        _ = self.trace
        return self._problems

    def keep_in(self, store: Store | str | os.PathLike[str]) -> None:
        """Choose the store, where it was not known when the team was decorated."""
        self._store = store

    # -- beginning and end -----------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        if self.session is not None:
            raise InputError("this recording has begun already", fix="make another one: counterpoint.record(...)")
        self._sealed, self._problems, self._pid = None, [], os.getpid()
        if (replay := playing.get()) is not None:  # a replay of this code, which is kept in memory
            self.session = replay.session(self.agent_name, None if self._limits is None else LiveGuard(self._limits))
            self.trace_id, self._problems = self.session.run.trace_id, self.session.problems
            return
        hop = caller_of(self._about.get("meta") or {})
        self.trace_id = self._wanted_id or _fresh_id(self.task)
        if hop is not None:
            self.trace_id = name_for_call(self._wanted_id or _plain(self.task), hop, f"{_draws.getrandbits(32):08x}")
        if pending.count() >= sealing.MOST_WAITING:
            self._refuse(f"{sealing.MOST_WAITING} recordings that have ended wait for the disk", "crowd")
            return
        kept = {"seed": _draws.getrandbits(62), "root": self.agent_name, ORDERS: True}
        meta = {TITLE: self.task, BEGAN: round(time.time(), 3), REPLAY: kept, **(self._about.get("meta") or {})}
        meta |= witness.begin(self.trace_id)
        try:
            place = shared(self._store if isinstance(self._store, Store) else store_path(self._store))
        except (CounterpointError, OSError) as error:
            self._refuse(str(error), str(error))
            return
        journal = LateJournal(place, self.trace_id, {"task_id": self.task, **self._about, "meta": meta})
        self._is_drawn = witness.is_there() or _is_drawn(self.trace_id, self._share)
        if self._wanted_id is not None and hop is None:
            self._take_id(place, journal)
        elif self._is_drawn:
            sealing.later(journal.make)
        writer = flusher() if self._is_drawn else Flusher(FLUSH_S)
        run = Run(self.trace_id, journal, writer, check, lambda trace: place.open().seal([trace]), is_idle=not self._is_drawn)
        guard = None if self._limits is None else LiveGuard(self._limits)
        points = SafePoints(control_path(place.path, self.trace_id), meta[BEGAN])
        self.session = RecordingSession(run, self.agent_name, guard, os.fspath(place.path), points=points, tracer=self._tracer)
        self._where, self._problems = (place, journal), self.session.problems
        hops.begin(self.session, hop)
        if self.session.spans is not None:
            self.session.spans.run = written_of(meta)
        self.session.kept = kept

    def _refuse(self, why: str, kind: str) -> None:
        self._problems = [why]
        say_once(f"counterpoint: nothing is recorded: {why}; the program continues", f"{self._store}: {kind}")

    def _take_id(self, place: SharedStore, journal: LateJournal) -> None:
        """Look at once whether the id is taken: nothing has run yet, and only the caller can choose another."""
        pending.settle(place.path, self.trace_id)
        try:
            place.open()
        except CounterpointError:
            return  # the store cannot be reached now: that is no fault of the caller's
        try:
            journal.make()
        except InputError:
            place.leave()
            raise
        except CounterpointError:
            return

    def _end(self, error: BaseException | None) -> None:
        session, self.session = self.session, None
        where, self._where = self._where, None
        if session is None:
            return
        meta: dict[str, Any] | None = {
            REPLAY: session.kept,
            **({"cut": "memory"} if session.is_cut else {}),
            **hops.meta_of(session),
        }
        is_kept = self._is_drawn or session.is_kept
        if (problem := untold(session.points)) is not None:
            session.note(problem)
        if isinstance(error, StoppedByOperator):  # it has ended, as it was told to
            meta, error = {**(meta or {}), "stopped": str(error)}, None
        if error is not None and not (isinstance(error, SystemExit) and not error.code):
            is_kept = True
            meta = {**(meta or {}), "failed": error_text(error)} if isinstance(error, Exception) else None
        if where is None:
            self._sealed = sealing.end_replay(session, meta)
        else:
            self._sealed = sealing.end(session, *where, meta, is_kept=is_kept)
            witness.end(session.run.trace_id, session.recorder.count, self._sealed)

    def __enter__(self) -> Recording:
        self._begin()
        self._mark()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._unmark()
        self._end(error)

    async def __aenter__(self) -> Recording:
        if self._wanted_id is None:
            self._begin()
        else:
            await asyncio.to_thread(self._begin)  # looking for the id waits for the disk, which the event loop must not
        self._mark()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.__exit__(kind, error, trace)

    def _mark(self) -> None:
        self._token = current.set(self.session.root) if self.session is not None else None

    def _unmark(self) -> None:
        token, self._token = self._token, None
        if token is not None:
            try:
                current.reset(token)
            except ValueError:  # left in another context than it was entered in, as fixtures do
                current.set(None)

    def trace_context(self) -> dict[str, str]:
        """W3C trace context of what acts here (`traceparent`, `tracestate`), for the headers of a request or MCP's `_meta`.

        What the other side records with it (`record(meta=caller_meta(headers))`, the adapters for MCP and A2A) is, in one store,
        a sub-agent of the event that is under way here.
        """
        scope = self.here()
        return {} if scope is None else scope.session.do(hops.context_of, scope) or {}

    # -- durability ------------------------------------------------------------------------------------------------------

    def sync(self) -> bool:
        """Wait until all that was recorded so far is on disk; whether it is. Without it that takes 50 ms if the disk keeps up.

        After the end it waits until the trace is sealed; what `sample` passed over is not on disk.
        """
        if self.session is None:
            return self.trace is not None
        return self._is_drawn and sealing.sync(self.session)

    async def sync_async(self) -> bool:
        """The same for tasks; those that wait together share one sync of the disk."""
        session = self.session
        if session is None or not self._is_drawn:
            return session is None and await asyncio.to_thread(self.sync)
        try:
            await session.run.sync_async()
        except CounterpointError as error:
            session.note(str(error))
            return False
        return True


def record(
    store: Store | str | os.PathLike[str] | None = None,
    *,
    task: str,
    trace_id: str | None = None,
    topology: str | None = None,
    system: str | None = None,
    agent: str = ROOT,
    meta: Mapping[str, Any] | None = None,
    limits: GuardLimits | Mapping[str, Any] | str | os.PathLike[str] | None = None,
    sample: float = 1.0,
    otel: Any = False,
) -> Recording:
    """Record a team that runs on its own: use it with `with` or `async with`, and its decorators on the team's functions.

    `store` is a folder or an open `Store` (default: the one that commands use). `task` says what was asked: traces
    of one task can be compared. `agent` names the agent that acts where no other does, the code around the team; a decorated
    function of that name is that agent. `topology` is one of the survey's shapes, `system` who runs the team. With `limits` (a
    limits file, or a table like one: `{"session": {"agents": 20}}`) what would go past them raises `LimitReached` instead.
    `sample` is the share of recordings that are kept, drawn by their ids; those that end by an exception, or in which
    `rec.keep()` was called, always are. With `otel` (True for the program's OpenTelemetry, or a tracer provider) what is recorded
    leaves as spans, too, while it happens.
    """
    if not isinstance(task, str) or not task:
        raise InputError(f"task={task!r} is not a name", fix='record(task="what was asked")')
    if topology is not None and topology not in TOPOLOGIES:
        raise InputError(f"no topology {topology!r}", fix=did_you_mean(str(topology), TOPOLOGIES))
    if not isinstance(agent, str) or not agent:
        raise InputError(f"agent={agent!r} is not a name", fix='record(agent="lead")')
    if isinstance(sample, bool) or not isinstance(sample, int | float) or not 0 <= sample <= 1:
        raise InputError(f"sample={sample!r} is not a share", fix="record(sample=0.1) keeps a tenth")
    about = {"topology": topology, "system": system, "meta": dict(meta or {})}
    tracer = None if otel is False or otel is None else tracer_of(otel)
    return Recording(store, task, trace_id, agent, about, given_limits(limits), float(sample), tracer)


def _is_drawn(trace_id: str, share: float) -> bool:
    """Whether a trace is among this share of all: the same answer for an id in every process."""
    return int.from_bytes(hashlib.blake2b(trace_id.encode("utf-8", "replace"), digest_size=8).digest(), "big") < share * 2**64


def _plain(task: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", task).strip("-.")[:40] or "run"


def _fresh_id(task: str) -> str:
    return f"{_plain(task)}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{_draws.getrandbits(24):06x}"
