"""A run in which a language model learns, from start to end: show, imitate, play, learn, write, evaluate.

Always true: what is said of `train.session` and `train.lm.training`; a run is left whole however it ends. When it is finished,
`local:RUN` is the model it made.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import torch

import counterpoint.registry as registry
from counterpoint.display import working
from counterpoint.errors import InputError, NotFound, Refused
from counterpoint.lab.lm.chat import Chat
from counterpoint.lab.lm.engine import Engines
from counterpoint.lab.lm.served.engine import OWN
from counterpoint.lab.lm.served.link import ServerFailed
from counterpoint.lab.train.folder import RunFolder
from counterpoint.lab.train.lm.advantages import less_prices
from counterpoint.lab.train.lm.alerts import language_alerts
from counterpoint.lab.train.lm.driver import Driver, Rollout
from counterpoint.lab.train.lm.own_driver import OwnDriver, settings_of
from counterpoint.lab.train.lm.own_endpoint import OwnEndpoint
from counterpoint.lab.train.lm.own_tasks import OwnTasks
from counterpoint.lab.train.lm.own_worker import serve_teams
from counterpoint.lab.train.lm.policies import ModelFiles, Policies, check_device, check_memory, read_model
from counterpoint.lab.train.lm.ranks import Ranks, all_ranks
from counterpoint.lab.train.lm.settings import LanguageSettings, TaskMix, is_fake, language_settings, named_in
from counterpoint.lab.train.lm.team_batch import TeamBatch, decisions
from counterpoint.lab.train.lm.training import LanguageTraining, first_task
from counterpoint.lab.train.lm.worker_link import Host, LocalHost
from counterpoint.lab.train.runner import check_ray
from counterpoint.lab.train.session import Progress, RunSession, check_new, check_same, restore_last
from counterpoint.store import Store
from counterpoint.trace import Trace

_OWN_PER_CORE = 4
"""Processes for each core that run a person's team against a GPU: they wait for answers most of the time."""


def train_language(
    folder: str | os.PathLike[str],
    config: Mapping[str, Any],
    *,
    progress: Progress | None = None,
    resume: bool = False,
    allow: Collection[str] = (),
    address: str | None = None,
) -> RunFolder:
    """Train as `config` says (its keys are those of `LanguageSettings`) and leave the run in `folder`, which must be new.

    With `resume`, continue the run that is there, by its own run.toml. Code from outside that run.toml names is run where
    `allow` names it. `address` is that of the Ray cluster, for the runner "ray".
    """
    path, tell = Path(folder), progress or (lambda kind, row: None)
    if resume:
        run = RunFolder.open(path, write=True)
        with run:
            where = os.fspath(path / "run.toml")
            registry.check_consent(named_in(run.config()), {*allow, *named_in(config)}, where=where)
            settings = language_settings(run.config(), where=where)
            if config:
                check_same(path, settings.as_dict(), language_settings(config).as_dict())
            if run.about["status"] != "finished":
                if settings.runner == "ray":
                    check_ray()
                _go_on(run, settings, tell, address=address, is_resumed=True)
        return RunFolder.open(path)
    settings = language_settings(config)
    if settings.runner == "ray":
        check_ray()
    check_new(path)
    device, ranks = check_device(settings.device), _ranks()
    files = read_model(settings.model, device if ranks is None else torch.device("cpu"))
    check_memory(files.shape, settings.adapters, device, 1 if ranks is None else ranks.size)
    was_there = path.is_dir()
    with RunFolder.create(path, settings.as_dict(), about_of(settings, files)) as run:
        try:
            _go_on(run, settings, tell, address=address, files=files)
        except (InputError, NotFound, Refused, ServerFailed):
            if not run.metrics() and not run.evals():  # nothing was learned yet, and going on would end in the same way
                shutil.rmtree(path)
                if was_there:
                    path.mkdir()
            raise
    return RunFolder.open(path)


def about_of(settings: LanguageSettings, files: ModelFiles) -> dict[str, Any]:
    """What a run says of itself: comparable runs have the same tasks, prices and held-out seeds."""
    tasks = [mix.about for mix in settings.task]
    own = settings.task[0].is_own
    name, version = "+".join(dict.fromkeys(short for short, _ in tasks)), "+".join(version for _, version in tasks)
    learn = settings.learn
    how = (settings.preset or "+".join(learn.credit)) if learn.updates or learn.seconds else "imitate"
    plain = settings.as_dict()
    return {
        "kind": "language model",
        "preset": f"lm {how}" + (f" {settings.adapters}" if settings.adapters else ""),
        "world": name,
        "world_version": OwnTasks.read(settings.task[0]).digest if own else version,
        "world_config": {"tasks": plain["task"], "prices": plain["prices"]},
        "seed": settings.seed,
        "eval_seeds": [settings.eval_first, settings.eval_episodes],
        "model": {"name": files.name, "digest": files.digest},
        "source": "docs/lab/language-models.md",
    }


