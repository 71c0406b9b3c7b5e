"""A tiny honest world: push your luck with a coin. Each head adds a point to the pot; a tail loses it; stop to keep it.

Always true: the coin of flip t depends on the seed and t alone. The optimum is a backward pass over the pot.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from counterpoint.errors import InputError, NotFound, did_you_mean
from counterpoint.lab.worlds.world import Optimum, Runs, changed, parameter
from counterpoint.trace import Edge, Event, Trace, summed_costs

Rule = Callable[[int], bool]


@dataclass(frozen=True)
class Config:
    """The numbers of the coin world."""

    heads: float = parameter(0.75, "1", "The chance of a head.")
    horizon: int = parameter(10, "flips", "The most flips of an episode.")

    def __post_init__(self) -> None:
        if not 0 <= self.heads <= 1:
            raise InputError(f"heads is a chance, not {self.heads}", fix="0 to 1")
        if self.horizon < 1:
            raise InputError(f"horizon is at least 1, not {self.horizon}")


@dataclass
class CoinEnv:
    """One episode by hand; an action is "flip" or "stop"."""

    world: CoinWorld
    policy: str = "by hand"
    seed: int = -1
    pot: int = 0
    flips: int = 0
    is_over: bool = True
    done: list[tuple[str, bool]] = field(default_factory=list)

    @property
    def agents(self) -> list[str]:
        return ["lead"]

    def reset(self, seed: int) -> tuple[Any, dict[str, Any]]:
        self.seed, self.pot, self.flips, self.is_over, self.done = seed, 0, 0, False, []
        return self.observe(), {}

    def observe(self) -> Any:
        return {"pot": self.pot, "flips": np.array([self.flips])}

    def sample(self, rng: np.random.Generator) -> Any:
        return "flip" if rng.random() < 0.8 else "stop"

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self.is_over:
            raise InputError("the episode is over", fix="reset it")
        if action not in ("flip", "stop"):
            raise InputError(f"no action {action!r}", fix="flip or stop")
        is_head = action == "flip" and bool(self.world.coins(self.seed)[self.flips])
        before = self.pot
        if action == "flip":
            self.flips += 1
            self.pot = self.pot + 1 if is_head else 0
        self.is_over = action == "stop" or not is_head or self.flips == self.world.config.horizon
        self.done.append((action, is_head))
        return self.observe(), float(self.pot - before), self.is_over, False, {}

    def snapshot(self) -> Any:
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)} | {"done": list(self.done)}

    def restore(self, snapshot: Any) -> None:
        for name, value in snapshot.items():
            setattr(self, name, list(value) if name == "done" else value)

    def trace(self) -> Trace:
        events: list[Event] = []
        for t, (action, is_head) in enumerate(self.done):
            decision: Any = "delegate" if action == "flip" else "stop"
            act = Event(id=f"d{t}", t=t, type="orchestrator_decision", agent="lead", decision=decision, options=["flip", "stop"])
            events.append(act)
            if action == "flip":
                events.append(Event(id=f"c{t}", t=t, type="tool_call", agent="lead", tool="coin"))
                events.append(Event(id=f"r{t}", t=t, type="tool_result", agent="lead", tool="coin", ok=is_head))
        digest = f"{self.world.config.heads:g}-{self.world.config.horizon}"
        return Trace(
            trace_id=f"coin-{digest}-{self.policy.replace(' ', '-')}-{self.seed}",
            task_id=f"coin-{self.seed}",
            events=events,
            edges=[Edge(a.id, b.id, "causal") for a, b in itertools.pairwise(events)],
            rewards={"team": self.pot},
            costs=dict(summed_costs(events)),
            meta={"world": self.world.name, "version": self.world.version, "seed": self.seed, "policy": self.policy},
        )


@dataclass(frozen=True)
class CoinWorld:
    """Push your luck."""

    config: Config = Config()
    name: str = "coin_world"
    short: str = "C1"
    version: str = "1"
    silent: Mapping[str, str] = field(
        default_factory=lambda: {"spawn": "There is one agent.", "aggregate": "There is nothing to put together."}
    )

    def replace(self, **changes: Any) -> CoinWorld:
        return dataclasses.replace(self, config=changed(self.config, changes))

    def coins(self, seed: int) -> np.ndarray:
        return np.random.default_rng(seed).random(self.config.horizon) < self.config.heads

    def rules(self) -> dict[str, Rule]:
        p = self.config.heads
        return {"flip": lambda pot: True, "best": lambda pot: pot < p * (pot + 1), "stop": lambda pot: False}

    def policies(self) -> list[str]:
        return list(self.rules())

    def optimum(self) -> Optimum:
        value = list(range(self.config.horizon + 1))  # with no flip left, the pot
        worth: list[float] = [float(v) for v in value]
        for left in range(1, self.config.horizon + 1):
            worth = [max(pot, self.config.heads * worth[pot + 1]) for pot in range(self.config.horizon + 1 - left)]
        return Optimum(
            value=worth[0], kind="exact", over="every policy that sees the flips so far", how="backward pass over the pot"
        )

    def env(self) -> Any:
        return CoinEnv(self)

    def _rule(self, policy: Any) -> Rule:
        if callable(policy):
            return policy
        if policy not in self.rules():
            raise NotFound(f"no policy named {policy!r}", fix=did_you_mean(str(policy), self.policies()))
        return self.rules()[policy]

    def _play(self, policy: Any, seed: int) -> CoinEnv:
        env = self.env()
        env.policy = policy if isinstance(policy, str) else "given"
        rule = self._rule(policy)
        env.reset(seed)
        while not env.is_over:
            env.step("flip" if rule(env.pot) else "stop")
        return env

    def run(self, policy: Any, seeds: Sequence[int], *, log: bool = False) -> Runs:
        played = [self._play(policy, int(seed)) for seed in seeds]
        return Runs(
            seeds=np.array(seeds),
            values=np.array([env.pot for env in played], float),
            columns={"flips": np.array([env.flips for env in played])},
            make_trace=(lambda i: played[i].trace()) if log else None,
        )


coin_world = CoinWorld()


def twice(pot: int) -> bool:
    """A policy from outside: flip until the pot is two."""
    return pot < 2
