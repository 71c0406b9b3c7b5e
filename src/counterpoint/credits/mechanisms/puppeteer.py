"""Puppeteer: each decision of the orchestrator gets its discounted reward to go, less a growing step cost.

    R_T = r - lam C_T,   R_t = gamma R_{t+1} - lam C_t,   C_t = F_t log(1 + t / phi)        t = 1, 2, ..., T

Always true: plain REINFORCE: no critic, no baseline, no comparison between traces (the survey says otherwise). With lam = 0
the first decision gets gamma^(T - 1) r. Rewards that stand on events, whoever's, are of the latest decision before them.

Source: Puppeteer arXiv 2505.19591 (equation SECONDARY; lambda 0.1, gamma 0.99). Departures: every orchestrator decision is a
step; F is 1, or the tokens that the decision wrote (`by="tokens"`). `form="released"` is the code's other cost, in which the
last decision ends the work and a longer success is paid slightly more:

    s_t = 0.1 log2(1 + t / (most + 1));  r_t = s_t x factor x tokens / 1e5,  r_T = r + 0.5 s_{T+1} if r > 0 else r - 0.5 s_{T+1}

with factor -1, or what `factors` says for the decision's name; lam and phi mean nothing there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from counterpoint.credits.advantages import reward_to_go
from counterpoint.credits.groups import Floats
from counterpoint.credits.mechanism import Mechanism
from counterpoint.credits.rows import TraceUnit, actions, credit_of, paid_steps
from counterpoint.credits.shared_options import Discount
from counterpoint.errors import InputError
from counterpoint.options import Channel, PositiveInt
from counterpoint.trace import Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Credit

_ESTIMAND = "gamma-discounted reward to go of the decision, less step costs"


def step_costs(factors: Sequence[float], *, phi: float) -> Floats:
    """C_t = F_t log(1 + t / phi), t counted from 1."""
    if not phi > 0:
        raise InputError(f"phi is above 0, not {phi}")
    return np.array([f * math.log1p(t / phi) for t, f in enumerate(factors, start=1)], np.float64)


def released_rewards(r: float, tokens: Sequence[float], factors: Sequence[float], *, most: int) -> Floats:
    """The released code's rewards: of decisions with their tokens and factors, and of a last one, which ends the work."""
    cost = lambda t: 0.1 * math.log2(1 + t / (most + 1))  # noqa: E731
    steps = [cost(t) * factor * n / 1e5 for t, (factor, n) in enumerate(zip(factors, tokens, strict=True), start=1)]
    end = 0.5 * cost(len(steps) + 2)
    return np.array([*steps, r + end if r > 0 else r - end])


def _puppeteer_credit(
    traces: Sequence[Trace],
    *,
    lam: float = 0.1,
    gamma: Discount = 0.99,
    phi: float = 4.0,
    by: str = "steps",
    channel: Channel = "team",
    form: str = "paper",
    most: PositiveInt = 4,
    factors: Mapping[str, float] | None = None,
) -> Credit:
    if by not in ("steps", "tokens"):
        raise InputError(f"no cost by {by!r}", fix="steps or tokens")
    if form not in ("paper", "released"):
        raise InputError(f"no form {form!r}", fix="paper or released")
    rows: list[tuple[TraceUnit, float]] = []
    for i, trace in enumerate(traces):
        own = [k for k in actions(trace) if trace.events[k].type == "orchestrator_decision"]
        tokens = [float(trace.events[k].tokens_out or 0) for k in own]
        paid = np.array(paid_steps(trace, [[k] for k in own], channel, leads=True))
        if form == "released" and own:
            weights = [(factors or {}).get(trace.events[k].decision or "", -1.0) for k in own]
            rewards = released_rewards(float(paid.sum()), tokens[:-1], weights[:-1], most=most)
        else:
            rewards = paid - lam * step_costs(tokens if by == "tokens" else [1.0] * len(own), phi=phi)
        returns = reward_to_go(rewards, gamma=gamma).tolist() if own else []
        rows += [(TraceUnit(i, "orchestrator", trace.events[k].id), g) for k, g in zip(own, returns, strict=True)]
    return credit_of("puppeteer", _ESTIMAND, traces, rows, notes={"lam": lam, "gamma": gamma, "phi": phi, "by": by, "form": form})


puppeteer = Mechanism(
    unit="orchestrator",
    estimand=_ESTIMAND,
    assumptions="decisions are in the order of time; agents are frozen",
    cost="nothing",
    additive=False,
    source="Puppeteer, arXiv 2505.19591",
    run=_puppeteer_credit,
    example=lambda: Example(rollouts()),
    relative=True,
)
