"""A critic of whole teams: what their size and make-up are worth at a prefix, and the step of the spawn head towards the best.

    Q(team | prefix) = f(size) + sum_r b_r (share_r - rho_r)      size: how many are spawned in all; share_r: of them, of role r;
                                                                  rho_r: the same under the present policy
    y_i = Q_i - mean of Q over the task's other episodes + noise

Always true: f is piecewise linear in the logarithm of the size, nobody has a value of its own, and the prior is on bends alone:
steps of the return (24 jobs take two rounds with 12 agents, three with 11) are seen where a gradient at the mean size sees a
slope. Both sides are taken against the task's other episodes, so that old evidence compares teams and not policies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from counterpoint.lab.train.policies.features import ROLE
from counterpoint.lab.train.policies.network import Network

Table = Mapping[str, np.ndarray]
_KEEP = 32  # updates of one sort of prefix that are remembered
_WIDTH = 0.06  # how far prefixes may differ and be alike, in the unit of their features: a quarter more items
_BEND = 0.5  # the prior spread of the curve's bends, in spreads of the return
_SHARE = 5.0  # the same of a role's share
_SEEN = 2.0  # episodes' worth of evidence below which a size is not proposed
_RIDGE = 1e-4
_MOST = 0.5  # a log size or a logarithm of a share moves no further in one update
_MOST_GATE = 1.0  # and a logit
_CAP = 2.5  # of logits, beyond which nobody is pushed


def sizes(room: int) -> np.ndarray:
    """The sizes at which the curve may bend: nobody, and numbers that grow by one or by a tenth."""
    found = [0, 1]
    while found[-1] < room:
        found.append(min(room, max(found[-1] + 1, round(found[-1] * 1.1))))
    return np.array(found)


def members(total: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """(N, K) memberships of team sizes in the sizes of the curve, linear between two in the logarithm."""
    log = np.log(np.maximum(total, 1.0))
    hats = np.stack([np.interp(log, np.log(centres[1:]), row) for row in np.eye(len(centres) - 1)], axis=1)
    some = (total > 0)[:, None]
    return np.concatenate([~some, hats * some], axis=1).astype(np.float64)


def against_others(x: np.ndarray, task: np.ndarray) -> np.ndarray:
    """Rows less the mean of the other rows of their task; of all rows, where a task has one."""
    _, code = np.unique(task, return_inverse=True)
    total, count = np.zeros((code.max() + 1, x.shape[1])), np.bincount(code)[code][:, None]
    np.add.at(total, code, x)
    return np.where(count > 1, x - (total[code] - x) / np.maximum(count - 1, 1), x - x.mean(axis=0))


@dataclass(frozen=True)
class TeamValues:
    """What is known of teams at one prefix; values are differences to a team of the size and shares that were asked about."""

    sizes: np.ndarray
    value: np.ndarray
    error: np.ndarray
    seen: np.ndarray
    """Where there is evidence enough to propose a size."""
    role: np.ndarray
    """(R,) what a role brings beside the others, if size stays: b_r less their mean."""
    role_error: np.ndarray
    unit: float
    """The spread of the noise, in points."""


def trust(value: Any, error: Any) -> Any:
    """t^2 / (1 + t^2), t the size of a value in standard errors: how much of it is taken for true, so that noise moves little."""
    square = (value / np.maximum(error, 1e-9)) ** 2
    return square / (1 + square)


def _shrunk(value: Any, error: Any) -> Any:
    return value * trust(value, error)


class SpawnCritic:
    """Evidence on teams at the start of episodes, as far as it is remembered."""

    def __init__(self, *, memory: float = 0.95) -> None:
        self.memory = memory
        self.held: list[dict[str, np.ndarray]] = []
        """By update: number (N, R), y, task (N,) and sorts (N, S) of its decisions; their mean sort (S,) and rows x (R, ROLE);
        and late (L, ROLE), the mean rows of roles asked about later, by role and by whether anybody is there."""

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return dict(vars(self))

    def restore(self, state: Mapping[str, Any]) -> None:
        """From a checkpoint."""
        vars(self).update(state)

    def add(self, t: Table, advantage: np.ndarray, task: np.ndarray) -> None:
        """Spawn rows of an update: the advantage of the decision that each belongs to (in points), and its task."""
        at = np.flatnonzero(t["round"] == 0)
        if not len(at):
            return
        at = at[np.lexsort((t["role"][at], t["ep"][at]))]
        roles = int(t["role"][at].max()) + 1
        x = t["x"][at].astype(np.float64).reshape(-1, roles, ROLE)
        made = {"number": t["number"][at].reshape(-1, roles), "y": advantage[at][::roles], "task": task[at][::roles]}
        sorts, late = _sort(x), _late_rows(t)
        made |= {"sorts": sorts, "sort": sorts.mean(axis=0), "x": x.mean(axis=0)} | ({"late": late} if len(late) else {})
        self.held.append(made)
        alike = [i for i, b in enumerate(self.held) if _near(b["sort"], self.held[-1]["sort"]) > 0.5]
        for i in reversed(alike[:-_KEEP]):
            self.held.pop(i)

    def _sorts(self) -> list[dict[str, np.ndarray]]:
        """One update of each sort of prefix: the last."""
        found: list[dict[str, np.ndarray]] = []
        for b in reversed(self.held):
            if all(_near(b["sort"], other["sort"]) < 0.5 for other in found):
                found.append(b)
        return found

    def prefixes(self) -> list[np.ndarray]:
        """(R, ROLE) the mean rows of each sort of prefix that is remembered."""
        return [b["x"] for b in self._sorts()]

    def late(self) -> np.ndarray:
        """(L, ROLE) the mean rows of roles that are asked about later in an episode, of each sort."""
        return np.concatenate([np.zeros((0, ROLE)), *(b["late"] for b in self._sorts() if "late" in b)])

    def judge(self, x_RF: np.ndarray, size: float, share: np.ndarray, room: int) -> TeamValues | None:
        """What teams are worth at a prefix, beside one of this size and these shares; None where nothing is known."""
        where, centres, age = _sort(x_RF[None])[0], sizes(room), 0
        phis, ys, weights, tasks = [], [], [], []
        for b in reversed(self.held):
            if _near(b["sort"], where) > 1e-3:
                total = b["number"].sum(axis=1)
                made = (b["number"] - share * total[:, None]) / np.maximum(total, 1)[:, None]
                phis.append(np.concatenate([members(total, centres), made], axis=1))
                weights.append(self.memory**age * _near(b["sorts"], where))
                ys.append(b["y"])
                tasks.append(b["task"])
                age += 1
        if not phis:
            return None
        phi, weight, y = np.concatenate(phis), np.concatenate(weights), np.concatenate(ys)
        beta, cover, unit = _solved(against_others(phi, np.concatenate(tasks)), y, weight, len(centres))
        k = len(centres)
        ask = np.eye(k) - members(np.array([size]), centres)
        others = np.maximum(share.sum() - share, 1e-9)[:, None]
        beside = np.eye(len(share)) - np.where(np.eye(len(share), dtype=np.bool_), 0.0, share[None]) / others
        asked = ((ask, cover[:k, :k]), (beside, cover[k:, k:]))
        error, role_error = (np.sqrt(np.einsum("ik,kl,il->i", q, c, q)) for q, c in asked)
        return TeamValues(centres, ask @ beta[:k], error, weight @ phi[:, :k] >= _SEEN, beside @ beta[k:], role_error, unit)

    def targets(
        self, gate: np.ndarray, size: np.ndarray, x_RF: np.ndarray, room: int, progress: float, *, is_sized: bool = False
    ) -> tuple[np.ndarray, np.ndarray]:
        """Where gates and mean log sizes of a prefix's roles should go. Gates stay near a half at first: while the team plays
        badly nobody is the best team, and who is never spawned never learns to play. `is_sized`: sizes stay as they are."""
        left, cap = max(0.25, 1 - progress), _CAP * min(1.0, 0.2 + 4 * progress)
        chance = 1 / (1 + np.exp(-gate))
        number = chance * np.exp(size)
        total = float(np.clip(np.exp(size)[chance >= min(0.5, chance.max())].sum(), 1.0, room))
        known = self.judge(x_RF, total, number / number.sum(), room)
        if known is None:
            return gate, size
        best = int(np.argmax(np.where(known.seen & (known.sizes > 0), known.value - 0.5 * known.error, -np.inf)))
        gain, move = 0.0, 0.0
        if known.seen[best] and known.sizes[best] and known.value[best] > 0:
            gain = float(_shrunk(known.value[best], known.error[best]))
            move = gain / float(known.value[best]) * float(np.log(known.sizes[best] / total))
        wanted = total * np.exp(left * np.clip(move, -_MOST / 2, _MOST / 2))
        role = left * np.clip(_shrunk(known.role, known.role_error) / known.unit, -_MOST_GATE, _MOST_GATE)
        team = gain - float(_shrunk(known.value[0], known.error[0])) if known.seen[0] else 0.0  # somebody against nobody
        team = left * float(np.clip(team / known.unit, -_MOST_GATE, _MOST_GATE))
        step = np.where(np.arange(len(role)) == np.argmax(known.role), team, role + min(team, 0.0))
        new_gate = np.clip(gate + step, np.minimum(gate, -cap), np.maximum(gate, cap))  # the cap holds, and pulls nobody back
        if is_sized:
            return new_gate, size
        share = number * np.exp(np.clip(role, -_MOST, _MOST))
        share = share / share[new_gate >= min(0.0, new_gate.max())].sum()  # where all are closed, the one that is least so
        return new_gate, np.clip(np.log(np.maximum(share * wanted, 1e-3)), size - _MOST, size + _MOST)

    def wanted(
        self, net: Network, room: int, progress: float, *, is_sized: bool = False
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(rows, gates, mean log sizes): where the roles of all remembered prefixes should go."""
        rows, gates, lengths = [np.zeros((0, ROLE))], [np.zeros(0)], [np.zeros(0)]
        for x in self.prefixes():
            with torch.no_grad():
                gate, size = (v.numpy().astype(np.float64) for v in net.roles(torch.from_numpy(x.astype(np.float32))))
            gate, size = self.targets(gate, size, x, room, progress, is_sized=is_sized)
            rows.append(x)
            gates.append(gate)
            lengths.append(np.clip(size, 0.0, np.log(max(room, 1))))
        return np.concatenate(rows), np.concatenate(gates), np.concatenate(lengths)


