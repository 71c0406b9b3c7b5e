"""A baseline per layer of the spawn tree: the main agent against main agents, sub-agents against sub-agents.

    main: (R_M - mean_K) / std_K over K rollouts;   sub: the same over all sub-agents of the task (or rollout)

Always true: agents of different depth in the spawn tree are never compared. With `d` (M-GRPO) every rollout counts exactly d
sub-calls: fewer are filled up with random duplicates, more are dropped at random (no row); the draw comes from `seed` alone.

Sources: M-GRPO arXiv 2511.13288 (paper form: population std, no eps); `sub="rollout"` with `convention="prime_rl"` is
prime-rl's hierarchical GRPO. Departures: any depth, not two; a group of one is refused.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Annotated

import numpy as np

from counterpoint.credits.groups import convention_of
from counterpoint.credits.mechanism import Mechanism
from counterpoint.credits.rows import TraceUnit, credit_of, grouped_credit, keys_of, payments_of, unit_events
from counterpoint.credits.shared_options import SEED, GroupConvention, GroupKey, PaidSignals, Singleton
from counterpoint.errors import InputError
from counterpoint.options import Channel, NonNegativeInt
from counterpoint.trace import Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Credit
from counterpoint.trace.team import team_of

_ESTIMAND = "(R - mean of the layer) / std of the layer, over the rollouts of the task"


def aligned(n: int, d: int, rng: np.random.Generator) -> list[int]:
    """d indices into n sub-calls: all of them and random duplicates when n < d, a random subset in order when n > d."""
    if d < 1:
        raise InputError(f"d is at least 1, not {d}")
    if n == 0:
        return []
    if n >= d:
        return sorted(rng.choice(n, d, replace=False).tolist())
    return [*range(n), *rng.integers(0, n, d - n).tolist()]


def _hierarchical_credit(
    traces: Sequence[Trace],
    *,
    convention: GroupConvention = "m_grpo",
    sub: str = "task",
    d: int | None = None,
    seed: Annotated[NonNegativeInt, SEED] = 0,
    key: GroupKey = "task_id",
    channel: Channel = "team",
    signals: PaidSignals = None,
    singleton: Singleton = None,
) -> Credit:
    if sub not in ("task", "rollout"):
        raise InputError(f"no group of sub-agents {sub!r}", fix="task or rollout")
    units = [unit_events(t, "agent") for t in traces]
    rewards = payments_of(traces, units, "agent", channel=channel, signals=signals)
    rows: list[TraceUnit] = []
    values: list[float] = []
    keys: list[Hashable] = []
    dropped: dict[tuple[int, str], str] = {}
    for i, (trace, task) in enumerate(zip(traces, keys_of(traces, key), strict=True)):
        team = team_of(trace)
        depth = {n: int(team.depth_A[team.number[n]]) for n in rewards[i]}
        subs = [n for n in rewards[i] if depth[n] > 0]
        chosen = subs
        if d is not None:
            picked = aligned(len(subs), d, np.random.default_rng([seed, i]))
            chosen = [subs[k] for k in picked]
            dropped |= {(i, n): f"dropped: more than d = {d} sub-calls" for n in subs if n not in chosen}
        for name in [*(n for n in rewards[i] if depth[n] == 0), *chosen]:
            rows.append(TraceUnit(i, "agent", name))
            values.append(rewards[i][name])
            keys.append((task, depth[name]) if depth[name] == 0 or sub == "task" else (task, depth[name], trace.trace_id))
    how = convention_of(convention, singleton=singleton)
    credit = grouped_credit("hierarchical", _ESTIMAND, traces, rows, values, keys, how, notes={"d": d, "sub": sub})
    once = {(r.trace, r.unit_id): (TraceUnit(r.trace, r.unit, r.unit_id), r.value) for r in credit.rows}
    refused = {**credit.unidentified, **dropped}
    return credit_of("hierarchical", _ESTIMAND, traces, once.values(), notes=credit.notes, unidentified=refused)


hierarchical = Mechanism(
    unit="agent",
    estimand=_ESTIMAND,
    assumptions="agents of one depth do comparable work",
    cost="nothing beyond several traces per task",
    additive=False,
    source="M-GRPO, arXiv 2511.13288 (paper form); prime-rl's hierarchical GRPO",
    run=_hierarchical_credit,
    needs=("group",),
    example=lambda: Example(rollouts()),
)
