"""An endpoint in several processes: front ends speak HTTP, read requests and write answers; this one has the engine.

Always true: a connection goes to the front end that has the fewest; calls of all are computed together, and recorded here before
who asked knows that they are whole. A front end that dies is replaced; one that cannot start ends the endpoint with one error. At
the end each answers what it has begun.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import pickle
import signal
import socket
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from counterpoint.app.http_server import Server, patient, server_config
from counterpoint.errors import CounterpointError
from counterpoint.lab.app import model_server
from counterpoint.lab.app.model_ledger import LedgerProcess
from counterpoint.lab.lm.serving.backend import EngineBackend
from counterpoint.lab.lm.serving.engine_desk import EngineDesk
from counterpoint.lab.lm.serving.front import FrontBackend, FrontLedger
from counterpoint.lab.lm.serving.ledger_desk import LedgerDesk
from counterpoint.lab.lm.serving.link import Link
from counterpoint.lab.lm.serving.messages import (
    CallDrop,
    CallRequest,
    Facts,
    Leave,
    Ready,
    Receipt,
    Stop,
    decode_questions,
    decode_replies,
)
from counterpoint.lab.train.child_process import collect_seldom, exit_reason, starting, without_script

if TYPE_CHECKING:
    from counterpoint.lab.app.model_server import Backend
    from counterpoint.lab.lm.serving.ledger import Ledger

_MOST, _OTHERS = 12, 4
"""Front ends at most; and cores that are left to the engine, to what receives for it, and to callers."""
_MOST_STARTS = 3
"""Front ends that may end one after the other before they are ready."""
_SWITCH_S = 5e-4
"""How long the engine's thread may keep the one who receives from the interpreter's lock."""
_AT_ONCE, _FULL_S, _LOOK_S, _GRACE_S = 64, 0.5, 0.05, 10.0


def usual_front_ends(device: str) -> int:
    """How many there are by themselves: none before an engine on a CPU, which needs the cores, and on a small machine."""
    if not (device.startswith("cuda") and hasattr(socket, "send_fds")):
        return 0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(0, min(_MOST, cores - _OTHERS)) if cores >= 2 * _OTHERS else 0


def server(
    backend: Backend, ledger: Ledger | LedgerProcess | None = None, *, front_ends: int = 0, is_remote: bool = False,
    token: str = "", on_ready: Callable[[], None] = lambda: None,
) -> Server:  # fmt: skip
    """`model_server.server`, with so many front ends; without any it is one process."""
    if not front_ends or not isinstance(backend, EngineBackend):
        assert not isinstance(ledger, LedgerProcess)
        return model_server.server(backend, ledger, is_remote=is_remote, token=token, on_ready=on_ready)
    model_server.check_remote(is_remote=is_remote, token=token)
    return _FrontedServer(backend, ledger, front_ends, on_ready, is_remote=is_remote, token=token)


# -- the process of the engine ------------------------------------------------------------------------------------------------


class _Front:
    """One front end, as the process of the engine sees it."""

    def __init__(self, process: Any, sock: socket.socket, door: socket.socket, desk: EngineDesk, all_: _FrontedServer) -> None:
        self.process, self.door, self.desk = process, door, desk
        self.connections, self.is_ready = 0, False
        self._all = all_
        self.link = desk.link = Link(sock, self._take, lambda: all_.lose(self))

    def _take(self, frame: bytes) -> None:
        for said in decode_questions(frame):
            if isinstance(said, CallRequest | CallDrop):
                self.desk.take(said)
            elif isinstance(said, Ready):
                self.is_ready = True
                self._all.came()
            elif isinstance(said, Leave):
                self.connections -= 1
            elif self._all.ledgers is not None:
                self._all.ledgers.take(self.link, said)

    def give(self, connection: socket.socket) -> bool:
        """Let it answer on a connection; false where it takes none now."""
        try:
            socket.send_fds(self.door, [b"c"], [connection.fileno()])
        except OSError:
            return False
        self.connections += 1
        return True

    def close(self) -> None:
        """It is gone."""
        self.link.close()
        self.door.close()
        self.desk.close()


class _FrontedServer(Server):
    """Accepts connections, and gives them away."""

    def __init__(
        self, backend: EngineBackend, ledger: Ledger | LedgerProcess | None, count: int, on_ready: Callable[[], None], *,
        is_remote: bool, token: str,
    ) -> None:  # fmt: skip
        super().__init__(server_config(None, http="h11", grace_s=model_server.GRACE_S))
        self._backend, self._count, self._on_ready = backend, count, on_ready
        self.ledgers = ledger if ledger is None or isinstance(ledger, LedgerProcess) else LedgerDesk(ledger)
        self._about = {"is_remote": is_remote, "token": token, "is_recorded": ledger is not None, "count": count}
        self._fronts: list[_Front] = []
        self._sockets: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._early_ends = 0
        self._failure: CounterpointError | None = None
        self._is_listening = self._is_ending = False

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer until the end."""
        await self._backend.open()
        self._sockets = sockets or []
        self._facts = pickle.dumps((self._backend.facts, self._about))
        seals = asyncio.ensure_future(model_server.sweep(self.ledgers.ledger if isinstance(self.ledgers, LedgerDesk) else None))
        if isinstance(self.ledgers, LedgerProcess):
            self.ledgers.begin(self._fail)
        with self.capture_signals(), self._receiving():
            try:
                for _ in range(self._count):
                    self._begin()
                await self._until(lambda: sum(front.is_ready for front in self._fronts) == self._count)
                if not self.should_exit:
                    self.started = True
                    self._on_ready()
                await self._until(lambda: False)
                await self._end_in_order()
            finally:
                seals.cancel()
                self._listen(False)
                for front in list(self._fronts):
                    front.process.kill()
                    self._forget(front)

    async def _until(self, is_so: Callable[[], bool]) -> None:
        """Wait, unless it is time to end."""
        while not (is_so() or (self.should_exit and not self._is_ending)):
            if self._failure is not None:
                raise self._failure
            await asyncio.sleep(_LOOK_S)

    async def _end_in_order(self) -> None:
        """Nobody new is let in; each front end ends when it has answered what it has begun."""
        self._is_ending = True
        self._listen(False)
        for sock in self._sockets:
            sock.close()
        for front in self._fronts:
            front.link.put(Stop())
        await self._until(lambda: not (self._fronts or self._tasks))
        if self.ledgers is not None:
            await self.ledgers.end()

    @contextmanager
    def _receiving(self) -> Iterator[None]:
        """What a pass brings goes out at its end, and who receives waits no longer for the engine's thread than it must."""
        before, after_pass = sys.getswitchinterval(), self._backend.thread.after_pass
        sys.setswitchinterval(min(before, _SWITCH_S))
        after_pass.append(self._flush)
        try:
            yield
        finally:
            after_pass.remove(self._flush)
            sys.setswitchinterval(before)

    def _flush(self) -> None:
        for front in tuple(self._fronts):
            front.link.flush()

    def _fail(self, error: CounterpointError) -> None:
        """End everything with an error."""
        self._failure = error

    # -- front ends --------------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Start one."""
        ours, theirs = socket.socketpair()
        door, their_door = socket.socketpair()
        with starting(), without_script():
            make = multiprocessing.get_context("spawn").Process
            process = make(target=_serve_front, args=(theirs, their_door), daemon=True, name="counterpoint-front-end")
            process.start()
        theirs.close()  # so that an end of theirs is an end of file here
        their_door.close()
        door.setblocking(False)
        desk = EngineDesk(self._backend.thread, lambda: self._backend.version)
        front = _Front(process, ours, door, desk, self)
        front.link.put(Facts(self._facts))
        self._fronts.append(front)

    def came(self) -> None:
        """A front end is ready."""
        self._early_ends = 0
        self._listen(True)

    def lose(self, front: _Front) -> None:
        """A front end has ended."""
        self._forget(front)
        task = asyncio.ensure_future(self._replace(front))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _forget(self, front: _Front) -> None:
        front.close()
        if front in self._fronts:
            self._fronts.remove(front)
        if not any(other.is_ready for other in self._fronts):
            self._listen(False)

    async def _replace(self, front: _Front) -> None:
        await asyncio.to_thread(front.process.join, _GRACE_S)
        front.process.kill()
        if self._is_ending:
            return
        await asyncio.to_thread(front.process.join)
        why = exit_reason(front.process.exitcode)
        self._early_ends += not front.is_ready
        if self._early_ends >= _MOST_STARTS:
            fix = "look at what they wrote above"
            self._fail(CounterpointError(f"the endpoint's front ends fail to start: {why}", where="models serve", fix=fix))
            return
        warnings.warn(f"front end {front.process.pid} was replaced: it died ({why})", RuntimeWarning, stacklevel=2)
        self._begin()

    # -- connections -------------------------------------------------------------------------------------------------------

    def _listen(self, is_open: bool) -> None:
        """Take new connections, or leave them waiting."""
        if is_open == self._is_listening or (is_open and self._is_ending):
            return
        self._is_listening, loop = is_open, asyncio.get_running_loop()
        for sock in self._sockets:
            sock.setblocking(False)
            if is_open:
                loop.add_reader(sock, self._accept, sock)
            else:
                loop.remove_reader(sock)

    def _accept(self, sock: socket.socket) -> None:
        for _ in range(_AT_ONCE):
            try:
                connection, _ = sock.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError:  # too many open files, until some are closed
                self._listen(False)
                asyncio.get_running_loop().call_later(_FULL_S, self._listen, True)
                return
            with connection, suppress(OSError):
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                fronts = sorted((front for front in self._fronts if front.is_ready), key=lambda front: front.connections)
                any(front.give(connection) for front in fronts)


