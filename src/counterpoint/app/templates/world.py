"""plugin_name: push your luck. Every head of a coin adds a point to the pot, a tail loses the pot, and stopping keeps it.

Always true: the coin of flip t depends on the seed and t alone. The optimum is a backward pass over the pot.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from counterpoint.envs.world import Optimum, Runs, changed, parameter
from counterpoint.errors import InputError, NotFound, did_you_mean
from counterpoint.trace import Edge, Event, Trace, summed_costs


@dataclass(frozen=True)
class Config:
    """The numbers of this world."""

    heads: float = parameter(0.75, "1", "The chance of a head.")
    horizon: int = parameter(8, "flips", "The most flips of an episode.")


@dataclass
class CoinEnv:
    """One episode, played by hand; an action is "flip" or "stop"."""

    world: CoinWorld
    policy: str = "by hand"
    seed: int = 0
    pot: int = 0
    is_over: bool = True
    done: tuple[tuple[str, bool], ...] = ()
    """What was done, and whether it was a head."""
    agents = ["lead"]

    def reset(self, seed: int) -> tuple[Any, dict[str, Any]]:
        """A new episode."""
        self.seed, self.pot, self.is_over, self.done = seed, 0, False, ()
        return self.observe(), {}

    def observe(self) -> dict[str, int]:
        """All that there is to see."""
        return {"pot": self.pot, "flips": len(self.done)}

    def sample(self, rng: np.random.Generator) -> str:
        """A random action."""
        return "flip" if rng.random() < 0.8 else "stop"

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Flip, or stop: observation, reward, terminated, truncated, info."""
        if self.is_over or action not in ("flip", "stop"):
            raise InputError(f"no action {action!r} here", fix="flip or stop, after reset and before the end")
        is_head = action == "flip" and bool(self.world.coins(self.seed)[len(self.done)])
        after = self.pot + 1 if is_head else self.pot if action == "stop" else 0
        reward, self.pot, self.done = float(after - self.pot), after, (*self.done, (action, is_head))
        self.is_over = not is_head or len(self.done) == self.world.config.horizon
        return self.observe(), reward, self.is_over, False, {}

    def snapshot(self) -> dict[str, Any]:
        """The state, to come back to."""
        return dict(vars(self))

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Back to a snapshot."""
        vars(self).update(snapshot)

    def trace(self) -> Trace:
        """The episode so far: a decision for every action."""
        decision = {"flip": "delegate", "stop": "stop"}
        events = [
            Event(id=f"d{t}", t=t, type="orchestrator_decision", agent="lead", decision=decision[a], options=["flip", "stop"])  # type: ignore[arg-type]
            for t, (a, _) in enumerate(self.done)
        ]
        return Trace(
            trace_id=f"{self.world.name}-{hash(self.world.config)}-{self.policy.replace(' ', '-')}-{self.seed}",
            task_id=f"{self.world.name}-{self.seed}",
            events=events,
            edges=[Edge(a.id, b.id, "causal") for a, b in pairwise(events)],
            rewards={"team": self.pot},
            costs=dict(summed_costs(events)),
            meta={"world": self.world.name, "version": self.world.version, "seed": self.seed, "policy": self.policy},
        )


@dataclass(frozen=True)
class CoinWorld:
    """Push your luck."""

    config: Config = Config()
    name: str = "plugin_name"
    short: str = "plugin_name"
    version: str = "1"
    silent: Mapping[str, str] = field(default_factory=lambda: {"spawn": "There is one agent."})

    def replace(self, **changes: Any) -> CoinWorld:
        """The same world with other numbers."""
        return dataclasses.replace(self, config=changed(self.config, changes))

    def coins(self, seed: int) -> np.ndarray:
        """Which flips of an episode are heads."""
        return np.random.default_rng(seed).random(self.config.horizon) < self.config.heads

    def policies(self) -> list[str]:
        """Flip until the pot is worth more than the next flip; or once; or never."""
        return ["best", "once", "never"]

    def _limit(self, policy: Any) -> float:
        """The pot at which a policy stops: pot >= heads (pot + 1), for the best one."""
        limits = {"best": self.config.heads / max(1 - self.config.heads, 1e-9), "once": 1.0, "never": 0.0}
        if policy not in limits:
            raise NotFound(f"no policy named {policy!r}", fix=did_you_mean(str(policy), limits))
        return limits[policy]

    def optimum(self) -> Optimum:
        """The value of the best rule, exactly."""
        worth = [float(pot) for pot in range(self.config.horizon + 1)]
        for left in range(1, self.config.horizon + 1):
            worth = [max(pot, self.config.heads * worth[pot + 1]) for pot in range(self.config.horizon + 1 - left)]
        return Optimum(value=worth[0], kind="exact", over="every rule that sees the flips so far", how="a backward pass")

    def env(self) -> CoinEnv:
        """An environment to step by hand."""
        return CoinEnv(self)

    def run(self, policy: Any, seeds: Sequence[int], *, log: bool = False) -> Runs:
        """One episode per seed."""
        limit, played = self._limit(policy), [CoinEnv(self, policy) for _ in seeds]
        for env, seed in zip(played, seeds, strict=True):
            env.reset(int(seed))
            while not env.is_over:
                env.step("flip" if env.pot < limit else "stop")
        values = np.array([env.pot for env in played], np.float64)
        flips = np.array([len(env.done) for env in played])
        return Runs(
            seeds=np.array(seeds),
            values=values,
            columns={"actions": flips},
            make_trace=(lambda i: played[i].trace()) if log else None,
        )


plugin_name = CoinWorld()


# -- test_plugin_name.py -----------------------------------------------------------------------------------------------
"""plugin_name keeps the contract of a world, and its optimum is what was computed by hand."""

# from here import plugin_name
from counterpoint.testing import check_env


def test_it_keeps_the_contract() -> None:
    check_env(plugin_name)


def test_an_optimum_by_hand() -> None:
    # two flips of a fair coin: after a head, a point is as good as half of two; so the value is a half of one
    assert plugin_name.replace(heads=0.5, horizon=2).optimum().value == 0.5
