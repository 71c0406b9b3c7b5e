"""A run while it is going on: its rows, evaluations, alerts, checkpoints, and every way in which it can end.

Always true: the run's folder is whole after every step, whatever ends it. Ctrl-C, or SIGTERM, drops what is being played or
finishes what is being learned, writes a checkpoint and is passed on; a loss that is no number leaves the last good checkpoint
and says which batch it was.
"""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import msgspec

from counterpoint.errors import CounterpointError, InputError
from counterpoint.lab.train.alert import Alert
from counterpoint.lab.train.folder import RunFolder
from counterpoint.lab.train.learner import NotFinite
from counterpoint.store import Store
from counterpoint.trace import Trace

Progress = Callable[[str, Mapping[str, Any]], None]
"""Told ("start" | "update" | "eval" | "alert" | "checkpoint" | "end", row) as the run goes on."""


class Learning(Protocol):
    """What a session needs of the state that learns."""

    update: int
    totals: dict[str, int]

    @property
    def progress(self) -> float:
        """0 at the start, 1 when nothing is left to spend."""

    def state(self) -> bytes:
        """All of it, for a checkpoint."""

    def restore(self, data: bytes, where: str) -> None:
        """Go on from a checkpoint."""


def check_new(path: Path) -> None:
    """Raise where a run cannot begin in this folder."""
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        fix = f"another name, or resume it: counterpoint train resume {path}"
        raise InputError("exists already and is not empty", where=os.fspath(path), fix=fix)


