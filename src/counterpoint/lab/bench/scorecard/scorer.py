"""A scorer of your own: a function `(answer, case)` that gives a number from 0 to 1, asked in a process of its own.

Always true: whatever it does (raises, hangs, exits, gives NaN), the caller gets a number from 0 to 1 or a `ScorerError` that says
what happened; after a hang or a death the next question starts it afresh. What it prints is no output of ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import multiprocessing
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import counterpoint.registry as registry
from counterpoint.errors import CounterpointError, InputError
from counterpoint.lab.bench.scorecard.own_code import error_words
from counterpoint.lab.team.job import takes

_START_S = 600.0
"""What importing may take."""
_LONGEST_S = 1e9
"""Of a wait that has no end: a pipe takes no infinity."""


class ScorerError(CounterpointError):
    """A scorer gave no score; `status` is how the bench calls it."""

    def __init__(self, what: str, *, status: str = "not scored") -> None:
        self.status = status
        super().__init__(what)


@dataclass
class Scorer:
    """A function by its name, and the process that it runs in once it has been asked."""

    name: str
    _child: Any = field(default=None, repr=False)
    _pipe: Connection | None = field(default=None, repr=False)

    @classmethod
    def named(cls, name: str) -> Scorer:
        """The scorer; one that is not there, or no function, is one clear error."""
        if ":" not in name:
            fix = "path/to/file.py:function, or package.module:function"
            raise InputError(f"{name!r} names no function", where="--reward", fix=fix)
        function = registry.get("scorer", name)
        if not callable(function) or not takes(function, 2):
            what = "takes other arguments than an answer and a case" if callable(function) else "is not a function"
            raise InputError(f"{name} {what}", where="--reward", fix="def score(answer, case): a number from 0 to 1")
        return cls(name)

    def score(self, answer: str, case: Mapping[str, Any], *, seconds: float) -> float:
        """What the answer to the case is worth, within this time."""
        if self._child is None:
            self._start()
        pipe = self._pipe
        assert pipe is not None
        try:
            pipe.send((answer, dict(case)))
            if not pipe.poll(min(seconds, _LONGEST_S)):
                self.close()
                raise ScorerError(f"the scorer {self.name} did not come to an end in {seconds:g} s", status="hung")
            value, why = pipe.recv()
        except (EOFError, OSError) as error:
            self._child.join()
            code = self._child.exitcode
            self.close()
            raise ScorerError(f"the process of the scorer {self.name} ended with code {code}") from error
        if why:
            raise ScorerError(f"the scorer {self.name}: {why}")
        if not math.isfinite(value) or not 0 <= value <= 1:
            raise ScorerError(f"the scorer {self.name} gave {value:g}, not a number from 0 to 1")
        return float(value)

    def close(self) -> None:
        """End its process, with all that this started."""
        if self._child is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._child.pid or 0, signal.SIGKILL)
        self._child.kill()
        self._child.join()
        if self._pipe is not None:
            self._pipe.close()
        self._child = self._pipe = None

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._child = context.Process(target=_scoring, args=(theirs, self.name, [*sys.path]), daemon=True)
        self._child.start()
        theirs.close()
        why = "it was not loaded in time"
        with contextlib.suppress(EOFError, OSError):
            if self._pipe.poll(_START_S):
                _, why = self._pipe.recv()
        if why:
            self.close()
            raise ScorerError(f"the scorer {self.name}: {why}")


def _scoring(pipe: Connection, name: str, path: list[str]) -> None:
    """In the child: one (value, "") or (0, why) to each question, after one that says that it is loaded."""
    os.setsid()
    os.dup2(2, 1)
    sys.path[:] = path
    try:
        function = registry.get("scorer", name)
    except BaseException as error:
        pipe.send((0.0, error_words(error)))
        return
    pipe.send((0.0, ""))
    with contextlib.suppress(EOFError, OSError):
        while True:
            answer, case = pipe.recv()
            pipe.send(_scored(function, answer, case))


def _scored(function: Any, answer: str, case: Any) -> tuple[float, str]:
    try:
        value = function(answer, case)
        if asyncio.iscoroutine(value):
            value = asyncio.run(value)
        if value is None or isinstance(value, str | bytes):
            return 0.0, f"gave {value!r}, not a number"
        return float(value), ""
    except BaseException as error:
        return 0.0, error_words(error)
