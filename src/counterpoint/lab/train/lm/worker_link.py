"""One rollout worker as the driver sees it, wherever it is: what it was given, what it has said, and how it is ended.

Always true: nothing here waits for a worker, but for ending one. What starts workers is a `Host`: processes of this machine, or
actors of a Ray cluster (`ray_workers`).
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Protocol

from counterpoint.errors import CounterpointError
from counterpoint.lab.lm.frames import Frames
from counterpoint.lab.train.child_process import exit_reason, starting, without_script
from counterpoint.lab.train.lm.rollout_messages import Order, Report, decode_reports, framed
from counterpoint.lab.train.lm.rollout_worker import serve

_MOST_STARTS = 3
"""Workers that may end one after the other before they are ready."""


class Started(Protocol):
    """A worker that was started, and may still be on its way."""

    pid: int

    def connected(self) -> Any | None:
        """What it is talked to by (`fileno` and `close`), or None as long as it has no place yet."""

    def failure(self) -> str | None:
        """Why it will never have one."""

    def join(self, wait_s: float) -> None:
        """Wait for its end, so long at most."""

    def kill(self) -> None:
        """End it, whatever it is doing."""

    def ended(self) -> str:
        """How it ended, once it was killed or has ended."""


class Host(Protocol):
    """Where workers are started."""

    def start(self, count: int) -> Sequence[Started]:
        """Start so many."""

    def place(self, waiting: Sequence[Started]) -> None:
        """Wait until these have a place; raises where they get none in time."""

    def check(self, waiting: Sequence[Started], *, is_alone: bool) -> None:
        """Raise where the run cannot go on: called now and then, with who has no place and whether nobody has one."""

    def close(self) -> None:
        """Let go of the place."""


class WorkerLink:
    """A worker that has its place."""

    def __init__(self, process: Started, conn: Any) -> None:
        self.process, self.conn = process, conn
        self.live: dict[int, None] = {}
        """Rollouts that it plays."""
        self.asked = 0
        """Calls of its teams that the engine has not answered."""
        self.is_ready = False
        self.sent = self.quiet = 0
        """Orders that it was given, and how many it knew of when all of its teams waited for the next ones."""
        self.silent_s = 0.0
        self.cpu_s = 0.0
        self.news: list[Order] = []
        self._unsent, self._frames = bytearray(), Frames()
        os.set_blocking(self.conn.fileno(), False)

    @property
    def pid(self) -> int:
        """Its process, on the machine where it is."""
        return self.process.pid

    @property
    def owes(self) -> bool:
        """Whether it has something to say: it loads, or plays teams that do not all wait for the engine."""
        return not self.is_ready or (bool(self.live) and not self.asked)

    @property
    def is_quiet(self) -> bool:
        """Whether all of its teams wait for this process."""
        return self.is_ready and not self.has_unsent and self.quiet == self.sent

    @property
    def has_unsent(self) -> bool:
        """Whether there is something that it has not been sent yet."""
        return bool(self._unsent or self.news)

    def read(self) -> tuple[list[Report], bool]:
        """What it has said, and whether it is gone; raises where that is nonsense."""
        out: list[Report] = []
        while True:
            try:
                data = os.read(self.conn.fileno(), 1 << 20)
            except BlockingIOError:
                return out, False
            except OSError:
                return out, True
            if not data:
                return out, True
            for frame in self._frames.add(data):
                out += decode_reports(frame)

    def write(self) -> None:
        """Send what there is to send, as far as it goes."""
        if self.news:
            self.sent += len(self.news)
            self._unsent += framed(self.news)
            self.news = []
        with suppress(OSError):  # whoever is gone is found by reading
            while self._unsent:
                del self._unsent[: os.write(self.conn.fileno(), memoryview(self._unsent)[: 1 << 18].tobytes())]

    def end(self, wait_s: float = 0.0) -> str:
        """End it, if it does not end by itself in the time given; how it ended."""
        if wait_s:
            self.process.join(wait_s)
        self.process.kill()
        how = self.process.ended()
        self.conn.close()
        return how


class WorkerStarts:
    """Workers that were started and have no place yet, and those that ended before they were ready."""

    def __init__(self, host: Host, where: str) -> None:
        """`where` is what an error names."""
        self._host, self._where = host, where
        self.waiting: list[Started] = []
        self._early_ends = 0

    def links(self, missing: int) -> list[WorkerLink]:
        """Start so many more than are on their way; those that have found their place since the last time."""
        missing -= len(self.waiting)
        self.waiting += self._host.start(missing) if missing > 0 else []
        found = []
        for started in list(self.waiting):
            why, conn = started.failure(), started.connected()
            if why is not None:
                self.waiting.remove(started)
                self.ended_early(why)
            elif conn is not None:
                self.waiting.remove(started)
                found.append(WorkerLink(started, conn))
        return found

    def place(self) -> None:
        """Wait until all have a place; raises where they get none in time."""
        self._host.place(self.waiting)

    def check(self, *, is_alone: bool) -> None:
        """Raise where nobody will ever play again; `is_alone`: nobody has a place."""
        self._host.check(self.waiting, is_alone=is_alone)

    def ended_early(self, why: str) -> None:
        """A worker ended before it was ready; raises where several do, one after the other."""
        self._early_ends += 1
        if self._early_ends >= _MOST_STARTS:
            raise CounterpointError(f"workers fail to start: {why}", where=self._where, fix="look at what they wrote above")

    def is_well(self) -> None:
        """One is ready, or ended later."""
        self._early_ends = 0

    def close(self) -> None:
        """End those that wait, and let go of the place."""
        for started in self.waiting:
            started.kill()
        self.waiting = []
        self._host.close()


class _Process:
    """A worker of this machine."""

    def __init__(self, process: Any, conn: Any, *, leads: bool) -> None:
        """`leads`: it began a group of processes, which ends with it."""
        self._process, self._conn, self.pid, self._leads = process, conn, int(process.pid), leads

    def connected(self) -> Any:
        """Its pipe."""
        return self._conn

    def failure(self) -> None:
        """A process has its place at once."""

    def join(self, wait_s: float) -> None:
        """Wait for its end, so long at most."""
        self._process.join(wait_s)

    def kill(self) -> None:
        """End it, whatever it is doing, with what it has started."""
        with suppress(OSError):
            if self._leads and os.getpgid(self.pid) == self.pid:
                os.killpg(self.pid, signal.SIGKILL)
        self._process.kill()

    def ended(self) -> str:
        """Its exit code in words."""
        self._process.join()
        return exit_reason(self._process.exitcode)


class LocalHost:
    """Workers that are processes of this machine."""

    def __init__(self, given: str | bytes, target: Callable[..., None] = serve) -> None:
        """`given` is what `target` is told beside its pipe: the folder of the tokeniser, where it plays teams of ours."""
        self._given, self._target, self._count = given, target, 0
        self._context = multiprocessing.get_context("spawn")

    def start(self, count: int) -> list[_Process]:
        """Start so many."""
        out = []
        with starting(), without_script():
            for _ in range(count):
                ours, theirs = self._context.Pipe()
                name = f"counterpoint-rollouts-{self._count}"
                is_ours = self._target is serve
                process = self._context.Process(target=self._target, args=(theirs, self._given), daemon=is_ours, name=name)
                process.start()
                theirs.close()  # so that an end of theirs is an end of file here
                self._count += 1
                out.append(_Process(process, ours, leads=self._target is not serve))
        return out

    def place(self, waiting: Sequence[Started]) -> None:
        """Nobody waits for a place."""

    def check(self, waiting: Sequence[Started], *, is_alone: bool) -> None:
        """This machine is there."""

    def close(self) -> None:
        """Nothing is held."""
