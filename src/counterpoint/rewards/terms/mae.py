"""R3, Multi-Agent Evolve: one who proposes tasks, one who solves them, one who judges both.

    proposer  (q + [q >= 0.7] (1 - s) + f) / 3      solver  (j + f) / 2      judge  f

q: quality of the task, s: mean score of the solutions to it, j: the judge's score of the solution, f: format kept (1 or 0).

Always true: one row of unit role for each of the three that was scored. q stands on the proposer's events (role `proposer`,
channel `quality`), j on the solver's (`score`: R2), f on anybody's (`format`; 1 where nothing is logged). A proposer
whose task could not be read (f = 0 and no q) gets 0. Without solutions to its task a proposer has no
row: how hard it was is not known.

Source: Multi-Agent Evolve arXiv 2510.23595; official code (five samples of the solver per task).
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from counterpoint.rewards.reward import Reward, amounts, gathered
from counterpoint.trace import Event, Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Signal

_PROPOSER, _JUDGE = "proposer", "judge"
"""Roles by these names."""


def proposer_reward(quality: float, solved: float, form: float, *, least: float = 0.7) -> float:
    """A good task that is hard: difficulty counts only where the quality reaches `least`."""
    return (quality + (1.0 - solved if quality >= least else 0.0) + form) / 3.0


def solver_reward(judged: float, form: float) -> float:
    """Half the judge's score, half the format."""
    return 0.5 * judged + 0.5 * form


def by_role(trace: Trace, channel: str) -> dict[str, float]:
    """Role to the mean of what its events were paid in a channel."""
    return gathered(((e.role, paid) for e, paid in amounts(trace, [channel])), "mean")


def _mae_signals(
    trace: Trace,
    *,
    solver: str = "solver",
    score: str = "R2",
    least: float = 0.7,
) -> Iterator[Signal]:
    there = {e.role for e in trace.events}
    q, s, f = (by_role(trace, channel) for channel in ("quality", score, "format"))
    form = {role: f.get(role, 1.0) for role in (_PROPOSER, solver, _JUDGE)}
    if _PROPOSER in there and _PROPOSER not in q and form[_PROPOSER] == 0.0:
        yield Signal("role", _PROPOSER, "R3", 0.0)
    elif _PROPOSER in q and solver in s:
        yield Signal("role", _PROPOSER, "R3", proposer_reward(q[_PROPOSER], s[solver], form[_PROPOSER], least=least))
    if solver in s:
        yield Signal("role", solver, "R3", solver_reward(s[solver], form[solver]))
    if _JUDGE in there:
        yield Signal("role", _JUDGE, "R3", form[_JUDGE])


def example_roles(roles: dict[str, str], paid: dict[str, dict[str, float]]) -> Example:
    """The rollouts with other roles, and amounts on the events of some agents."""

    def recast(e: Event) -> Event:
        reward = {**(e.reward or {}), **paid.get(e.agent, {})}
        return replace(e, role=roles.get(e.agent, e.role), reward=reward or None)

    return Example([replace(t, events=[recast(e) for e in t.events]) for t in rollouts()])


mae = Reward(
    family="R3",
    unit="role",
    source="Multi-Agent Evolve, arXiv 2510.23595",
    score=_mae_signals,
    example=lambda: example_roles({"lead": "proposer", "w1": "solver", "w2": "judge"}, {"lead": {"quality": 0.8, "format": 1.0}}),
)
