"""A training run from start to end: play, learn, write, evaluate, until the budget is spent.

Always true: the run's folder is whole after every step, whatever ends it. The same settings give the same metrics (but for
`seconds`), evaluations and weights, in one go or resumed, however long anything took. Ctrl-C drops what is being played or
finishes what is being learned, writes a checkpoint and is passed on; a loss that is no number leaves the last good checkpoint
and says which batch it was. Evaluation seeds are 0, 1, ...; training seeds begin at 1,000,000.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import counterpoint.registry as registry
from counterpoint.errors import InputError, NotFound, NotIdentified, Refused
from counterpoint.lab.train import alerts, evaluate
from counterpoint.lab.train.feed import Ordered, RolloutBatch
from counterpoint.lab.train.folder import RunFolder
from counterpoint.lab.train.jobs import PER_EPISODE, play, world_of
from counterpoint.lab.train.learner import NotFinite
from counterpoint.lab.train.recorded import LEAST_ESS, TraceLog
from counterpoint.lab.train.rollouts import TracedRollout, merge_rollouts
from counterpoint.lab.train.runner import Job, Runner, check_ray
from counterpoint.lab.train.runners.here import Here
from counterpoint.lab.train.runners.processes import Processes
from counterpoint.lab.train.session import Progress, RunSession, check_new, check_same, restore_last
from counterpoint.lab.train.settings import Settings, settings_of
from counterpoint.lab.train.training import Training
from counterpoint.store import Store
from counterpoint.trace import Trace

_CHECKED = 10


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
    address: str | None = None,
) -> RunFolder:
    """Train as `config` says (its keys are those of `settings.Settings`) and leave the run in `folder`, which must be new.

    With `resume`, continue the run that is there, by its own run.toml; `config` is empty then, or the same. A finished run is
    left as it is. `KeyboardInterrupt` comes out after a checkpoint was written. Code from outside that run.toml names is run
    where `allow`, or `config`, names it too. `address` is that of the Ray cluster, for the runner "ray".
    """
    path = Path(folder)
    run, training, log = _reopen(path, config, allow) if resume else _begin(path, resolved(config))
    with run:
        if run.about["status"] != "finished":
            _Session(run, training, progress or (lambda kind, row: None), log, address).go()
    return RunFolder.open(path)


def _store(folder: str) -> Store:
    if not Path(folder).is_dir():
        raise NotFound("there is no store here", where=folder, fix="name one: counterpoint play --world W1 --store DIR makes it")
    return Store(folder, read_only=True)


def _open_log(training: Training) -> TraceLog | None:
    """The recorded traces that a run learns from, where it plays none of its own."""
    s = training.settings
    if not s.store:
        return None
    if len(training.worlds) > 1:
        raise InputError("recorded traces are of one set of parameters, and mix has several", fix="leave out mix")
    if training.own_rules:
        what = f"{s.world} has rules of its own, and recorded traces of such worlds cannot be learned from yet"
        raise Refused(what, fix="counterpoint train net plays in it; train log learns in a TeamWorld")
    off_policy = training.preset.loss_name != "clone"
    return TraceLog(_store(s.store), s.ids, training.worlds[0], held_out=s.eval_episodes, off_policy=off_policy)


def _pin(settings: Settings) -> Settings:
    """The settings with the traces that are there now, so that a run that resumes reads the same ones."""
    if not settings.store:
        return settings
    ids = settings.ids or tuple(_store(settings.store).ids())
    if not ids:
        raise InputError("there is no trace to learn from", where=settings.store, fix="counterpoint play --world W1 --store")
    return dataclasses.replace(settings, store=os.path.abspath(settings.store), ids=ids)


def _begin(path: Path, settings: Settings) -> tuple[RunFolder, Training, TraceLog | None]:
    settings = _pin(settings)
    if settings.runner == "ray":
        check_ray()
    training = Training(settings)
    training.episodes()  # groups that do not fit are told before anything is written
    check_new(path)  # before the levels below are computed
    log = _open_log(training)
    whole = world_of(settings.world, settings.set)
    world_config = dataclasses.asdict(whole.config) | ({"mix": [dict(m) for m in settings.mix]} if settings.mix else {})
    about = {
        "preset": settings.preset, "world": settings.world, "world_version": whole.version, "world_config": world_config,
        "seed": settings.seed, "eval_seeds": [0, settings.eval_episodes], "source": training.preset.source,
        "grade": training.preset.grade, "optimum": evaluate.optimum(training.worlds, settings.eval_episodes),
        "hand_made": evaluate.hand_made_returns(training.worlds, settings.eval_episodes),
    }  # fmt: skip
    about |= {} if log is None else {"log": log.about()}
    return RunFolder.create(path, settings.as_dict(), about), training, log


def _reopen(path: Path, config: Mapping[str, Any], allow: Collection[str]) -> tuple[RunFolder, Training, TraceLog | None]:
    run = RunFolder.open(path, write=True)
    try:
        settings = resolved(run.config(), where=os.fspath(path / "run.toml"))
        asked = resolved(config) if config else settings
        if asked.store and not asked.ids:  # what the store had when the run began
            asked = dataclasses.replace(asked, store=settings.store, ids=settings.ids)
        check_same(path, settings.as_dict(), asked.as_dict())
        names = {str(config[k]) for k in ("preset", "world") if k in config}
        registry.check_consent(settings.names(), {*allow, *names}, where=os.fspath(path / "run.toml"))
        training = Training(settings)
        if run.about["status"] != "finished":
            if settings.runner == "ray":
                check_ray()
            restore_last(run, training)
        return run, training, _open_log(training)
    except BaseException:
        run.close()
        raise


class _Session(RunSession):
    """A run of a small policy while it is going on."""

    def __init__(
        self, run: RunFolder, training: Training, tell: Progress, log: TraceLog | None = None, address: str | None = None
    ) -> None:
        super().__init__(run, training, tell)
        self._address = address
        self.log, self.training, self.settings = log, training, training.settings
        self._spare = training.net.twin()
        self._playing: RolloutBatch | None = None

    def close(self) -> None:
        """The stores that it reads and writes."""
        super().close()
        if self.log is not None:
            self.log.store.close()

    def loop(self) -> None:
        """Play, learn, write, evaluate."""
        t, s = self.training, self.settings
        with self.interrupts.whole():
            self.add_start()
            if not self.evals:
                self._evaluate()
            if t.is_done:  # it ended between its last checkpoint and the word "finished"
                self.finish()
        if self.log is not None:
            return self._read_on(self.log)
        runner = self._runner()
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
                        self.finish()
        finally:
            runner.close()

    def _runner(self) -> Runner:
        s = self.settings
        if s.runner == "ray":
            from counterpoint.lab.train.runners.ray_actors import RayActors  # ray is optional

            return RayActors(s.workers, address=self._address, tell=lambda what: self.tell("note", {"what": what}))
        return Processes(s.workers) if s.runner == "processes" else Here()

    def _read_on(self, log: TraceLog) -> None:
        """Learn from recorded traces until the updates are made."""
        t = self.training
        while not t.is_done:
            begin = time.perf_counter()
            played = log.batch(t.net, t.rng(3000), episodes=t.episodes(), group=t.preset.group)
            with self.interrupts.whole():
                self.number = t.update + 1
                is_first = not t.is_cloning and t.update == (0 if t.settings.clone == 0 else t.settings.clone)
                seen = alerts.signals(played.rollout)
                row = self._updated([played], recorded=True)
                if is_first and row["ess"] < LEAST_ESS:
                    what = f"the log does not cover this policy: the effective sample size is {row['ess']:.1%} of its decisions"
                    fix = f"clone the log first (--set clone=100), so that the policy begins near it; {LEAST_ESS:.0%} is enough"
                    raise NotIdentified(what, fix, where=os.fspath(log.store.path))
                self.add_metrics(row | {"stale": 0, "signals": seen.row, "seconds": time.perf_counter() - begin})
                is_best = self._evaluate() if t.is_done or t.update % t.settings.eval_every == 0 else False
                if is_best or t.is_done or t.update % t.settings.checkpoint_every == 0:
                    self.save(is_best=is_best)
                if t.is_done:
                    self.finish()

    def _fill(self, feed: Ordered) -> None:
        """Launch what there is room for; nothing beyond the last update, where that is known."""
        t, last = self.training, self.settings.updates * feed.batch or None
        while feed.room > 0 and (last is None or feed.launched < last):
            version = feed.version_of(feed.launched)
            feed.launch(t.job(feed.launched, version, t.past[version]))

    # -- one update

    def _learn(self, taken: RolloutBatch, begin: float) -> None:
        t, s = self.training, self.settings
        self._playing, self.number = taken, t.update + 1
        out = merge_rollouts([d.result.rollout for d in taken.done])
        seen = alerts.signals(out)
        if t.update % _CHECKED == 0:
            gap, worst = self._mismatch(taken)
            seen.row["mismatch"] = gap
            seen.worst["mask_mismatch"] = seen.worst["mask_mismatch"] or worst
        stale = int(taken.staleness_N.max())
        row = self._updated([d.result for d in taken.done], stale=stale)
        t.past[t.update] = t.weights()
        t.past = {v: w for v, w in t.past.items() if v >= t.update - s.staleness}
        self.add_metrics(row | {"stale": stale, "signals": seen.row, "seconds": time.perf_counter() - begin})
        if s.keep_episodes:
            self.keep(logged(taken.jobs, tuple(range(min(s.keep_episodes, len(out.values))))), "training")
        is_best = self._evaluate() if t.is_done or t.update % s.eval_every == 0 else False
        self._alert(taken, seen.worst)
        if is_best or t.is_done or t.update % s.checkpoint_every == 0:
            self.save(is_best=is_best)

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
            raise NotFinite("the network's weights are no longer finite numbers") from error

    def _mismatch(self, taken: RolloutBatch) -> tuple[float, tuple[int, ...]]:
        """Recomputed against recorded log-probabilities, each job with its own weights."""
        largest, first = 0.0, 0
        worst: list[int] = []
        for done, job in zip(taken.done, taken.jobs, strict=True):
            self._spare.load_state_dict({k: torch.tensor(v) for k, v in job.weights.items()})
            gap, episodes = alerts.mismatch(self._spare, done.result.rollout)
            largest, worst = max(largest, gap), worst + [first + e for e in episodes]
            first += len(done.result.rollout.values)
        return largest, tuple(worst[: alerts.SHOWN])

    # -- evaluations, alerts, traces

    def _evaluate(self) -> bool:
        """The held-out seeds; whether it is the best so far."""
        t, s = self.training, self.settings
        net = t.player()
        name = f"{evaluate.plain_name(s.preset)}-s{s.seed}-u{t.update}"
        held = evaluate.held_out(net, t.worlds, s.eval_episodes, name=name, keep=s.keep_traces)
        row: dict[str, Any] = {"update": t.update, **t.totals, **held.row()}
        if t.is_done and not t.own_rules:
            row["stops"] = {"reference": evaluate.reference_rounds(t.worlds, s.eval_episodes), "name": "reference"}
            row["width"] = evaluate.team_sizes(net, t.worlds, held)
        self.keep(held.traces, "held-out")
        return self.add_eval(row)

    def _alert(self, taken: RolloutBatch, worst: Mapping[str, tuple[int, ...]]) -> None:
        variants = len(self.training.worlds)
        window = -(-alerts.WINDOW // variants) * variants  # every variant as often
        for alert in alerts.raised_alerts(self.metrics, self.evals, self.alerts, worst, window=window):
            self.add_alert(alert, logged(taken.jobs, alert.episodes))

    # -- ends

    def is_collapsed(self) -> bool:
        """Whether the team ended up calling nobody; rules of one's own may have nobody to call."""
        return not self.training.own_rules and super().is_collapsed()

    def batch(self) -> str:
        """The seeds that are being learned."""
        if self._playing is None:
            return "no training seeds"
        seeds = np.concatenate([j.payload["seeds"] for j in self._playing.jobs])
        return f"training seeds {seeds.min()} to {seeds.max()}"


def logged(jobs: tuple[Job, ...], episodes: tuple[int, ...]) -> list[Trace]:
    """Traces of some episodes of a batch: played again with the same weights, seeds and noise, which gives the same ones."""
    out: list[Trace] = []
    first = 0
    for job in jobs:
        count = len(job.payload["seeds"])
        at = np.array([e - first for e in episodes if first <= e < first + count], np.int64)
        first += count
        if len(at):
            some = {k: job.payload[k][at] for k in PER_EPISODE if job.payload.get(k) is not None}
            out += play({**job.payload, **some, "log": True, "decisions": True}, job.weights).traces
    return out
