"""What training changed: the first policy and the last on the same unseen tasks, hand-made ones beside them.

Always true: every policy plays the same seeds, which no training used; intervals are over tasks, differences are paired.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from counterpoint import registry
from counterpoint.audit.measures import measures
from counterpoint.envs.teamworld.world import TeamWorld
from counterpoint.trace import Trace
from counterpoint.train.behaviour import behaviour
from counterpoint.train.evaluate import policy_of
from counterpoint.train.folder import RunFolder
from counterpoint.train.jobs import world_of
from counterpoint.train.policies.acting import TeamPolicy
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
