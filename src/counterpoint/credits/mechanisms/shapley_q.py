"""Shapley-Q: an agent's credit is the mean over sampled orders of marginals that a critic predicts.

    phi_i = 1/M sum_m  marginal(predecessors of i in order m, i)

Always true: an order is a permutation of the trace's agents, drawn from `seed` and the trace's place, or given; an agent's
marginal depends on who stands before it and on itself, not on the order among them. Where the marginals are differences of
one value v, the phi of a trace sum to v(all) - v(nobody), whatever the orders (efficiency).

Source: Shapley Q-value (SQDDPG), arXiv 1907.05707; official code, where the sum of phi is trained to the TD target
(`counterpoint.lab.train.losses.joint_critic`). The exact value over all orders is the mechanism `shapley`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Annotated, Any

import numpy as np

from counterpoint.credits.mechanism import Mechanism
from counterpoint.credits.rows import TraceUnit, credit_of, unit_events
from counterpoint.credits.shared_options import ORDERS, SEED
from counterpoint.errors import InputError, NotIdentified
from counterpoint.options import NonNegativeInt
from counterpoint.trace import Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Credit

_ESTIMAND = "mean over sampled orders of the critic's marginal value of the agent after its predecessors"


def sampled_marginals(
    marginal: Callable[[tuple[Any, ...], Any], float], orders: Sequence[Sequence[Hashable]]
) -> dict[Hashable, float]:  # fmt: skip
    """Player to the mean of `marginal(predecessors, player)` over the orders."""
    if not orders:
        raise InputError("no orders to take marginals along", fix="at least one permutation of the players")
    total: dict[Hashable, float] = {}
    for order in orders:
        for place, who in enumerate(order):
            total[who] = total.get(who, 0.0) + float(marginal(tuple(order[:place]), who)) / len(orders)
    return total


def drawn_orders(players: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """(count, players) permutations."""
    if count < 1:
        raise InputError(f"{count} orders", fix="at least 1")
    return np.stack([rng.permutation(players) for _ in range(count)])


def _shapley_q_credit(
    traces: Sequence[Trace],
    *,
    marginal: Callable[[Trace], Callable[[tuple[str, ...], str], float]] | None = None,
    orders: Annotated[int, ORDERS] = 16,
    seed: Annotated[NonNegativeInt, SEED] = 0,
) -> Credit:
    rows: list[tuple[TraceUnit, float]] = []
    for i, trace in enumerate(traces):
        if marginal is None:
            raise NotIdentified(
                "the marginal values are not in a trace", "give marginal=, a function of the trace: (before, agent) -> value",
                where=trace.trace_id,
            )  # fmt: skip
        names = list(unit_events(trace, "agent"))
        drawn = drawn_orders(len(names), orders, np.random.default_rng([seed, i])).tolist()
        phi = sampled_marginals(marginal(trace), [[names[k] for k in order] for order in drawn])
        rows += [(TraceUnit(i, "agent", name), phi[name]) for name in names]
    return credit_of("shapley_q", _ESTIMAND, traces, rows, notes={"orders": orders, "seed": seed})


def _example() -> Example:
    """An agent adds the number of letters of its name, and half as much to a team that is there already."""
    return Example(rollouts(), {"marginal": lambda trace: lambda before, who: len(who) / (2 if before else 1)})


shapley_q = Mechanism(
    sees="round",
    unit="agent",
    estimand=_ESTIMAND,
    assumptions="the critic's marginals are right on average; the agents of a trace may join in any order",
    cost="a critic of marginal values",
    additive=False,
    source="SQDDPG, arXiv 1907.05707; official code",
    run=_shapley_q_credit,
    needs=("critic",),
    example=_example,
    from_rows=True,
)
