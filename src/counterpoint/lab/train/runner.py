"""What a runner is: three methods, small enough that another engine can implement them.

Always true: work is an importable function `(payload, weights) -> result`, named "package.module:function", so that any
process can find it; it takes its randomness from its payload, so where and when it runs changes nothing. A job is fixed when
it is submitted: what happens to its payload or weights afterwards does not reach it. A version names its weights: jobs of one
version carry the same ones, and an engine may send them once.
"""

from __future__ import annotations

import importlib
import importlib.util
import pickle
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from counterpoint.errors import CounterpointError, InputError, NotFound, did_you_mean, install

Work = Callable[[Any, Any], Any]


@dataclass(frozen=True, kw_only=True)
class Job:
    """One rollout, or one group of rollouts, to be run."""

    work: str
    """The function, as "package.module:function"."""
    payload: Any
    """What it is given: a seed, a world, a group; anything that can be pickled."""
    version: int = 0
    """Of the weights."""
    weights: Any = None
    """Bytes, or a mapping of name to array; arrays arrive read-only."""
    arm: float = 0.0
    """The chosen width (or any decision) at launch; it never travels, it is for inclusion weights."""
    cell: int = 0
    """Everything else known at launch, as one number; for inclusion weights too."""


@dataclass(frozen=True, kw_only=True)
class Done:
    """A job that has ended."""

    number: int
    """Of the job, in the order of launch, from 0."""
    version: int
    """Of the weights it was run with."""
    result: Any
    took_s: float
    """Seconds that the work itself took, where it ran."""


class Runner(Protocol):
    """Runs jobs."""

    def submit(self, job: Job) -> int:
        """Take a job and return at once; its number, counted from 0."""

    def collect(self, timeout_s: float | None = None) -> list[Done]:
        """Jobs that have ended since the last call, each once; waits for the first of them while any is under way.

        A job that failed is raised here, as one error that names it.
        """

    def close(self) -> None:
        """End everything, also what is under way; may be called twice."""


def resolve(work: str) -> Work:
    """The function that a job names."""
    module_name, colon, name = work.partition(":")
    if not colon or not module_name or not name:
        raise InputError(f"work {work!r} names no function", fix='"package.module:function"')
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise NotFound(
            f"cannot import the work {work!r}: {error}", fix="a module that other processes can import, not a script"
        ) from error
    function = getattr(module, name, None)
    if not callable(function):
        raise NotFound(f"module {module_name!r} has no function {name!r}", fix=did_you_mean(name, dir(module)))
    return function


def check_ray() -> None:
    """Raise where Ray is not installed."""
    found = importlib.util.find_spec("ray")
    if found is None or found.origin is None:  # without an origin it is some folder of that name, such as Ray's own in /tmp
        fix = f"{install('ray')}, or --runner processes"
        raise InputError("the runner ray needs ray, which is not installed", fix=fix)


def packed(value: Any, what: str, job: int, work: str) -> bytes:
    """A value as bytes; what cannot travel is one clear error."""
    try:
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # pickle raises whatever an object's own hooks raise
        raise InputError(
            f"the {what} cannot be sent: {error}", where=_named(job, work), fix="plain values, bytes or arrays"
        ) from error


def frozen(weights: Any) -> Any:
    """The same weights with read-only arrays: one job cannot change what the next one sees."""
    if isinstance(weights, Mapping):
        for value in weights.values():
            if isinstance(value, np.ndarray):
                value.setflags(write=False)
    return weights


def _named(number: int, work: str) -> str:
    return f"job {number} ({work})"


def failed(number: int, work: str, what: str, *, fix: str | None = None, trace: str | None = None) -> CounterpointError:
    """The one error of a job that came to nothing; the remote traceback is a note on it."""
    error = CounterpointError(what, where=_named(number, work), fix=fix)
    if trace:
        error.add_note(trace)
    return error


def error_lines(error: BaseException) -> tuple[str, str]:
    """An exception as (one line, traceback)."""
    line = f"{type(error).__name__}: {error}" if not isinstance(error, CounterpointError) else str(error)
    return " ".join(line.split()), "".join(traceback.format_exception(error))


def one_thread() -> None:
    """Hold torch to one thread; the others were told by the environment before they were loaded."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.get_num_threads() != 1:
        torch.set_num_threads(1)
