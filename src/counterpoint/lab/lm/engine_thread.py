"""The thread that an engine works in: calls come from other threads, and between two passes they join, are watched and leave.

Always true: the model is loaded when the first call comes, or before by `ready`; every call that was taken is settled once,
with an answer or an error, unless nobody waits for it any more. What `between` is given runs when no call is under way, before
any call that came later.
"""

from __future__ import annotations

import atexit
import errno
import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

from counterpoint.errors import CounterpointError
from counterpoint.lab.lm.chat import Chat
from counterpoint.lab.lm.engine import Answer, AnswerDraft, Ask, Engines, Stats, TooLong
from counterpoint.lab.lm.model import Failure, ModelFailed

Load = Callable[[], tuple[Chat, Engines]]


class EngineCall(Protocol):
    """One call, as the thread sees it; all methods run in the thread."""

    @property
    def is_cancelled(self) -> bool:
        """Whether nobody waits for it any more."""

    @property
    def is_watched(self) -> bool:
        """Whether it wants to know what it has written so far."""

    def ask(self, chat: Chat) -> Ask:
        """What the engine is asked."""

    def watch(self, chat: Chat, written: AnswerDraft) -> bool:
        """What was written so far, after each pass; whether that is enough."""

    def settle(self, chat: Chat, result: Answer | ModelFailed) -> None:
        """Its end."""


class EngineThread:
    """Serves calls with the engines that `load` makes."""

    def __init__(self, load: Load, *, slots: int) -> None:
        self._load, self._slots = load, slots
        self.engines: Engines | None = None
        self.chat: Chat | None = None
        self._inbox: queue.SimpleQueue[EngineCall | _Work | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self._before_end = Stats()
        self.after_pass: list[Callable[[], None]] = []
        """Done in the thread after each pass, and before it waits."""

    @property
    def stats(self) -> Stats:
        """What the engines have done so far."""
        return self._before_end if self.engines is None else self.engines.stats

    def submit(self, call: EngineCall) -> None:
        """Hand in a call; any thread may."""
        self._put(call)

    def between(self, work: Callable[[Engines], None]) -> Future[None]:
        """Have the engines worked on when all calls under way are answered: new weights, for instance. Calls that come meanwhile
        wait, and are answered after it."""
        wanted = _Work(work)
        self._put(wanted)
        return wanted.future

    def ready(self) -> Future[None]:
        """Load the model now; fails where it cannot be loaded."""
        return self.between(lambda engines: None)

    def close(self) -> None:
        """End the thread, fail the calls that wait, free the memory; a second call does nothing."""
        with self._lock:
            self._is_closed = True
            thread, self._thread = self._thread, None
        if thread is not None:
            self._inbox.put(None)
            thread.join()
            atexit.unregister(self.close)
            self._before_end, self.engines = self.stats, None

    def _put(self, item: EngineCall | _Work) -> None:
        with self._lock:
            if self._is_closed:
                raise ModelFailed("down", "the model has been closed", fix="make it again with local(...)")
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="local-model", daemon=True)
                self._thread.start()
                atexit.register(self.close)
            self._inbox.put(item)

    # -- in the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        desk = _Desk(self._inbox, self._slots, self.after_pass)
        try:
            try:
                self.chat, self.engines = self._load()
            except Exception as error:
                desk.refuse(error)
            else:
                desk.serve(self.chat, self.engines)
        finally:
            desk.end()


class _Work:
    """Something that is done between calls."""

    def __init__(self, work: Callable[[Engines], None]) -> None:
        self.work, self.future = work, Future[None]()

    def run(self, engines: Engines) -> None:
        try:
            self.work(engines)
        except Exception as error:
            self.future.set_exception(error)
        else:
            self.future.set_result(None)


