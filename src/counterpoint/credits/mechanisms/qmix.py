"""QMIX: the team's value as a monotone mix of the agents' values; credit is what the mix loses without one.

    Q_tot = |w2| . elu(q |W1| + b1) + b2;    c_i = Q_tot(q) - Q_tot(q with q_i at 0)

Always true: Q_tot never falls when a q_i rises (the weights enter as absolute values), so no gradient is negative. The rows
do not sum to Q_tot; the notes hold Q_tot and the gradients.
With by="decision" the members of the mix are the orchestrator's sub-decisions of a round, as in the preset qmix.

Sources: QMIX arXiv 1803.11485, pymarl; Agent Q-Mix arXiv 2604.00344 (`td_errors`, whose release drops the last step of an
episode). Departure: the mix's weights are given (`mixer(trace)`), not produced by a hypernetwork here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from counterpoint.credits.advantages import td_targets
from counterpoint.credits.groups import Floats
from counterpoint.credits.mechanism import Mechanism
from counterpoint.credits.mechanisms.vdn import agent_values
from counterpoint.credits.rows import TraceUnit, credit_of
from counterpoint.credits.shared_options import Q
from counterpoint.errors import InputError, NotIdentified
from counterpoint.trace import Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Credit

_ESTIMAND = "Q_tot(q) - Q_tot(q with the agent's value at its default)"


class MixWeights(NamedTuple):
    """The weights of one state: w1 (agents, hidden), b1 (hidden,), w2 (hidden,), b2."""

    w1: ArrayLike
    b1: ArrayLike
    w2: ArrayLike
    b2: float


def _hidden(q: ArrayLike, m: MixWeights) -> Floats:
    q_A, w1 = np.asarray(q, np.float64), np.abs(np.asarray(m.w1, np.float64))
    if w1.ndim != 2 or q_A.shape[-1] != len(w1):
        raise InputError(f"the mixer is for {len(w1)} agents, not {q_A.shape[-1]}", fix="a mixer has a fixed width")
    return q_A @ w1 + np.asarray(m.b1, np.float64)


def mix(q: ArrayLike, m: MixWeights) -> Floats:
    """Q_tot of values along the last axis."""
    h = _hidden(q, m)
    return np.where(h > 0, h, np.expm1(np.minimum(h, 0))) @ np.abs(np.asarray(m.w2, np.float64)) + m.b2


def gradient(q: ArrayLike, m: MixWeights) -> Floats:
    """dQ_tot / dq_i, which is never negative."""
    h = _hidden(q, m)
    slope = np.where(h > 0, 1.0, np.exp(np.minimum(h, 0))) * np.abs(np.asarray(m.w2, np.float64))
    return slope @ np.abs(np.asarray(m.w1, np.float64)).T


def td_errors(
    reward: float, q_tot: ArrayLike, target_q_tot: ArrayLike, done: ArrayLike, *, gamma: float = 0.99, drop_last: bool = True
) -> tuple[Floats, Floats]:
    """Targets and errors of an episode whose reward is written to every step; `drop_last` as Agent Q-Mix' release does."""
    q, after = np.asarray(q_tot, np.float64), np.asarray(target_q_tot, np.float64)
    targets = td_targets(np.full(len(q), reward), np.append(after[1:], 0.0), gamma=gamma, done=done)
    last = len(q) - 1 if drop_last else len(q)
    return targets[:last], (targets - q)[:last]


def _by_round(trace: Trace, q: Callable[[Trace], Mapping[str, float]] | None) -> dict[int, dict[str, float]]:
    """Round to the values of its decisions, by event id; rounds of which q says nothing are left out."""
    if q is None:
        raise NotIdentified("values of decisions are not in a trace", "give q=, a function: trace -> value by event id")
    values, out = q(trace), {}  # type: Mapping[str, float], dict[int, dict[str, float]]
    for e in trace.events:
        if e.type == "orchestrator_decision" and e.id in values:
            out.setdefault(e.turn or 0, {})[e.id] = float(values[e.id])
    return out


def _qmix_credit(
    traces: Sequence[Trace],
    *,
    q: Annotated[Callable[[Trace], Mapping[str, float]] | None, Q] = None,
    mixer: Callable[[Trace], MixWeights | Mapping[int, MixWeights]] | None = None,
    by: str = "agent",
) -> Credit:
    if by not in ("agent", "decision"):
        raise InputError(f"unknown by={by!r}", fix="agent, or decision: the orchestrator's sub-decisions of each round")
    rows: list[tuple[TraceUnit, float]] = []
    totals, slopes = [], []
    for i, trace in enumerate(traces):
        if mixer is None:
            raise NotIdentified("the mix is not in a trace", "give mixer=, a function: trace -> MixWeights", where=trace.trace_id)
        mixers = mixer(trace)
        parts = [agent_values(trace, q)] if by == "agent" else list(_by_round(trace, q).values())
        chosen = [mixers] if isinstance(mixers, MixWeights) else [mixers[now] for now in _by_round(trace, q)]
        if len(chosen) != len(parts):
            fix = "mixer= gives a MixWeights by the round's number"
            raise InputError("one mix for several rounds", where=trace.trace_id, fix=fix)
        for values, m in zip(parts, chosen, strict=True):
            own = np.array(list(values.values()))
            without = np.where(np.eye(len(own), dtype=np.bool_), 0.0, own)
            total = float(mix(own, m))
            totals.append(total)
            slopes.append(dict(zip(values, gradient(own, m).tolist(), strict=True)))
            unit = "agent" if by == "agent" else "orchestrator"
            rows += [(TraceUnit(i, unit, n), total - float(other)) for n, other in zip(values, mix(without, m), strict=True)]
    return credit_of("qmix", _ESTIMAND, traces, rows, notes={"q_tot": totals, "gradient": slopes})


def _example() -> Example:
    """Four agents, each worth 0.1 for each letter of its name, mixed by two hidden units."""
    mixer = MixWeights(w1=[[1.0, 0.5]] * 4, b1=[0.0, -1.0], w2=[1.0, 2.0], b2=0.1)
    return Example(
        rollouts(), {"q": lambda trace: {name: 0.1 * len(name) for name in trace.agents}, "mixer": lambda trace: mixer}
    )


qmix = Mechanism(
    sees="round",
    unit="agent",
    estimand=_ESTIMAND,
    assumptions="the team's value is monotone in each agent's value; the number of agents is the mixer's",
    cost="a critic per agent and a mixer",
    additive=False,
    source="QMIX, arXiv 1803.11485; pymarl",
    run=_qmix_credit,
    needs=("critic",),
    example=_example,
    from_rows=True,
)
