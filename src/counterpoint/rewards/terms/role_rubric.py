"""R3, role rubric: each role is judged by its own weighted rubric, or by what was logged on its events.

Always true: one row of unit role per role that appears in the trace and was scored. A rubric is a callable (trace, role) ->
score, or a mapping from the item's name to a callable or to (weight, callable); items that give None drop out, the rest are
averaged by weight:

    r(role) = sum_i w_i s_i / sum_i w_i   over the items scored

Without rubrics, each event's amount in the first of `channels` it has, averaged over the role's events.
MarsRL (arXiv 2511.11373: a verifier is paid for a true verdict) and MAE (2510.23595) are rubrics of this kind.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from counterpoint.errors import InputError
from counterpoint.rewards.reward import Reward, amounts, gathered
from counterpoint.trace import Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Signal

Item = Callable[[Trace, str], float | bool | None]


def _items(role: str, rubric: Any) -> list[tuple[float, Item]]:
    entries = list(rubric.values()) if isinstance(rubric, Mapping) else [rubric]
    items = [entry if isinstance(entry, tuple) else (1.0, entry) for entry in entries]
    for item in items:
        if len(item) != 2 or not callable(item[1]) or not (math.isfinite(item[0]) and item[0] > 0):
            raise InputError(f"the rubric of {role!r} is not a callable", fix="give callables or (positive weight, callable)")
    return [(float(w), f) for w, f in items]


def _judged(trace: Trace, role: str, items: list[tuple[float, Item]]) -> float | None:
    scored = [(w, float(s)) for w, f in items if (s := f(trace, role)) is not None]
    return sum(w * s for w, s in scored) / sum(w for w, _ in scored) if scored else None


def _role_rubric_signals(
    trace: Trace,
    *,
    rubrics: Mapping[str, Any] | None = None,
    channels: Sequence[str] = ("R3", "R2", "R6"),
) -> Iterator[Signal]:
    if rubrics is None:
        paid = ((e.role, amount) for e, amount in amounts(trace, channels) if e.type != "spawn")
        values: dict[str, float | None] = dict(gathered(paid, "mean"))
    else:
        checked = {role: _items(role, rubric) for role, rubric in rubrics.items()}
        roles = dict.fromkeys(e.role for e in trace.events if e.role is not None and e.type != "spawn")
        values = {role: _judged(trace, role, checked[role]) for role in roles if role in checked}
    for role, value in values.items():
        if value is not None:
            yield Signal("role", role, "R3", value)


role_rubric = Reward(
    family="R3",
    unit="role",
    source="survey 2605.02801, section 3; MarsRL 2511.11373",
    score=_role_rubric_signals,
    example=lambda: Example(rollouts()),
)