def _go_on(
    run: RunFolder, settings: LanguageSettings, tell: Progress, *, address: str | None, files: ModelFiles | None = None,
    is_resumed: bool = False,
) -> None:  # fmt: skip
    device, ranks = check_device(settings.device), _ranks()
    torch.set_num_threads(1)
    files = files or read_model(settings.model, device if ranks is None else torch.device("cpu"))
    if is_resumed and files.digest != run.about["model"]["digest"]:
        what = f"the model {settings.model} is not the one that the run began with"
        raise InputError(what, where=os.fspath(run.path), fix=f"the weights with the digest {run.about['model']['digest']}")
    workers = settings.workers or max(1, (os.cpu_count() or 2) - 1)
    if settings.task[0].is_own:
        _go_on_own(run, settings, tell, Policies(settings, files, (), ranks), address=address, is_resumed=is_resumed)
        return
    host = _host(files, workers, address, tell) if settings.runner == "ray" else None
    is_repeatable = device.type == "cpu" and settings.engine == OWN
    with Driver(files.folder, workers=workers, is_repeatable=is_repeatable, host=host) as driver, ExitStack() as stack:
        roles = _roles(settings, driver) if settings.adapters == "role" else ()
        policies = stack.enter_context(closing(Policies(settings, files, roles, ranks, run.path)))
        training = LanguageTraining(settings, policies, driver)
        if is_resumed:
            restore_last(run, training)
        LanguageSession(run, training, tell).go()


def _ranks() -> Ranks | None:
    """The processes that learn with this one, which must be the first of them."""
    ranks = all_ranks()
    if ranks is not None and not ranks.is_first:
        fix = "torchrun -m counterpoint train lm, where the others follow"
        raise InputError("only the first of torchrun's processes trains", where=f"process {ranks.rank}", fix=fix)
    return ranks


def _go_on_own(
    run: RunFolder, settings: LanguageSettings, tell: Progress, policies: Policies, *, address: str | None, is_resumed: bool
) -> None:
    """The same with a team of a person's own code: the engine answers in a thread, and the code asks it by OpenAI's protocol."""
    mix, engines = settings.task[0], policies.engines
    assert isinstance(engines, Engines)  # `check_own` refuses another
    (engine, *_), is_far = engines.engines.values(), settings.runner == "ray"

    def load() -> tuple[Chat, Engines]:
        torch.set_num_threads(1)
        return policies.files.chat, engines

    per_core = _OWN_PER_CORE if policies.is_gpu else 1
    workers = settings.workers or per_core * (os.cpu_count() or 2)
    host: Any = _own_ray(mix, workers, address, tell) if is_far else LocalHost(settings_of(mix), serve_teams)
    endpoint = OwnEndpoint(load, slots=engine.slots.count, most=mix.most, host=host.own_address if is_far else "127.0.0.1")
    try:
        endpoint.start()
        policies.at_rest = endpoint.at_rest
        with OwnDriver(endpoint, mix, host, workers=workers) as driver:
            training = LanguageTraining(settings, policies, driver, OwnTasks.read(mix))
            if is_resumed:
                restore_last(run, training)
            LanguageSession(run, training, tell).go()
    finally:
        endpoint.close()


def _own_ray(mix: TaskMix, workers: int, address: str | None, tell: Progress) -> Any:
    from counterpoint.lab.train.lm.ray_workers import OWN_MB, RayHost  # ray is optional

    settings, note = settings_of(mix), lambda what: tell("note", {"what": what})
    return RayHost(settings, workers, address=address, memory_mb=OWN_MB, tell=note)


def _host(files: ModelFiles, workers: int, address: str | None, tell: Progress) -> Host:
    from counterpoint.lab.train.lm.ray_workers import RayHost  # ray is optional

    return RayHost(files.folder, workers, address=address, tell=lambda what: tell("note", {"what": what}))


def _roles(settings: LanguageSettings, driver: Driver) -> list[str]:
    """The roles that speak in the run's tasks, as a fake team shows them."""
    first = first_task(settings.seed, is_shown=True)
    tried = [Rollout(spec=mix.spec(first, "fake:1"), trace_id=f"roles-{i}") for i, mix in enumerate(settings.task)]
    found = {e.role for t in driver.play(tried, None) for e in t.events if e.role and "call" in (e.extra or {})}
    return sorted(found)


