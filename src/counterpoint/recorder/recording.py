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
import os
import re
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any

from counterpoint.errors import CounterpointError, InputError, did_you_mean
from counterpoint.guard.limits import GuardLimits
from counterpoint.recorder.acts import Acts
from counterpoint.recorder.lanes import RecordingSession, current
from counterpoint.recorder.live_guard import LiveGuard, given_limits
from counterpoint.recorder.problems import error_text, say
from counterpoint.recorder.replaying import playing
from counterpoint.store import Store
from counterpoint.store.place import store_path
from counterpoint.trace import Trace
from counterpoint.trace.keys import BEGAN, REPLAY, TITLE
from counterpoint.trace.vocabulary import TOPOLOGIES

ROOT = "main"


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
    ) -> None:
        """Use `counterpoint.record`."""
        super().__init__()
        self._limits = limits
        self.task, self.agent_name = task, agent
        self.trace_id: str | None = trace_id
        """The trace's id; if none was given, it is made on entering."""
        self.trace: Trace | None = None
        """The finished trace, after the end."""
        self.problems: list[str] = []
        """What went wrong with recording. The recorded program never notices."""
        self._wanted_id, self._about, self._store = trace_id, dict(about), store
        self._opened: Store | None = None
        self._token: Any = None

    def keep_in(self, store: Store | str | os.PathLike[str]) -> None:
        """Choose the store, where it was not known when the team was decorated."""
        self._store = store

    # -- beginning and end -----------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        if self.session is not None:
            raise InputError("this recording has begun already", fix="make another one: counterpoint.record(...)")
        self.trace, self.problems = None, []
        kept = {"seed": secrets.randbits(62), "root": self.agent_name}
        if (replay := playing.get()) is not None:  # a replay of this code, which is kept in memory
            self.session = replay.session(self.agent_name, None if self._limits is None else LiveGuard(self._limits))
            self.trace_id, self.problems = self.session.run.trace_id, self.session.problems
            return
        self.trace_id = self._wanted_id or _fresh_id(self.task)
        try:
            store = self._store
            if not isinstance(store, Store):
                self._opened = store = Store(store_path(store))
            meta = {TITLE: self.task, BEGAN: round(time.time(), 3), REPLAY: kept, **(self._about.get("meta") or {})}
            run = store.record(self.trace_id, task_id=self.task, **{**self._about, "meta": meta})
        except (CounterpointError, OSError) as error:
            self._close_store()
            if isinstance(error, InputError) and self._wanted_id is not None:
                raise  # the id is taken: nothing has run yet, and only the caller can choose another
            self.problems = [str(error)]
            say(f"counterpoint: nothing is recorded: {error}; the program continues")
            return
        self.session = RecordingSession(run, self.agent_name, None if self._limits is None else LiveGuard(self._limits))
        self.problems, self.session.kept = self.session.problems, kept

    def _end(self, error: BaseException | None) -> None:
        session, self.session = self.session, None
        if session is None:
            return
        if error is None or (isinstance(error, SystemExit) and not error.code):
            self.trace = session.finish({REPLAY: session.kept})
        elif isinstance(error, Exception):
            self.trace = session.finish({REPLAY: session.kept, "failed": error_text(error)})
        else:
            session.release()
        session.tell_end()
        store = self._store if self._opened is None else self._opened
        if not session.recorder.count and isinstance(store, Store) and session.player is None:
            with suppress(CounterpointError):
                store.remove(session.run.trace_id, remember=False)
        self._close_store()

    def _close_store(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()

    def __enter__(self) -> Recording:
        self._begin()
        self._mark()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._unmark()
        self._end(error)

    async def __aenter__(self) -> Recording:
        await asyncio.to_thread(self._begin)  # opening and sealing wait for the disk, which the event loop must not
        self._mark()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._unmark()
        ending = asyncio.ensure_future(asyncio.to_thread(self._end, error))
        try:
            await asyncio.shield(ending)
        except asyncio.CancelledError:
            await ending
            raise

    def _mark(self) -> None:
        self._token = current.set(self.session.root) if self.session is not None else None

    def _unmark(self) -> None:
        token, self._token = self._token, None
        if token is not None:
            try:
                current.reset(token)
            except ValueError:  # left in another context than it was entered in, as fixtures do
                current.set(None)

    # -- durability ------------------------------------------------------------------------------------------------------

    def sync(self) -> bool:
        """Wait until all that was recorded so far is on disk; whether it is. Without it that takes at most 50 ms."""
        return self.session is not None and self.session.sync()

    async def sync_async(self) -> bool:
        """The same for tasks; those that wait together share one sync of the disk."""
        session = self.session
        if session is None:
            return False
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
) -> Recording:
    """Record a team that runs on its own: use it with `with` or `async with`, and its decorators on the team's functions.

    `store` is a folder or an open `Store` (default: the one that commands use). `task` says what was asked: traces
    of one task can be compared. `agent` names the agent that acts where no other does, the code around the team; a decorated
    function of that name is that agent. `topology` is one of the survey's shapes, `system` who runs the team. With `limits` (a
    limits file, or a table like one: `{"session": {"agents": 20}}`) what would go past them raises `LimitReached` instead.
    """
    if not isinstance(task, str) or not task:
        raise InputError(f"task={task!r} is not a name", fix='record(task="what was asked")')
    if topology is not None and topology not in TOPOLOGIES:
        raise InputError(f"no topology {topology!r}", fix=did_you_mean(str(topology), TOPOLOGIES))
    if not isinstance(agent, str) or not agent:
        raise InputError(f"agent={agent!r} is not a name", fix='record(agent="lead")')
    return Recording(
        store, task, trace_id, agent, {"topology": topology, "system": system, "meta": dict(meta or {})}, given_limits(limits)
    )


def _fresh_id(task: str) -> str:
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", task).strip("-.")[:40] or "run"
    return f"{name}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(3)}"
