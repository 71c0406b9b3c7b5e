"""What training changed: the first policy and the last on the same unseen tasks, hand-made ones beside them.

Always true: every policy plays the same seeds, which no training used; intervals are over tasks, differences are paired.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import counterpoint.registry as registry
from counterpoint.audit.measures import measures
from counterpoint.envs.teamworld.config import FAMILIES, KINDS, RULES, Config
from counterpoint.envs.teamworld.policies import Policy, play
from counterpoint.envs.teamworld.policies.composed import ComposedPolicy, Parts
from counterpoint.envs.teamworld.world import TeamWorld
from counterpoint.trace import Trace
from counterpoint.train import evaluate
from counterpoint.train.evaluate import policy_of, scaled
from counterpoint.train.folder import RunFolder
from counterpoint.train.policies.acting import TeamPolicy
from counterpoint.train.policies.network import Network
from counterpoint.train.rollouts import Rollout, play_out
from counterpoint.train.settings import settings_of
from counterpoint.train.training import Training

_MEASURES = (
    *("task_success", "parallelism_efficiency", "useful_agent_utilisation", "message_redundancy", "messages_read"),
    *("protocol_overhead", "tokens"),
)
_TRACES = 4
_SEEN = 24  # episodes over which behaviour is counted
_FACTORS = (0.25, 0.5, 1, 2)


def first_and_last(run: RunFolder, *, tasks: int, hand_made: Sequence[str], allow: Collection[str] = ()) -> dict[str, Any]:
    """Everything the demo shows, as plain numbers; code that run.toml names runs where `allow` names it too."""
    settings = settings_of(run.config(), where=str(run.path / "run.toml"))
    registry.check_consent(settings.names(), allow, where=str(run.path / "run.toml"))
    training = Training(settings)
    worlds = training.worlds
    start = TeamPolicy(training.net, name="before-training")
    learned = policy_of(run, allow=allow)
    seeds = np.arange(10_000, 10_000 + tasks)
    played = {name: _played(_rule(name, worlds), worlds, seeds) for name in hand_made}
    played |= {"before training": _played([start] * len(worlds), worlds, seeds)}
    played |= {"learned": _played([learned] * len(worlds), worlds, seeds)}
    values = {name: runs["value"] for name, runs in played.items()}
    best = max(hand_made, key=lambda name: float(values[name].mean()))
    gain, optimum = values["learned"] - values[best], evaluate.optimum(worlds, tasks)
    return {
        "world": worlds[0].name,
        "spent": run.spent(),
        "tasks": tasks,
        "optimum": {"value": optimum["value"], "kind": optimum["kind"]},
        "policies": [{"name": n, "mean": float(v.mean()), "interval": _interval(v)} for n, v in values.items()],
        "gain": {"over": best, "mean": float(gain.mean()), "interval": _interval(gain)},
        "by_task": _by_task(worlds, seeds, played, best) if len(worlds) > 1 else [],
        "measures": _measures(worlds[0], start, learned, range(10_000, 10_000 + _TRACES)),
        "behaviour": behaviour(learned.net, worlds, seeds[:_SEEN]).as_dict(),
        "traces": [t for row in run.evals()[-1:] for t in row.get("traces", [])],
    }  # fmt: skip


_REHEARSAL = 1_000_003
_SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48)


def _rule(name: str, worlds: Sequence[TeamWorld]) -> list[Policy]:
    """A hand-made policy for each sort of task; "best_size" spawns the same number everywhere, the best such number."""
    if name != "best_size":
        return [world.policy(name) for world in worlds]
    seeds = _REHEARSAL + np.arange(8 * len(worlds))
    most = max(world.config.max_agents for world in worlds)
    sized: list[list[Policy]] = [
        [ComposedPolicy(w.config, Parts(spawn=str(n)), name) for w in worlds] for n in _SIZES if n <= most
    ]
    return max(sized, key=lambda policies: float(_played(policies, worlds, seeds)["value"].mean()))


def _played(policies: Sequence[Policy], worlds: Sequence[TeamWorld], seeds: np.ndarray) -> dict[str, np.ndarray]:
    """Returns and team sizes, seed by seed; a seed modulo the number of worlds says which it plays."""
    out = {"value": np.zeros(len(seeds)), "agents": np.zeros(len(seeds))}
    for place, (policy, world) in enumerate(zip(policies, worlds, strict=True)):
        mine = seeds % len(worlds) == place
        runs = world.run(policy, seeds[mine])
        out["value"][mine], out["agents"][mine] = runs.values, runs.columns["agents"]
    return out


def _by_task(worlds: Sequence[TeamWorld], seeds: np.ndarray, played: Mapping[str, Any], best: str) -> list[dict[str, Any]]:
    """What each sort of task is, what came of it, and how many agents it got."""
    rows = []
    for place, world in enumerate(worlds):
        mine = seeds % len(worlds) == place
        got = {name: float(played[name]["value"][mine].mean()) for name in ("learned", best)}
        sizes = {name: float(played[name]["agents"][mine].mean()) for name in ("learned", best)}
        rows.append({
            "task": _label(world.config), "bound": world.optimum().value, "learned": got["learned"], "best": got[best],
            "agents": sizes["learned"], "best_agents": sizes[best],
        })  # fmt: skip
    return rows


def _label(config: Config) -> str:
    """How many items of each kind, and whether time costs anything."""
    items = ", ".join(f"{n} {kind}{'s' * (n > 1)}" for kind, n in zip(KINDS, config.counts, strict=True) if n)
    return f"{items}, {'urgent' if config.round_price else 'no hurry'}"


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

    spawn: list[tuple[str, float, float]]
    """O1: the task, agents that the learned policy spawns, agents that the other one does."""
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
            "spawn": [{"task": t, "learned": a, "other": b} for t, a, b in self.spawn],
            "delegate": self.delegate,
            "communicate": {str(k): v for k, v in self.communicate.items()},
            "aggregate": self.aggregate,
            "stop": {k: {"learned": a, "other": b} for k, (a, b) in self.stop.items()},
        }


def _per_kind(config: Config, calls: np.ndarray) -> dict[str, float]:
    """Mean calls per item, by kind that has items."""
    ends = np.cumsum(config.counts)
    return {k: float(calls[:, end - n : end].mean()) for k, n, end in zip(KINDS, config.counts, ends, strict=True) if n}


def behaviour(net: Network, worlds: Sequence[TeamWorld], seeds: np.ndarray, *, beside: str = "reference") -> Behaviour:
    """Count what the network does on these seeds, and what a hand-made policy does."""
    found = {name: [np.zeros(0, np.int64)] for name in ("kind", "family", "brief", "rule")}
    calls: dict[str, list[tuple[float, float]]] = {}
    for place, world in enumerate(worlds):
        numbers = seeds[seeds % len(worlds) == place]
        out = play_out(world.config, net, numbers, np.zeros(len(numbers), np.int64), greedy=True)
        made = _noted(out, found, (len(numbers), world.config.items))
        other = play(world.config, world.policy(beside), numbers).state.calls
        for name, mine in _per_kind(world.config, made).items():
            calls.setdefault(name, []).append((mine, _per_kind(world.config, other)[name]))
    kind, family, brief, rule = (np.concatenate(column) for column in found.values())
    one = worlds[0]
    sized = list(worlds) if len(worlds) > 1 else [scaled(one, f) for f in _FACTORS]
    return Behaviour(
        spawn=[_width(net, world, seeds[:12], beside) for world in sized],
        delegate={
            KINDS[k]: {name: float((family[kind == k] == f).mean()) for f, name in enumerate(FAMILIES)} for k in np.unique(kind)
        },
        communicate={b: float((brief == b).mean()) if len(brief) else 0.0 for b in range(4)},
        aggregate={name: float((rule == r).mean()) if len(rule) else 0.0 for r, name in enumerate(RULES)},
        stop={k: (float(np.mean([a for a, _ in v])), float(np.mean([b for _, b in v]))) for k, v in calls.items()},
    )


def _noted(out: Rollout, found: dict[str, list[np.ndarray]], shape: tuple[int, int]) -> np.ndarray:
    """Add what was decided to the columns in `found`; (E, N) calls on every item."""
    made = np.zeros(shape)
    if "item" not in out.tables:
        return made
    item = out.tables["item"]
    called = np.flatnonzero(item["agent"] >= 0)
    found["kind"].append(item["x"][called, :5].argmax(axis=1))
    found["family"].append(item["agent_x"][called, :2].argmax(axis=1))
    found["brief"].append(item["brief"][called][item["agent"][called] > 0])
    found["rule"].append(out.tables["rule"]["choice"] if "rule" in out.tables else np.zeros(0, np.int64))
    np.add.at(made, (item["ep"][called], item["item"][called]), 1)
    return made


def _width(net: Network, world: TeamWorld, seeds: np.ndarray, beside: str) -> tuple[str, float, float]:
    """The task, and the team sizes of both policies."""
    out = play_out(world.config, net, seeds, np.zeros(len(seeds), np.int64), greedy=True)
    other = play(world.config, world.policy(beside), seeds)
    return _label(world.config), float(out.columns["agents"].mean()), float(other.state.spawned.mean())
