"""What is told of finished episodes: columns of numbers, and traces with the reward's parts apart.

Always true: the parts add up: team = R1 − costs. A part that has nothing to judge is absent, never 0.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from counterpoint.envs.teamworld.engine import Batch
from counterpoint.envs.teamworld.policy import Policy
from counterpoint.envs.teamworld.setting import Setting
from counterpoint.envs.teamworld.state import COSTS
from counterpoint.envs.teamworld.traces import Episodes, agent_names
from counterpoint.trace import Trace


def columns(batch: Batch) -> dict[str, np.ndarray]:
    """Numbers per episode."""
    s = batch.state
    out = {
        "quality": batch.quality(),
        "rounds": s.clock.copy(),
        "agents": s.spawned.copy(),
        "calls": s.counts[:, 0].copy(),
        "events": s.counts[:, 2].copy(),
        "violations": s.violations.copy(),
    }
    return out | {f"cost_{name}": s.costs[:, i].copy() for i, name in enumerate(COSTS)}


def meta(world: Setting, seed: int, policy: str | None, edits: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """What it takes to run an episode again."""
    config = {k: list(v) if isinstance(v, tuple) else v for k, v in dataclasses.asdict(world.config).items()}
    return {
        "world": world.name,
        "version": world.version,
        "config": config,
        "seed": int(seed),
        "policy": policy,
        "edits": edits or [],
    }


def parts_of(batch: Batch, ep: int) -> dict[str, float]:
    """The reward of an episode, in parts: R1 is the quality, costs are negative, R7 is what the orchestration itself did."""
    s = batch.state
    quality = float(batch.quality()[ep])
    out = {"team": quality - float(s.costs[ep].sum()), "R1": quality}
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

    def make(i: int) -> Trace:
        s, done = batch.state, edits[i] if edits else []
        names = agent_names(s.parent[i], s.ordinal[i], int(s.spawned[i]))
        seed = int(seeds[i])
        task = f"{world.name}{world.variant}-{seed}"
        tag = f"{task}-{name or 'by-hand'}" + "".join(f"-{edit['id']}" for edit in done)
        rewards = parts_of(batch, i) | rows.means(i)
        about = {"task_id": task, "system": f"teamworld/{world.version}", "meta": meta(world, seed, name, done)}
        return rows.trace(i, names, rewards, trace_id=tag, policy=name, **about)

    return make
