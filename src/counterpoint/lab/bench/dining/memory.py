"""What a philosopher remembers of what it was told, and all of it as numbers for a network that all of them share.

Always true: nothing here is more than a prompt could hold: number of philosophers, step, what the package tells, and what follows
from one's own past: actions, own meals, how long one has held a fork or seen one taken, how often a neighbour used one's forks.
With `numbered` the seat is read from the name P0, P1, ...: its place, parity, remainders by three and five. Without, nothing is,
as a name that is drawn says nothing.
"""

from __future__ import annotations

import numpy as np

from counterpoint.lab.bench.dining.tables import ACTIONS, STEPS, WAIT, Sight

PLAIN, NUMBERED = 22, 34
"""Numbers of a philosopher without its seat, and with it."""


class Memory:
    """The past of B tables, each array (B, N)."""

    def __init__(self, count: int, size: int) -> None:
        zero, free = np.zeros((count, size), np.float32), np.ones((count, size), np.bool_)
        self.last = np.full((count, size), WAIT)
        self.hungry = self.holding = self.left_taken = self.right_taken = self.left_uses = self.right_uses = zero
        self.left_free = self.right_free = free

    def update(self, before: Sight, actions: np.ndarray, after: Sight) -> None:
        """Take in what everybody did, and what each is told now."""
        self.last = actions
        self.hungry = np.where(after.meals > before.meals, 0, self.hungry + 1).astype(np.float32)
        held = after.holds_left != after.holds_right
        self.holding = np.where(held, self.holding + 1, 0).astype(np.float32)
        self.left_taken = np.where(after.left, 0, self.left_taken + 1).astype(np.float32)
        self.right_taken = np.where(after.right, 0, self.right_taken + 1).astype(np.float32)
        self.left_uses = self.left_uses + (self.left_free & ~after.left)
        self.right_uses = self.right_uses + (self.right_free & ~after.right)
        self.left_free, self.right_free = after.left, after.right

    def subset(self, at: np.ndarray) -> Memory:
        """Copies of the pasts of some tables."""
        new = Memory(0, 1)
        new.__dict__ |= {name: value[at] for name, value in vars(self).items()}
        return new

    def joined(self, other: Memory) -> Memory:
        """These pasts, and others."""
        new = Memory(0, 1)
        new.__dict__ |= {name: np.concatenate([value, vars(other)[name]]) for name, value in vars(self).items()}
        return new

    def numbers(self, sight: Sight, step: int, *, numbered: bool) -> np.ndarray:
        """(B, N, PLAIN or NUMBERED) what a network reads."""
        shape, size = sight.meals.shape, sight.meals.shape[1]
        columns: list[np.ndarray | float] = [
            sight.eating, sight.holds_left, sight.holds_right, sight.left, sight.right, size / 15, step / STEPS,
            *(float(step == k) for k in range(4)), sight.meals - step / 5,
            np.minimum(self.hungry, 10) / 5, np.minimum(self.holding, 6) / 3,
            np.minimum(self.left_taken, 6) / 3, np.minimum(self.right_taken, 6) / 3,
            (self.left_uses - sight.meals) / 2, (self.right_uses - sight.meals) / 2,
            *(self.last == a for a in range(len(ACTIONS))),
        ]  # fmt: skip
        if numbered:
            seat = np.arange(size)
            columns += [seat / size, seat % 2, seat == 0, seat == size - 1]
            columns += [seat % 3 == k for k in range(3)] + [seat % 5 == k for k in range(5)]
        return np.stack([np.broadcast_to(np.asarray(column, np.float32), shape) for column in columns], axis=-1)
