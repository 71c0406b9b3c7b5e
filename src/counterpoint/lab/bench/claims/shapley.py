"""Shapley over 1000 spawned agents: 16 sampled orders against exact values, and laws that need no luck.

Always true: the worth is a sum over items, each decided by the majority of its 3 or 5 votes; exact values come item by item, by
linearity, and share no code with the sampler but the game. Teams have a root, about sqrt(n) leads, and workers of unequal skill.
Relative L1 is the sum of absolute errors over the sum of absolute values; ranks of equals are averaged.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from counterpoint.credits.games import VoteGame
from counterpoint.credits.team_games import Solved, exact_votes, solve
from counterpoint.display import tracked
from counterpoint.errors import InputError
from counterpoint.lab.bench.claim import ClaimRow, at_least, at_most
from counterpoint.trace import statistics
from counterpoint.trace.keyed import child_seed, purpose

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

# value, agents, orders, least Spearman, most relative L1
_CELLS = (
    ("nested_owen", 1000, 16, 0.99, 0.08),
    ("nested_owen", 300, 64, 0.99, 0.06),
    ("permission", 1000, 64, 0.95, 0.10),
    ("sampled", 1000, 16, 0.99, 0.10),
)


def shapley(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """A fresh team for every seed and cell."""
    if seeds < 1:
        raise InputError(f"seeds is at least 1, not {seeds}")
    gap: list[float] = []
    quotient: list[float] = []
    for value, n, orders, least, most in _CELLS:
        rank, l1 = [], []
        for s in tracked(range(seed, seed + seeds), "seeds"):
            rng = np.random.default_rng(child_seed(s, purpose(f"shapley {value} {n}")))
            game, parent_A = team_game(n, rng)
            truth = exact_votes(game, "shapley" if value == "sampled" else value, parent_A)
            found: Solved = solve(game, value, parent_A, orders=orders, seed=int(rng.integers(1 << 32)))
            rank.append(spearman(found.value_A, truth))
            l1.append(float(np.abs(found.value_A - truth).sum() / np.abs(truth).sum()))
            everybody = np.ones(n, np.bool_)
            gap.append(abs(float(found.value_A.sum()) - (game.worth(everybody) - game.worth(~everybody))))
            if value == "nested_owen":
                quotient.append(_quotient_gap(game, parent_A, truth))
        yield at_least(f"{value}, n = {n}, {orders} orders: Spearman", rank, least)
        yield at_most(f"{value}, n = {n}, {orders} orders: relative L1", l1, most)
    yield at_most("efficiency: |sum - (v(N) - v(nobody))|, worst", max(gap), 1e-9)
    yield at_most("nested Owen: |lead and workers - quotient Shapley|, worst", max(quotient), 1e-9)


def team_game(n: int, rng: np.random.Generator) -> tuple[VoteGame, Ints]:
    """A game of n agents, eight items each, and its spawn tree: agent 0 is the root, then leads, then workers."""
    leads = round(n**0.5)
    parent_A = np.concatenate(([-1], np.zeros(leads, np.int64), rng.integers(1, leads + 1, n - leads - 1)))
    skill_A = rng.uniform(0.5, 0.95, n)
    votes_J = rng.choice([3, 5], 8 * n)
    item_V = np.repeat(np.arange(8 * n), votes_J)
    pairs = np.unique(item_V * n + rng.integers(leads + 1, n, len(item_V)))  # nobody votes twice on an item
    item_V, agent_V = pairs // n, pairs % n
    return VoteGame(n, agent_V, item_V, rng.random(len(pairs)) < skill_A[agent_V], np.ones(8 * n)), parent_A


def _quotient_gap(game: VoteGame, parent_A: Ints, truth: Floats) -> float:
    """How far the sums over leads are from the Shapley values of the game in which a lead and its workers are one player."""
    lead_A = np.where(parent_A > 0, parent_A, np.arange(game.n))
    merged = exact_votes(VoteGame(game.n, lead_A[game.agent_V], game.item_V, game.right_V, game.weight_J, game.tie))
    return float(np.abs(np.bincount(lead_A, truth, game.n) - merged).max())


def spearman(x: Floats, y: Floats) -> float:
    """The correlation of ranks."""
    rho = statistics.spearman(np.round(x, 12), np.round(y, 12))
    return math.nan if rho is None else rho
