"""Shapley values: 300 agents and 64 orders on one core; the same values as shapiq, and error against time beyond brute force.

shapiq's estimators take any game as a black box, here one matrix product per batch of coalitions. Our times gain from knowing
that the worth is a sum over items; the error at equal orders does not use it (stratified
antithetic keys against independent orders).
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
from _timing import arguments, interleaved, report, row

from counterpoint.credits.games import Game, VoteGame, by_keys, exact_shapley, mean_over_orders, table
from counterpoint.credits.team_games import exact_votes, solve
from counterpoint.lab.bench.claims.shapley import team_game

try:
    shapiq = importlib.import_module("shapiq")
except ImportError:  # `pip install '.[bench]'`
    shapiq = None


def batch_worth(game: VoteGame) -> Any:
    """The worth of many coalitions at once, as shapiq asks for it: one matrix product."""
    signs = np.zeros((game.n, len(game.weight_J)), np.float32)
    np.add.at(signs, (game.agent_V, game.item_V), game.sign_V)
    weight = game.weight_J.astype(np.float32)

    def worth(coalitions: np.ndarray) -> np.ndarray:
        margin = np.atleast_2d(coalitions).astype(np.float32) @ signs
        return ((0.5 * (1.0 + np.sign(margin))) @ weight).astype(np.float64)

    return worth


def peer_values(found: Any, n: int) -> np.ndarray:
    """shapiq's answer as an array by player."""
    return np.array([found[(i,)] for i in range(n)])


def l1(found: np.ndarray, truth: np.ndarray) -> float:
    return float(np.abs(found - truth).sum() / np.abs(truth).sum())


def small(repeats: int) -> list[dict[str, Any]]:
    """Twelve players: all 2^12 worths, the same values."""
    rng = np.random.default_rng(1)
    n, votes, items = 12, 300, 90
    game = VoteGame(n, rng.integers(0, n, votes), rng.integers(0, items, votes), rng.random(votes) < 0.7, np.ones(items))
    worth = batch_worth(game)
    by_table, by_items = exact_shapley(table(game)), exact_votes(game)
    apart = float(np.abs(by_table - by_items).max())
    rows = [row("n = 12: largest difference, table and item by item", apart, None, "", limit=1e-9)]
    if shapiq is None:
        return rows

    def peer() -> np.ndarray:
        return peer_values(shapiq.ExactComputer(worth, n_players=n)("SV", order=1), n)

    rows.append(row("n = 12: largest difference from shapiq", float(np.abs(by_items - peer()).max()), None, "", limit=1e-9))
    took = interleaved(
        {"ours": lambda: exact_votes(game), "table": lambda: exact_shapley(table(game)), "shapiq": peer}, repeats, "cpu"
    )
    rows.append(
        row(
            "n = 12: exact, any worth, one call per subset | shapiq ExactComputer",
            took["table"] * 1e3,
            took["shapiq"] * 1e3,
            "ms CPU",
        )
    )
    rows.append(
        row("n = 12: exact, item by item | shapiq ExactComputer", took["ours"] * 1e3, took["shapiq"] * 1e3, "ms CPU", target=1)
    )
    return rows


def large(n: int, orders: int, repeats: int) -> list[dict[str, Any]]:
    """Hundreds of agents: time, and error at a time."""
    game, parent_A = team_game(n, np.random.default_rng(2))
    truth, seeds = exact_votes(game), iter(range(10_000))
    called, worth = Game(game.n, game.worth), batch_worth(game)
    found: dict[str, list[np.ndarray]] = {}

    def kept(name: str, value: np.ndarray) -> None:
        found.setdefault(name, []).append(value)

    def plain() -> np.ndarray:
        called.seen.clear()
        rng = np.random.default_rng(next(seeds))
        return mean_over_orders(called.along, by_keys, n, orders, rng, antithetic=False, stratified=False).mean_A

    def peer() -> np.ndarray:
        sampler = shapiq.PermutationSamplingSV(n, random_state=next(seeds))
        return peer_values(sampler.approximate(orders * (n - 1) + 2, worth), n)

    work = {
        value: lambda value=value: solve(game, value, parent_A, orders=orders, seed=next(seeds)).value_A
        for value in ("sampled", "nested_owen", "permission")
    }
    work |= {"plain sampler": plain} | ({"shapiq": peer} if shapiq else {})
    took = interleaved({name: lambda name=name: kept(name, work[name]()) for name in work}, repeats, "cpu")
    rows = [row(f"n = {n}, {orders} orders: {value}", took[value], None, "s CPU", limit=2) for value in list(work)[:3]]
    error = {name: float(np.mean([l1(x, truth) for x in found[name]])) for name in ("sampled", *list(work)[3:])}
    for name in ("plain sampler", *(["shapiq"] if shapiq else [])):
        label = f"n = {n}, {orders} orders | {name}"
        rows.append(row(f"{label}: time", took["sampled"], took[name], "s CPU", target=1))
        rows.append(row(f"{label}: relative L1", error["sampled"], error[name], "", target=1))
        # Squared error falls as one over time, so this is the ratio of times to the same error.
        mine, other = (took[k] * error[k] ** 2 for k in ("sampled", name))
        rows.append(row(f"{label}: time to equal error", mine, other, "s CPU x L1^2", target=1))
    return rows


def main() -> None:
    """Run and print."""
    asked = arguments(__doc__)
    repeats = 2 if asked.quick else 5
    rows = [*small(repeats), *large(100 if asked.quick else 300, 64, repeats)]
    report("Shapley" + ("" if shapiq else " (shapiq is not installed: no peer rows)"), rows, as_json=asked.json)


if __name__ == "__main__":
    main()
