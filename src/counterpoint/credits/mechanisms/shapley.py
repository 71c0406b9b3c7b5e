"""Shapley values of agents that the policy itself created, exact or sampled, plain or over the spawn tree.

Always true: the rows of a trace sum to v(N) - v(nobody) within 1e-9, whatever the value, the worth and the number of orders.

    exact, sampled   phi_i = E over orders of v(before and i) - v(before)                (Shapley 1953)
    permission       the same for v(sigma(S)): a parent shares in what it enables        (Gilles, Owen, van den Brink 1992)
    nested_owen      E over parent-first depth-first orders: execution, given the hierarchy (Owen 1977; Winter 1989)

sigma(S) keeps of S those whose ancestors are all in S. Ask `permission` about the design of a team, `nested_owen` about its
executors. Orders come in antithetic pairs; `stop_se` ends early once every standard error is at most that value.

The worth: `worth=(trace, agents) -> number`; with `replay`, the team reward of a fork in which the others are never spawned;
otherwise the recorded votes of those agents, counted again by majority, an even or absent vote paying `tie` (masked: nobody
reacts, prices are left out; the gap to the recorded quality is in the notes). The mean over given orders is Shapley-Q's sampler
(SQDDPG, arXiv:1907.05707), with the worth evaluated in place of a learned marginal.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from counterpoint.credits.default import Default, no_reward
from counterpoint.credits.games import MOST_EXACT, TeamGame, VoteGame
from counterpoint.credits.mechanism import Mechanism
from counterpoint.credits.shared_options import ORDERS, SEED, ReplayOf, StopError, Tie, WorthOf
from counterpoint.credits.team_games import TraceGame, game_credit, solve
from counterpoint.options import NonNegativeInt
from counterpoint.trace import Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Credit, CreditRow


def _shapley_credit(
    traces: list[Trace],
    *,
    value: str = "auto",
    worth: WorthOf = None,
    replay: ReplayOf = None,
    orders: Annotated[int | None, ORDERS] = None,
    stop_se: StopError = None,
    seed: Annotated[NonNegativeInt, SEED] = 0,
    tie: Tie = 0.5,
) -> Credit:
    about: list[dict[str, Any]] = []

    def give(k: int, played: TraceGame) -> list[CreditRow]:
        asked = _pick(value, played.game, orders)
        solved = solve(played.game, asked, played.parent_A, orders=orders, seed=[seed, k], stop_se=stop_se)
        about.append(_note(traces[k], played, solved.orders))
        se = [None] * len(played.names) if solved.se_A is None else [float(s) if np.isfinite(s) else None for s in solved.se_A]
        return [CreditRow(k, "agent", *row) for row in zip(played.names, solved.value_A.tolist(), se, strict=True)]

    notes = {"value": value, "traces": about}
    estimand = _ESTIMANDS.get(value, "")  # `solve` refuses a value that is not one of these
    return game_credit("shapley", estimand, traces, give, worth=worth, replay=replay, tie=tie, notes=notes)


def _pick(value: str, game: TeamGame, orders: int | None) -> str:
    """`auto`: exact where that is cheap and no number of orders is asked for, sampled elsewhere."""
    if value != "auto":
        return value
    is_cheap = orders is None and (game.n <= MOST_EXACT or isinstance(game, VoteGame))
    return "exact" if is_cheap else "sampled"


def _note(trace: Trace, played: TraceGame, orders: int) -> dict[str, Any]:
    everybody, nobody = played.all_and_nobody
    note: dict[str, Any] = {"worth": played.worth, "v_all": everybody, "v_nobody": nobody, "orders": orders}
    recorded = trace.rewards.get("R1" if played.worth == "votes" else "team")
    return note if recorded is None else note | {"recorded": float(recorded), "gap": float(recorded) - everybody}


_ESTIMANDS = {
    "auto": "Shapley value of v, exact where that is cheap, sampled elsewhere",
    "exact": "Shapley value of v",
    "sampled": "Shapley value of v, mean over sampled orders",
    "permission": "Shapley value of v(sigma(S)): an absent spawner takes its subtree along",
    "nested_owen": "mean marginal over parent-first depth-first orders",
}

shapley = Mechanism(
    unit="agent",
    estimand="Shapley value of each agent: its mean marginal over orders; over the spawn tree, permission or nested Owen value",
    assumptions="a subset is worth what the team would have reached without the others; recorded votes do not react",
    cost="nothing with votes; a worth per subset (2^n exact, orders * n sampled); with replay, forks for each",
    additive=True,
    source="Shapley 1953; Owen 1977; Winter 1989; SHARP arXiv:2602.08335 and SQDDPG arXiv:1907.05707 for fixed teams",
    run=_shapley_credit,
    needs=("worth or replay, unless the trace holds scored votes",),
    example=lambda: Example(rollouts()),
    live={"worth": "task:worth"},
    default=Default(
        "the trace holds scored votes, to be counted again without each agent", lambda traces, beside: no_reward(traces)
    ),
)
