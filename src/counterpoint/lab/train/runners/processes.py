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
from dataclasses import dataclass
from multiprocessing import connection
from typing import Any

from counterpoint.errors import CounterpointError, InputError
from counterpoint.lab.train.child_process import START_S, end_with_parent, exit_reason, starting
from counterpoint.lab.train.runner import error_lines, failed, frozen, one_thread, packed, resolve
from counterpoint.lab.train.runners.pool import Pool, QueuedJob

_GUARD = 'a script that starts workers does so under `if __name__ == "__main__":`; else Here shows why'


@dataclass
class _Worker:
    process: Any
    conn: connection.Connection
    job: QueuedJob | None = None
    version: int | None = None
    """Of the weights it holds."""
    has_answered: bool = False


class Processes(Pool):
    """Workers of this machine; also a context manager that closes them."""

    def __init__(self, workers: int | None = None, *, beat_s: float = 0.5, silent_s: float = 60.0) -> None:
        """`workers` processes (the number of cores); a busy one whose heart stands still for `silent_s` has failed."""
        count = (os.cpu_count() or 1) if workers is None else workers
        if count < 1 or not 0 < beat_s < silent_s:
            raise InputError(
                f"{count} workers, a beat of {beat_s} s, silent for {silent_s} s",
                fix="1 worker or more, and a beat shorter than the silence allowed",
            )
        super().__init__()
        context = multiprocessing.get_context("spawn")
        self._silent_s, self._began = silent_s, time.monotonic()
        self._beats = context.RawArray("d", count)
        self._wake_r, self._wake_w = context.Pipe(duplex=False)
        self._workers: list[_Worker] = []
        self._is_woken = False
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

    def pack_weights(self, weights: Any, number: int, work: str) -> bytes:
        """As bytes."""
        return packed(weights, "weights", number, work)

    def close(self) -> None:
        """End the workers: those with nothing to do are asked, the others are stopped."""
        if not self.begin_close():
            return
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

    def wake(self) -> None:
        """A byte on the thread's pipe."""
        with self.changed:
            if self._is_woken:
                return
            self._is_woken = True
        with contextlib.suppress(OSError):
            self._wake_w.send_bytes(b".")

    # -- the thread's side

    def _feed(self, beat_s: float) -> None:
        """Send jobs to idle workers and take answers until closed or failed."""
        try:
            while not self.is_closed:
                self._send()
                self._receive(beat_s)
                self._listen()
        except CounterpointError as error:
            self.fail(error)
        except OSError:  # a pipe went while it was written to: closing, or a worker that died
            if not self.is_closed:
                self.fail(CounterpointError("the connection to a worker process broke", where="runner"))

    def _send(self) -> None:
        for w in self._workers:
            with self.changed:
                if w.job is not None or not self.queue or self.is_closed:
                    continue
                w.job = job = self.queue.pop(0)
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
                with self.changed:
                    self._is_woken = False
            elif one in by_conn:
                self._take(by_conn[one])
        for one in ready:
            if one in by_process and not self.is_closed:
                raise self._died(by_process[one])

    def _take(self, w: _Worker) -> None:
        job = w.job
        assert job is not None
        try:
            _, problem, took = w.conn.recv()
            blob = w.conn.recv_bytes()
        except (EOFError, OSError):
            if not self.is_closed:
                raise self._died(w) from None
            return
        if problem is not None:
            what, trace = problem
            raise failed(job.number, job.work, what, trace=trace)
        with self.changed:
            w.job, w.has_answered = None, True
            self.add_result(job, took, blob)

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
                what = f"its worker process has sent no heartbeat for {self._silent_s:g} s"
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
                result, answer = b"", (number, error_lines(error), time.perf_counter() - begin)
            conn.send(answer)
            conn.send_bytes(result)