# -- a front end --------------------------------------------------------------------------------------------------------------


def _serve_front(sock: socket.socket, door: socket.socket) -> None:
    """The life of a front end: until it is told to end, or the process of the engine is gone."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the process of the engine says when it is time
    collect_seldom()
    front = _FrontServer(sock, door)
    front.run(sockets=[])


class _FrontServer(Server):
    """Answers on connections that it is given."""

    def __init__(self, sock: socket.socket, door: socket.socket) -> None:
        super().__init__(server_config(None, http="h11", grace_s=model_server.GRACE_S))
        self._sock, self._door = sock, door
        self._told: asyncio.Future[bytes] | None = None
        self._backend: FrontBackend | None = None
        self._ledger: FrontLedger | None = None

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """None is heeded."""
        yield

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Once it is told what it has to know."""
        loop = asyncio.get_running_loop()
        self._told = loop.create_future()
        self._link = Link(self._sock, self._take, lambda: os._exit(1))
        facts, about = pickle.loads(await self._told)
        self._backend = FrontBackend(facts)
        self._backend.link = self._link
        if about["is_recorded"]:
            self._ledger = FrontLedger()
            self._ledger.link = self._link
        site = model_server.ModelSite(self._backend, self._ledger)
        self.config.app = model_server.application(site, is_remote=about["is_remote"], token=about["token"])
        limited = patient(max(64, model_server.CONNECTIONS // about["count"]), model_server.IDLE_S)
        link = self._link

        class Counted(limited):  # type: ignore[misc,valid-type]
            """Says when it has ended."""

            def connection_lost(self, exc: Exception | None) -> None:
                super().connection_lost(exc)
                link.put(Leave())

        self.config.http = Counted
        await super().serve([])
        self._link.flush()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer."""
        await super().startup([])
        self._door.setblocking(False)
        asyncio.get_running_loop().add_reader(self._door, self._enter)
        self._link.put(Ready())

    def _enter(self) -> None:
        with suppress(BlockingIOError):
            _, given, _, _ = socket.recv_fds(self._door, 64, 64)
            for number in given:
                task = asyncio.ensure_future(self.adopt(socket.socket(fileno=number)))
                self.server_state.tasks.add(task)
                task.add_done_callback(self.server_state.tasks.discard)

    def _take(self, frame: bytes) -> None:
        for told in decode_replies(frame):
            if isinstance(told, Facts):
                assert self._told is not None
                self._told.set_result(told.data)
            elif isinstance(told, Stop):
                asyncio.get_running_loop().remove_reader(self._door)
                self._enter()  # who was let in before
                self.should_exit = True
            elif isinstance(told, Receipt):
                assert self._ledger is not None
                self._ledger.take(told)
            else:
                assert self._backend is not None
                self._backend.take(told)
