"""Jobs in processes of this machine, fed by a thread, so that workers stay busy while the caller learns.

Always true: a worker has one job at a time, and jobs start in the order of launch; weights travel once per worker and version.
A worker that dies, hangs or raises is one error that names the job. Nothing is left behind: Ctrl-C reaches this process only,
`close` ends the workers, and a worker whose parent was killed ends itself: a thread of its own writes a heartbeat and watches
the parent, also while a job runs. A job that raises is reported, and the worker goes on.

Processes are started afresh ("spawn"), with one thread each for numpy and torch. As with any such pool, a script that makes
one does so under `if __name__ == "__main__":`.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections import deque
from dataclasses import dataclass
from multiprocessing import connection
from typing import Any

from counterpoint.errors import CounterpointError, InputError
from counterpoint.lab.train.child_process import START_S, end_with_parent, exit_reason, starting
from counterpoint.lab.train.runner import Done, Job, failed, frozen, one_thread, packed, resolve, told

_GUARD = 'a script that starts workers does so under `if __name__ == "__main__":`; else Here shows why'


@dataclass
class _Worker:
    process: Any
    conn: connection.Connection
    job: _Sent | None = None
    version: int | None = None
    """Of the weights it holds."""
    has_answered: bool = False


@dataclass(frozen=True)
class _Sent:
    """A job on its way."""

    number: int
    work: str
    version: int
    payload: bytes
    weights: bytes


class Processes:
    """Workers of this machine; also a context manager that closes them."""

    def __init__(self, workers: int | None = None, *, beat_s: float = 0.5, silent_s: float = 60.0) -> None:
        """`workers` processes (the number of cores); a busy one whose heart stands still for `silent_s` has failed."""
        count = (os.cpu_count() or 1) if workers is None else workers
        if count < 1 or not 0 < beat_s < silent_s:
            raise InputError(
                f"{count} workers, a beat of {beat_s} s, silent for {silent_s} s",
                fix="1 worker or more, and a beat shorter than the silence allowed",
            )
        context = multiprocessing.get_context("spawn")
        self._silent_s, self._began = silent_s, time.monotonic()
        self._beats = context.RawArray("d", count)
        self._wake_r, self._wake_w = context.Pipe(duplex=False)
        self._workers: list[_Worker] = []
        self._changed = threading.Condition()
        self._queue: deque[_Sent] = deque()
        self._done: list[tuple[_Sent, float, bytes]] = []
        self._under_way = self._next = 0
        self._weights: tuple[int, bytes] | None = None
        self._error: CounterpointError | None = None
        self._is_closed = self._is_woken = False
        self._known: set[str] = set()
        with starting():
            for place in range(count):
                ours, theirs = context.Pipe()
                args = (theirs, self._beats, place, beat_s)
                process = context.Process(target=serve, args=args, daemon=True, name=f"counterpoint-worker-{place}")
                process.start()
                theirs.close()  # so that an end of theirs is an end of file here
                self._workers.append(_Worker(process, ours))
        self._thread = threading.Thread(target=self._feed, args=(beat_s,), daemon=True, name="counterpoint-runner")
        self._thread.start()

    @property
    def workers(self) -> int:
        """How many processes."""
        return len(self._workers)

    @property
    def pids(self) -> list[int]:
        """Their process ids."""
        return [w.process.pid for w in self._workers]

    # -- the caller's side

    def submit(self, job: Job) -> int:
        """Queue a job; the payload is copied now, the weights when their version is first seen."""
        if job.work not in self._known:
            resolve(job.work)  # an unknown name is told here, not by a process far away
            self._known.add(job.work)
        with self._changed:
            self._raise()
            number = self._next
            payload = packed(job.payload, "payload", number, job.work)
            if self._weights is None or self._weights[0] != job.version:
                self._weights = (job.version, packed(job.weights, "weights", number, job.work))
            self._queue.append(_Sent(number, job.work, job.version, payload, self._weights[1]))
            self._next += 1
            self._under_way += 1
        self._wake()
        return number

    def collect(self, timeout_s: float | None = None) -> list[Done]:
        """Jobs that have ended, in the order in which they did."""
        until = None if timeout_s is None else time.monotonic() + timeout_s
        with self._changed:
            while not self._done and self._under_way:
                self._raise()
                left = None if until is None else until - time.monotonic()
                if left is not None and left <= 0:
                    break
                self._changed.wait(left)
            self._raise()
            done, self._done = self._done, []
            self._under_way -= len(done)
        return [Done(number=s.number, version=s.version, result=pickle.loads(blob), took_s=took) for s, took, blob in done]

    def close(self) -> None:
        """End the workers: those with nothing to do are asked, the others are stopped."""
        with self._changed:
            if self._is_closed:
                return
            self._is_closed = True
            self._queue.clear()
        self._wake()
        for w in self._workers:
            if w.job is not None:
                w.process.terminate()
            else:
                with contextlib.suppress(OSError):
                    w.conn.send(None)
        for w in self._workers:
            w.process.join(2.0)
            if w.process.is_alive():
                w.process.kill()  # a stopped process does not hear anything else
                w.process.join()
        self._thread.join()
        for w in self._workers:
            w.conn.close()
        self._wake_r.close()
        self._wake_w.close()

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _raise(self) -> None:
        if self._error is not None:
            raise self._error
        if self._is_closed:
            raise InputError("the runner is closed", fix="make another")

    def _wake(self) -> None:
        with self._changed:
            if self._is_woken:
                return
            self._is_woken = True
        with contextlib.suppress(OSError):
            self._wake_w.send_bytes(b".")

    # -- the thread's side

    def _feed(self, beat_s: float) -> None:
        """Send jobs to idle workers and take answers until closed or failed."""
        try:
            while not self._is_closed:
                self._send()
                self._receive(beat_s)
                self._listen()
        except CounterpointError as error:
            with self._changed:
                self._error = self._error or error
                self._changed.notify_all()
        except OSError:  # a pipe went while it was written to: closing, or a worker that died
            with self._changed:
                if not self._is_closed:
                    self._error = self._error or CounterpointError("the connection to a worker process broke", where="runner")
                self._changed.notify_all()

    def _send(self) -> None:
        for w in self._workers:
            with self._changed:
                if w.job is not None or not self._queue or self._is_closed:
                    continue
                w.job = job = self._queue.popleft()
            is_new = w.version != job.version
            with contextlib.suppress(BrokenPipeError):  # a dead worker is told by its sentinel, with its exit code
                w.conn.send((job.number, job.work, is_new))
                if is_new:
                    w.conn.send_bytes(job.weights)
                w.conn.send_bytes(job.payload)
            w.version = job.version

    def _receive(self, wait_s: float) -> None:
        by_conn = {w.conn: w for w in self._workers if w.job is not None}
        by_process = {w.process.sentinel: w for w in self._workers}
        ready = connection.wait([self._wake_r, *by_conn, *by_process], wait_s)
        for one in ready:
            if one is self._wake_r:
                self._wake_r.recv_bytes()
                with self._changed:
                    self._is_woken = False
            elif one in by_conn:
                self._take(by_conn[one])
        for one in ready:
            if one in by_process and not self._is_closed:
                raise self._died(by_process[one])

    def _take(self, w: _Worker) -> None:
        job = w.job
        assert job is not None
        try:
            _, problem, took = w.conn.recv()
            blob = w.conn.recv_bytes()
        except (EOFError, OSError):
            if not self._is_closed:
                raise self._died(w) from None
            return
        if problem is not None:
            what, trace = problem
            raise failed(job.number, job.work, what, trace=trace)
        with self._changed:
            w.job, w.has_answered = None, True
            self._done.append((job, took, blob))
            self._changed.notify_all()

    def _died(self, w: _Worker) -> CounterpointError:
        w.process.join(5.0)  # its pipes close a moment before its exit code is known
        how = f"worker died ({exit_reason(w.process.exitcode)})"
        fix = "run the work in this process (Here) to see why" if w.has_answered else _GUARD
        if w.job is not None:
            return failed(w.job.number, w.job.work, f"its {how}", fix=fix)
        return CounterpointError(f"an idle {how}", where="runner", fix=fix)

    def _listen(self) -> None:
        """A busy worker whose heart stands still has failed."""
        now = time.monotonic()
        for place, w in enumerate(self._workers):
            last = self._beats[place] or self._began + START_S  # no beat yet: it is importing
            if w.job is not None and now - last > self._silent_s:
                what = f"its worker process has sent no sign of life for {self._silent_s:g} s"
                raise failed(
                    w.job.number, w.job.work, what, fix="it is stopped, or holds the interpreter; allow a longer silent_s"
                )


# -- in the worker's process


def serve(conn: connection.Connection, beats: Any, place: int, beat_s: float) -> None:
    """Answer jobs on a pipe. A job is (number, work, version or None for the last weights) and then its bytes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def beat() -> None:
        beats[place] = time.monotonic()

    threading.Thread(target=end_with_parent, args=(beat, beat_s), daemon=True).start()
    weights: Any = None
    with contextlib.suppress(EOFError, OSError):  # the parent is gone or has closed
        while (message := conn.recv()) is not None:
            number, work, is_new = message
            blob = conn.recv_bytes() if is_new else None
            payload = conn.recv_bytes()
            begin = time.perf_counter()
            try:
                if blob is not None:
                    weights = frozen(pickle.loads(blob))
                function = resolve(work)
                one_thread()
                result = packed(function(pickle.loads(payload), weights), "result", number, work)
                answer: tuple[Any, ...] = (number, None, time.perf_counter() - begin)
            except Exception as error:
                result, answer = b"", (number, told(error), time.perf_counter() - begin)
            conn.send(answer)
            conn.send_bytes(result)
