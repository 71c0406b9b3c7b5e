"""One end of a socket between two of our processes, in an event loop: what is to be said goes out many messages at once.

Always true: messages arrive in the order in which they were put, by whatever threads; an end that is gone is told once.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from typing import Any

import msgspec

from counterpoint.lab.lm.frames import Frames
from counterpoint.lab.lm.serving.messages import framed

_READ = 1 << 20


class Link:
    """Messages to and from another process."""

    def __init__(self, sock: socket.socket, take: Callable[[bytes], None], gone: Callable[[], None]) -> None:
        """`take` is given every frame, and `gone` is called when the other end is."""
        self._loop, self._sock, self._take, self._gone = asyncio.get_running_loop(), sock, take, gone
        self._lock, self._news, self._unsent = threading.Lock(), list[Any](), bytearray()
        self._frames, self._is_called, self._is_stuck = Frames(), False, False
        self.is_closed = False
        sock.setblocking(False)
        self._loop.add_reader(sock, self._read)

    def put(self, message: Any) -> None:
        """Say it with what else is said until the loop's next turn; in the loop's thread."""
        self._news.append(message)
        if not self._is_called:
            self._is_called = True
            self._loop.call_soon(self.flush)

    def keep(self, message: Any) -> None:
        """Say it at the next `flush`; any thread may."""
        self._news.append(message)

    def flush(self) -> None:
        """Say what there is to say; any thread may. What does not go out now follows when it can."""
        with self._lock:
            self._is_called = False
            if self.is_closed or not (self._news or self._unsent):
                return
            count = len(self._news)
            if count:
                self._unsent += framed(self._news[:count])
                del self._news[:count]
            if not self._is_stuck and not self._send():
                self._is_stuck = True
                self._loop.call_soon_threadsafe(self._wait)

    def close(self) -> None:
        """Hear and say nothing more; in the loop's thread."""
        with self._lock:
            if self.is_closed:
                return
            self.is_closed = True
        self._loop.remove_reader(self._sock)
        self._loop.remove_writer(self._sock)
        self._sock.close()

    # -- in the loop's thread ----------------------------------------------------------------------------------------------

    def _send(self) -> bool:
        """Whether all went out."""
        try:
            while self._unsent:
                del self._unsent[: self._sock.send(self._unsent)]
        except BlockingIOError:
            return False
        except OSError:  # reading finds that it is gone
            self._unsent.clear()
        return True

    def _wait(self) -> None:
        if not self.is_closed:
            self._loop.add_writer(self._sock, self._go_on)

    def _go_on(self) -> None:
        with self._lock:
            if self.is_closed or not self._send():
                return
            self._is_stuck = False
        self._loop.remove_writer(self._sock)
        self.flush()

    def _read(self) -> None:
        try:
            data = self._sock.recv(_READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        try:
            for message in self._frames.add(data):
                self._take(message)
        except (ValueError, msgspec.MsgspecError):  # bytes that are no message of ours
            data = b""
        if not data and not self.is_closed:
            self.close()
            self._gone()
