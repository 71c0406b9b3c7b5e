"""What every world promises, called: `check_world` is this with its own error.

Always true: the checks use a world or task only as anybody may, so they hold for one from outside too; each failure is one
sentence. Numbers are compared exactly: an episode is a function of (world, policy, seed), whether it is played alone or among
many. The truth file's first line is a marker and the rest a right answer: so a check knows the truth without a task's own code.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np

from counterpoint.errors import CounterpointError, InputError
from counterpoint.lab.worlds.rules.decision import asks_decisions
from counterpoint.lab.worlds.rules.episodes import play_episodes
from counterpoint.lab.worlds.world import Env, Optimum, Runs, World
from counterpoint.trace import Trace, encode, problems
from counterpoint.trace.vocabulary import SUB_DECISIONS

Require = Callable[[bool, str], None]
_OTHERS = 12  # episodes of other seeds
_FEW = 2  # episodes that are played again, alone and logged
_BY_HAND = 3
_MOST_STEPS = 100_000
_NO_NAME = "no such name"


def check_world(world: World, require: Require, *, episodes: int) -> None:
    """Everything, cheap things first; `require` is told what does not hold."""
    declared(world, World, require)
    config(world, require)
    _silent(world, require)
    best = world.optimum()
    _optimum(best, require)
    names = world.policies()
    require(isinstance(names, list) and bool(names) and all(isinstance(n, str) and n for n in names), "policies() lists no name")
    require(len(set(names)) == len(names), f"policies() names one twice: {names}")
    refuses(lambda: world.run(_NO_NAME, [0]), CounterpointError, "an unknown policy name", require)
    ids: list[str] = []
    for name in names:
        runs = world.run(name, range(episodes))
        _shape(runs, range(episodes), name, require)
        _beats(runs.values, best, name, require)
        if name in (names[0], names[-1]):  # the laws of the world show with any policy
            _repeats(world, name, runs, require)
            ids += _logged(world, name, _part(runs, range(min(_FEW, episodes))), require)
    require(len(set(ids)) == len(ids), "traces of two seeds or policies share an id")
    _by_hand(world, require)
    _decisions(world, require)


# -- worlds: what they say of themselves ---------------------------------------------------------------------------------


def _silent(world: World, require: Require) -> None:
    require(isinstance(world.silent, Mapping), "`silent` maps sub-decisions to reasons")
    for decision, reason in world.silent.items():
        known = ", ".join(SUB_DECISIONS.values())
        require(decision in SUB_DECISIONS.values(), f"`silent` names {decision!r}, which is none of {known}")
        require(isinstance(reason, str) and bool(reason.strip()), f"`silent` gives no reason for {decision}")


def _optimum(best: Optimum, require: Require) -> None:
    require(isinstance(best, Optimum), f"optimum() gives a {type(best).__name__}, not an Optimum")
    require(math.isfinite(best.value), f"the optimum is {best.value}, not a finite number")
    require(best.kind in ("exact", "upper bound"), f"the optimum's kind is {best.kind!r}: exact or upper bound")
    require(bool(best.over.strip()), "the optimum does not say over which policies it holds")
    require(bool(best.how.strip()), "the optimum does not say how it was computed")
    if best.prophet is not None:
        is_above = math.isfinite(best.prophet) and (best.kind != "exact" or best.prophet >= best.value - _slack(best.value))
        require(is_above, f"the prophet gets {best.prophet}, less than the optimum of {best.value}")


def _slack(value: float) -> float:
    return 1e-9 * max(1.0, abs(value))


# -- many episodes -------------------------------------------------------------------------------------------------------


def _repeats(world: World, name: str, runs: Runs, require: Require) -> None:
    """The first episodes again: together, alone, in another order; and then others."""
    few = list(range(min(_FEW, len(runs.values))))
    first = _part(runs, few)
    require(_equal(world.run(name, few), first), f"{name}: the same seeds give other numbers the second time")
    for seed in few:
        alone = world.run(name, [seed])
        require(_equal(alone, _part(runs, [seed])), f"{name}: the episode of seed {seed} alone differs from the same among many")
    back = few[::-1]
    require(_equal(world.run(name, back), _part(runs, back)), f"{name}: the order of the seeds changes an episode")
    every = [runs.values, *runs.columns.values()]
    if any((column != column[0]).any() for column in every):  # else nothing here depends on chance
        some = list(range(min(_OTHERS, len(runs.values))))
        other = world.run(name, [seed + 2**20 for seed in some])
        require(not _equal(other, _part(runs, some)), f"{name}: other seeds give the same episodes again")


def _shape(runs: Runs, seeds: Sequence[int], name: str, require: Require) -> None:
    require(isinstance(runs, Runs), f"run() gives a {type(runs).__name__}, not Runs")
    require(np.array_equal(runs.seeds, seeds), f"{name}: `seeds` are not the seeds that were asked for")
    for column, values in {"values": runs.values, **runs.columns}.items():
        is_good = isinstance(values, np.ndarray) and values.shape == (len(seeds),) and values.dtype.kind in "fiub"
        require(is_good, f"{name}: {column} is not one number per episode")
    require(bool(np.isfinite(runs.values).all()), f"{name}: a return is not finite")


def _part(runs: Runs, at: Sequence[int]) -> Runs:
    take = np.asarray(at, int)
    columns = {name: values[take] for name, values in runs.columns.items()}
    return Runs(seeds=runs.seeds[take], values=runs.values[take], columns=columns)


def _equal(a: Runs, b: Runs) -> bool:
    return same(a.values, b.values) and same(dict(a.columns), dict(b.columns))


def _beats(values: np.ndarray, best: Optimum, name: str, require: Require) -> None:
    """The mean may lie above the optimum by chance only: by four standard errors at most."""
    mean = float(values.mean())
    error = float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.inf
    sentence = f"{name} gets {mean:.6g} ± {error:.2g} (standard error) and beats the optimum of {best.value:.6g}"
    require(mean - 4 * error <= best.value + _slack(best.value), sentence)


def _logged(world: World, name: str, unlogged: Runs, require: Require) -> list[str]:
    """A few episodes with their traces, whose ids it gives back."""
    seeds = [int(seed) for seed in unlogged.seeds]
    runs = world.run(name, seeds, log=True)
    require(_equal(runs, unlogged), f"{name}: logging changes the numbers")
    ids: list[str] = []
    for i, seed in enumerate(seeds):
        trace, again = runs.trace(i), world.run(name, [seed], log=True).trace(0)
        _clean(trace, f"{name}, seed {seed}", require)
        require(
            encode(again) == encode(trace), f"{name}: the episode of seed {seed} gives a trace of other bytes the second time"
        )
        facts = {"world": world.name, "version": world.version, "seed": seed, "policy": name}
        wrong = {key: trace.meta.get(key) for key, value in facts.items() if trace.meta.get(key) != value}
        require(not wrong, f"{name}: the trace's meta has {wrong}, not {facts}")
        is_led = any(e.type == "orchestrator_decision" for e in trace.events)
        require(is_led or ":" in world.name, f"{name}: the trace has no orchestrator_decision")
        _pays(trace, float(runs.values[i]), f"{name}, seed {seed}", require)
        ids.append(trace.trace_id)
    return ids


def _clean(trace: Trace, where: str, require: Require) -> None:
    errors = [p for p in problems(trace) if p.severity == "error"]
    require(not errors, f"{where}: the trace has an error: {errors[0] if errors else ''}")


def _pays(trace: Trace, value: float, where: str, require: Require) -> None:
    team = trace.rewards.get("team", math.nan)
    is_paid = math.isclose(team, value, rel_tol=1e-9, abs_tol=1e-9)
    require(is_paid, f"{where}: the trace's team reward is {team}, and the return {value}")


# -- one episode by hand -------------------------------------------------------------------------------------------------


def _by_hand(world: World, require: Require) -> None:
    lacking = [n for n in _members(Env) if not hasattr(type(world.env()), n) and not hasattr(world.env(), n)]
    require(not lacking, f"env() is not an Env: has no {', '.join(lacking)}")
    for seed in range(_BY_HAND):
        rng = np.random.default_rng(seed)
        actions, steps, env = _play(world, seed, rng, require)
        _replayed(world, seed, actions, steps, require)
        _forked(world, seed, actions, steps, require)
        trace = env.trace()
        _clean(trace, f"by hand, seed {seed}", require)
        _pays(trace, math.fsum(step[1] for step in steps), f"by hand, seed {seed}: the rewards of the steps", require)
        ended = copy.deepcopy(env.observe())
        refuses(lambda env=env, act=actions[-1]: env.step(act), CounterpointError, "a step after the end", require)  # type: ignore[misc]
        require(same(env.observe(), ended), "a step after the end changes the state")


def _decisions(world: World, require: Require) -> None:
    """Where the environment asks decisions, they are ones that a network can read."""
    if not asks_decisions(world.env()):
        return
    rng = np.random.default_rng(0)
    try:
        play_episodes(world, range(_OTHERS), lambda due: (np.array([rng.integers(len(r.options)) for r in due.rows]), None))
    except InputError as error:
        require(False, str(error))


Step = tuple[Any, float, bool, bool]


def _step(env: Env, action: Any) -> Step:
    observation, reward, terminated, truncated, _ = env.step(action)
    return copy.deepcopy(observation), float(reward), bool(terminated), bool(truncated)


def _play(world: World, seed: int, rng: np.random.Generator, require: Require) -> tuple[list[Any], list[Step], Env]:
    """A random episode to its end, looked at all the time."""
    env = world.env()
    first = copy.deepcopy(env.reset(seed)[0])
    require(same(env.reset(seed)[0], first), "reset twice with one seed gives two observations")
    require(same(env.observe(), first), "observe() differs from what reset() gave")
    actions: list[Any] = []
    steps: list[Step] = []
    for _ in range(_MOST_STEPS):
        agents = env.agents
        require(
            isinstance(agents, list) and all(isinstance(a, str) for a in agents), f"`agents` is a list of names, not {agents!r}"
        )
        action = env.sample(rng)
        actions.append(copy.deepcopy(action))
        steps.append(_step(env, action))
        require(same(env.observe(), steps[-1][0]), "observe() differs from what step() gave")
        if steps[-1][2] or steps[-1][3]:
            return actions, steps, env
    require(False, f"a random episode (seed {seed}) does not end in {_MOST_STEPS:,} steps")
    raise AssertionError  # `require` has raised


def _replayed(world: World, seed: int, actions: list[Any], steps: list[Step], require: Require) -> None:
    """The same actions in a new environment, without looking or sampling between them."""
    env = world.env()
    env.reset(seed)
    for action, step in zip(actions, steps, strict=True):
        require(
            same(_step(env, copy.deepcopy(action)), step), "the same seed and actions go another way when nobody looks or samples"
        )


def _forked(world: World, seed: int, actions: list[Any], steps: list[Step], require: Require) -> None:
    """A snapshot in the middle brings back exactly what came after it, here, again, and in another environment."""
    at = len(actions) // 2
    env, other = world.env(), world.env()
    env.reset(seed)
    for action in actions[:at]:
        env.step(copy.deepcopy(action))
    before, saved = copy.deepcopy(env.observe()), env.snapshot()
    _refused(env, before, require)
    other.reset(seed + 1)
    ends = []
    for where in (env, env, other):
        where.restore(saved)
        require(same(where.observe(), before), "after restore() the observation is another than at the snapshot")
        for action, step in zip(actions[at:], steps[at:], strict=True):
            require(same(_step(where, copy.deepcopy(action)), step), "after restore() the same actions go another way")
        ends.append(encode(where.trace()))
    require(len(set(ends)) == 1, "after restore() the same actions give another trace")


def _refused(env: Env, before: Any, require: Require) -> None:
    """What is no action at all may be refused; then nothing has changed."""
    try:
        env.step(object())
    except Exception:
        require(same(env.observe(), before), "a refused action changes the state")


# -- what a world or a task says of itself -------------------------------------------------------------------------------


def declared(thing: Any, protocol: type, require: Require) -> None:
    """A world or a task has every member of its protocol, and names itself."""
    lacking = [n for n in _members(protocol) if not hasattr(thing, n)]
    require(not lacking, f"is not a {protocol.__name__}: has no {', '.join(lacking)}")
    for name in ("name", "short", "version"):
        value = getattr(thing, name)
        require(isinstance(value, str) and bool(value.strip()), f"`{name}` is a string, not {value!r}")


def _members(protocol: type) -> list[str]:
    return [n for n in vars(protocol) if not n.startswith("_")]


def config(thing: Any, require: Require) -> None:
    """Its parameters are a frozen record with units and docs, and `replace` changes nothing else."""
    config: Any = thing.config
    is_record = dataclasses.is_dataclass(config) and not isinstance(config, type)
    require(is_record and config.__dataclass_params__.frozen, "`config` is not a frozen dataclass")
    for f in dataclasses.fields(config):
        for what in ("unit", "doc"):
            is_there = bool(str(f.metadata.get(what) or "").strip())
            require(is_there, f"parameter {f.name} has no {what}; declare it with `parameter`")
    again = thing.replace()
    require(again.config == config, "replace() without a change gives another config")
    require(again.name == thing.name, "replace() without a change gives another name")
    refuses(lambda: thing.replace(no_such_parameter=1), InputError, "replace() of an unknown parameter", require)


def refuses(does: Callable[[], Any], kind: type[Exception], what: str, require: Require) -> None:
    """What must raise this kind of error does."""
    try:
        does()
    except kind:
        return
    except Exception as error:
        require(False, f"{what} ends in {type(error).__name__} and not in {kind.__name__}: {error}")
    require(False, f"{what} raises no {kind.__name__}")


# -- comparing -----------------------------------------------------------------------------------------------------------


def same(a: Any, b: Any) -> bool:
    """Whether two values are equal all the way down; arrays by dtype, shape and content, NaN equal to itself."""
    if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
        is_like = isinstance(a, np.ndarray) and isinstance(b, np.ndarray) and a.dtype == b.dtype and a.shape == b.shape
        return is_like and (all(map(same, a.flat, b.flat)) if a.dtype.kind in "OV" else _same_numbers(a, b))
    if type(a) is not type(b):
        return False
    if isinstance(a, Mapping):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if dataclasses.is_dataclass(a):
        return all(same(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(a))
    if isinstance(a, msgspec.Struct):
        return all(same(getattr(a, name), getattr(b, name)) for name in a.__struct_fields__)
    if callable(a):  # a source of noise has no value to compare; what it gives is compared where it shows
        return True
    if isinstance(a, SimpleNamespace):
        return same(vars(a), vars(b))
    return bool(a == b) or (a != a and b != b)


def _same_numbers(a: np.ndarray, b: np.ndarray) -> bool:
    return bool(np.array_equal(a, b, equal_nan=a.dtype.kind in "fc"))
