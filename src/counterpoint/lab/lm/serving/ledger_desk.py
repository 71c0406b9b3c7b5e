"""Recording for front ends: what they say was answered, in the order in which it came.

Always true: what is to be recorded is, before it is said to be; what goes wrong is said to who asked, and nobody else is harmed.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from counterpoint.errors import CounterpointError
from counterpoint.lab.lm.serving.link import Link
from counterpoint.lab.lm.serving.messages import Ended, Noted, Recorded, Spoken, decode_note

if TYPE_CHECKING:
    from counterpoint.lab.lm.serving.ledger import Ledger


def recorded(ledger: Ledger, noted: Noted) -> Recorded:
    """Do it, and say so."""
    try:
        asked = decode_note(noted.what)
        return _ended(ledger, noted.number, asked) if isinstance(asked, Ended) else _spoken(ledger, noted.number, asked)
    except Exception as error:  # a bug of ours
        return Recorded(noted.number, error=f"{type(error).__name__}: {error}")


def _spoken(ledger: Ledger, number: int, asked: Spoken) -> Recorded:
    for one in asked.answers:
        ledger.add(asked.caller, one, asked.seconds)
    return Recorded(number)


def _ended(ledger: Ledger, number: int, asked: Ended) -> Recorded:
    try:
        trace = ledger.finish(asked.trace, asked.rewards)
    except CounterpointError as error:
        return Recorded(number, error=error.one_line())
    return Recorded(number) if trace is None else Recorded(number, trace.trace_id, len(trace.events))


class LedgerDesk:
    """Records in a thread of this process."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger, self._thread = ledger, ThreadPoolExecutor(1, "ledger")

    def take(self, link: Link, noted: Noted) -> None:
        """Record what a front end has noted."""
        self._thread.submit(self._do, link, noted)

    def _do(self, link: Link, noted: Noted) -> None:
        link.keep(recorded(self.ledger, noted))
        link.flush()

    async def end(self) -> None:
        """Once nobody asks any more."""
        await asyncio.to_thread(self._thread.shutdown)
