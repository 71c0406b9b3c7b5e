"""R8, hybrid local-global: a weighted sum of named rewards; weights are numbers or schedules of the step.

    r(unit) = sum_k w_k(step) r_k(unit)

Always true: `terms` maps the id of a reward to its weight, or to {"weight": w, option: value, ...}; rows of one unit add up,
under channel R8; a term that gives no row for a unit adds nothing there. `as_team` pays the whole sum to the team instead. A
term of weight 0 is not run.

Automatic weights come from `rewards/balance.py` (they need gradients or a batch, which a single trace does not provide): pass its
`weights_K` here. ParaManager (arXiv 2604.17009) is a sum of this kind; `wideseek`, `matpo` and `agent_qmix` are published
mixes with a reward of their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import counterpoint.registry as registry
from counterpoint.errors import InputError
from counterpoint.rewards.reward import Reward
from counterpoint.rewards.schedules import weight_at
from counterpoint.trace import Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Signal


def _term(name: str, setting: Any, step: float) -> tuple[float, dict[str, Any]]:
    options = dict(setting) if isinstance(setting, Mapping) else {"weight": setting}
    weight = weight_at(options.pop("weight", 1.0), step, name)
    if not math.isfinite(weight):
        raise InputError(f"the weight of {name} is {weight}")
    return weight, options


def _reward(name: str) -> Reward:
    reward = registry.get("reward", name)
    if not isinstance(reward, Reward):
        raise InputError(f"{name} is a {type(reward).__name__}, not a Reward")
    if reward is hybrid:
        raise InputError("hybrid cannot be a term of itself", fix="name its terms directly")
    return reward


def _hybrid_signals(
    trace: Trace,
    *,
    terms: Mapping[str, Any] | None = None,
    step: float = 0.0,
    as_team: bool = False,
) -> Iterator[Signal]:
    terms = {"team_outcome": 1.0} if terms is None else terms
    if not terms:
        raise InputError("hybrid needs at least one reward", fix="terms={'team_outcome': 1.0, 'tool_use': 0.1}")
    sums: dict[tuple[str, str], float] = {}
    for name, setting in terms.items():
        reward = _reward(name)
        weight, options = _term(name, setting, step)
        for signal in reward(trace, **options) if weight else ():
            key = ("team", "") if as_team else (signal.unit, signal.unit_id)
            sums[key] = sums.get(key, 0.0) + weight * signal.value
    for (unit, unit_id), value in sums.items():
        yield Signal(unit, unit_id, "R8", value)


hybrid = Reward(
    family="R8",
    unit="team",
    source="survey 2605.02801, section 3; balancing: GDPO 2601.05242",
    score=_hybrid_signals,
    example=lambda: Example(rollouts()),
)
