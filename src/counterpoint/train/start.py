"""A training run from start to end: play, learn, write, evaluate, until the budget is spent.

Always true: the run's folder is whole after every step, whatever ends it. The same settings give the same metrics (but for
`seconds`), evaluations and weights, in one go or resumed, however long anything took. Ctrl-C drops what is being played or
finishes what is being learnt, writes a checkpoint and is passed on; a loss that is no number leaves the last good checkpoint
and says which batch it was. Evaluation seeds are 0, 1, ...; training seeds begin at 1,000,000.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch

import counterpoint.registry as registry
from counterpoint.errors import CounterpointError, InputError, NotFound, NotIdentified
from counterpoint.store import Store
from counterpoint.trace import Trace
from counterpoint.train import alerts, evaluate
from counterpoint.train.feed import Ordered, Taken
from counterpoint.train.folder import RunFolder
from counterpoint.train.jobs import play, world_of
from counterpoint.train.learner import NotFinite
from counterpoint.train.policies.network import Network
from counterpoint.train.recorded import LEAST_ESS, TraceLog
from counterpoint.train.rollouts import TracedRollout, merged
from counterpoint.train.runner import Job, Runner
from counterpoint.train.runners.here import Here
from counterpoint.train.runners.processes import Processes
from counterpoint.train.settings import Settings, settings_of
from counterpoint.train.training import Training

Progress = Callable[[str, Mapping[str, Any]], None]
"""Told ("start" | "update" | "eval" | "alert" | "checkpoint" | "end", row) as the run goes on."""
_CHECKED = 10
_IDLE = 100


def resolved(config: Mapping[str, Any], *, where: str | None = None) -> Settings:
    """The settings, with the world and the preset by the names that runs are compared by (W1 is wide_verify)."""
    settings = settings_of(config, where=where)
    world = settings.world if ":" in settings.world else world_of(settings.world, {}).name
    dashed = settings.preset.replace("-", "_")
    return dataclasses.replace(settings, world=world, preset=dashed if dashed in registry.ids("preset") else settings.preset)


def train_run(
    folder: str | os.PathLike[str],
    config: Mapping[str, Any],
    *,
    progress: Progress | None = None,
    resume: bool = False,
    allow: Collection[str] = (),
) -> RunFolder:
    """Train as `config` says (its keys are those of `settings.Settings`) and leave the run in `folder`, which must be new.

    With `resume`, go on with the run that is there, by its own run.toml; `config` is empty then, or the same. A finished run is
    left as it is. `KeyboardInterrupt` comes out after a checkpoint was written. Code from outside that run.toml names is run
    where `allow`, or `config`, names it too.
    """
    path = Path(folder)
    run, training, log = _reopened(path, config, allow) if resume else _begun(path, resolved(config))
    with run:
        if run.about["status"] != "finished":
            _Session(run, training, progress or (lambda kind, row: None), log).go()
    return RunFolder.open(path)


def _store(folder: str) -> Store:
    if not Path(folder).is_dir():
        raise NotFound("there is no store here", where=folder, fix="name one: counterpoint world run W1 --store DIR makes it")
    return Store(folder, read_only=True)


def _opened_log(training: Training) -> TraceLog | None:
    """The recorded traces that a run learns from, where it plays none of its own."""
    s = training.settings
    if not s.store:
        return None
    if len(training.worlds) > 1:
        raise InputError("recorded traces are of one set of parameters, and mix has several", fix="leave out mix")
    off_policy = training.preset.loss_name != "clone"
    return TraceLog(_store(s.store), s.ids, training.worlds[0], held_out=s.eval_episodes, off_policy=off_policy)


def _pinned(settings: Settings) -> Settings:
    """The settings with the traces that are there now, so that a run that resumes reads the same ones."""
    if not settings.store:
        return settings
    ids = settings.ids or tuple(_store(settings.store).ids())
    if not ids:
        raise InputError("there is no trace to learn from", where=settings.store, fix="counterpoint world run W1 --store")
    return dataclasses.replace(settings, store=os.path.abspath(settings.store), ids=ids)


def _begun(path: Path, settings: Settings) -> tuple[RunFolder, Training, TraceLog | None]:
    settings = _pinned(settings)
    training = Training(settings)
    training.episodes()  # groups that do not fit are told before anything is written
    if path.exists() and (not path.is_dir() or any(path.iterdir())):  # before the levels below are computed
        fix = f"another name, or go on with it: counterpoint train --resume {path}"
        raise InputError("exists already and is not empty", where=os.fspath(path), fix=fix)
    log = _opened_log(training)
    whole = world_of(settings.world, settings.set)
    world_config = dataclasses.asdict(whole.config) | ({"mix": [dict(m) for m in settings.mix]} if settings.mix else {})
    about = {
        "preset": settings.preset, "world": settings.world, "world_version": whole.version, "world_config": world_config,
        "seed": settings.seed, "eval_seeds": [0, settings.eval_episodes], "source": training.preset.source,
        "grade": training.preset.grade, "optimum": evaluate.optimum(training.worlds, settings.eval_episodes),
        "hand_made": evaluate.hand_made(training.worlds, settings.eval_episodes),
    }  # fmt: skip
    about |= {} if log is None else {"log": log.about()}
    return RunFolder.create(path, settings.as_dict(), about), training, log


def _reopened(path: Path, config: Mapping[str, Any], allow: Collection[str]) -> tuple[RunFolder, Training, TraceLog | None]:
    run = RunFolder.open(path, write=True)
    try:
        settings = resolved(run.config(), where=os.fspath(path / "run.toml"))
        given_ = resolved(config) if config else settings
        if given_.store and not given_.ids:  # what the store had when the run began
            given_ = dataclasses.replace(given_, store=settings.store, ids=settings.ids)
        if given_ != settings:
            differ = [k for k, v in given_.as_dict().items() if v != settings.as_dict()[k]]
            raise InputError(f"is a run of other settings: {', '.join(differ)}", where=os.fspath(path), fix="begin another run")
        given = {str(config[k]) for k in ("preset", "world") if k in config}
        registry.check_consent(settings.names(), {*allow, *given}, where=os.fspath(path / "run.toml"))
        training = Training(settings)
        if run.about["status"] != "finished":
            last = run.latest_checkpoint()
            if last is not None:
                _restore(training, run, last)
            run.resume(training.update)
        return run, training, _opened_log(training)
    except BaseException:
        run.close()
        raise


def _restore(training: Training, run: RunFolder, path: Path) -> None:
    try:
        training.restore(run.read_checkpoint(path), os.fspath(path))
    except CounterpointError:
        raise
    except (KeyError, RuntimeError, TypeError, ValueError) as error:  # parts of other names or shapes
        why = " ".join(str(error).split())[:200]
        fix = "use the version of Counterpoint that wrote it: about.json names it"
        raise InputError("is a checkpoint of another version", where=os.fspath(path), why=why, fix=fix) from error


class _Session:
    """A run while it is going on."""

    def __init__(self, run: RunFolder, training: Training, tell: Progress, log: TraceLog | None = None) -> None:
        self.log = log
        self.run, self.training, self.settings, self.tell = run, training, training.settings, tell
        self.metrics, self.evals, self.alerts = run.metrics(), run.evals(), run.alerts()
        self.interrupts = Interrupts()
        self._saved = -1 if run.latest_checkpoint() is None else training.update
        self._store: Store | None = None
        self._spare = Network(apart=training.preset.regime == "C")
        self._playing: Taken | None = None
        self._number = training.update
        """The update that is being made."""

    def go(self) -> None:
        """Until the budget is spent, or something ends it."""
        try:
            with self.interrupts:
                try:
                    self._loop()
                except KeyboardInterrupt:
                    self._stopped()
                    raise
        except NotFinite as error:
            why = f"update {self._number}: {error.what}; batch of training seeds {self._batch()}"
            self._failed(why)
            kept = self.run.latest_checkpoint()
            where, fix = os.fspath(self.run.path), "a lower learning rate, or another seed"
            last = f"the last good checkpoint is {kept.name}" if kept else "there was no checkpoint yet"
            raise NotFinite(why, where=where, why=last, fix=fix) from error
        except Exception as error:
            self._failed(error.one_line() if isinstance(error, CounterpointError) else f"{type(error).__name__}: {error}")
            raise
        finally:
            for store in (self._store, None if self.log is None else self.log.store):
                if store is not None:
                    store.close()

    def _loop(self) -> None:
        t, s = self.training, self.settings
        with self.interrupts.whole():
            self.tell("start", {**self.run.about, "run": os.fspath(self.run.path), "update": t.update})
            if not self.evals:
                self._evaluate()
            if t.is_done:  # it ended between its last checkpoint and the word "finished"
                self._finish()
        if self.log is not None:
            return self._read_on(self.log)
        runner: Runner = Processes(s.workers) if s.runner == "processes" else Here()
        try:
            batch = t.jobs_per_update()
            feed = Ordered(runner, batch=batch, staleness=s.staleness, start=t.update * batch)
            t.past = t.past or {t.update: t.weights()}
            while not t.is_done:
                begin = time.perf_counter()
                self._fill(feed)
                taken = feed.take(t.update)
                with self.interrupts.whole():
                    self._learn(taken, begin)
                    if t.is_done:
                        self._finish()
        finally:
            runner.close()

    def _read_on(self, log: TraceLog) -> None:
        """Learn from recorded traces until the updates are made."""
        t = self.training
        while not t.is_done:
            begin = time.perf_counter()
            played = log.batch(t.net, t.rng(3000), episodes=t.episodes(), group=t.preset.group)
            with self.interrupts.whole():
                self._number = t.update + 1
                is_first = not t.is_cloning and t.update == (0 if t.settings.clone == 0 else t.settings.clone)
                seen = alerts.signals(played.rollout)
                row = self._updated([played], recorded=True)
                if is_first and row["ess"] < LEAST_ESS:
                    what = f"the log does not cover this policy: the effective sample size is {row['ess']:.1%} of its decisions"
                    fix = f"clone the log first (--set clone=100), so that the policy begins near it; {LEAST_ESS:.0%} is enough"
                    raise NotIdentified(what, fix, where=os.fspath(log.store.path))
                self._wrote(row | {"stale": 0, "signals": seen.row, "seconds": time.perf_counter() - begin})
                is_best = self._evaluate() if t.is_done or t.update % t.settings.eval_every == 0 else False
                if is_best or t.is_done or t.update % t.settings.checkpoint_every == 0:
                    self._save(is_best=is_best)
                if t.is_done:
                    self._finish()

    def _wrote(self, row: dict[str, Any]) -> None:
        """One row of metrics, written and told."""
        self.run.append_metrics(row)
        self.metrics.append(row)
        self.tell("update", row | {"progress": self.training.progress})

    def _fill(self, feed: Ordered) -> None:
        """Launch what there is room for; nothing beyond the last update, where that is known."""
        t, last = self.training, self.settings.updates * feed.batch or None
        while feed.room > 0 and (last is None or feed.launched < last):
            version = feed.version_of(feed.launched)
            feed.launch(t.job(feed.launched, version, t.past[version]))

    # -- one update

    def _learn(self, taken: Taken, begin: float) -> None:
        t, s = self.training, self.settings
        self._playing, self._number = taken, t.update + 1
        out = merged([d.result.rollout for d in taken.done])
        seen = alerts.signals(out)
        if t.update % _CHECKED == 0:
            gap, worst = self._mismatch(taken)
            seen.row["mismatch"] = gap
            seen.worst["mask_mismatch"] = seen.worst["mask_mismatch"] or worst
        stale = int(taken.staleness_N.max())
        row = self._updated([d.result for d in taken.done], stale=stale)
        t.past[t.update] = t.weights()
        t.past = {v: w for v, w in t.past.items() if v >= t.update - s.staleness}
        self._wrote(row | {"stale": stale, "signals": seen.row, "seconds": time.perf_counter() - begin})
        if s.keep_episodes:
            self._keep(_logged(taken.jobs, tuple(range(min(s.keep_episodes, len(out.values))))), "training")
        is_best = self._evaluate() if t.is_done or t.update % s.eval_every == 0 else False
        self._alert(taken, seen.worst)
        if is_best or t.is_done or t.update % s.checkpoint_every == 0:
            self._save(is_best=is_best)
        self._refuse_idle()

    def _updated(self, played: Sequence[TracedRollout], **how: Any) -> dict[str, Any]:
        """One update; weights that are no numbers are the same end as a loss that is none, wherever they first show."""
        try:
            row = self.training.learn(played, **how)
        except NotFinite:
            raise
        except Exception as error:
            self._refuse_weights(error)
            raise
        self._refuse_weights(None)
        return row

    def _refuse_weights(self, error: Exception | None) -> None:
        if not all(bool(torch.isfinite(p).all()) for p in self.training.net.state_dict().values()):
            raise NotFinite("the weights are no finite numbers any more") from error

    def _mismatch(self, taken: Taken) -> tuple[float, tuple[int, ...]]:
        """Recomputed against recorded log-probabilities, each job with its own weights."""
        largest, first = 0.0, 0
        worst: list[int] = []
        for done, job in zip(taken.done, taken.jobs, strict=True):
            self._spare.load_state_dict({k: torch.tensor(v) for k, v in job.weights.items()})
            gap, episodes = alerts.mismatch(self._spare, done.result.rollout)
            largest, worst = max(largest, gap), worst + [first + e for e in episodes]
            first += len(done.result.rollout.values)
        return largest, tuple(worst[: alerts.SHOWN])

    def _refuse_idle(self) -> None:
        """A team that calls nobody never spends its budget: that is an end too."""
        t, s = self.training, self.settings
        if s.updates or t.is_done or len(self.metrics) <= _IDLE:
            return
        spent = t.totals["calls"] - self.metrics[-1 - _IDLE]["calls"]
        if spent < 0.0005 * s.budget_calls:
            self._save()
            what = f"the team has stopped calling anybody: {_IDLE} updates spent {spent:,} of {s.budget_calls:,} calls"
            raise CounterpointError(what, where=os.fspath(self.run.path), fix="another preset or seed; `updates` ends a run too")

    # -- evaluations, alerts, traces

    def _evaluate(self) -> bool:
        """The held-out seeds; whether it is the best so far."""
        t, s = self.training, self.settings
        net = t.player()
        name = f"{evaluate.plain_name(s.preset)}-s{s.seed}-u{t.update}"
        held = evaluate.held_out(net, t.worlds, s.eval_episodes, name=name, keep=s.keep_traces)
        row: dict[str, Any] = {"update": t.update, **t.totals, **held.row()}
        if t.is_done:
            row["stops"] = {"reference": evaluate.reference_rounds(t.worlds, s.eval_episodes), "name": "reference"}
            row["width"] = evaluate.widths(net, t.worlds[-1])
        best = max((e["mean"] for e in self.evals), default=-np.inf)
        self._keep(held.traces, "held-out")
        self.run.append_eval(row)
        self.evals.append(row)
        self.tell("eval", row | {"stored": 0 if self._store is None else len(self._store)})
        return held.mean > best and t.update > 0

    def _alert(self, taken: Taken, worst: Mapping[str, tuple[int, ...]]) -> None:
        variants = len(self.training.worlds)
        window = -(-alerts.WINDOW // variants) * variants  # every variant as often
        for found in alerts.found(self.metrics, self.evals, self.alerts, worst, window=window):
            traces = _logged(taken.jobs, found.episodes)
            self._keep(traces, "training")
            ids = [t.trace_id for t in traces] + (self.evals[-1]["traces"] if found.is_held_out else [])
            row = {"update": self.training.update, "code": found.code, "what": found.what, "traces": ids, "fix": found.fix}
            self.run.append_alert(row)
            self.alerts.append(row)
            self.tell("alert", row)

    def _keep(self, traces: list[Trace], kind: str) -> None:
        if not traces:
            return
        if self._store is None:
            self._store = Store(self.run.store_path, create=True)
        self._store.add_many(evaluate.marked(traces, run=self.run.path.name, update=self.training.update, episode=kind))

    # -- ends

    def _save(self, *, is_best: bool = False) -> None:
        path = self.run.add_checkpoint(self.training.update, self.training.state(), is_best=is_best)
        self._saved = self.training.update
        self.tell("checkpoint", {"update": self._saved, "path": os.fspath(path)})

    def _end(self, status: str, **more: Any) -> None:
        t = self.training
        self.run.set_status(status, updates=t.update, spent=t.totals, **more)
        self.tell("end", {"run": os.fspath(self.run.path), "status": status, "updates": t.update, **t.totals, **more})

    def _finish(self) -> None:
        if self._saved < self.training.update:
            self._save()
        self._end("finished")

    def _stopped(self) -> None:
        """Interrupted: keep the state, unless an update was cut in two; then the last checkpoint counts."""
        if self.run.about["status"] == "finished":
            return
        if not self.interrupts.is_broken and self._saved < self.training.update:
            self._save()
        self._end("interrupted")

    def _failed(self, why: str) -> None:
        with suppress(CounterpointError, OSError):  # on a full disk the first error is the one to tell
            self._end("failed", why=why)

    def _batch(self) -> str:
        if self._playing is None:
            return "none"
        seeds = np.concatenate([j.payload["seeds"] for j in self._playing.jobs])
        return f"{seeds.min()} to {seeds.max()}"


def _logged(jobs: tuple[Job, ...], episodes: tuple[int, ...]) -> list[Trace]:
    """Traces of some episodes of a batch: played again with the same weights, seeds and noise, which gives the same ones."""
    out: list[Trace] = []
    first = 0
    for job in jobs:
        count = len(job.payload["seeds"])
        at = np.array([e - first for e in episodes if first <= e < first + count], np.int64)
        first += count
        if len(at):
            some = {k: job.payload[k][at] for k in ("seeds", "salts", "gate", "keeps") if job.payload.get(k) is not None}
            out += play({**job.payload, **some, "log": True, "decisions": True}, job.weights).traces
    return out


class Interrupts:
    """Ctrl-C, held back while something must stay whole: a context manager around a long task.

    Outside `whole()` an interruption is a `KeyboardInterrupt` at once; inside, the first one waits for its end and a second one
    does not. `is_broken` says that something was cut in two. Who ignored or handled the signal before gets it back.
    """

    def __init__(self) -> None:
        self.is_broken = self._is_pending = False
        self._depth = 0
        self._before: Any = None
        self._is_ours = False

    def __enter__(self) -> Interrupts:
        # only the main thread may listen; a process that was told to ignore the signal goes on ignoring it
        if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            self._before = signal.signal(signal.SIGINT, self._hear)
            self._is_ours = True
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_ours:
            signal.signal(signal.SIGINT, self._before or signal.default_int_handler)

    def _hear(self, _number: int, _frame: FrameType | None) -> None:
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
