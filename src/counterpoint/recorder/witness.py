"""Who is told of every recording of this process: a run of tests, which notes the test and reads what became of it.

Always true: where there is no witness nothing happens; what a witness raises is told once on stderr and never reaches the
program. While there is one, every recording is kept, whatever its `sample` says. A replay in memory is no recording.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, Protocol

from counterpoint.recorder.problems import one_line, say_once
from counterpoint.trace import Trace


class Witness(Protocol):
    """Who is told. Both are called in the thread of the recorded program."""

    def begin(self, trace_id: str) -> Mapping[str, Any]:
        """A recording begins; gives what is noted in its `meta`."""

    def end(self, trace_id: str, events: int, sealed: Future[Trace | None]) -> None:
        """It has ended with so many events, and will be sealed."""


_witnesses: list[Witness] = []


def add(one: Witness) -> None:
    """Tell it of all recordings that begin from now on."""
    _witnesses.append(one)


def remove(one: Witness) -> None:
    """Tell it no more."""
    _witnesses.remove(one)


def is_there() -> bool:
    """Whether anybody is told."""
    return bool(_witnesses)


def begin(trace_id: str) -> dict[str, Any]:
    """Tell them of a beginning; gives what they want noted."""
    notes: dict[str, Any] = {}
    for one in tuple(_witnesses):
        try:
            notes |= one.begin(trace_id)
        except Exception as error:
            _tell(one, error)
    return notes


def end(trace_id: str, events: int, sealed: Future[Trace | None]) -> None:
    """Tell them of an end."""
    for one in tuple(_witnesses):
        try:
            one.end(trace_id, events, sealed)
        except Exception as error:
            _tell(one, error)


def _tell(one: Witness, error: Exception) -> None:
    say_once(f"counterpoint: {type(one).__name__} missed a recording: {one_line(error)}", f"witness {type(one).__name__}")
