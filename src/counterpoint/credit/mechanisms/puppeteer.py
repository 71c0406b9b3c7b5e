"""Puppeteer: each decision of the orchestrator gets its discounted reward to go, less a growing step cost.

    R_T = r - lam C_T,   R_t = gamma R_{t+1} - lam C_t,   C_t = F_t log(1 + t / phi)        t = 1, 2, ..., T

Always true: plain REINFORCE: no critic, no baseline, no comparison between traces (the survey says otherwise). With lam = 0
the first decision gets gamma^(T - 1) r.

Source: Puppeteer arXiv 2505.19591 (equation SECONDARY; lambda 0.1, gamma 0.99). Departures: every orchestrator decision is a
step; F is 1, or the tokens that the decision wrote (`by="tokens"`); the released code's other cost comes in as rewards on the
events.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from counterpoint.credit.advantages import reward_to_go
from counterpoint.credit.groups import Floats
from counterpoint.credit.mechanism import Mechanism
from counterpoint.credit.rows import TraceUnit, actions, credit_of, paid_steps
from counterpoint.errors import InputError
from counterpoint.trace import Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Credit

_ESTIMAND = "gamma-discounted reward to go of the decision, less step costs"


def step_costs(factors: Sequence[float], *, phi: float) -> Floats:
    """C_t = F_t log(1 + t / phi), t counted from 1."""
    if not phi > 0:
        raise InputError(f"phi is above 0, not {phi}")
    return np.array([f * math.log1p(t / phi) for t, f in enumerate(factors, start=1)], np.float64)


def _run(
    traces: Sequence[Trace],
    *,
    lam: float = 0.1,
    gamma: float = 0.99,
    phi: float = 4.0,
    by: str = "steps",
    channel: str = "team",
) -> Credit:
    if by not in ("steps", "tokens"):
        raise InputError(f"no cost by {by!r}", fix="steps or tokens")
    rows: list[tuple[TraceUnit, float]] = []
    for i, trace in enumerate(traces):
        own = [k for k in actions(trace) if trace.events[k].type == "orchestrator_decision"]
        factors = [1.0 if by == "steps" else float(trace.events[k].tokens_out or 0) for k in own]
        rewards = np.array(paid_steps(trace, [[k] for k in own], channel)) - lam * step_costs(factors, phi=phi)
        returns = reward_to_go(rewards, gamma=gamma).tolist() if own else []
        rows += [(TraceUnit(i, "orchestrator", trace.events[k].id), g) for k, g in zip(own, returns, strict=True)]
    return credit_of("puppeteer", _ESTIMAND, traces, rows, notes={"lam": lam, "gamma": gamma, "phi": phi, "by": by})


puppeteer = Mechanism(
    unit="orchestrator",
    estimand=_ESTIMAND,
    assumptions="decisions are in the order of time; agents are frozen",
    cost="nothing",
    additive=False,
    source="Puppeteer, arXiv 2505.19591",
    run=_run,
    example=lambda: Example(rollouts()),
)
