"""Natural gradient of the spawn head, with memory: evidence on who should come, and how many, adds up over updates.

    y = sum_r [ (go_r - p_r) w . x_r + go_r (s_r - m_r) v . x_r ] + noise   r: roles, p: chance of going, s: log size, m: its mean

Always true: p is the chance under which the arm was drawn, a half where it was forced, so both regressors
have mean 0 whatever the features are, and w . x, v . x estimate the gain of spawning and of a larger team at the prefix:
Kakade's compatible features, for which the natural gradient of the logit is w itself. Old evidence fades by `memory` per
update. A step is the estimate times t^2 / (1 + t^2), t its size in standard errors, so that noise moves little; no logit moves
by more than `most` in an update.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from counterpoint.train.policies.features import ROLE
from counterpoint.train.policies.network import Network

Table = Mapping[str, np.ndarray]
_RIDGE = 0.5


class SpawnGradient:
    """What has been learned of roles so far."""

    def __init__(self, *, memory: float = 0.9) -> None:
        self.memory = memory
        self.square = np.zeros((2 * ROLE, 2 * ROLE))
        self.cross = np.zeros(2 * ROLE)
        self.energy, self.count = 0.0, 0.0

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return dict(vars(self))

    def restore(self, state: Mapping[str, Any]) -> None:
        """From a checkpoint."""
        vars(self).update(state)

    def add(self, net: Network, t: Table, advantage: np.ndarray) -> None:
        """The evidence of one batch: spawn rows, and the advantage of the decision each belongs to (in points)."""
        with torch.no_grad():
            _, size = net.roles(torch.from_numpy(t["x"]))
        x = t["x"].astype(np.float64)
        go = t["choice"].astype(np.float64)
        chance = np.where(t["forced"], 0.5, np.where(t["choice"], np.exp(t["logp"]), 1 - np.exp(t["logp"])))
        rows = np.concatenate([(go - chance)[:, None] * x, (go * (t["size"] - size.numpy()))[:, None] * x], axis=1)
        which, first = _codes(t)
        phi = np.zeros((len(first), 2 * ROLE))
        np.add.at(phi, which, rows)
        y = advantage[first]
        spread = max(float(y.std()), 1e-6)
        y = y / spread
        self.square = self.memory * self.square + phi.T @ phi
        self.cross = self.memory * self.cross + phi.T @ y
        self.energy = self.memory * self.energy + float(y @ y)
        self.count = self.memory * self.count + len(y)

    def estimate(self, x: np.ndarray, part: int) -> tuple[np.ndarray, np.ndarray]:
        """(gain, its standard error) of rows: part 0 of spawning, part 1 of a larger team, in spreads of the return."""
        inverse = np.linalg.inv(self.square + _RIDGE * np.eye(2 * ROLE))
        w = inverse @ self.cross
        noise = max(self.energy - float(w @ self.cross), 1e-6) / max(self.count - 2 * ROLE, 1.0)
        at = slice(part * ROLE, (part + 1) * ROLE)
        gain = x @ w[at]
        return gain, np.sqrt(noise * np.einsum("rf,fg,rg->r", x, inverse[at, at], x)) + 1e-9

    def step(
        self, net: Network, t: Table, room: int, *, left: float = 1.0, eta: float = 1.0, eta_size: float = 0.6, most: float = 0.5,
        cap: float = 2.5,
    ) -> None:  # fmt: skip
        """Move gate and size of the batch's roles along their gains, by `left` of a whole step; a mean size beyond the room would
        feel nothing any more."""
        top = float(np.log(max(room, 1)))
        x = t["x"].astype(np.float64)
        with torch.no_grad():
            gate, size = (v.numpy().astype(np.float64) for v in net.roles(torch.from_numpy(t["x"])))
            for part, (head, old, rate, limit) in enumerate(((net.gate, gate, eta, most), (net.size, size, eta_size, most / 2))):
                gain, error = self.estimate(x, part)
                square = (gain / error) ** 2
                move = left * np.clip(rate * gain * square / (1 + square), -limit, limit)
                target = np.clip(old + move, -cap, cap) if part == 0 else np.clip(old + move, 0.0, top)
                weight = np.concatenate([head.weight.numpy()[0], head.bias.numpy()]).astype(np.float64)
                full = np.concatenate([x, np.ones((len(x), 1))], axis=1)
                change = np.linalg.solve(full.T @ full + 1e-3 * len(x) * np.eye(ROLE + 1), full.T @ (target - full @ weight))
                weight = weight + change
                head.weight.copy_(torch.tensor(weight[None, :-1], dtype=torch.float32))
                head.bias.copy_(torch.tensor(weight[-1:], dtype=torch.float32))


def _codes(t: Table) -> tuple[np.ndarray, np.ndarray]:
    """(decision of each row, first row of each decision): the roles of one episode and round are one decision."""
    _, first, which = np.unique(t["ep"] * 100_000 + t["round"], return_index=True, return_inverse=True)
    return which, first
