"""Winter's level value over team, roles and agents: an order-free second opinion on who earned it.

Always true: role rows sum to v(N) - v(nobody), and so do agent rows; a role's row is the sum of its agents' rows and equals the
Shapley value of the game among roles (quotient game).

Orders shuffle roles, and agents inside their role; the value is the mean marginal over them (Winter 1989; with one level it
is Owen's value, 1977). It is the nested Owen value over the tree role -> agent, with each role a player without a worth of its
own. The worth is as in `shapley`.
"""

from __future__ import annotations

from dataclasses import replace as changed
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from counterpoint.credits.games import Game, TeamGame, VoteGame
from counterpoint.credits.mechanism import Mechanism
from counterpoint.credits.shared_options import ORDERS, SEED, ReplayOf, StopError, Tie, WorthOf
from counterpoint.credits.team_games import TraceGame, game_credit, solve
from counterpoint.options import NonNegativeInt
from counterpoint.trace import Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Credit, CreditRow


def _widened(game: TeamGame, more: int) -> TeamGame:
    """The same game with `more` players behind, who are worth nothing."""
    if isinstance(game, VoteGame):
        return changed(game, n=game.n + more)
    n = game.n
    return Game(n + more, lambda present_A: game.worth(np.ascontiguousarray(present_A[:n])))


def _levels(roles: list[str]) -> tuple[list[str], NDArray[np.int64]]:
    """The roles, and the parent of each agent and then of each role in the tree role -> agent."""
    names = list(dict.fromkeys(roles))
    place = {role: len(roles) + i for i, role in enumerate(names)}
    return names, np.array([*(place[role] for role in roles), *([-1] * len(names))], np.int64)


def _winter_credit(
    traces: list[Trace],
    *,
    worth: WorthOf = None,
    replay: ReplayOf = None,
    orders: Annotated[int | None, ORDERS] = None,
    stop_se: StopError = None,
    seed: Annotated[NonNegativeInt, SEED] = 0,
    tie: Tie = 0.5,
) -> Credit:
    def give(k: int, played: TraceGame) -> list[CreditRow]:
        roles, parent_A = _levels(played.roles)
        n = len(played.names)
        game = _widened(played.game, len(roles))
        solved = solve(game, "nested_owen", parent_A, orders=orders, seed=[seed, k], stop_se=stop_se)
        shares = np.bincount(parent_A[:n] - n, solved.value_A[:n], len(roles))
        se = None if solved.se_A is None or not np.isfinite(solved.se_A).all() else solved.se_A
        own = [
            CreditRow(k, "agent", name, float(solved.value_A[a]), None if se is None else float(se[a]))
            for a, name in enumerate(played.names)
        ]
        return [CreditRow(k, "role", role, float(shares[r])) for r, role in enumerate(roles)] + own

    return game_credit("winter", winter.estimand, traces, give, worth=worth, replay=replay, tie=tie)


winter = Mechanism(
    unit="agent",
    estimand="Winter value over roles and their agents: mean marginal over orders that keep each role together",
    assumptions="as shapley; what belongs together is what has the same role",
    cost="as shapley",
    additive=True,
    source="Winter 1989, a value for cooperative games with levels structure; Owen 1977",
    run=_winter_credit,
    needs=("worth or replay, unless the trace holds scored votes",),
    example=lambda: Example(rollouts()),
    live={"worth": "task:worth"},
)
