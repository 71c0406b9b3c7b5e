"""V-trace over the orchestrator's decisions: credit under a new policy, from traces that an older one made.

    v_s = V_s + sum_t gamma^(t-s) (prod c) d_t;    row: min(rho_bar, rho)(r + gamma v_{s+1} - V_s)

Always true: on the policy's own traces (all ratios 1), gamma 1 and V = 0, every row is the plain return from there on. A
decision without a logged log-probability cannot be weighed: the trace is refused. Rewards that stand on events, whoever's, are of
the latest decision before them.

Source: V-trace arXiv 1802.01561; deepmind/scalable_agent. Departure: steps are decisions, not tokens. `target(trace)` gives
the new policy's log-probability of what was done, by event id; `value(trace)` the critic, 0 where none is given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import numpy as np

from counterpoint.credits import off_policy
from counterpoint.credits.mechanism import Mechanism
from counterpoint.credits.rows import TraceUnit, actions, credit_of, paid_steps, values_of
from counterpoint.credits.shared_options import LAMBDA, VALUE, Discount
from counterpoint.errors import NotIdentified
from counterpoint.options import Channel, Share
from counterpoint.trace import Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Credit

_ESTIMAND = "min(rho_bar, rho)(r + gamma v_{s+1} - V_s): the decision's advantage under the target policy"


def _vtrace_credit(
    traces: Sequence[Trace],
    *,
    target: Callable[[Trace], Mapping[str, float]] | None = None,
    value: Annotated[Callable[[Trace], Any] | None, VALUE] = None,
    gamma: Discount = 1.0,
    rho_bar: float = 1.0,
    c_bar: float = 1.0,
    lam: Annotated[Share, LAMBDA] = 1.0,
    channel: Channel = "team",
) -> Credit:
    rows: list[TraceUnit] = []
    log_rho, rewards, values, segments = [], [], [], []  # type: list[float], list[float], list[float], list[int]
    for i, trace in enumerate(traces):
        own = [trace.events[k] for k in actions(trace) if trace.events[k].type == "orchestrator_decision"]
        new = values_of(trace, target, "the target policy's log-probabilities (target=)")
        critic = dict.fromkeys((e.id for e in own), 0.0) if value is None else values_of(trace, value)
        for event in own:
            if event.logp is None or event.id not in new:
                raise NotIdentified(
                    f"decision {event.id!r} has no log-probability under both policies",
                    "record logp when the decision is made",
                    where=trace.trace_id,
                )
            rows.append(TraceUnit(i, "orchestrator", event.id))
            log_rho.append(float(new[event.id]) - event.logp)
            values.append(float(critic[event.id]))
            segments.append(i)
        rewards += paid_steps(trace, [[trace.index[e.id]] for e in own], channel, leads=True)
    rho = np.exp(np.clip(log_rho, -20, 20))
    use = {"gamma": gamma, "rho_bar": rho_bar, "c_bar": c_bar, "lam": lam}
    _, amounts = off_policy.vtrace(rho, rewards, values, segments=segments, pg_rho_bar=rho_bar, **use)
    size = off_policy.effective_size(rho)
    notes = {**use, "effective size": size, "decisions": len(rows), "step scale": off_policy.step_scale(rho)}
    return credit_of("vtrace", _ESTIMAND, traces, zip(rows, amounts.tolist(), strict=True), notes=notes)


def _example() -> Example:
    """The target policy takes each decision with half the chance that was logged."""
    return Example(rollouts(), {"target": lambda trace: {e.id: e.logp - np.log(2) for e in trace.events if e.logp is not None}})


vtrace = Mechanism(
    unit="orchestrator",
    estimand=_ESTIMAND,
    assumptions="logged log-probabilities are the sampler's own; the data covers what the target policy does",
    cost="the target policy's log-probabilities; a critic lowers the variance",
    additive=False,
    source="V-trace, arXiv 1802.01561",
    run=_vtrace_credit,
    needs=("logp",),
    example=_example,
)
