"""A configuration with a name, and what is told of its finished episodes: columns of numbers, and traces.

Always true: a setting is frozen; other parameters are another setting, whose traces have other ids. The parts of a reward add up:
team = R1 − costs. A part that has nothing to judge is absent, never 0.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Self

import numpy as np

from counterpoint.errors import InputError
from counterpoint.lab.worlds.teamworld.config import Config
from counterpoint.lab.worlds.teamworld.engine import Batch
from counterpoint.lab.worlds.teamworld.policies import LISTED, Policy, named
from counterpoint.lab.worlds.teamworld.state import COSTS
from counterpoint.lab.worlds.teamworld.traces import Episodes, agent_names
from counterpoint.lab.worlds.world import changed
from counterpoint.trace import Trace

VERSION = "1"


@dataclass(frozen=True)
class Setting:
    """A named configuration of TeamWorld, its policies and its episodes."""

    name: str
    short: str
    config: Config
    silent: Mapping[str, str] = field(default_factory=dict)
    version: str = VERSION
    released: Config | None = None
    """The configuration that this one was made from; None for a released one."""

    @property
    def variant(self) -> str:
        """Short mark of other parameters than the released ones, for ids; empty for a released world."""
        if self.released is None or self.released == self.config:
            return ""
        return "." + blake2b(repr(self.config).encode(), digest_size=3).hexdigest()

    def replace(self, **changes: Any) -> Self:
        """The same world with other parameters; lists stand for tuples. Which sub-decisions are silent is not known of it."""
        return dataclasses.replace(self, config=changed(self.config, changes), released=self.released or self.config)

    def policies(self) -> list[str]:
        """The hand-made policies."""
        return list(LISTED)

    def policy(self, policy: str | Policy) -> Policy:
        """A policy by name, prepared for this configuration; a policy itself is passed through."""
        if isinstance(policy, str):
            return named(policy, self.config)
        if not hasattr(policy, "act"):
            raise InputError(f"{policy!r} is not a policy", fix="a name, or an object with act(observation)")
        return policy

    def batch(self, seeds: Sequence[int] | np.ndarray, *, log: bool = False) -> Batch:
        """Many episodes to step by hand: `observe()` and `step(action)` with arrays over episodes."""
        return Batch(self.config, np.asarray(seeds, np.int64), log=log)


# -- what is told of finished episodes ---------------------------------------------------------------------------------


def columns(batch: Batch) -> dict[str, np.ndarray]:
    """Numbers per episode."""
    s = batch.state
    out = {
        "quality": batch.quality(),
        "rounds": s.clock.copy(),
        "agents": s.spawned.copy(),
        "calls": s.counts[:, 0] + s.further,
        "events": s.counts[:, 2].copy(),
        "violations": s.violations.copy(),
    }
    return out | {f"cost_{name}": s.costs[:, i].copy() for i, name in enumerate(COSTS)}


def meta(
    world: Setting, stated: Mapping[str, Any], seed: int, policy: str | None, edits: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    """What it takes to run an episode again; `stated` is what the world's configuration states."""
    return {
        "world": world.name,
        "version": world.version,
        "config": {k: list(v) if isinstance(v, tuple) else v for k, v in stated.items()},
        "seed": int(seed),
        "policy": policy,
        "edits": edits or [],
    }


def parts_of(batch: Batch, ep: int, quality: float) -> dict[str, float]:
    """The reward of an episode, in parts: R1 is the quality, costs are negative, R7 is what the orchestration itself did."""
    s = batch.state
    out = {"team": quality - float(s.costs[ep].sum()), "R1": quality}
    if batch.config.opponent_rounds:
        out["opponent"] = -out["team"]
    out |= {f"cost_{name}": -float(s.costs[ep, i]) for i, name in enumerate(COSTS) if s.costs[ep, i]}
    calls, rounds, spawned = int(s.counts[ep, 0]), int(s.clock[ep]), int(s.spawned[ep])
    if calls and spawned and rounds:
        out["R7_parallel"] = calls / rounds / spawned
        out["R7_finish"] = float(s.counts[ep, 1]) / calls
    return out


def traced(
    world: Setting,
    batch: Batch,
    seeds: np.ndarray,
    policy: Policy | str | None,
    edits: list[list[dict[str, Any]]] | None = None,
) -> Callable[[int], Trace]:
    """A maker of traces for the episodes of a finished, logged batch."""
    assert batch.writer is not None
    rows = Episodes(world.config, batch.writer.log, batch.state.episodes)
    name = policy if policy is None or isinstance(policy, str) else policy.name
    quality, title, stated = batch.quality().tolist(), f"{world.name}{world.variant}", world.config.stated()

    def make(i: int) -> Trace:
        s, done = batch.state, edits[i] if edits else []
        names = agent_names(s.parent[i], s.ordinal[i], int(s.spawned[i]))
        seed = int(seeds[i])
        task = f"{title}-{seed}"
        tag = f"{task}-{name or 'by-hand'}" + "".join(f"-{edit['id']}" for edit in done)
        rewards = parts_of(batch, i, quality[i]) | rows.means(i)
        about = {"task_id": task, "system": f"teamworld/{world.version}", "meta": meta(world, stated, seed, name, done)}
        return rows.trace(i, names, rewards, trace_id=tag, policy=name, **about)

    return make
