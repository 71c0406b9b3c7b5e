"""What training changed: the first policy and the last on the same unseen tasks, hand-made ones beside them.

Always true: every policy plays the same seeds, which no training used; intervals are over tasks, differences are paired.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import counterpoint.registry as registry
from counterpoint.audit.measures import measures
from counterpoint.envs.teamworld.config import FAMILIES, KINDS, RULES, Config
from counterpoint.envs.teamworld.policies import play
from counterpoint.envs.teamworld.world import TeamWorld
from counterpoint.trace import Trace
from counterpoint.train.evaluate import policy_of, scaled
from counterpoint.train.folder import RunFolder
from counterpoint.train.jobs import world_of
from counterpoint.train.policies.acting import TeamPolicy
from counterpoint.train.policies.network import Network
from counterpoint.train.rollouts import play_out
from counterpoint.train.settings import settings_of
from counterpoint.train.training import Training

_MEASURES = (
    *("task_success", "parallelism_efficiency", "useful_agent_utilisation", "message_redundancy", "messages_read"),
    *("protocol_overhead", "tokens"),
)
_TRACES = 4


def first_and_last(run: RunFolder, *, tasks: int, hand_made: Sequence[str], allow: Collection[str] = ()) -> dict[str, Any]:
    """Everything the demo shows, as plain numbers; code that run.toml names runs where `allow` names it too."""
    settings = settings_of(run.config(), where=str(run.path / "run.toml"))
    registry.check_consent(settings.names(), allow, where=str(run.path / "run.toml"))
    world = world_of(settings.world, settings.set)
    start = TeamPolicy(Training(settings).net, name="before-training")
    learned = policy_of(run, allow=allow)
    seeds = range(10_000, 10_000 + tasks)
    values = {name: world.run(name, seeds).values for name in hand_made}
    values |= {"before training": world.run(start, seeds).values, "learned": world.run(learned, seeds).values}
    best = max(hand_made, key=lambda name: float(values[name].mean()))
    gain, optimum = values["learned"] - values[best], world.optimum()
    return {
        "world": world.name,
        "short": world.short,
        "spent": run.spent(),
        "tasks": tasks,
        "optimum": {"value": optimum.value, "kind": optimum.kind},
        "policies": [{"name": n, "mean": float(v.mean()), "interval": _interval(v)} for n, v in values.items()],
        "gain": {"over": best, "mean": float(gain.mean()), "interval": _interval(gain)},
        "measures": _measures(world, start, learned, seeds[:_TRACES]),
        "behaviour": behaviour(learned.net, world, seeds[:24]).as_dict(),
        "traces": [t for row in run.evals()[-1:] for t in row.get("traces", [])],
    }  # fmt: skip


def _interval(values: np.ndarray) -> tuple[float, float]:
    """The 95 % interval of the mean, for the many tasks of a demo."""
    half = 2.0 * float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return float(values.mean()) - half, float(values.mean()) + half


def _measures(world: TeamWorld, start: TeamPolicy, learned: TeamPolicy, seeds: range) -> list[dict[str, Any]]:
    """E1-E4 of both, each the mean over a few traces; None where a trace does not say."""
    played = [world.run(p, seeds, log=True) for p in (start, learned)]
    sides = [_means([runs.trace(i) for i in range(len(seeds))]) for runs in played]
    return [{"name": n, "family": f, "before": sides[0][n][1], "after": v} for n, (f, v) in sides[1].items()]


def _means(traces: Sequence[Trace]) -> dict[str, tuple[str, float | None]]:
    found = [{m.name: m for m in measures(t)} for t in traces]
    out: dict[str, tuple[str, float | None]] = {}
    for name in _MEASURES:
        got = [float(f[name].value) for f in found if name in f and f[name].value is not None]  # type: ignore[arg-type]
        family = next((f[name].family for f in found if name in f), "")
        out[name] = (family, sum(got) / len(got) if got else None)
    return out


@dataclass(frozen=True)
class Behaviour:
    """What an orchestrator does, sub-decision by sub-decision, counted over greedy episodes of two policies on the same seeds."""

    spawn: list[tuple[int, float, float]]
    """O1: items of the task, agents that the learned policy spawns, agents that the other one does."""
    delegate: dict[str, dict[str, float]]
    """O2: by kind of item, the share of its calls that each family gets."""
    communicate: dict[int, float]
    """O3: share of calls by size of brief."""
    aggregate: dict[str, float]
    """O4: share of rounds by rule."""
    stop: dict[str, tuple[float, float]]
    """O5: by kind of item, calls before it is left: learned, and the other policy's."""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "spawn": [{"items": n, "learned": a, "other": b} for n, a, b in self.spawn],
            "delegate": self.delegate,
            "communicate": {str(k): v for k, v in self.communicate.items()},
            "aggregate": self.aggregate,
            "stop": {k: {"learned": a, "other": b} for k, (a, b) in self.stop.items()},
        }


def _per_kind(config: Config, calls: np.ndarray) -> dict[str, float]:
    """Mean calls per item, by kind that has items."""
    ends = np.cumsum(config.counts)
    return {k: float(calls[:, end - n : end].mean()) for k, n, end in zip(KINDS, config.counts, ends, strict=True) if n}


def behaviour(
    net: Network, world: TeamWorld, seeds: range, *, beside: str = "reference", factors: tuple[float, ...] = (0.25, 0.5, 1, 2)
) -> Behaviour:  # fmt: skip
    """Count what the network does on these seeds, and what a hand-made policy does."""
    numbers = np.asarray(seeds)
    config = world.config
    out = play_out(config, net, numbers, np.zeros(len(numbers), np.int64), greedy=True)
    other = play(config, world.policy(beside), numbers)
    item = out.tables["item"]
    called = np.flatnonzero(item["agent"] >= 0)
    kind = item["x"][called, :5].argmax(axis=1)
    family = item["agent_x"][called, :2].argmax(axis=1)
    share = {KINDS[k]: {name: float((family[kind == k] == f).mean()) for f, name in enumerate(FAMILIES)} for k in np.unique(kind)}
    told = item["agent"][called] > 0
    brief = item["brief"][called][told]
    rule = out.tables["rule"]["choice"] if "rule" in out.tables else np.zeros(0, np.int64)
    made = np.zeros((len(numbers), config.items))
    np.add.at(made, (item["ep"][called], item["item"][called]), 1)
    mine, theirs = _per_kind(config, made), _per_kind(config, other.state.calls)
    return Behaviour(
        spawn=[_width(net, scaled(world, f), numbers[:12], beside) for f in factors],
        delegate=share,
        communicate={b: float((brief == b).mean()) if len(brief) else 0.0 for b in range(4)},
        aggregate={name: float((rule == r).mean()) if len(rule) else 0.0 for r, name in enumerate(RULES)},
        stop={k: (mine[k], theirs[k]) for k in mine},
    )


def _width(net: Network, world: TeamWorld, seeds: np.ndarray, beside: str) -> tuple[int, float, float]:
    """Items, and the team sizes of both policies."""
    out = play_out(world.config, net, seeds, np.zeros(len(seeds), np.int64), greedy=True)
    other = play(world.config, world.policy(beside), seeds)
    return world.config.items, float(out.columns["agents"].mean()), float(other.state.spawned.mean())