def check_same(path: Path, own: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    """Raise where a run is to be resumed with settings other than its own."""
    if other := [name for name, value in asked.items() if value != own.get(name)]:
        what = f"was started with other settings: {', '.join(other)}"
        raise InputError(what, where=os.fspath(path), fix="begin another run")


def restore_last(run: RunFolder, learning: Learning) -> None:
    """Resume a run from its last checkpoint; where there is none it begins again."""
    path = run.latest_checkpoint()
    if path is not None:
        try:
            learning.restore(run.read_checkpoint(path), os.fspath(path))
        except CounterpointError:
            raise
        except (KeyError, RuntimeError, TypeError, ValueError) as error:  # parts of other names or shapes
            why = " ".join(str(error).split())[:200]
            fix = "use the version of Counterpoint that wrote it: about.json names it"
            raise InputError("is a checkpoint of another version", where=os.fspath(path), why=why, fix=fix) from error
    run.resume(learning.update)


def mark(traces: Iterable[Trace], **about: Any) -> list[Trace]:
    """The traces, each saying of which run and update it is."""
    return [msgspec.structs.replace(t, meta={**t.meta, **about}) for t in traces]


class RunSession(ABC):
    """What every kind of run shares; `loop` is the run's own, and so is `batch`, which names what was being learned."""

    def __init__(self, run: RunFolder, learning: Learning, tell: Progress) -> None:
        self.run, self.tell = run, tell
        self._learning = learning
        self.metrics, self.evals, self.alerts = run.metrics(), run.evals(), run.alerts()
        self.interrupts = Interrupts()
        self.saved = -1 if run.latest_checkpoint() is None else learning.update
        self.store: Store | None = None
        self.number = learning.update
        """The update that is being made."""

    @abstractmethod
    def loop(self) -> None:
        """Until nothing is left to spend."""

    @abstractmethod
    def batch(self) -> str:
        """What is being learned, in words."""

    def close(self) -> None:
        """Let go of what the run has opened."""
        if self.store is not None:
            self.store.close()

    def go(self) -> None:
        """Until the budget is spent, or something ends it."""
        try:
            with self.interrupts:
                try:
                    self.loop()
                except KeyboardInterrupt:
                    self._stopped()
                    raise
        except NotFinite as error:
            named = f": {error.where}" if error.where else ""
            why = f"update {self.number}: {error.what}; batch of {self.batch()}{named}"
            self._failed(why)
            kept = self.run.latest_checkpoint()
            where, fix = os.fspath(self.run.path), error.fix or "a lower learning rate, or another seed"
            last = f"the last good checkpoint is {kept.name}" if kept else "there was no checkpoint yet"
            raise NotFinite(why, where=where, why=last, fix=fix) from error
        except Exception as error:
            self._failed(error.one_line() if isinstance(error, CounterpointError) else f"{type(error).__name__}: {error}")
            raise
        finally:
            self.close()

    def add_start(self) -> None:
        """Report what run this is."""
        now = {"update": self._learning.update, "progress": self._learning.progress}
        self.tell("start", {**self.run.about, "run": os.fspath(self.run.path), **now})

    def add_metrics(self, row: dict[str, Any]) -> None:
        """One row of metrics, written and reported."""
        self.run.append_metrics(row)
        self.metrics.append(row)
        self.tell("update", row | {"progress": self._learning.progress})

    def add_eval(self, row: dict[str, Any]) -> bool:
        """One evaluation, written and reported; whether it is the best so far."""
        best = max((e["mean"] for e in self.evals), default=-float("inf"))
        self.run.append_eval(row)
        self.evals.append(row)
        self.tell("eval", row | {"stored": 0 if self.store is None else len(self.store)})
        return bool(row["mean"] > best and self._learning.update > 0)

    def add_alert(self, alert: Alert, traces: list[Trace]) -> None:
        """One alert, written and reported, with the traces of the present batch that show it."""
        self.keep(traces, "training")
        ids = [t.trace_id for t in traces] + (self.evals[-1]["traces"] if alert.is_held_out else [])
        row = alert.row(self._learning.update, ids)
        self.run.append_alert(row)
        self.alerts.append(row)
        self.tell("alert", row)

    def keep(self, traces: list[Trace], kind: str) -> None:
        """Traces for the run's store."""
        if not traces:
            return
        if self.store is None:
            self.store = Store(self.run.store_path, create=True)
        self.store.add_many(mark(traces, run=self.run.path.name, update=self._learning.update, episode=kind))

    # -- ends

    def save(self, *, is_best: bool = False) -> None:
        """A checkpoint of the state as it is now."""
        path = self.run.add_checkpoint(self._learning.update, self._learning.state(), is_best=is_best)
        self.saved = self._learning.update
        self.tell("checkpoint", {"update": self.saved, "path": os.fspath(path)})

    def _end(self, status: str, **more: Any) -> None:
        t = self._learning
        self.run.set_status(status, updates=t.update, spent=t.totals, **more)
        self.tell("end", {"run": os.fspath(self.run.path), "status": status, "updates": t.update, **t.totals, **more})

    def is_collapsed(self) -> bool:
        """Whether the team ended up calling nobody."""
        return self.run.is_collapsed()

    def finish(self) -> None:
        """Everything is spent."""
        if self.saved < self._learning.update:
            self.save()
        self._end("finished", collapsed=self.is_collapsed())

    def _stopped(self) -> None:
        """Interrupted: keep the state, unless an update was cut in two; then the last checkpoint counts."""
        if self.run.about["status"] == "finished":
            return
        if not self.interrupts.is_broken and self.saved < self._learning.update:
            self.save()
        self._end("interrupted")

    def _failed(self, why: str) -> None:
        with suppress(CounterpointError, OSError):  # on a full disk the first error is the one to tell
            self._end("failed", why=why)


_ONE_SIGNAL_S = 1.0


class Interrupts:
    """Ctrl-C, or a scheduler's SIGTERM, held back while something must stay whole: a context manager around a long task.

    Outside `whole()` an interruption is a `KeyboardInterrupt` at once; inside, the first one waits for its end and a second one
    does not. Two within a second are one: `timeout` and schedulers signal a process and then its group. `is_broken` says that
    something was cut in two. Who ignored or handled the signal before gets it back.
    """

    def __init__(self) -> None:
        self.is_broken = self._is_pending = False
        self._heard = -math.inf
        self._depth = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        # only the main thread may listen; a process that was told to ignore the signal goes on ignoring it
        for number in (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ():
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._hear)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, before or usual)

    def _hear(self, _number: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        if now - self._heard < _ONE_SIGNAL_S:
            return
        self._heard = now
        if self._depth and not self._is_pending:
            self._is_pending = True
            return
        self.is_broken = self.is_broken or self._depth > 0
        raise KeyboardInterrupt

    @contextmanager
    def whole(self) -> Iterator[None]:
        """What is done in here is finished before an interruption counts."""
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
        if self._is_pending and not self._depth:
            self._is_pending = False
            raise KeyboardInterrupt
