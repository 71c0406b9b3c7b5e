"""The spawn head's natural gradient, with memory: evidence on who should come, and how many, adds up over updates.

    y = sum_r [ (go_r - p_r) w . x_r + go_r (s_r - m_r) v . x_r ] + noise   r: roles, p: chance of going, s: log size, m: its mean

Always true: p is the chance under which the arm was drawn, a half where it was forced, so both regressors have mean 0
whatever the features are, and w . x, v . x estimate the gain of spawning and of a larger team at the prefix: Kakade's
compatible features, for which the natural gradient of the logit is w itself. Old evidence fades to nine tenths per update. A
step is the estimate (of sizes 0.6 of it) times t^2 / (1 + t^2), t its size in standard errors, so that noise moves little; no
logit moves by more than 0.5 in an update, no log size by more than half of that, and gates stay below 2.5.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from counterpoint.lab.train.policies.features import ROLE
from counterpoint.lab.train.policies.network import Network

Table = Mapping[str, np.ndarray]
_RIDGE = 0.5
_MEMORY = 0.9  # what is left of old evidence at each update
_SIZE_RATE = 0.6  # of the step of a log size; that of a logit is whole
_MOST = 0.5  # a logit moves no further in an update; a log size half as far
_CAP = 2.5  # of logits


class SpawnGradient:
    """What has been learned of roles so far."""

    def __init__(self) -> None:
        self.square = np.zeros((2 * ROLE, 2 * ROLE))
        self.cross = np.zeros(2 * ROLE)
        self.energy, self.count = 0.0, 0.0

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return dict(vars(self))

    def restore(self, state: Mapping[str, Any]) -> None:
        """From a checkpoint."""
        vars(self).update(state)

    def add(self, net: Network, t: Table, advantage: np.ndarray, *, spread: float) -> None:
        """The evidence of one batch: spawn rows, and the advantage of the decision each belongs to (in points). `spread`: their
        unit."""
        with torch.no_grad():
            _, size = net.roles(torch.from_numpy(t["x"]))
        x = t["x"].astype(np.float64)
        go = t["choice"].astype(np.float64)
        chance = np.where(t["forced"], 0.5, np.where(t["choice"], np.exp(t["logp"]), 1 - np.exp(t["logp"])))
        rows = np.concatenate([(go - chance)[:, None] * x, (go * (t["size"] - size.numpy()))[:, None] * x], axis=1)
        which, first = _codes(t)
        phi = np.zeros((len(first), 2 * ROLE))
        np.add.at(phi, which, rows)
        y = advantage[first] / max(spread, 1e-6)
        self.square = _MEMORY * self.square + phi.T @ phi
        self.cross = _MEMORY * self.cross + phi.T @ y
        self.energy = _MEMORY * self.energy + float(y @ y)
        self.count = _MEMORY * self.count + len(y)

    def estimate(self, x: np.ndarray, part: int) -> tuple[np.ndarray, np.ndarray]:
        """(gain, its standard error) of rows: part 0 of spawning, part 1 of a larger team, in spreads of the return."""
        inverse = np.linalg.inv(self.square + _RIDGE * np.eye(2 * ROLE))
        w = inverse @ self.cross
        noise = max(self.energy - float(w @ self.cross), 1e-6) / max(self.count - 2 * ROLE, 1.0)
        at = slice(part * ROLE, (part + 1) * ROLE)
        gain = x @ w[at]
        return gain, np.sqrt(noise * np.einsum("rf,fg,rg->r", x, inverse[at, at], x)) + 1e-9

    def targets(self, net: Network, x: np.ndarray, room: int, *, left: float, least: float) -> tuple[np.ndarray, np.ndarray]:
        """Where gate and size of these roles should go, by `left` of a whole step; no gate is moved below `least`, and a mean
        size beyond the room would feel nothing any more."""
        with torch.no_grad():
            gate, size = (v.numpy().astype(np.float64) for v in net.roles(torch.from_numpy(x.astype(np.float32))))
        found: list[np.ndarray] = []
        for part, (old, rate, limit) in enumerate(((gate, 1.0, _MOST), (size, _SIZE_RATE, _MOST / 2))):
            gain, error = self.estimate(x, part)
            square = (gain / error) ** 2
            found.append(old + left * np.clip(rate * gain * square / (1 + square), -limit, limit))
        low = np.minimum(gate, least)  # the least holds, and pulls nobody back
        return np.clip(found[0], low, _CAP), np.clip(found[1], 0.0, float(np.log(max(room, 1))))


def fit_heads(net: Network, x: np.ndarray, gate: np.ndarray, size: np.ndarray, weight: np.ndarray) -> None:
    """Change gate and size by as little as gives these rows their targets; sizes of rows count by their weight."""
    ridge = 1e-5 * len(x)
    fit_head(net.gate, x, gate, ridge=ridge)
    fit_head(net.size, x, size, weight, ridge=ridge)


def fit_head(head: torch.nn.Linear, x: np.ndarray, target: np.ndarray, weight: np.ndarray | None = None, *, ridge: float) -> None:
    """The least change of a linear head that gives these rows their targets."""
    full = np.concatenate([x, np.ones((len(x), 1))], axis=1)
    part = full if weight is None else full * weight[:, None]
    with torch.no_grad():
        old = np.concatenate([head.weight.numpy()[0], head.bias.numpy()]).astype(np.float64)
        new = old + np.linalg.solve(part.T @ full + ridge * np.eye(ROLE + 1), part.T @ (target - full @ old))
        head.weight.copy_(torch.tensor(new[None, :-1], dtype=torch.float32))
        head.bias.copy_(torch.tensor(new[-1:], dtype=torch.float32))


def _codes(t: Table) -> tuple[np.ndarray, np.ndarray]:
    """(decision of each row, first row of each decision): the roles of one episode and round are one decision."""
    _, first, which = np.unique(t["ep"] * 100_000 + t["round"], return_index=True, return_inverse=True)
    return which, first
