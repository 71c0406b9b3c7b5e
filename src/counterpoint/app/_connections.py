"""Connections of our servers: each has its time, and a full house makes room for who comes.

Always true: a connection that has said nothing whole for `seconds` is closed; where there are as many as may be, the one that has
waited longest without a whole request goes, and then the one whose body has been under way longest: nobody is locked out by
connections that are opened and left. One whose request is being answered is never cut for another.
"""

from __future__ import annotations

from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol


class Patient(H11Protocol):
    """uvicorn's connection, which by itself waits for ever and takes as many as come."""

    most, seconds = 512, 30.0
    since = 0.0
    """When it was opened, or its last answer ended: bytes that make no whole request do not count."""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.since = self.loop.time()
        if len(self.connections) > self.most and not self._make_room():
            transport.abort()
        else:
            self._watch()

    def _make_room(self) -> bool:
        others = [c for c in self.connections if isinstance(c, Patient) and c is not self and not c.transport.is_closing()]
        waiting = [c for c in others if c._is_waiting()] or [c for c in others if c.cycle is not None and c.cycle.more_body]
        if not waiting:
            return False
        min(waiting, key=lambda c: c.since).transport.abort()
        return True

    def _is_waiting(self) -> bool:
        """Between two requests, or in the middle of a request's head."""
        return self.cycle is None or bool(self.cycle.response_complete)

    def _watch(self) -> None:
        self.loop.call_later(self.seconds, self._look, self.cycle)

    def _look(self, before: Any) -> None:
        """Close when no request has begun since the last look and none is being answered."""
        if self.transport.is_closing():
            return
        if self.cycle is before and self._is_waiting():
            self.transport.close()
        else:
            self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.since = self.loop.time()
        if self.cycle.more_body and not self.transport.is_closing():
            # Answered before the body was read: what still comes is dropped, for a while, so that the answer is read.
            self.loop.call_later(self.seconds, self._part, self.cycle)

    def _part(self, answered: Any) -> None:
        if self.cycle is answered and self.conn.their_state is h11.SEND_BODY:
            self.transport.abort()


def patient(connections: int, seconds: float) -> type[Patient]:
    """Connections with these limits."""
    return type("Patient", (Patient,), {"most": connections, "seconds": seconds})
