"""Nodes of a project (P): a graph of dependencies with planted modules; what is cut between two agents may not fit.

    P(node right) = node_right[family]·g · (1 − interface_loss[brief]) ^ (dependencies done by somebody else)

Hidden: right, module. Seen: needs (the dependencies), done, by.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from counterpoint.envs.keyed import bits, purpose, uniform
from counterpoint.envs.teamworld.config import Config
from counterpoint.envs.teamworld.work import Returns, Work

_ORDER, _EXTRA, _CROSS, _NODE = (purpose(f"node {n}") for n in ("order", "extra", "cross", "work"))


def _projects(config: Config, seed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(needs (E, n, n) bool: node, what it needs), module (E, n); node numbers are shuffled so that they tell nothing."""
    modules, size = config.node_modules, config.node_module_size
    n = modules * size
    module, place = np.divmod(np.arange(n), size)
    later = (module[:, None] == module[None]) & (place[:, None] > place[None])
    path = later & (place[:, None] == place[None] + 1)
    pairs = np.arange(n)[:, None] * n + np.arange(n)[None]
    needs = path | (later & (uniform(seed[:, None, None], _EXTRA, pairs[None]) < config.node_extra_edges))
    could = (module[:, None] != module[None]) & (place[:, None] > place[None])
    rank = np.where(could, uniform(seed[:, None, None], _CROSS, pairs[None]), 2.0).reshape(len(seed), n * n)
    count = min(config.node_cross_edges, int(could.sum()))
    if count:
        chosen = np.argpartition(rank, count - 1, axis=1)[:, :count]
        flat = needs.reshape(len(seed), n * n)
        np.put_along_axis(flat, chosen, True, axis=1)
        needs = flat.reshape(len(seed), n, n)
    order = np.argsort(bits(seed[:, None], _ORDER, np.arange(n)[None]), axis=1)
    rows = np.arange(len(seed))[:, None, None]
    return needs[rows, order[:, :, None], order[:, None, :]], module[order]


@dataclass
class NodeState:
    """Axes: E episodes, n nodes."""

    first_item: int
    module: np.ndarray  # (E, n)
    right: np.ndarray  # (E, n) bool
    needs: np.ndarray  # (E, n, n) bool
    done: np.ndarray  # (E, n) bool
    by: np.ndarray  # (E, n) slot, -1
    callers: np.ndarray  # (E, n, calls) int16

    @classmethod
    def start(cls, config: Config, seed: np.ndarray, first_item: int) -> NodeState:
        """Draw the project."""
        needs, module = _projects(config, seed)
        shape = module.shape
        no = lambda: np.zeros(shape, np.bool_)  # noqa: E731
        callers = np.full((*shape, config.node_calls), -1, np.int16)
        return cls(first_item, module, no(), needs, no(), np.full(shape, -1, np.int64), callers)

    def refusals(self, config: Config, ep: np.ndarray, item: np.ndarray, purpose: np.ndarray) -> np.ndarray:
        """Nodes that are done already, or that need something that is not."""
        blocked = (self.needs[ep, item] & ~self.done[ep]).any(axis=1)
        return blocked | self.done[ep, item]

    def work(self, w: Work) -> Returns:
        """One node per call: the claim is 1, done; whether it fits is not seen."""
        needs = self.needs[w.ep, w.item]
        foreign = (needs & (self.by[w.ep] != w.agent[:, None])).sum(axis=1)
        fits = (1 - np.array(w.config.interface_loss))[w.brief] ** foreign
        right = w.draw(_NODE) < np.array(w.config.node_right)[w.family] * w.know * fits
        return Returns(np.ones(len(w.ep), np.int64), right)

    def absorb(self, ep: np.ndarray, item: np.ndarray, agent: np.ndarray, right: np.ndarray) -> None:
        """Take delivered nodes."""
        self.right[ep, item], self.done[ep, item], self.by[ep, item] = right, True, agent

    def worth(self, config: Config) -> np.ndarray:
        """(E, n) points for each node, if done and right."""
        return config.node_weight * (self.right & self.done)
