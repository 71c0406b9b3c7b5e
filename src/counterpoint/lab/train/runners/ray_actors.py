"""Jobs in actors of a Ray cluster, fed by a thread, so that workers stay busy while the caller learns.

Always true: an actor has one job at a time, and jobs start in the order of launch; weights go into the object store once per
version. An actor that dies with its node, or shows no sign of life, is replaced and its job runs again elsewhere: its randomness
is in its payload, so the result is the same. A job that raises, or ends three actors, is one error that names it.
"""

from __future__ import annotations

import bisect
import pickle
import queue
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import ray
from ray.exceptions import RayError

from counterpoint.errors import CounterpointError, InputError
from counterpoint.lab.train.child_process import START_S
from counterpoint.lab.train.ray_cluster import PLACE_S, RayCluster, code_digest, within
from counterpoint.lab.train.runner import error_lines, failed, frozen, one_thread, packed, resolve
from counterpoint.lab.train.runners.pool import Pool, QueuedJob

WORKER_MB = 400
"""What is reserved for a worker: one that plays small worlds, with torch loaded, has 220 MB of its own."""
_MOST_ENDS = 3
"""Actors that one job may end, and actors that may end one after the other before they have begun."""
_KILL_S = 10.0


@dataclass(eq=False)
class _Worker:
    """One actor, as this process sees it."""

    actor: Any
    node: str = ""
    """Where it is; empty until it is placed."""
    job: QueuedJob | None = None
    is_asked: bool = False
    """Whether a sign of life is on its way."""
    silent_s: float = 0.0


