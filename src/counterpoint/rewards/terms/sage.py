"""R3, SAGE: a challenger, a planner, a solver and a critic; what the critic rejects pays nobody.

    challenger  (q + 1 - s + f) / 3      planner  (p + s) / 2      solver  (s + f) / 2      critic  f

q, p: the critic's scores of the task and of the plan, s: share of right solutions, f: format kept (1 or 0).

Always true: rows of unit role, for the roles that were scored. A task with q below `least` is rejected: challenger, planner and
solver have no row, so that nothing is learned from it; a plan with p below `least` leaves planner and solver without one.

Source: SAGE arXiv 2603.15255 (abstract: four roles of one model, a critic that filters tasks and plans). Weights and `least`
are ours, in the manner of Multi-Agent Evolve (`mae`).
"""

from __future__ import annotations

from collections.abc import Iterator

from counterpoint.rewards.reward import Reward
from counterpoint.rewards.terms.mae import by_role, example_roles
from counterpoint.trace import Trace
from counterpoint.trace.rows import Signal


def role_rewards(task: float, plan: float, solved: float, form: dict[str, float], *, least: float = 0.5) -> dict[str, float]:
    """Role to its reward; what is rejected, and what rests on it, has none."""
    out = {"critic": form["critic"]}
    if task < least:
        return out
    out["challenger"] = (task + 1.0 - solved + form["challenger"]) / 3.0
    if plan >= least:
        out |= {"planner": 0.5 * (plan + solved), "solver": 0.5 * (solved + form["solver"])}
    return out


def _sage_signals(
    trace: Trace,
    *,
    challenger: str = "challenger",
    planner: str = "planner",
    solver: str = "solver",
    critic: str = "critic",
    score: str = "R2",
    least: float = 0.5,
) -> Iterator[Signal]:
    names = {"challenger": challenger, "planner": planner, "solver": solver, "critic": critic}
    q, s, f = (by_role(trace, channel) for channel in ("quality", score, "format"))
    if not ({challenger, planner} <= set(q) and solver in s):
        return
    form = {role: f.get(name, 1.0) for role, name in names.items()}
    paid = role_rewards(q[challenger], q[planner], s[solver], form, least=least)
    there = {e.role for e in trace.events}
    for role, name in names.items():
        if role in paid and name in there:
            yield Signal("role", name, "R3", paid[role])


sage = Reward(
    family="R3",
    unit="role",
    source="SAGE, arXiv 2603.15255 (roles from the abstract, weights ours)",
    score=_sage_signals,
    example=lambda: example_roles(
        {"lead": "challenger", "w1": "planner", "w2": "solver", "w3": "critic"},
        {"lead": {"quality": 0.8}, "w1": {"quality": 0.6}},
    ),
)