class _Desk:
    """What is under way in the thread."""

    def __init__(self, inbox: queue.SimpleQueue[Any], slots: int, after_pass: Sequence[Callable[[], None]]) -> None:
        self._inbox, self._slots, self._after_pass = inbox, slots, after_pass
        self._waiting: deque[EngineCall | _Work] = deque()
        self._rows: dict[int, EngineCall] = {}
        self._chat: Any = None

    def refuse(self, reason: Exception) -> None:
        """The model cannot be loaded: every call is told why, until the end."""
        while self._receive(is_idle=True):
            while self._waiting:
                item = self._waiting.popleft()
                if isinstance(item, _Work):
                    item.future.set_exception(reason)
                else:
                    item.settle(self._chat, engine_failure("down", reason, self._slots).again())

    def serve(self, chat: Chat, engines: Engines) -> None:
        """Pass after pass, until it is time to end."""
        self._chat = chat
        while self._receive(is_idle=not (engines.is_busy or self._waiting)):
            self._join(engines)
            for ticket in [t for t, call in self._rows.items() if call.is_cancelled]:
                del self._rows[ticket]
                engines.cancel(ticket)
            if not engines.is_busy:
                continue
            try:
                finished = engines.step()
            except Exception as error:
                engines.reset()
                for call in self._rows.values():
                    self._settle(call, engine_failure("server", error, self._slots).again())
                self._rows.clear()
                continue
            finished += self._watch(engines)
            for ticket, answer in finished:
                self._settle(self._rows.pop(ticket), answer)

    def end(self) -> None:
        """Nobody is served any more: who waits is told so."""
        while True:
            try:
                item = self._inbox.get(block=False)
            except queue.Empty:
                break
            self._waiting += [] if item is None else [item]
        for item in [*self._rows.values(), *self._waiting]:
            closed = ModelFailed("down", "the model was closed while a call waited", fix="close it when the calls are done")
            if isinstance(item, _Work):
                item.future.set_exception(closed)
            else:
                self._settle(item, closed)
        self._say()

    def _say(self) -> None:
        for done in tuple(self._after_pass):
            done()

    def _receive(self, *, is_idle: bool) -> bool:
        """Take in what has come, and wait for it where there is nothing to do; false when it is time to end."""
        self._say()
        while True:
            try:
                item = self._inbox.get(block=is_idle)
            except queue.Empty:
                return True
            if item is None:
                return False
            self._waiting.append(item)
            is_idle = False

    def _join(self, engines: Engines) -> None:
        """Calls that wait are handed to the engines, up to the next work; that is done when none is under way."""
        while self._waiting:
            item = self._waiting[0]
            if isinstance(item, _Work):
                if engines.is_busy:
                    return
                item.run(engines)
            else:
                self._begin(engines, item)
            self._waiting.popleft()

    def _begin(self, engines: Engines, call: EngineCall) -> None:
        if call.is_cancelled:
            return
        try:
            self._rows[engines.add(call.ask(self._chat))] = call
        except TooLong as error:
            fix = "shorten the prompt, or use a model with a longer context"
            self._settle(call, ModelFailed("too long", error.what, fix=fix))
        except Exception as error:
            self._settle(call, engine_failure("server", error))

    def _watch(self, engines: Engines) -> list[tuple[int, Answer]]:
        """Tell calls what they have written; the answers of those that have enough."""
        watched = {ticket: call for ticket, call in self._rows.items() if call.is_watched}
        out = []
        for ticket, written in (engines.under_way() if watched else {}).items():
            if ticket in watched and written.token_ids and watched[ticket].watch(self._chat, written):
                ended = engines.cancel(ticket)
                assert ended is not None
                out.append((ticket, ended))
        return out

    def _settle(self, call: EngineCall, result: Answer | ModelFailed) -> None:
        try:
            call.settle(self._chat, result)
        except Exception as error:
            if isinstance(result, ModelFailed):
                raise
            call.settle(self._chat, engine_failure("server", error))


def engine_failure(kind: Failure, error: Exception, slots: int = 0) -> ModelFailed:
    """An exception of the engine in our words."""
    if isinstance(error, ModelFailed):
        return error
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return ModelFailed(kind, "no space left on the device", fix="free some space and run it again")
    if isinstance(error, CounterpointError):
        return ModelFailed(kind, error.what, where=error.where, why=error.why, fix=error.fix)
    if isinstance(error, MemoryError) or "out of memory" in str(error) or "allocate memory" in str(error):
        fix = f"batch={max(1, slots // 2)}, a smaller context, or a smaller model"
        return ModelFailed(kind, f"too little memory for {slots} calls at once", fix=fix)
    return ModelFailed(kind, f"the local model failed: {type(error).__name__}: {error}")