class RayActors(Pool):
    """Workers of a Ray cluster; also a context manager that ends them."""

    def __init__(
        self, workers: int = 2, *, address: str | None = None, memory_mb: int = WORKER_MB, place_s: float = PLACE_S,
        beat_s: float = 1.0, silent_s: float = 60.0, tell: Callable[[str], None] = lambda what: None,
    ) -> None:  # fmt: skip
        """`workers` actors of one CPU and `memory_mb` each, which must all be placed within `place_s`; one that has shown no sign
        of life for `silent_s` is replaced. `tell` is told what the run takes of the cluster before it does."""
        if workers < 1 or not 0 < beat_s < silent_s or not place_s > 0:
            what = f"{workers} workers, {place_s} s to place them, a beat of {beat_s} s, silent for {silent_s} s"
            raise InputError(what, fix="1 worker or more, some time to place them, and a beat shorter than the silence allowed")
        super().__init__()
        self._place_s, self._beat_s, self._silent_s = place_s, beat_s, silent_s
        self._cluster = RayCluster(address, workers=workers, memory_mb=memory_mb)
        tell(self._cluster.needs())
        self._heard: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._early = 0
        self._workers: list[_Worker] = []
        self.replaced: list[str] = []
        """Why each actor that was replaced was."""
        self._unplaced_since = time.monotonic()
        for _ in range(workers):
            self._start()
        self._thread = threading.Thread(target=self._feed, daemon=True, name="counterpoint-ray")
        self._thread.start()
        try:
            self._placed()
        except BaseException:
            self.close()
            raise

    def _placed(self) -> None:
        """Wait until every actor has its place."""
        with self.changed:
            self.changed.wait_for(lambda: self.has_failed or all(w.node for w in self._workers), self._place_s)
            self.check_open()
            there = sum(bool(w.node) for w in self._workers)
        if there < len(self._workers):
            raise self._cluster.not_placed(there, self._place_s)

    @property
    def nodes(self) -> list[str]:
        """Ids of the nodes on which actors are."""
        return [w.node for w in self._workers if w.node]

    # -- the caller's side

    def pack_weights(self, weights: Any, number: int, work: str) -> list[Any]:
        """Where they lie in the object store, in a list so that Ray does not fetch them for each job."""
        try:
            return [ray.put(weights)]
        except RayError as error:
            raise CounterpointError(f"the object store does not take the weights: {error}", where=f"job {number}") from error
        except Exception as error:  # pickle raises whatever an object's own hooks raise
            what = f"the weights cannot be sent: {error}"
            raise InputError(what, where=f"job {number} ({work})", fix="plain values, bytes or arrays") from error

    def wake(self) -> None:
        """A word in the thread's queue."""
        self._heard.put(None)

    def close(self) -> None:
        """End the actors, whatever they are doing."""
        if not self.begin_close():
            return
        self._thread.join()
        if self._cluster.is_reachable:
            within(_KILL_S, self._kill_all)
        self._cluster.close()

    def _kill_all(self) -> None:
        for w in self._workers:
            _kill(w.actor)

    # -- the thread's side

    def _feed(self) -> None:
        """Give jobs to idle actors and take what they say, until closed or failed."""
        try:
            looked = time.monotonic()
            while not self.is_closed:
                self._give()
                try:
                    said = self._heard.get(timeout=self._beat_s)
                    if said is not None:
                        said()
                except queue.Empty:
                    pass
                if (now := time.monotonic()) - looked >= self._beat_s:
                    self._listen(now - looked)
                    looked = now
        except CounterpointError as error:
            self.fail(error)
        except Exception as error:  # of Ray: what it is depends on what was lost
            self.fail(CounterpointError(f"Ray failed: {' '.join(str(error).split())[:300]}", where="runner"))

    def _start(self) -> None:
        w = _Worker(self._cluster.actor(RolloutActor))
        self._workers.append(w)
        self._hear(w.actor.about.remote(), partial(self._began, w), partial(self._ended, w))

    def _hear(self, ref: Any, then: Callable[[Any], None], failed: Callable[[BaseException], None]) -> None:
        """Have the thread called with what a call came to."""

        def done(future: Any) -> None:
            error = future.exception()
            self._heard.put(partial(failed, error) if error is not None else partial(then, future.result()))

        ref.future().add_done_callback(done)

    def _began(self, w: _Worker, about: tuple[str, str]) -> None:
        if w not in self._workers:
            return
        node, digest = about
        self._cluster.check_code(digest, node)
        with self.changed:
            w.node, w.silent_s, self._early = node, 0.0, 0
            self.changed.notify_all()

    def _give(self) -> None:
        for w in self._workers:
            with self.changed:
                if not w.node or w.job is not None or not self.queue or self.is_closed:
                    continue
                w.job = job = self.queue.pop(0)
            w.silent_s = 0.0
            ref = w.actor.run.remote(job.number, job.work, job.version, job.weights, job.payload)
            self._hear(ref, partial(self._take, w, job), partial(self._ended, w))

    def _take(self, w: _Worker, job: QueuedJob, answer: tuple[tuple[str, str] | None, float, bytes]) -> None:
        if w.job is not job:
            return  # it was given up, and its job is another's now
        problem, took, blob = answer
        if problem is not None:
            raise failed(job.number, job.work, problem[0], trace=problem[1])
        with self.changed:
            w.job = None
            self.add_result(job, took, blob)

    def _ended(self, w: _Worker, error: BaseException) -> None:
        """Another actor in the place of one that ended; its job goes back to where it was in the queue."""
        if w not in self._workers or self.is_closed:
            return
        why = " ".join(str(error).split())[:300] if not isinstance(error, CounterpointError) else error.what
        is_early, job = not w.node, w.job
        _kill(w.actor)
        with self.changed:
            self._workers.remove(w)
            w.job = None
            if job is not None:
                job.ends += 1
                bisect.insort(self.queue, job)
        if job is not None and job.ends >= _MOST_ENDS:
            fix = "run the work in this process (Here) to see why"
            raise failed(job.number, job.work, f"it ended {job.ends} workers: {why}", fix=fix)
        self._early = self._early + 1 if is_early else 0
        if self._early >= _MOST_ENDS:
            raise CounterpointError(f"workers fail to start: {why}", where="Ray", fix="look at the logs of the cluster")
        where = f"on node {w.node[:12]}" if w.node else "not placed yet"
        self.replaced.append(why)
        warnings.warn(f"a Ray worker ({where}) was replaced: {why}", RuntimeWarning, stacklevel=2)
        if not any(other.node for other in self._workers):
            self._unplaced_since = time.monotonic()
        self._start()

    def _listen(self, passed_s: float) -> None:
        """Ask for signs of life, replace whoever gives none, and see to it that somebody has a place and the head is there."""
        self._cluster.check_head()
        for w in list(self._workers):
            if not w.node:
                continue
            # Of a long pause little counts: this process may have been stopped itself.
            w.silent_s += min(passed_s, 2 * self._beat_s)
            if not w.is_asked:
                w.is_asked = True
                self._hear(w.actor.beat.remote(), partial(self._beat, w), partial(self._ended, w))
            elif w.silent_s > self._silent_s and self._cluster.is_reachable:
                self._ended(w, CounterpointError(f"it has shown no sign of life for {self._silent_s:g} s"))
        is_late = time.monotonic() - self._unplaced_since > max(self._place_s, START_S)
        if self.under_way and is_late and not any(w.node for w in self._workers):
            raise self._cluster.not_placed(0, max(self._place_s, START_S))

    def _beat(self, w: _Worker, _: None) -> None:
        w.is_asked, w.silent_s = False, 0.0


def _kill(actor: Any) -> None:
    ray.kill(actor, no_restart=True)


@ray.remote(concurrency_groups={"beat": 1})
class RolloutActor:
    """Where jobs run; it answers `beat` also while one does."""

    def __init__(self) -> None:
        self._version: int | None = None
        self._weights: Any = None

    def about(self) -> tuple[str, str]:
        """The node it is on, and the code it has."""
        return ray.get_runtime_context().get_node_id(), code_digest()

    @ray.method(concurrency_group="beat")
    def beat(self) -> None:
        """A sign of life."""

    def run(self, number: int, work: str, version: int, weights: list[Any], payload: bytes) -> tuple[Any, float, bytes]:
        """What went wrong (one line, traceback), seconds, and the result as bytes."""
        begin = time.perf_counter()
        try:
            if version != self._version:
                self._weights, self._version = frozen(ray.get(weights[0])), version
            function = resolve(work)
            one_thread()
            result = packed(function(pickle.loads(payload), self._weights), "result", number, work)
        except Exception as error:
            return error_lines(error), time.perf_counter() - begin, b""
        return None, time.perf_counter() - begin, result
