"""The settings of a run in which a language model learns: the model, the tasks, how it imitates, how it learns.

Always true: every key is known and of its type, or there is one clear error that names it. A run is a function of its settings
where no limit in seconds is set.

    model = "smollm2-135m"                 [imitate]                        [learn]
    [[task]]                               demos = "fake:0.7"               credit = ["group_relative"]
    name = "T1"                            steps = 300                      updates = 40
    set = {documents = 8}
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec

import counterpoint.registry as registry
from counterpoint.credits.mechanism import Mechanism
from counterpoint.errors import CounterpointError, InputError, NotFound, did_you_mean
from counterpoint.files import read_toml
from counterpoint.lab.lm.served.engine import server_of
from counterpoint.lab.tasks.task import task as find_task
from counterpoint.lab.team.session import Spec, make_model, played_in
from counterpoint.lab.team.state import Limits
from counterpoint.lab.train.lm.methods import check_rewards, with_preset
from counterpoint.lab.train.lm.objective import Objective
from counterpoint.lab.train.lm.own_settings import check_own
from counterpoint.lab.worlds.packages import trusts
from counterpoint.options import (
    NonNegative,
    NonNegativeInt,
    Positive,
    PositiveInt,
    Rate,
    Seed,
    ShareBelowOne,
    check_fields,
)

HELD_OUT_END = 1_000_000
"""Tasks from here on are learned on."""


@dataclass(frozen=True, kw_only=True)
class TaskMix:
    """One kind of task that is played, with its own dials."""

    name: str
    """T1 to T6, a task's id, or "package.module:object"."""
    set: dict[str, Any] = field(default_factory=dict)
    """Dials that differ from the task's own."""
    topology: str = "centralized"
    limits: dict[str, Any] = field(default_factory=dict)
    """Limits of the team that differ from the usual ones: {width = 2, max_tokens = 64}."""
    share: PositiveInt = 1
    """How often it is played beside the others."""
    cases: str = ""
    """Of a team of your own, whose function `name` is ("FILE:FUNCTION"): the file with its cases, one in each line."""
    reward: str = ""
    """Who scores its answers, "FILE:FUNCTION"; none: an exact match with the case's answer."""

    @property
    def is_own(self) -> bool:
        """Whether a person's own code plays it."""
        return bool(self.cases)

    @property
    def most(self) -> int:
        """Tokens that one answer may have."""
        return int(self.limits.get("max_tokens", 256)) if self.is_own else self.spec(0, "engine").limits.max_tokens

    @property
    def seconds(self) -> float:
        """What a team of a person's own may take."""
        return float(self.limits.get("seconds", 600.0))

    @property
    def about(self) -> tuple[str, str]:
        """What it is called, and its version."""
        if self.is_own:
            return self.name.rpartition("/")[2].replace(".py:", "."), "own"
        found = find_task(self.name)
        return found.short, found.version

    def spec(self, seed: int, model: str, options: Mapping[str, Any] | None = None) -> Spec:
        """The team of one instance."""
        limits = Limits.of({"max_tokens": 96, **self.limits})
        found = find_task(self.name)
        named = found.name if ":" not in self.name else self.name
        usual = {name: getattr(found.config, name, None) for name in self.set}
        dials = {n: float(x) if type(x) is int and type(usual[n]) is float else x for n, x in self.set.items()}  # 0 is 0.0
        topology, style = played_in(found, self.topology)
        return Spec(
            task=named, config=dials, seed=seed, model=model, options=dict(options or {}), topology=topology, limits=limits,
            harness=style,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Prices:
    """What a team pays out of its reward (R7, R8), so that spawning, talking and stopping matter."""

    agent: NonNegative = 0.0
    """For each agent that was spawned."""
    call: NonNegative = 0.0
    """For each model call."""
    token: NonNegative = 0.0
    """For each token written."""
    second: NonNegative = 0.0
    """For each second of the run's own clock, in which a call takes as long as its tokens would."""


@dataclass(frozen=True, kw_only=True)
class Imitate:
    """Learning to say what demonstrators said."""

    demos: str = "fake:1"
    """Who shows: a fake (`fake:0.7`), or the folder of a store."""
    options: dict[str, Any] = field(default_factory=dict)
    """Of a fake: {explore = 0.0}."""
    where: str = ""
    """Which traces of the store, in the words of `counterpoint ls`."""
    ids: tuple[str, ...] = ()
    """The traces that were chosen; none: all that the store has."""
    teams: PositiveInt = 512
    """Teams that a fake shows."""
    keep: Literal["all", "solved"] = "all"
    """Which of them are learned from."""
    steps: NonNegativeInt = 0
    """Optimiser steps; 0 with a limit in seconds: as many as it allows."""
    seconds: NonNegative = 0.0
    """Ends after so much time, whatever the steps: such a run is not repeatable; 0: no limit."""
    batch: PositiveInt = 96
    """Calls of one step."""
    lr: Rate = 3e-4
    warmup: NonNegativeInt = 20
    """Steps over which the rate rises; it falls to a twentieth over the rest."""


@dataclass(frozen=True, kw_only=True)
class Learn:
    """Learning from what was earned."""

    credit: tuple[str, ...] = ("group_relative",)
    """Credit mechanisms; where several cover a call, the most specific unit wins."""
    options: dict[str, Any] = field(default_factory=dict)
    """Options of mechanisms by their names: {group_relative = {convention = "rloo"}}."""
    reward: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Rewards by name with their options and weights, as presets have them; none: the task's score, less the prices."""
    balance: Literal["sum", "gdpo", "variance", "variation"] = "sum"
    """How several rewards become one (`train.preset.BALANCES`)."""
    normalise: Literal["group", "leave_one_out", "none"] = "group"
    """How amounts that are not relative already become advantages: against the same unit in the other samples of a task."""
    updates: NonNegativeInt = 0
    seconds: NonNegative = 0.0
    """Ends after so much time, as for imitation."""
    groups: PositiveInt = 16
    """Tasks of one update."""
    samples: PositiveInt = 8
    """Teams that play each of them."""
    tree: tuple[PositiveInt, ...] = ()
    """Fan-outs of the samples of a task, whose product is `samples`: [2, 4] is two teams, and of each three more that begin like
    it up to a call that is drawn. None: every team for itself."""
    resample: NonNegativeInt = 1
    """How often groups without spread are replaced by fresh ones."""
    ahead: bool = False
    """Play the teams of the next update while this one is learned: one update old, which the ratio to the sampler corrects."""
    temperature: Positive = 1.0
    """At which teams play; with `loss = "clip"` the policy that learns is the model at this temperature."""
    steps: PositiveInt = 4
    """Optimiser steps of one update."""
    recompute: bool = False
    """Keep less of a micro-batch and compute its layers twice: memory for a third more time (gradient checkpointing)."""
    lr: Rate = 3e-5
    last_rate: Rate = 1.0
    """What is left of the rate at the end; it falls evenly from update to update."""
    average: ShareBelowOne = 0.0
    """What a running mean of the weights keeps of itself at each update, 0.8 for instance. The mean is evaluated and is the model
    that is made; the newest weights go on playing. 0: no mean."""
    roles: tuple[str, ...] = ()
    """Whose calls are learned from; none: everybody's. With one policy for all, what they learn changes the others too."""
    alternate: NonNegativeInt = 0
    """Updates after which the role that learns switches, the orchestrator first; 0: all of them in every update."""
    loss: Literal["clip", "sft", "dpo"] = "clip"
    """clip: clipped policy gradient. sft: calls whose advantage is above 0 are imitated. dpo: of calls with one prompt, the one
    with the highest advantage is preferred to the one with the lowest."""
    level: Literal["token", "geometric", "product", "none"] = "token"
    """What a ratio is of: a token, or a call (the geometric mean or the product over its tokens); none: no ratio (REINFORCE)."""
    log_max: Positive = 20.0
    """Log ratios are held at this from above."""
    weigh: Literal["token", "rollout", "agent", "turn"] = "token"
    """What weighs the same: every token, or every rollout, every agent of a rollout, every call of a rollout."""
    clip: tuple[float, ...] = (0.2, 0.28)
    """How far a ratio may fall below 1 and rise above it before it is clipped; a third number is the dual clip."""
    mask: tuple[float, ...] = ()
    """Log ratios between which a token counts, as PARL has it, instead of clipping: [-0.5, 0.5]."""
    pull: float = 0.0
    """Weight of the squared log ratio (PARL's tau)."""
    cap: float = 2.0
    """Most that the correction for the engine's rounding weighs a token; 0: its log-probabilities are taken as they are."""
    kl: Literal["k1", "k2", "k3"] = "k3"
    """Estimator of the divergence: k2 or k3 in the loss, or k1 in the reward: of each token, what it and the rest of its call
    diverge."""
    beta: float = 0.0
    """Weight of the divergence from the model that reinforcement begins with; with `loss = "dpo"` the beta of its preferences,
    0.1 where it is 0."""
    kl_limit: NonNegative = 0.0
    """Most that one update may move what was said (KL per token, 0.02 for instance): a step that goes further is made shorter, to
    just below it. 0: no limit. With `loss = "clip"` only."""

    def objective(self) -> Objective:
        """What an update minimises."""
        if len(self.mask) not in (0, 2):
            raise InputError(f"learn.mask is {list(self.mask)}", fix="two log ratios, or none: [-0.5, 0.5]")
        if len(self.clip) not in (2, 3) or not (0 <= self.clip[0] <= 1 and self.clip[1] >= 0):
            fix = "below and above 1: [0.2, 0.28], or with a dual clip: [0.2, 0.28, 3]"
            raise InputError(f"learn.clip is {list(self.clip)}", fix=fix)
        dual = self.clip[2] if len(self.clip) > 2 else None
        is_in_loss = self.kl != "k1"
        return Objective(
            level=self.level, log_max=self.log_max, clip_low=self.clip[0], clip_high=self.clip[1], dual=dual,
            mask=(self.mask[0], self.mask[1]) if self.mask else None, pull=self.pull, cap=self.cap or None,
            beta=self.beta if is_in_loss else 0.0,
            kl=self.kl,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class LanguageSettings:
    """One run."""

    model: str
    """A name that `counterpoint models` lists, a transformers folder, a .gguf file, or the folder of a trained run."""
    task: tuple[TaskMix, ...]
    seed: Seed = 0
    """Of everything random in the run."""
    device: str = "cpu"
    engine: str = "own"
    """What answers the teams' calls: the engine of this process, or a server of the same model, `vllm:http://HOST:PORT` or
    `sglang:http://HOST:PORT`, that sees this run's folder: new weights are handed over as files."""
    adapters: Literal["", "shared", "role"] = ""
    """Empty: all weights learn. shared: one adapter. role: one adapter, and one optimiser, for each role."""
    rank: PositiveInt = 8
    prices: Prices = field(default_factory=Prices)
    imitate: Imitate = field(default_factory=Imitate)
    learn: Learn = field(default_factory=Learn)
    preset: str = ""
    """A published method that sets what is not said otherwise of [learn] and of adapters: `counterpoint train presets`."""
    eval_every: PositiveInt = 10
    eval_episodes: PositiveInt = 32
    eval_first: NonNegativeInt = 0
    """The first held-out task. Runs that are to be compared share it; another one is fresh tasks, all of them below a million."""
    is_eval_first: bool = True
    """Evaluate before anything is learned."""
    is_greedy_too: bool = False
    """Evaluate at temperature 0 as well."""
    checkpoint_every: PositiveInt = 10
    keep_traces: NonNegativeInt = 2
    """Teams of each evaluation whose traces go to the store."""
    keep_episodes: NonNegativeInt = 0
    """Teams of each update whose traces go to the store."""
    runner: Literal["processes", "ray"] = "processes"
    """Where teams are played: in processes of this machine, or in actors of a Ray cluster. The model is where the run is."""
    workers: NonNegativeInt = 0
    """Processes, or actors, that play teams; 0: one for each core but one."""
    slots: NonNegativeInt = 0
    """Calls that are answered at once; 0: what suits the device."""
    tokens: NonNegativeInt = 0
    """Tokens of a micro-batch; 0: what suits the device."""
    context: NonNegativeInt = 0
    """Tokens of prompt and answer; 0: what the model says, at most 4,096."""

    def __post_init__(self) -> None:
        check_fields(self)
        for mix in self.task:
            check_fields(mix, table="task")
        for name in _TABLES:
            check_fields(getattr(self, name), table=name)
        if not self.task:
            raise InputError("no task to play", fix="--task T1, or [[task]] with a name")
        i, l = self.imitate, self.learn  # noqa: E741
        if not (i.steps or i.seconds or l.updates or l.seconds):
            raise InputError("nothing to learn", fix="[imitate] steps = 300, or [learn] updates = 40")
        if (last := self.eval_first + self.eval_episodes) > HELD_OUT_END:
            what = f"held-out tasks end at {last:,}, and those that are learned on begin at {HELD_OUT_END:,}"
            raise InputError(what, where="eval_first", fix=f"{HELD_OUT_END - self.eval_episodes} or less")
        if (l.updates or l.seconds) and l.samples < 2:
            raise InputError("groups of one sample have nothing to be compared with", fix="learn.samples = 8")
        if l.tree and math.prod(l.tree) != l.samples:
            what = f"a tree of {list(l.tree)} has {math.prod(l.tree)} ends, and learn.samples is {l.samples}"
            raise InputError(what, where="learn.tree", fix=f"learn.samples = {math.prod(l.tree)}, or another tree")
        if l.kl_limit and l.loss != "clip":
            raise InputError(f"learn.kl_limit is {l.kl_limit}", fix='0 for none; a limit goes with loss = "clip" only')
        if not l.credit and (l.updates or l.seconds):
            raise InputError("no credit mechanism is named", where="learn.credit", fix='credit = ["group_relative"]')
        l.objective()
        server_of(self.engine)
        self._look_up()

    def _look_up(self) -> None:
        """Tasks, topologies, dials, limits and mechanisms are found before anything is played."""
        own = next((mix for mix in self.task if mix.is_own), None)
        if own is not None:
            check_own(self, own)
        for mix in () if own is not None else self.task:
            spec = mix.spec(0, "engine")
            try:
                task = spec.make_task()
            except InputError as error:
                raise InputError(error.what, where=error.where or f"task {mix.name}", why=error.why, fix=error.fix) from None
            spec.make_topology()
            if is_fake(self.imitate.demos):
                make_model(self.imitate.demos, task, **self.imitate.options)
        for name in self.learn.credit:
            found = registry.get("mechanism", name)
            if not isinstance(found, Mechanism):
                raise InputError(f"{name!r} is not a credit mechanism", fix="counterpoint credit --list")
            if "replay" in found.needs and "counterfactual" not in found.options:
                fix = "difference, which makes the last merge again without an agent, or a mechanism that reads traces alone"
                raise InputError(f"{name} needs forks, which training does not make", where="learn.credit", fix=fix)
        check_rewards(self.learn.reward, self.learn.credit)
        for name, options in self.learn.options.items():
            if name not in self.learn.credit:
                fix = did_you_mean(name, self.learn.credit)
                raise InputError(f"options for {name!r}, which this run does not use", where="learn.options", fix=fix)
            known = registry.get("mechanism", name).options
            for option in options:
                if option not in known:
                    raise InputError(f"{name} has no option {option!r}", where="learn.options", fix=did_you_mean(option, known))

    def as_dict(self) -> dict[str, Any]:
        """Every key, for run.toml."""
        plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(self)))
        return plain


