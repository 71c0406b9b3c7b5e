"""What training changed: hand-made policies on the tasks that a run was judged on, and what the learned one decides and does.

Always true: every policy plays the same seeds, which no training used; a seed modulo the number of worlds says which it plays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from counterpoint.audits.measures import measures
from counterpoint.lab.train.policies.acting import TeamPolicy
from counterpoint.lab.train.policies.network import Network
from counterpoint.lab.train.rollouts import Rollout, play_out
from counterpoint.lab.worlds.teamworld.config import FAMILIES, KINDS, RULES, Config
from counterpoint.lab.worlds.teamworld.policies import Policy, play
from counterpoint.lab.worlds.teamworld.policies.composed import ComposedPolicy, Parts
from counterpoint.lab.worlds.teamworld.world import TeamWorld
from counterpoint.trace import Trace

_MEASURES = (
    *("parallelism_efficiency", "useful_agent_utilisation", "message_redundancy", "messages_read", "protocol_overhead"),
    "tokens",
)
_TRACES = 4

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


def by_hand(name: str, worlds: Sequence[TeamWorld], seeds: np.ndarray) -> dict[str, np.ndarray]:
    """Returns and team sizes of a hand-made policy, seed by seed."""
    return _played(_rule(name, worlds), worlds, seeds)


def _played(policies: Sequence[Policy], worlds: Sequence[TeamWorld], seeds: np.ndarray) -> dict[str, np.ndarray]:
    """Returns and team sizes, seed by seed."""
    out = {"value": np.zeros(len(seeds)), "agents": np.zeros(len(seeds))}
    for place, (policy, world) in enumerate(zip(policies, worlds, strict=True)):
        mine = seeds % len(worlds) == place
        runs = world.run(policy, seeds[mine])
        out["value"][mine], out["agents"][mine] = runs.values, runs.columns["agents"]
    return out


def measured(world: TeamWorld, start: Network, learned: Network) -> list[dict[str, Any]]:
    """E2 to E4 of both, each the mean over the first tasks' traces; None where a trace does not say."""
    played = [world.run(TeamPolicy(net), range(_TRACES), log=True) for net in (start, learned)]
    sides = [_means([runs.trace(i) for i in range(_TRACES)]) for runs in played]
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
    """What an orchestrator decides of O2 to O5, counted over greedy episodes of two policies on the same seeds."""

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
            "delegate": self.delegate,
            "communicate": {str(k): v for k, v in self.communicate.items()},
            "aggregate": self.aggregate,
            "stop": {k: {"learned": a, "other": b} for k, (a, b) in self.stop.items()},
        }


def mean_behaviour(several: Sequence[Behaviour]) -> Behaviour:
    """The mean over several policies; of what only some of them do at all, over those."""
    pairs = [{k: {"learned": a, "other": b} for k, (a, b) in one.stop.items()} for one in several]
    stop = {k: (v["learned"], v["other"]) for k, v in _mean_of_tables(pairs).items()}
    return Behaviour(
        delegate=_mean_of_tables([one.delegate for one in several]),
        communicate=_mean_of([one.communicate for one in several]),
        aggregate=_mean_of([one.aggregate for one in several]),
        stop=stop,
    )


def _mean_of(rows: Sequence[Mapping[Any, float]]) -> dict[Any, float]:
    keys = dict.fromkeys(key for row in rows for key in row)
    return {key: float(np.mean([row[key] for row in rows if key in row])) for key in keys}


def _mean_of_tables(tables: Sequence[Mapping[str, Mapping[str, float]]]) -> dict[str, dict[str, float]]:
    keys = dict.fromkeys(key for table in tables for key in table)
    return {key: _mean_of([table[key] for table in tables if key in table]) for key in keys}


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
    return Behaviour(
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
