"""The driver: hundreds of teams at once in worker processes, their model calls answered by one engine in this process.

Always true: traces come back in the order of the rollouts and are the same whatever the number of workers, teams at once or speed
of anybody. A worker that dies, is silent or talks nonsense is replaced and named, and what it was playing is played again from
the start; a rollout that ends its worker twice is one error that names it. `close`, Ctrl-C and the end of this process end the
workers.
"""

from __future__ import annotations

import os
import selectors
import time
import warnings
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np

from counterpoint.errors import CounterpointError, InputError
from counterpoint.lab.lm.engine import Answer, Ask, TooLong
from counterpoint.lab.lm.sampling import Start
from counterpoint.lab.train.child_process import START_S, collecting_seldom
from counterpoint.lab.train.lm.rollout_messages import (
    Failed,
    ModelAnswer,
    ModelRequest,
    Play,
    Quiet,
    Ready,
    Report,
    Stop,
    TeamEnd,
    Unreadable,
    unpacked_trace,
)
from counterpoint.lab.train.lm.rollout_worker import Rollout
from counterpoint.lab.train.lm.worker_link import Host, LocalHost, WorkerLink, WorkerStarts
from counterpoint.lab.train.runner import packed
from counterpoint.trace import Trace

_LOOK_S = 1.0
"""How often who is silent is looked at, at least."""
_GRACE_S = 10.0
"""How long a process that has closed its pipe may take to end."""


class Answers(Protocol):
    """What answers model calls: `counterpoint.lab.lm.engine.Engine`, a server, or a fake. Where it has a `fileno`, it computes
    elsewhere: that is readable when answers are here, and `step` waits for none."""

    @property
    def is_busy(self) -> bool:
        """Whether somebody waits for an answer."""

    def add(self, ask: Ask) -> int:
        """Ask; the ticket comes back with the answer. `TooLong` for a prompt that leaves no room for one."""

    def step(self) -> list[tuple[int, Answer]]:
        """Compute a while; the answers that are whole now, with their tickets."""


@dataclass(frozen=True)
class Replaced:
    """A worker that was replaced."""

    pid: int
    why: str
    rollouts: tuple[str, ...]
    """What it was playing."""


@dataclass
class DriverStats:
    """What a driver has done so far."""

    teams: int = 0
    calls: int = 0
    """Model calls, demonstrators' too."""
    batches: int = 0
    """Steps of the engine."""
    under_way: int = 0
    """Calls under way, summed over the steps."""
    engine_s: float = 0.0
    """Seconds in which the engine computed."""
    worker_s: float = 0.0
    """Seconds in which nothing was there to compute, and workers were waited for."""
    worker_cpu_s: float = 0.0
    """CPU seconds of all workers, as far as they have told."""
    replaced: list[Replaced] = field(default_factory=list)

    @property
    def mean_batch(self) -> float:
        """Calls under way in a step of the engine."""
        return self.under_way / self.batches if self.batches else 0.0


