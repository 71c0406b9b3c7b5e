"""Recording for front ends: what they say was answered, in the order in which it came.

Always true: what is to be recorded is, before it is said to be; what goes wrong is said to who asked, and nobody else is harmed.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from counterpoint.errors import CounterpointError
from counterpoint.lab.lm.serving.link import Link
from counterpoint.lab.lm.serving.messages import AnswerNote, Note, Receipt, TraceEnd, decode_note

if TYPE_CHECKING:
    from counterpoint.lab.lm.serving.ledger import Ledger


def receipt(ledger: Ledger, noted: Note) -> Receipt:
    """Do it, and say so."""
    try:
        asked = decode_note(noted.what)
        return _ended(ledger, noted.number, asked) if isinstance(asked, TraceEnd) else _spoken(ledger, noted.number, asked)
    except Exception as error:  # a bug of ours
        return Receipt(noted.number, error=f"{type(error).__name__}: {error}")


def _spoken(ledger: Ledger, number: int, asked: AnswerNote) -> Receipt:
    for one in asked.answers:
        ledger.add(asked.caller, one, asked.seconds)
    return Receipt(number)


def _ended(ledger: Ledger, number: int, asked: TraceEnd) -> Receipt:
    try:
        trace = ledger.finish(asked.trace, asked.rewards)
    except CounterpointError as error:
        return Receipt(number, error=error.one_line())
    return Receipt(number) if trace is None else Receipt(number, trace.trace_id, len(trace.events))


class LedgerDesk:
    """Records in a thread of this process."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger, self._thread = ledger, ThreadPoolExecutor(1, "ledger")

    def take(self, link: Link, noted: Note) -> None:
        """Record what a front end has noted."""
        self._thread.submit(self._do, link, noted)

    def _do(self, link: Link, noted: Note) -> None:
        link.keep(receipt(self.ledger, noted))
        link.flush()

    async def end(self) -> None:
        """Once nobody asks any more."""
        await asyncio.to_thread(self._thread.shutdown)