class LanguageSession(RunSession):
    """Such a run while it is going on."""

    def __init__(self, run: RunFolder, training: LanguageTraining, tell: Progress) -> None:
        super().__init__(run, training, tell)
        self.training, self.settings = training, training.settings

    def close(self) -> None:
        """Let go of what the run has opened."""
        self.training.close()
        super().close()

    def batch(self) -> str:
        """What is being learned."""
        return "demonstrations" if self.training.is_imitating else f"tasks of update {self.number}"

    def loop(self) -> None:
        """Show, imitate, then play and learn."""
        t, s = self.training, self.settings
        with self.interrupts.whole():
            self.add_start()
        if t.is_imitating:
            self._show()
        with self.interrupts.whole():
            if not self.evals and (s.is_eval_first or t.is_done):
                self._evaluate()
            if t.is_done:  # it ended between its last checkpoint and the word "finished"
                self._finish()
        while not t.is_done:
            begin = time.perf_counter()
            self.number = t.update + 1
            was_imitating = t.is_imitating
            # Ctrl-C drops what is being played; what is being learned is finished
            with self.interrupts.whole():
                row, played = (t.imitate(), None) if was_imitating else t.learn()
                self._write(row, played, begin)
                is_end = t.is_done or (was_imitating and not t.is_imitating)
                is_best = self._evaluate() if is_end or t.update % s.eval_every == 0 else False
                self._alert(played)
                if t.is_done:
                    self._finish()
                elif t.update % s.checkpoint_every == 0:
                    t.check_weights()
                    self.save(is_best=is_best)

    def _finish(self) -> None:
        """The model that was made is what is kept: a last checkpoint would hold it again, with its optimiser's numbers."""
        self.training.check_weights()
        policies = self.training.policies
        with policies.averaged():
            policies.export(self.run.path)
        self.saved = self.training.update
        self.finish()

    # -- one update

    def _show(self) -> None:
        i, t = self.settings.imitate, self.training
        is_faked = is_fake(i.demos)
        traces = self._faked() if is_faked else _stored(i.demos, i.ids)
        retold, left_out = t.show(traces)
        if retold:
            self.tell("note", {"what": f"{retold:,} calls that were shown have no token ids: tokenised again"})
        if left_out:
            why = f"no prompt, or longer than {t.policies.context:,} tokens"
            self.tell("note", {"what": f"{left_out:,} calls that were shown are left out: {why}"})
        shown = sum(len(said) for _, said in t.shown)
        judged = traces if is_faked else [less_prices(x, t.settings.prices) for x in traces if "team" in x.rewards]
        row = TeamBatch(judged).row() if judged else {}
        t.demonstrators = row | {"teams": len(traces), "calls_shown": shown, "by": i.demos}
        if "demonstrators" not in self.run.about:
            self.run.change(demonstrators=t.demonstrators | {"decisions": decisions(traces)})

    def _faked(self) -> list[Trace]:
        i, t = self.settings.imitate, self.training
        first = first_task(self.settings.seed, is_shown=True)
        seeds = range(first, first + i.teams)
        return t.play(seeds, temperature=1.0, name="shown", model=i.demos).traces

    def _write(self, row: dict[str, Any], played: TeamBatch | None, begin: float) -> None:
        t = self.training
        full = {"update": t.update, **t.totals, **row, "R1": row.get("score"), "seconds": time.perf_counter() - begin}
        self.add_metrics({k: v for k, v in full.items() if v is not None})
        if played is not None and self.settings.keep_episodes:
            self.keep(played.traces[: self.settings.keep_episodes], "training")

    def _evaluate(self) -> bool:
        with working(f"evaluating on {self.settings.eval_episodes:,} held-out tasks"):
            row, played = self.training.evaluate()
        kept = played.traces[: self.settings.keep_traces]
        self.keep(kept, "held-out")
        return self.add_eval(row | {"traces": [t.trace_id for t in kept]})

    def _alert(self, played: TeamBatch | None) -> None:
        for alert in language_alerts(self.metrics, self.alerts):
            self.add_alert(alert, [] if played is None else played.traces[:1])


def _stored(folder: str, ids: Sequence[str]) -> list[Trace]:
    """Demonstrations out of a store."""
    if not Path(folder).is_dir():
        fix = "fake:0.7, or the folder of a store that `counterpoint play` made"
        raise NotFound("there is no store here", where=folder, fix=fix)
    with Store(folder, read_only=True) as store:
        traces = [store.get(trace_id) for trace_id in ids or store.ids()]
    if not traces:
        raise InputError("there is no trace to imitate", where=folder, fix="another query, or `counterpoint play` some")
    return traces
