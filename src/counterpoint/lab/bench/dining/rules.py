"""Players by hand, each from what a philosopher may know: its number, N, the step, what it is told, its own draws.

Always true: a rule is a function of (sight, step, draws): the same draws give the same actions; the draws are (B, N) numbers in
[0, 1), new in every step. Who eats waits.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from counterpoint.lab.bench.dining.optimum import rotation
from counterpoint.lab.bench.dining.tables import LEFT, RELEASE, RIGHT, STEPS, WAIT, Board, Sight

Rule = Callable[[Sight, int, np.ndarray], np.ndarray]


def _in_order(sight: Sight, starts_left: np.ndarray) -> np.ndarray:
    """Take one's first fork, then the other; keep what is held until both are there."""
    first = np.where(starts_left, LEFT, RIGHT)
    second = np.where(sight.holds_left, RIGHT, LEFT)
    return np.where(sight.eating, WAIT, np.where(sight.holds_left | sight.holds_right, second, first))


def even_odd(sight: Sight, step: int, draws: np.ndarray) -> np.ndarray:
    """Even numbers take the left fork first, odd ones the right."""
    return _in_order(sight, np.broadcast_to(np.arange(draws.shape[1]) % 2 == 0, draws.shape))


def one_reversed(sight: Sight, step: int, draws: np.ndarray) -> np.ndarray:
    """All take the left fork first but the last number, which takes the right."""
    return _in_order(sight, np.broadcast_to(np.arange(draws.shape[1]) < draws.shape[1] - 1, draws.shape))


def random_release(sight: Sight, step: int, draws: np.ndarray) -> np.ndarray:
    """A side at random; who waits for the other fork puts its own down with chance 1/2."""
    waits = (sight.holds_left & ~sight.right) | (sight.holds_right & ~sight.left)
    return np.where(waits & (draws < 0.5) & ~sight.eating, RELEASE, _in_order(sight, draws < 0.5))


def uniform(sight: Sight, step: int, draws: np.ndarray) -> np.ndarray:
    """One of the four actions, whatever is told: the benchmark's random player."""
    return (4 * draws).astype(np.int64)


def rotating(sight: Sight, step: int, draws: np.ndarray) -> np.ndarray:
    """Everybody has its turn once in P steps (`optimum.rotation`): fair, and neighbours never meet."""
    period, first = rotation(draws.shape[1])
    phase = np.broadcast_to((step - np.array(first)) % period, draws.shape)
    return np.where(sight.eating, WAIT, np.where(phase == 0, LEFT, np.where((phase == 1) & sight.holds_left, RIGHT, WAIT)))


RULES: dict[str, Rule] = {
    "random": uniform,
    "random order with release": random_release,
    "even left, odd right": even_odd,
    "one reversed": one_reversed,
    "rotating": rotating,
}


def play(rule: Rule, board: Board, seed: int) -> None:
    """Play tables to the end by one rule; draws are of the seed."""
    rng = np.random.default_rng(seed)
    for step in range(STEPS):
        board.step(rule(board.sight(), step, rng.random((board.count, board.size))))