_TABLES: dict[str, Any] = {"imitate": Imitate, "learn": Learn, "prices": Prices}


def is_fake(who: str) -> bool:
    """Whether a demonstrator is a fake (`fake:0.7`), and not a store."""
    return who.partition(":")[0] == "fake"


def named_in(given: Mapping[str, Any]) -> list[str]:
    """What settings that nobody has checked yet name, and what may be code from outside the package: for `check_consent`."""
    learn, tasks = given.get("learn"), given.get("task")
    found: list[Any] = [given.get("preset")]
    for mix in tasks if isinstance(tasks, (list, tuple)) else ():
        found += [mix.get(key) for key in ("name", "topology", "reward")] if isinstance(mix, Mapping) else []
    for key in ("credit", "reward") if isinstance(learn, Mapping) else ():
        some = learn.get(key)  # type: ignore[union-attr]
        found += [some] if isinstance(some, str) else list(some) if isinstance(some, (list, tuple, Mapping)) else []
    return [name for name in found if isinstance(name, str) and not trusts(name)]


def language_settings(given: Mapping[str, Any], *, where: str | None = None) -> LanguageSettings:
    """Settings from keys and values, and from the preset they name; unknown keys and wrong types are one clear error."""
    if isinstance(named := given.get("preset"), str) and named:
        given = with_preset(given, named)
    _known(given, LanguageSettings, "", where)
    for name, table in _TABLES.items():
        if isinstance(given.get(name), Mapping):
            _known(given[name], table, f"{name}.", where)
    tasks = given.get("task", ())
    for mix in tasks if isinstance(tasks, (list, tuple)) else ():
        if isinstance(mix, Mapping):
            _known(mix, TaskMix, "task.", where)
    if "model" not in given:
        raise InputError("model is missing", where=where, fix='model = "smollm2-135m"')
    try:
        return msgspec.convert({**given, "task": list(tasks)}, LanguageSettings)
    except msgspec.ValidationError as error:
        if isinstance(own := error.__cause__, CounterpointError):  # what a table found wrong with itself
            raise type(own)(own.what, where=own.where or where, why=own.why, fix=own.fix) from None
        raise InputError(_plain(str(error)), where=where, fix="see docs/lab/language-models.md") from error


def _plain(text: str) -> str:
    what, _, at = text.partition(" - at `$")
    return f"{at.rstrip('`').lstrip('.')}: {what[:1].lower()}{what[1:]}" if at else what


def _known(given: Mapping[str, Any], kind: Any, prefix: str, where: str | None) -> None:
    names = [f.name for f in dataclasses.fields(kind)]
    for key in given:
        if key not in names:
            raise InputError(f"no setting {prefix}{key}", where=where, fix=did_you_mean(key, names))


def read_language_settings(path: Path) -> dict[str, Any]:
    """What a TOML file says, unchecked."""
    try:
        return read_toml(path, fix="key = value lines; see docs/lab/language-models.md")
    except FileNotFoundError as error:
        raise NotFound("no such file", where=str(path), fix="counterpoint train lm --model smollm2-135m --task T1") from error