def _sort(x_NRF: np.ndarray) -> np.ndarray:
    """(N, S) what prefixes are alike by: open items of parallel and of serial kinds, who may work, the number of roles."""
    x = x_NRF.mean(axis=1)
    return np.concatenate([x[:, 2:4], 10 * x[:, 7:8], np.full((len(x), 1), 10.0 * x_NRF.shape[1])], axis=1)


def _late_rows(t: Table) -> np.ndarray:
    at = np.flatnonzero(t["round"] > 0)
    workers = np.expm1(3 * t["x"][at, 5]) - t["x"][at, 7]  # without the orchestrator
    code = 2 * t["role"][at] + (workers > 0.5)
    rows = [t["x"][at[code == c]].mean(axis=0) for c in np.unique(code)]
    return np.array(rows, np.float64).reshape(-1, ROLE)


def _near(sort: np.ndarray, where: np.ndarray) -> Any:
    return np.exp(-0.5 * (((sort - where) / _WIDTH) ** 2).sum(axis=-1))


def _solved(phi: np.ndarray, y: np.ndarray, weight: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray, float]:
    """(coefficients, their covariance, spread of the noise): ridge regression with a prior on the bends of the first k."""
    spread = float(np.sqrt((weight @ y**2) / weight.sum())) + 1e-9
    bend = np.diff(np.eye(k)[1:], n=2, axis=0) if k > 3 else np.zeros((0, k))
    prior = np.eye(phi.shape[1]) * _RIDGE
    prior[:k, :k] += bend.T @ bend / _BEND**2
    prior[k:, k:] += np.eye(phi.shape[1] - k) / _SHARE**2
    prior /= spread**2
    square, cross, noise = (phi * weight[:, None]).T @ phi, phi.T @ (weight * y), spread**2
    for _ in range(3):
        cover = np.linalg.inv(square / noise + prior)
        beta = cover @ cross / noise
        noise = max(float(weight @ (y - phi @ beta) ** 2 / weight.sum()), 1e-4 * spread**2)
    return beta, cover, float(np.sqrt(noise))
