"""Several rewards as one: what they pay the team becomes the trace's team reward, what they pay finer units are signals.

Always true: what is paid to the team or to the orchestrator as a whole is summed with its weight, or balanced; for mechanisms
that read signals, what is paid to agents or roles comes on top of that, and turns and single events get their own amounts alone.
Where no reward pays the team, nobody gets anything but their own. The traces given are never changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

import counterpoint.registry as registry
from counterpoint.errors import InputError
from counterpoint.rewards.balance import gdpo, variance_weights, variation_weights, weighted
from counterpoint.rewards.schedules import weight_at
from counterpoint.trace import Trace
from counterpoint.trace.rows import Signal, Signals

OURS = ("weight", "gain", "share")
"""Options of a reward that are not the plug-in's."""


@dataclass(frozen=True)
class Payment:
    """What the rewards came to."""

    traces: list[Trace]
    """With the team reward that was paid."""
    signals: Signals | None
    """Of finer units than the team, the team's on top of the own ones of agents and roles; None where only the team was paid."""
    first: np.ndarray
    """(N,) what the first reward alone pays the team, by trace."""


def pay(
    rewards: Mapping[str, Mapping[str, Any]],
    traces: Sequence[Trace],
    *,
    tasks: np.ndarray,
    reader: str,
    balance: str = "sum",
    progress: float = 0.0,
    weights: Mapping[str, float] | None = None,
    at_first: np.ndarray | None = None,
    leads: Mapping[str, str] | None = None,
    best: float = 1.0,
) -> Payment:
    """Rewards by name with their options, paid on traces.

    `tasks` says which traces are of one task, `reader` is the mechanism that reads the result, `weights` replace the rewards'
    own, `at_first` is the value of the first draft, for rewards with `gain`; `leads` names the orchestrator of a trace where it
    is not "orchestrator". With `share` a reward is given the outcome over `best`: papers with outcomes in 0..1 pay in that unit.
    """
    if not best > 0:
        raise InputError(f"the best outcome is {best:g}, so no share of it can be computed", fix="a world that pays something")
    reads_signals = "signals" in registry.get("mechanism", reader).options
    parts_KN, used = np.zeros((len(rewards), len(traces))), []
    fine: list[dict[tuple[str, str], tuple[str, float]]] = [{} for _ in traces]
    for k, (name, setting) in enumerate(rewards.items()):
        options = {o: v for o, v in setting.items() if o not in OURS}
        weight = weights[name] if weights and name in weights else weight_at(setting.get("weight", 1.0), progress, name)
        reward = registry.get("reward", name)
        used.append(weight)
        if setting.get("gain"):
            if at_first is None:
                raise InputError(f"reward {name} pays the gain over the first draft, which has no value here", fix="gain = false")
            parts_KN[k] -= at_first / best if setting.get("share") else at_first
        for i, trace in enumerate(traces):
            lead = (leads or {}).get(trace.trace_id, "orchestrator")
            signals = reward(_as_share(trace, best) if setting.get("share") else trace, **options)
            parts_KN[k, i] += sum(s.value for s in signals if _is_teams(s, lead))
            for s in [s for s in signals if not _is_teams(s, lead)]:
                if not reads_signals:
                    what = f"reward {name} pays a {s.unit}, which mechanism {reader} does not read"
                    raise InputError(what, fix="agent_wise and hierarchical read signals of agents and roles, gae those of turns")
                own = fine[i].get((s.unit, s.unit_id), ("", 0.0))[1]
                fine[i][s.unit, s.unit_id] = (s.channel, own + weight * s.value)
    totals = balanced(balance, parts_KN, np.array(used), tasks)
    paid = [msgspec.structs.replace(t, rewards={**t.rewards, "team": float(x)}) for t, x in zip(traces, totals, strict=True)]
    pays_team = parts_KN.any() or any(registry.get("reward", name).unit in ("team", "orchestrator") for name in rewards)
    return Payment(paid, _signals(traces, fine, totals, bool(pays_team)) if any(fine) else None, parts_KN[0])


def _signals(
    traces: Sequence[Trace], fine: Sequence[Mapping[tuple[str, str], tuple[str, float]]], totals: np.ndarray, pays_team: bool
) -> Signals:
    """What was paid to finer units than the team, and the team's on top where it is paid anything."""
    units = {unit for own in fine for unit, _ in own if unit in ("agent", "role") and pays_team}
    return Signals.of({t.trace_id: [*_topped(t, own, units, float(x))] for t, own, x in zip(traces, fine, totals, strict=True)})


def balanced(how: str, parts_KN: np.ndarray, weights_K: np.ndarray, task_N: np.ndarray) -> np.ndarray:
    """(N,) one reward of several."""
    if how == "gdpo":
        return gdpo(parts_KN, task_N, weights_K)
    if how == "variance":
        weights_K = weights_K * variance_weights(parts_KN, task_N)
    elif how == "variation":
        weights_K = weights_K * variation_weights(parts_KN)
    return weighted(parts_KN, weights_K)


def _is_teams(signal: Signal, lead: str) -> bool:
    """Whether it is paid to the team, or to the orchestrator as a whole."""
    return signal.unit == "team" or (signal.unit == "orchestrator" and signal.unit_id == lead)


def _as_share(trace: Trace, best: float) -> Trace:
    if "team" not in trace.rewards:
        return trace
    return msgspec.structs.replace(trace, rewards={**trace.rewards, "team": trace.rewards["team"] / best})


def _topped(trace: Trace, own: Mapping[tuple[str, str], tuple[str, float]], units: set[str], total: float) -> Iterable[Signal]:
    """Every agent's (or role's) share of the team reward, all of it, and its own on top; of finer units, those that were paid."""
    names = {"agent": dict.fromkeys(e.agent for e in trace.events), "role": dict.fromkeys(e.role for e in trace.events if e.role)}
    for unit in sorted(units):
        for name in names[unit]:
            yield Signal(unit, name, "team", total + own.get((unit, name), ("", 0.0))[1])
    for (unit, name), (channel, value) in own.items():
        if unit not in units:
            yield Signal(unit, name, channel, value)
