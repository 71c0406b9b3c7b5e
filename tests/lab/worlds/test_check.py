"""`check_world` can fail: for each promise of a world there is one that breaks it, and is caught."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pytest

from counterpoint.errors import InputError
from counterpoint.lab.testing import CHECKS, check_world
from counterpoint.lab.worlds.contract import same
from counterpoint.lab.worlds.world import Optimum, Runs
from counterpoint.testing import ConformanceError
from counterpoint.trace import Edge, Trace
from lab.worlds.coin_world import CoinEnv, CoinWorld, Config, coin_world

_counter: Iterator[int] = iter(range(10**9))


def test_an_honest_world_conforms() -> None:
    check_world(coin_world)
    check_world(coin_world.replace(heads=0.5, horizon=3), episodes=50)
    assert CHECKS["world"] is check_world


def test_a_world_without_chance_conforms() -> None:
    check_world(coin_world.replace(heads=1.0))


# -- broken declarations, results and traces -----------------------------------------------------------------------------


@dataclass
class Loose:
    heads: float = dataclasses.field(default=0.75, metadata={"unit": "1", "doc": "The chance of a head."})


@dataclass(frozen=True)
class Bare:
    heads: float = dataclasses.field(default=0.75, metadata={"doc": "The chance of a head."})


class Drifts(CoinWorld):
    def replace(self, **changes: Any) -> CoinWorld:
        return super().replace(**({"horizon": self.config.horizon + 1} | changes))


class Swallows(CoinWorld):
    def replace(self, **changes: Any) -> CoinWorld:
        return super().replace(**{k: v for k, v in changes.items() if hasattr(self.config, k)})


class Best(CoinWorld):
    """An optimum with something changed."""

    change: dict[str, Any]

    def optimum(self) -> Optimum:
        return dataclasses.replace(super().optimum(), **self.change)


def best(**change: Any) -> CoinWorld:
    return type("Changed", (Best,), {"change": change})()


class Lenient(CoinWorld):
    def run(self, policy: Any, seeds: Sequence[int], *, log: bool = False) -> Runs:
        return super().run(policy if policy in self.policies() else "best", seeds, log=log)


class Results(CoinWorld):
    """Results with something changed."""

    change: Callable[[Runs, bool], dict[str, Any]]

    def run(self, policy: Any, seeds: Sequence[int], *, log: bool = False) -> Runs:
        runs = super().run(policy, seeds, log=log)
        return dataclasses.replace(runs, **type(self).change(runs, log))


def results(change: Callable[[Runs, bool], dict[str, Any]]) -> CoinWorld:
    return type("Changed", (Results,), {"change": staticmethod(change)})()


class Forgets(CoinWorld):
    """Knows only four seeds."""

    def coins(self, seed: int) -> np.ndarray:
        return super().coins(seed % 4)


def traces(change: Callable[[Trace], dict[str, Any]]) -> CoinWorld:
    def changed(runs: Runs, log: bool) -> dict[str, Any]:
        return {"make_trace": lambda i: msgspec.structs.replace(runs.trace(i), **change(runs.trace(i)))} if log else {}

    return results(changed)


def _without(name: str) -> Callable[[Trace], dict[str, Any]]:
    return lambda trace: {"meta": {k: v for k, v in trace.meta.items() if k != name}}


def _shifted(runs: Runs, log: bool) -> dict[str, Any]:
    """The place in the batch leaks into the number."""
    return {"values": runs.values - np.arange(len(runs.values))}


def _sorted(runs: Runs, log: bool) -> dict[str, Any]:
    """Right alone and in ascending order, wrong in another."""
    return {"values": runs.values - (np.diff(runs.seeds, prepend=-1) < 0)}


BROKEN = {
    "is not a World": "not a world",
    "`short` is a string": CoinWorld(short=""),
    "`version` is a string": CoinWorld(version=1),  # type: ignore[arg-type]
    "none of spawn": CoinWorld(silent={"sleep": "Nobody sleeps."}),
    "gives no reason": CoinWorld(silent={"stop": " "}),
    "not a frozen dataclass": CoinWorld(config=Loose()),  # type: ignore[arg-type]
    "heads has no unit": CoinWorld(config=Bare()),  # type: ignore[arg-type]
    "gives another config": Drifts(),
    "unknown parameter raises no InputError": Swallows(),
    "not a finite number": best(value=float("nan")),
    "exact or upper bound": best(kind="rough"),
    "over which policies": best(over=""),
    "how it was computed": best(how=" "),
    "less than the optimum": best(prophet=1.0),
    "flip gets|best gets": best(value=0.2),
    "unknown policy name raises no": Lenient(),
    "not the seeds": results(lambda runs, log: {"seeds": runs.seeds + 1}),
    "flips is not one number per episode": results(lambda runs, log: {"columns": {"flips": np.zeros(1 + len(runs.values))}}),
    "a return is not finite": results(lambda runs, log: {"values": runs.values / 0.0 if runs.values.any() else runs.values}),
    "the second time": results(lambda runs, log: {"values": runs.values - next(_counter)}),
    "alone differs": results(
        lambda runs, log: _shifted(runs, log) if len(runs.values) != 6 else {"values": runs.values - np.arange(6)}
    ),
    "order of the seeds": results(_sorted),
    "same episodes again": Forgets(),
    "logging changes": results(lambda runs, log: {"values": runs.values - log}),
    "not logged": results(lambda runs, log: {"make_trace": None}),
    "has an error": traces(lambda trace: {"edges": [Edge("d0", "nowhere", "causal")]}),
    "trace of other bytes": traces(lambda trace: {"system": f"run {next(_counter)}"}),
    "meta has {'world'": traces(_without("world")),
    "meta has {'version'": traces(_without("version")),
    "meta has {'seed'": traces(_without("seed")),
    "meta has {'policy'": traces(_without("policy")),
    "no orchestrator_decision": traces(lambda trace: {"events": [e for e in trace.events if e.id[0] == "r"], "edges": []}),
    "team reward is": traces(lambda trace: {"rewards": {"team": -1}}),
    "share an id": traces(lambda trace: {"trace_id": f"seed-{trace.meta['seed']}"}),
}


@pytest.mark.filterwarnings("ignore:divide by zero", "ignore:invalid value")
@pytest.mark.parametrize("says", BROKEN)
def test_a_broken_world_is_caught(says: str) -> None:
    with pytest.raises(ConformanceError, match=says):
        check_world(BROKEN[says])  # type: ignore[arg-type]


# -- broken environments -------------------------------------------------------------------------------------------------


class Hand(CoinEnv):
    """An environment with something wrong only when it is stepped by hand."""

    @property
    def by_hand(self) -> bool:
        return self.policy == "by hand"


class Restless(Hand):
    def reset(self, seed: int) -> tuple[Any, dict[str, Any]]:
        super().reset(seed)
        return {"pot": next(_counter)}, {}


class Elsewhere(Hand):
    def reset(self, seed: int) -> tuple[Any, dict[str, Any]]:
        super().reset(seed)
        return {"pot": 0}, {}


class Crowd(Hand):
    @property
    def agents(self) -> Any:
        return ("lead",)


class Watched(Hand):
    """Looking spends a flip; what a step gives is a look too."""

    looks: int = 0

    def observe(self) -> Any:
        self.looks += 1
        return super().observe()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, *rest = super().step(action)
        return observation, reward + (self.looks > 5), *rest  # type: ignore[return-value]


class Dice(Hand):
    """Sampling changes the state."""

    def sample(self, rng: np.random.Generator) -> Any:
        self.seed += 1
        return super().sample(rng)


class Partial(Hand):
    """A snapshot that forgets the number of flips."""

    def snapshot(self) -> Any:
        return {k: v for k, v in super().snapshot().items() if k != "flips"}


class Attached(Hand):
    """A snapshot that shares what comes after."""

    def snapshot(self) -> Any:
        return super().snapshot() | {"done": self.done}

    def restore(self, snapshot: Any) -> None:
        super().restore(snapshot)
        self.done = snapshot["done"]


class Endless(Hand):
    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self.is_over:
            return self.observe(), 0.0, True, False, {}
        return super().step(action)


class Harsh(Hand):
    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self.is_over:
            raise RuntimeError("over")
        return super().step(action)


class Hasty(Hand):
    """Counts an action before it is refused."""

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if action not in ("flip", "stop"):
            self.flips += 1
        return super().step(action)


class Generous(Hand):
    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, *rest = super().step(action)
        return observation, reward + 1, *rest  # type: ignore[return-value]


class Untidy(Hand):
    def trace(self) -> Trace:
        trace = super().trace()
        return msgspec.structs.replace(trace, edges=[Edge("d0", "nowhere", "causal")]) if self.by_hand else trace


ENVS: dict[str, type[Hand]] = {
    "reset twice": Restless,
    "differs from what reset": Elsewhere,
    "list of names": Crowd,
    "when nobody looks or samples": Watched,
    "after restore": Partial,
    "give another trace": Attached,
    "after the end raises no": Endless,
    "after the end ends in RuntimeError": Harsh,
    "refused action changes": Hasty,
    "the rewards of the steps": Generous,
    "by hand, seed 0: the trace has an error": Untidy,
}


@pytest.mark.parametrize("says", ENVS)
def test_a_broken_environment_is_caught(says: str) -> None:
    class World(CoinWorld):
        def env(self) -> Any:
            return ENVS[says](self)

        def _play(self, policy: Any, seed: int) -> CoinEnv:
            return coin_world._play(policy, seed)

    with pytest.raises(ConformanceError, match=says):
        check_world(World())


def test_sampling_must_not_change_the_state() -> None:
    class World(CoinWorld):
        def env(self) -> Any:
            return Dice(self)

        def _play(self, policy: Any, seed: int) -> CoinEnv:
            return coin_world._play(policy, seed)

    with pytest.raises(ConformanceError, match="when nobody looks or samples"):
        check_world(World())


def test_an_environment_that_lacks_something_is_caught() -> None:
    class World(CoinWorld):
        def env(self) -> Any:
            return object()

        def _play(self, policy: Any, seed: int) -> CoinEnv:
            return coin_world._play(policy, seed)

    with pytest.raises(ConformanceError, match="no agents, reset"):
        check_world(World())


def test_a_crash_is_said_with_its_kind() -> None:
    class World(CoinWorld):
        def optimum(self) -> Optimum:
            raise ZeroDivisionError("oops")

    with pytest.raises(ConformanceError, match="ZeroDivisionError: oops"):
        check_world(World())


# -- comparing -----------------------------------------------------------------------------------------------------------


def test_same_looks_all_the_way_down() -> None:
    nan = float("nan")
    a = {"x": [np.array([1.0, nan]), (1, nan)], "c": Config(), "e": Edge("a", "b", "causal")}
    b = {"x": [np.array([1.0, nan]), (1, nan)], "c": Config(), "e": Edge("a", "b", "causal")}
    assert same(a, b)
    for other in (
        a | {"c": Config(heads=0.5)},
        a | {"e": Edge("a", "c", "causal")},
        a | {"x": [np.array([1.0, 2.0]), (1, nan)]},
        a | {"x": [np.array([1, 2]), (1, nan)]},
        a | {"more": 1},
    ):
        assert not same(a, other)
    assert not same(1, 1.0)
    assert not same(np.zeros(2), [0.0, 0.0])
    assert same(np.array([{"k": 1}], object), np.array([{"k": 1}], object))


def test_the_coin_world_refuses_the_impossible() -> None:
    with pytest.raises(InputError, match="chance"):
        coin_world.replace(heads=2)
