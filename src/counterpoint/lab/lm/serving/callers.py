"""Who asks, as far as a request says.

Always true: nothing is guessed here; what a header does not say is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import NamedTuple
from urllib.parse import unquote

TRACE_HEADER, AGENT_HEADER = "x-counterpoint-trace", "x-counterpoint-agent"
ROLE_HEADER, EVENT_HEADER = "x-counterpoint-role", "x-counterpoint-event"


class Caller(NamedTuple):
    """Who asks, as far as the request says."""

    trace: str | None = None
    agent: str | None = None
    role: str | None = None
    event: str | None = None
    """The event of the recording in which the call was made."""

    @classmethod
    def of(cls, headers: Mapping[str, str], trace: str | None = None) -> Caller:
        """What headers say; `trace` is the one of the address that was asked."""
        named = [unquote(headers.get(name) or "") or None for name in (TRACE_HEADER, AGENT_HEADER, ROLE_HEADER, EVENT_HEADER)]
        return cls(named[0] or trace, *named[1:])


_NOBODY = Caller()
asking: ContextVar[Caller] = ContextVar("counterpoint_caller", default=_NOBODY)
"""Who asks what is being answered here."""