class Driver:
    """Worker processes that play teams; also a context manager that closes them."""

    def __init__(
        self, chat: Path | str, *, workers: int = 0, patience_s: float = 120.0, per_worker: int = 64, is_repeatable: bool = False,
        host: Host | None = None,
    ) -> None:  # fmt: skip
        """`chat`: the folder of the tokeniser; `workers`: processes, one per core for 0; `patience_s`: how long a worker may be
        silent while it has something to say; `per_worker`: teams that one plays at once; `is_repeatable`: the engine computes
        only when every team waits for it, so that who is in a batch with whom does not depend on speed either; `host`: where
        workers are started, processes of this machine where there is none."""
        if workers < 0 or per_worker < 1 or not patience_s > 0:
            what = f"{workers} workers, {per_worker} teams each, a patience of {patience_s} s"
            raise InputError(what, fix="0 or more workers, at least 1 team, more than 0 s")
        self.patience_s, self.per_worker = patience_s, per_worker
        self.is_repeatable = is_repeatable
        self.count = workers or (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
        self.starts = WorkerStarts(host or LocalHost(str(Path(chat).absolute())), "driver")
        self.workers: list[WorkerLink] = []
        self.stats = DriverStats()
        try:
            self.fill()
            self.starts.place()
            self.fill()
        except BaseException:
            self.close()
            raise

    def play(self, rollouts: Sequence[Rollout], engine: Answers | None) -> list[Trace]:
        """The traces of all rollouts, in their order; `engine` answers those whose model is the one that learns."""
        asking = next((r for r in rollouts if r.is_asking), None)
        if asking is not None and engine is None:
            raise InputError("no engine answers this rollout", where=asking.name, fix="give an engine, or a demonstrator's model")
        if not rollouts:
            return []
        self.fill()
        try:
            with collecting_seldom():
                return _Round(self, rollouts, engine).traces()
        except Exception:
            self._drop([w for w in self.workers if w.live or w.has_unsent])  # their teams are half played
            raise
        except BaseException:
            self._drop(self.workers)
            raise

    @property
    def pids(self) -> list[int]:
        """Process ids of the workers."""
        return [w.pid for w in self.workers]

    def close(self) -> None:
        """End the workers."""
        for w in self.workers:
            w.news.append(Stop())
            w.write()
        for w in self.workers:
            w.process.join(2.0)
        self._drop(self.workers)
        self.starts.close()

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- workers -----------------------------------------------------------------------------------------------------

    def fill(self) -> list[WorkerLink]:
        """Start workers until there are as many as there should be; those that have found their place since the last time."""
        found = self.starts.links(self.count - len(self.workers))
        self.workers += found
        return found

    def check(self) -> None:
        """Raise where nobody will ever play again."""
        self.starts.check(is_alone=not self.workers)

    def _drop(self, gone: Sequence[WorkerLink]) -> None:
        """End workers, whatever they are doing."""
        self.workers = [w for w in self.workers if w not in gone]
        for w in gone:
            w.process.kill()
        for w in gone:
            w.end()

    def replace(self, w: WorkerLink, why: str, names: Sequence[str]) -> list[WorkerLink]:
        """End a worker that went wrong, name it, and start another; those that have their place at once."""
        is_early = not w.is_ready
        self.workers.remove(w)
        ended = w.end(0.0 if why else _GRACE_S)  # who has closed its pipe is about to say why
        why = why or f"it died ({ended})"
        self.stats.replaced.append(Replaced(w.pid, why, tuple(names)))
        if is_early:
            self.starts.ended_early(why)
        else:
            self.starts.is_well()
        warnings.warn(f"rollout worker {w.pid} was replaced: {why}", RuntimeWarning, stacklevel=2)
        return self.fill()


class _Round:
    """One call of `play`: which rollout is where, and who waits for which answer."""

    def __init__(self, driver: Driver, rollouts: Sequence[Rollout], engine: Answers | None) -> None:
        self._driver, self._rollouts, self._engine, self._stats = driver, rollouts, engine, driver.stats
        self._queue = deque(range(len(rollouts)))
        self._suspects: deque[int] = deque()
        """Rollouts whose worker ended: each is played again alone, so that it is known which one ends its worker."""
        self._ends = [0] * len(rollouts)
        """Workers that ended while they played a rollout."""
        self._traces: dict[int, Trace] = {}
        self._tickets: dict[int, tuple[WorkerLink, int, int]] = {}
        """Ticket of a call to who asked: worker, rollout, number of the call."""
        self._asked: list[tuple[ModelRequest, WorkerLink]] = []
        """Calls that wait until every team waits."""
        self._selector = selectors.DefaultSelector()
        self._is_elsewhere = hasattr(engine, "fileno")
        """Whether the engine computes by itself, and says when it has answers."""
        if self._is_elsewhere:
            self._selector.register(engine, selectors.EVENT_READ)  # type: ignore[arg-type]

    def traces(self) -> list[Trace]:
        """Play to the end."""
        try:
            self._greet(self._driver.workers)
            while len(self._traces) < len(self._rollouts):
                if self._is_moment:
                    self._assign()
                self._exchange()
                if self._is_moment:
                    self._step()
            self._drain()
        except CounterpointError:
            with suppress(Exception):  # what went wrong is told already
                self._drain()
            raise
        finally:
            self._selector.close()
        return [self._traces[number] for number in range(len(self._rollouts))]

    def _greet(self, workers: Sequence[WorkerLink]) -> None:
        for w in workers:
            self._selector.register(w.conn, selectors.EVENT_READ, w)

    @property
    def _is_moment(self) -> bool:
        """Whether rollouts may be given out and the engine may compute: always, or only when every team waits."""
        return not self._driver.is_repeatable or all(w.is_quiet for w in self._driver.workers)

    def _assign(self) -> None:
        """Give out rollouts: a fair share to each worker, the least busy first; then suspects to workers with nothing else."""
        ready = [w for w in self._driver.workers if w.is_ready]
        unfinished = len(self._queue) + sum(len(w.live) for w in ready)
        most = min(self._driver.per_worker, -(-unfinished // self._driver.count))
        while self._queue and ready:
            w = min(ready, key=lambda w: len(w.live))
            if len(w.live) >= most:
                return
            self._give(w, self._queue.popleft())
        for w in ready:
            if self._suspects and not w.live:
                self._give(w, self._suspects.popleft())

    def _give(self, w: WorkerLink, number: int) -> None:
        rollout = self._rollouts[number]
        w.live[number] = None
        w.news.append(Play(number, packed(rollout, "rollout", number, rollout.name)))

    # -- between workers and engine ----------------------------------------------------------------------------------

    def _exchange(self) -> None:
        """Send what there is, and hear who has something to say; waits only where nothing is to be computed here."""
        self._greet(self._driver.fill())
        for w in self._driver.workers:
            w.write()
            self._selector.modify(w.conn, selectors.EVENT_READ | (selectors.EVENT_WRITE if w.has_unsent else 0), w)
        is_waiting = self._is_elsewhere or not self._tickets or not self._is_moment
        begin = time.monotonic()
        found = self._selector.select(min(_LOOK_S, self._driver.patience_s / 4) if is_waiting else 0)
        waited = time.monotonic() - begin
        heard = [key.data for key, mask in found if mask & selectors.EVENT_READ and key.data is not None]
        if self._is_elsewhere and self._tickets:
            self._stats.engine_s += waited
        elif is_waiting:
            self._stats.worker_s += waited
        for w in heard:
            self._hear(w)
        self._driver.check()
        for w in list(self._driver.workers):
            # Of a long wait only so much counts: this process may have been stopped itself.
            w.silent_s = 0.0 if w in heard or not w.owes else w.silent_s + min(waited, 2 * _LOOK_S)
            limit = self._driver.patience_s if w.is_ready else max(self._driver.patience_s, START_S)
            if w.silent_s > limit:
                self._replace(w, f"it was silent for {limit:g} s")

    def _hear(self, w: WorkerLink) -> None:
        try:
            said, is_gone = w.read()
        except (ValueError, msgspec.MsgspecError) as error:
            self._replace(w, f"it talks nonsense ({error})")
            return
        try:
            for one in said:
                self._take(w, one)
        except _Nonsense as error:
            self._replace(w, f"it talks nonsense ({error})")
            return
        if is_gone:
            self._replace(w, "")

    def _take(self, w: WorkerLink, one: Report) -> None:
        if isinstance(one, Ready):
            w.is_ready = True
            self._driver.starts.is_well()
            return
        if isinstance(one, Quiet):
            w.quiet = one.heard
            return
        if isinstance(one, Failed) and one.rollout == -1:
            raise _worker_error(one, "a worker cannot begin", "driver")
        if one.rollout not in w.live:
            raise _Nonsense(f"about rollout {one.rollout}, which it does not play")
        rollout = self._rollouts[one.rollout]
        if isinstance(one, Failed):
            raise _worker_error(one, f"rollout {one.rollout} failed", rollout.name)
        if isinstance(one, ModelRequest):
            self._asked.append((one, w))
            w.asked += 1
            if not self._driver.is_repeatable:
                self._ask_all()
        else:
            self._traces[one.rollout] = _trace(one, rollout)
            del w.live[one.rollout]
            self._stats.teams += 1
            self._stats.calls += one.calls
            self._stats.worker_cpu_s += one.cpu_s - w.cpu_s
            w.cpu_s = one.cpu_s

    def _ask_all(self) -> None:
        """Ask the engine what was asked, in the order of the rollouts."""
        asked, self._asked = sorted(self._asked, key=lambda pair: (pair[0].rollout, pair[0].call)), []
        for one, w in asked:
            self._ask(w, one, self._rollouts[one.rollout])

    def _ask(self, w: WorkerLink, one: ModelRequest, rollout: Rollout) -> None:
        if self._engine is None or not rollout.is_asking or not one.prompt or len(one.prompt) % 4:
            raise _Nonsense(f"a call of rollout {one.rollout} that cannot be")
        prompt: Any = np.frombuffer(one.prompt, np.int32)
        ask = Ask(
            prompt=prompt,
            most=one.most,
            temperature=one.temperature,
            seed=one.seed,
            starts=tuple(Start(tuple(ids), then) for ids, then in one.starts),
            is_one_line=one.is_one_line,
            policy=one.policy,
        )
        try:
            ticket = self._engine.add(ask)
        except TooLong as error:
            w.news.append(Unreadable(one.rollout, one.call, error.one_line()))
            w.asked -= 1
            return
        self._tickets[ticket] = w, one.rollout, one.call

    def _step(self) -> None:
        """Let the engine compute, and pass its answers on."""
        self._ask_all()
        if not self._tickets or self._engine is None:
            return
        begin = time.monotonic()
        answers = self._engine.step()
        self._stats.engine_s += time.monotonic() - begin
        self._stats.batches += 1
        self._stats.under_way += len(self._tickets)
        for ticket, answer in answers:
            if ticket not in self._tickets:
                continue  # its worker is gone
            w, rollout, call = self._tickets.pop(ticket)
            w.asked -= 1
            ids, logps = np.array(answer.token_ids, np.int32), np.array(answer.logps, np.float64)
            w.news.append(ModelAnswer(rollout, call, ids.tobytes(), logps.tobytes(), answer.finish))
        if self._tickets and not self._engine.is_busy:
            raise CounterpointError(f"the engine has lost {len(self._tickets)} calls", where="driver", fix="a bug in the engine")

    def _drain(self) -> None:
        """Let the engine end what nobody waits for any more: it can take other weights only when it has nothing to do."""
        while self._engine is not None and self._engine.is_busy:
            if self._is_elsewhere:
                self._selector.select(_LOOK_S)
            self._engine.step()

    def _replace(self, w: WorkerLink, why: str) -> None:
        """Another worker in the place of one that went wrong; what it was playing is played again, each alone."""
        self._selector.unregister(w.conn)
        for ticket in [t for t, asked in self._tickets.items() if asked[0] is w]:
            del self._tickets[ticket]
        self._asked = [(one, asking) for one, asking in self._asked if asking is not w]
        live, names = list(w.live), [self._rollouts[number].name for number in w.live]
        self._greet(self._driver.replace(w, why, names))
        for number in live:
            self._ends[number] += 1
            if self._ends[number] > 1:
                name, how = self._rollouts[number].name, self._stats.replaced[-1].why
                raise CounterpointError(f"rollout {number} crashed its worker twice: {how}", where=name, fix="leave it out")
            self._suspects.append(number)


class _Nonsense(Exception):
    """What a worker cannot mean."""


def _trace(one: TeamEnd, rollout: Rollout) -> Trace:
    try:
        trace = unpacked_trace(one.trace)
    except (msgspec.MsgspecError, ValueError) as error:
        raise _Nonsense(f"a trace that cannot be read: {error}") from error
    if trace.trace_id != rollout.name:
        raise _Nonsense(f"not the trace of rollout {one.rollout}")
    return trace


def _worker_error(one: Failed, what: str, where: str) -> CounterpointError:
    """What a worker raised, as one error; the traceback there is a note on it."""
    error = CounterpointError(f"{what}: {one.what}", where=where)
    error.add_note(one.trace)
    return error
