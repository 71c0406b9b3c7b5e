"""What a race is: methods, worlds, the grid that each method is tuned on, and every training run with its seed and budget.

Always true: final runs use training seeds below 100 and tasks that no other run is judged on; tuning uses seeds from 100 on and
tasks of its own; every method gets the same grid, budget and episodes per update. A run's digest says what decides its result.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, Protocol

import counterpoint.registry as registry
from counterpoint.errors import CounterpointError, InputError, NotFound, did_you_mean
from counterpoint.lab.train.jobs import world_of
from counterpoint.lab.train.preset import Preset, named_preset
from counterpoint.lab.worlds.teamworld.random_worlds import RANDOM, worlds_of_suite
from counterpoint.lab.worlds.teamworld.suites import SUITES

OURS, BASELINES = "counterpoint", ("grpo", "counterpoint")
EPISODES = 32
"""Per update, for every method."""
CURVE = (0.0, 0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 0.8, 1.0)
"""Shares of the budget after which the held-out tasks are played."""
IDLE = 100
"""Updates in a row with under one call an episode, after which a run ends as collapsed: hardly anything is left to learn from. Of
rows that were run to the end none is another recipe for that."""
TUNING_SEED, CONFIRM_SEED = 100, 200
FINAL_TASKS, TUNING_TASKS = 500_000, 600_000
"""The first held-out task; training begins at 1,000,000, and evaluations of `counterpoint train` at 0."""
_RATES = {"": 1.0, "lr/3": 1 / 3, "lr*3": 3.0}
PUBLISHED = "published"
_IN_WORDS = ("source", "grade", "departures", "trains", "unit", "learns", "as_released", "knob", "guessed", "renames")
"""Fields of a preset that decide nothing in a run."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How much is run for each method."""

    name: str
    final_budget: int
    final_seeds: int
    final_worlds: int
    """Of the suite, from its first on; 0: all."""
    tune_budget: int = 0
    """Of each point of the grid; 0: nothing is tuned, and methods run as published."""
    tune_seeds: int = 2
    tune_worlds: int = 1
    confirm_seeds: int = 0
    """The two best points are run again with the final budget on so many seeds; 0: the best point of the grid is taken."""
    published_seeds: int = 5
    """Final seeds of the published numbers, where tuning chose others."""
    tasks: int = 48
    """Held-out tasks of every evaluation."""

    def with_budget(self, budget: int) -> Plan:
        """The same plan with another final budget, and the grid's in proportion."""
        return dataclasses.replace(self, final_budget=budget, tune_budget=self.tune_budget * budget // self.final_budget)


PLANS = {
    "screening": Plan(
        name="screening",
        final_budget=50_000,
        final_seeds=5,
        final_worlds=1,
        tune_budget=12_500,
        tune_worlds=2,
        tune_seeds=1,
        published_seeds=0,
    ),
    "small": Plan(name="small", final_budget=200_000, final_seeds=12, final_worlds=2, tune_budget=50_000),
    "full": Plan(
        name="full", final_budget=400_000, final_seeds=12, final_worlds=4, tune_budget=100_000, tune_worlds=2, confirm_seeds=3
    ),
}


class RaceWorld(Protocol):
    """A world of a suite (`envs.teamworld.suites.SuiteWorld`): one world, or several tasks that are played in turn (`mix`)."""

    @property
    def name(self) -> str: ...
    @property
    def world(self) -> str: ...
    @property
    def set(self) -> Mapping[str, Any]: ...
    @property
    def mix(self) -> Sequence[Mapping[str, Any]]: ...
    @property
    def decision(self) -> str: ...
    @property
    def bound(self) -> float: ...


def worlds_of(suite: str, only: Sequence[str] = ()) -> tuple[RaceWorld, ...]:
    """The worlds of a suite, or those of it that are named."""
    found = {w.name: w for w in worlds_of_suite(suite)}
    if not found:
        raise NotFound(f"no suite named {suite!r}", where="--suite", fix=f"{did_you_mean(suite, SUITES)}, or {RANDOM}:SEED")
    for name in only:
        if name not in found:
            raise NotFound(f"suite {suite} has no world {name!r}", where="--world", fix=did_you_mean(name, found))
    return tuple(found[name] for name in only) if only else tuple(found.values())


@cache
def world_about(suite: str, name: str) -> dict[str, Any]:
    """What a world of a suite is, and what hand-made play gets in it."""
    found = next((world for world in worlds_of_suite(suite) if world.name == name), None)
    if found is None:
        return {"about": "", "decision": "", "rules": {}}
    return {"about": found.about, "decision": found.decision, "rules": dict(found.rules)}


@dataclass(frozen=True)
class Method:
    """A preset that takes part, or why it does not."""

    name: str
    preset: Preset | None
    problem: str = ""
    """Why it cannot be loaded; such a method is a row with this error."""


def methods(only: Sequence[str] = ()) -> list[Method]:
    """The presets that learn networks from their own play, by name; ours and the baseline first."""
    names = [name if ":" in name else name.replace("-", "_") for name in only] or registry.ids("preset")
    out = []
    for name in dict.fromkeys(names):
        if ":" not in name and name not in registry.ids("preset"):
            raise NotFound(f"no preset named {name!r}", where="METHOD", fix=did_you_mean(name, registry.ids("preset")))
        try:
            preset = named_preset(name)
        except CounterpointError as error:
            out.append(Method(name, None, error.one_line()))
            continue
        if why := _left_out(preset):
            if only:
                raise InputError(f"{name} {why}", where="METHOD", fix="counterpoint train presets shows what each one learns")
            continue
        out.append(Method(name, preset))
    return sorted(out, key=lambda m: (m.name not in BASELINES, m.name))


def _left_out(preset: Preset) -> str:
    if "network" not in preset.learns:
        return "does not learn networks"
    return "learns from recorded traces only" if preset.loss_name == "clone" else ""


def grid(preset: Preset) -> tuple[str, ...]:
    """The points that a method is tuned on: three learning rates, as published and with its one alternative."""
    knobs = ("", "knob") if preset.knob else ("",)
    return tuple(" ".join(filter(None, (knob, rate))) or PUBLISHED for knob in knobs for rate in _RATES)


def change_of(preset: Preset, point: str) -> dict[str, Any]:
    """What a point of the grid changes in a preset, as `Settings.change` takes it."""
    words = [] if point == PUBLISHED else point.split(" ")
    change: dict[str, Any] = dict(preset.knob) if "knob" in words else {}
    factor = next((f for word, f in _RATES.items() if word and word in words), 1.0)
    if factor != 1.0:
        change["rates"] = {name: rate * factor for name, rate in preset.changed(change).rates.items()}
    return change


def episodes_of(preset: Preset) -> int:
    """Episodes per update: the shared number, or the nearest that makes whole groups."""
    return max(1, EPISODES // preset.group) * preset.group


def _digest(told: Mapping[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(told, sort_keys=True, default=str).encode(), digest_size=6).hexdigest()


@dataclass(frozen=True)
class RaceRun:
    """One training run: a row of the result."""

    phase: str
    """"tune", "confirm" or "final"."""
    method: str
    point: str
    world: RaceWorld
    seed: int
    budget: int
    tasks: tuple[int, int]
    """The first held-out task, and how many."""

    @cached_property
    def settings(self) -> dict[str, Any]:
        """As `train.settings.settings_of` takes them."""
        preset = named_preset(self.method)
        return {
            "preset": self.method, "world": self.world.world, "set": dict(self.world.set),
            "mix": [dict(task) for task in self.world.mix], "seed": self.seed,
            "change": change_of(preset, self.point), "budget_calls": self.budget, "episodes": episodes_of(preset),
        }  # fmt: skip

    @cached_property
    def recipe(self) -> str:
        """A sum of what the method is here: its preset with the point's changes, and how it is run; the same for every seed."""
        preset = dataclasses.asdict(named_preset(self.method).changed(self.settings["change"]))
        held = {k: v for k, v in preset.items() if k not in _IN_WORDS}
        return _digest({"preset": held, "episodes": self.settings["episodes"], "budget": self.budget, "curve": CURVE})

    @cached_property
    def digest(self) -> str:
        """A sum of all that decides the result, but for the code."""
        return _digest({"recipe": self.recipe, "course": self.course, "seed": self.seed, "phase": self.phase})

    @cached_property
    def course(self) -> str:
        """A sum of the world's parameters and of the held-out tasks; the same for every method."""
        tasks = [{**self.world.set, **task} for task in self.world.mix] or [dict(self.world.set)]
        config = [dataclasses.asdict(world_of(self.world.world, task).config) for task in tasks]
        return _digest({"world": config, "tasks": self.tasks})

    @property
    def name(self) -> str:
        """The name of its row: a file's name."""
        point = self.point.replace(" ", "_").replace("/", "d").replace("*", "x")
        method = self.method.replace(":", "_")
        return f"{self.phase}-{method}-{point}-{self.world.name}-s{self.seed}-{self.digest}"

    def payload(self) -> dict[str, Any]:
        """What the work is given, wherever it runs."""
        return {"settings": self.settings, "tasks": self.tasks, "bound": self.world.bound}

    def head(self) -> dict[str, Any]:
        """The fields of its row that are known before it runs."""
        return {
            "phase": self.phase, "method": self.method, "point": self.point, "world": self.world.name, "seed": self.seed,
            "budget": self.budget, "tasks": list(self.tasks), "bound": self.world.bound, "settings": self.digest,
            "recipe": self.recipe, "course": self.course,
        }  # fmt: skip

    @property
    def command(self) -> str:
        """How to train the same run by hand (its held-out tasks are those of `counterpoint train`)."""
        named = f"--preset {self.method} --world {self.world.world} --seed {self.seed}"
        return f"counterpoint train net {named} --cap calls={self.budget}"


@dataclass(frozen=True)
class Race:
    """A plan with its methods and worlds: which runs there are in each phase."""

    plan: Plan
    suite: str
    methods: tuple[Method, ...]
    worlds: tuple[RaceWorld, ...]
    seeds: int
    _runs: dict[tuple[Any, ...], RaceRun] = field(default_factory=dict, repr=False, compare=False)
    """Runs that were asked for before, so that each one's digest is worked out once."""

    def _race_run(self, phase: str, method: Method, point: str, world: RaceWorld, seed: int, budget: int, first: int) -> RaceRun:
        key = (phase, method.name, point, world.name, seed)
        if key not in self._runs:
            self._runs[key] = RaceRun(phase, method.name, point, world, seed, budget, (first, self.plan.tasks))
        return self._runs[key]

    @property
    def tuned_on(self) -> tuple[RaceWorld, ...]:
        """The worlds that points of the grid are chosen on."""
        return worlds_of(self.suite)[: self.plan.tune_worlds]

    def head(self) -> dict[str, Any]:
        """What all rows of a folder have in common."""
        plan = dataclasses.asdict(self.plan)
        kept = ("name", "final_budget", "tune_budget", "tune_seeds", "tune_worlds", "confirm_seeds", "tasks")
        drawn = self.suite not in SUITES  # to draw them again takes half a minute
        worlds = {"worlds": {w.name: world_about(self.suite, w.name) for w in worlds_of(self.suite)}} if drawn else {}
        plan = {k: plan[k] for k in kept}
        return {"suite": self.suite, "plan": plan, "episodes": EPISODES, "curve": list(CURVE), **worlds}

    def tuning(self, method: Method) -> list[RaceRun]:
        """The grid of a method."""
        if not self.plan.tune_budget or method.preset is None:
            return []
        return [
            self._race_run("tune", method, point, world, TUNING_SEED + s, self.plan.tune_budget, TUNING_TASKS)
            for world in self.tuned_on for s in range(self.plan.tune_seeds) for point in grid(method.preset)
        ]  # fmt: skip

    def confirming(self, method: Method, best: Sequence[str]) -> list[RaceRun]:
        """The best points of the grid, again, with the final budget."""
        return [
            self._race_run("confirm", method, point, world, CONFIRM_SEED + s, self.plan.final_budget, TUNING_TASKS)
            for world in self.tuned_on for s in range(self.plan.confirm_seeds) for point in best
        ]  # fmt: skip

    def final(self, method: Method, chosen: str) -> list[RaceRun]:
        """What counts: the chosen point with every seed, and the published numbers with a few where others were chosen."""
        wanted = [(chosen, s) for s in range(self.seeds)]
        wanted += [] if chosen == PUBLISHED else [(PUBLISHED, s) for s in range(min(self.seeds, self.plan.published_seeds))]
        budget = self.plan.final_budget
        every = [(world, point, s) for world in self.worlds for point, s in wanted]
        return [self._race_run("final", method, point, world, s, budget, FINAL_TASKS) for world, point, s in every]

    def most_runs(self) -> list[RaceRun]:
        """Every run there may be, for a dry run: finals as published, before anything is chosen."""
        out: list[RaceRun] = []
        for method in self.methods:
            if method.preset is not None:
                best = grid(method.preset)[: 2 if self.plan.confirm_seeds else 0]
                out += [*self.tuning(method), *self.confirming(method, best), *self.final(method, PUBLISHED)]
        return out


def planned_race(
    plan: str = "screening", suite: str = "core", *, only: Sequence[str] = (), worlds: Sequence[str] = (),
    every_world: bool = False, seeds: int | None = None, budget: int | None = None, shard: tuple[int, int] = (1, 1),
) -> Race:  # fmt: skip
    """The race that was asked for; shard (i, n) has every n-th method, from the i-th on."""
    if plan not in PLANS:
        raise NotFound(f"no plan named {plan!r}", where="--plan", fix=did_you_mean(plan, PLANS))
    if not 1 <= shard[0] <= shard[1]:
        raise InputError(f"there is no shard {shard[0]}/{shard[1]}", where="--shard", fix="as in 1/4, up to 4/4")
    if seeds is not None and not 1 <= seeds < TUNING_SEED:
        raise InputError(f"cannot train {seeds} seeds", where="--seeds", fix=f"1 to {TUNING_SEED - 1}: tuning uses the others")
    of_plan = PLANS[plan] if budget is None else PLANS[plan].with_budget(budget)
    found = worlds_of(suite, worlds)
    if not worlds and not every_world and of_plan.final_worlds:
        found = found[: of_plan.final_worlds]
    mine = methods(only)[shard[0] - 1 :: shard[1]]
    return Race(of_plan, suite, tuple(mine), found, seeds or of_plan.final_seeds)


@cache
def about(method: str) -> dict[str, Any]:
    """What a method is, for its row: source, reward families, unit, what it trains, what is guessed."""
    try:
        preset = named_preset(method)
    except CounterpointError:
        empty: dict[str, Any] = dict.fromkeys(("source", "grade", "unit", "regime", "sees"), "")
        return {**empty, "families": [], "trains": [], "guessed": [], "knob": {}}
    families = dict.fromkeys(registry.get("reward", name).family for name in preset.reward)
    return {
        "source": preset.source, "grade": preset.grade, "families": list(families), "unit": preset.unit,
        "trains": list(preset.trains), "regime": preset.regime, "guessed": list(preset.guessed), "knob": dict(preset.knob),
        "sees": preset.sees + (" + forks" if preset.plays_forks else ""),
    }  # fmt: skip
