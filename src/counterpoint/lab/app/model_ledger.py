"""The ledger of an endpoint in a process of its own, so that the engine's process does not wait for it.

Always true: what is to be recorded is, before who asked knows; when the endpoint ends, however it ends, every trace is sealed.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

from counterpoint.errors import CounterpointError
from counterpoint.lab.lm.frames import Frames
from counterpoint.lab.lm.serving.ledger_desk import receipt
from counterpoint.lab.lm.serving.link import Link
from counterpoint.lab.lm.serving.messages import Note, Problems, Receipt, Stop, decode_notes, decode_receipts, framed
from counterpoint.lab.train.child_process import collect_seldom, exit_reason, starting, without_script

_SWEEP_S, _GRACE_S, _LOOK_S, _READ = 5.0, 3600.0, 0.05, 1 << 20


class LedgerProcess:
    """Records in another process, into a store that nothing here has open."""

    def __init__(self, store: Path, *, task: str) -> None:
        """Raises where there can be no such store."""
        from counterpoint.store import Store

        Store(store).close()
        self.problems: list[str] = []
        self._sock, theirs = socket.socketpair()
        with starting(), without_script():
            make = multiprocessing.get_context("spawn").Process
            self.process = make(target=_keep, args=(theirs, store, task), daemon=True, name="counterpoint-ledger")
            self.process.start()
        theirs.close()  # so that an end of ours is an end of file there
        self._link: Link | None = None
        self._waiting: dict[int, tuple[Link, int]] = {}
        self._next = 0
        self._fail: Callable[[CounterpointError], None] = lambda error: None
        self._is_over = False

    def begin(self, fail: Callable[[CounterpointError], None]) -> None:
        """Talk to it in this event loop; `fail` is told when it ends before its time."""
        self._fail = fail
        self._link = Link(self._sock, self._heard, self._gone)

    def take(self, link: Link, noted: Note) -> None:
        """Have recorded what a front end has noted."""
        assert self._link is not None
        self._next += 1
        self._waiting[self._next] = link, noted.number
        self._link.put(Note(self._next, noted.what))

    async def end(self) -> None:
        """Have every trace sealed, once nobody asks any more."""
        assert self._link is not None
        self._link.put(Stop())
        while not self._link.is_closed:
            await asyncio.sleep(_LOOK_S)

    def close(self) -> None:
        """When the event loop is over: it seals what is left, and ends."""
        self._sock.close()
        self.process.join(_GRACE_S)

    def _heard(self, frame: bytes) -> None:
        for told in decode_receipts(frame):
            if isinstance(told, Problems):
                self.problems, self._is_over = told.problems, True
            else:
                link, number = self._waiting.pop(told.number)
                link.put(Receipt(number, told.trace, told.calls, told.error))

    def _gone(self) -> None:
        if not self._is_over:
            self.process.join(_LOOK_S)
            what = f"the process that records has ended ({exit_reason(self.process.exitcode)})"
            self._fail(CounterpointError(what, where="models serve", fix="look at what it wrote above, and serve it again"))


def _keep(sock: socket.socket, store: Path, task: str) -> None:
    """The life of the ledger: until it is told to end, or nobody is there to tell."""
    from counterpoint.lab.lm.serving.ledger import Ledger
    from counterpoint.store import Store

    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # who answers the callers says when it is time
    collect_seldom()
    frames, swept, is_told = Frames(), time.monotonic(), False
    sock.settimeout(_SWEEP_S)
    with Store(store) as opened:
        ledger = Ledger(opened, task=task)
        while not is_told:
            if time.monotonic() - swept > _SWEEP_S:
                ledger.sweep()
                swept = time.monotonic()
            try:
                data = sock.recv(_READ)
            except TimeoutError:
                continue
            except OSError:
                break
            if not data:
                break
            for frame in frames.add(data):
                orders = decode_notes(frame)
                _say(sock, [receipt(ledger, order) for order in orders if isinstance(order, Note)])
                is_told = any(isinstance(order, Stop) for order in orders)
        ledger.close()
        _say(sock, [Problems(ledger.problems)])


def _say(sock: socket.socket, told: list[Receipt | Problems] | list[Receipt] | list[Problems]) -> None:
    try:
        if told:
            sock.settimeout(None)
            sock.sendall(framed(told))
            sock.settimeout(_SWEEP_S)
    except OSError:  # nobody is there any more: what was recorded stays
        pass
