"""A large stored trace at first sight: its agents and its picture from a few columns, before all of it has been read.

Always true: what it says is true and not all: it has no answers, no alerts and no critical path, and its picture counts nested
spans twice; `About` says so (`is_partial`), and the page asks for the whole right after.
"""

from __future__ import annotations

from functools import cached_property
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterpoint.app.viewer.columns import bin_bytes
from counterpoint.app.viewer.shapes import TYPES, VERSION, About, Agent
from counterpoint.store import Store
from counterpoint.store.summary import Summary
from counterpoint.trace.vocabulary import EDGE_TYPES

_COLUMNS = ("t", "dur", "agent", "type", "role", "to", "tokens_in", "tokens_out", "cost_usd")
_NOTE = "The answers, the alerts and the critical path are being worked out."
_NO_FORK = "This trace is still being read."

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class FirstLook:
    """One stored trace by its columns. It has what `columns.binned` looks at, under the same names as `TraceView`."""

    def __init__(self, store: Store, row: Summary) -> None:
        """Reads the columns."""
        batch = store.batch([row.id], list(_COLUMNS))
        self._row, self._batch = row, batch
        self.t_E: Floats = batch.column("t").astype(np.float64)
        dur_E = batch.column("dur").astype(np.float64)
        self.end_E: Floats = self.t_E + np.maximum(np.nan_to_num(dur_E), 0.0)
        self.span = float(self.t_E.min()), float(self.end_E.max())
        self._first_seen()
        kinds = batch.codes("type")
        self.kind_E: Ints = np.array([TYPES.index(name) for name in kinds.categories], np.int64)[kinds.codes]
        self._forest()
        self.facts = SimpleNamespace(
            t_E=self.t_E, role_A=self._roles(), pieces=SimpleNamespace(start_E=self.t_E, end_E=self.end_E)
        )
        self.team = _Team(agent_E=self.agent_E, label_A=self.names, depth_A=self.depth_A)

    def _first_seen(self) -> None:
        """Agents by their first appearance in time."""
        named = self._batch.codes("agent")
        first = np.full(len(named.categories), np.inf)
        np.minimum.at(first, named.codes, self.t_E)
        order = np.argsort(first, kind="stable")
        number = np.empty(len(order), np.int64)
        number[order] = np.arange(len(order))
        self.names: list[str] = [str(named.categories[k]) for k in order.tolist()]
        self.agent_E: Ints = number[named.codes]

    def _forest(self) -> None:
        """Who spawned whom, by the first spawn of each; a spawn that would close a loop counts for nothing."""
        spawns = np.flatnonzero(self.kind_E == TYPES.index("spawn"))
        spawns = spawns[np.argsort(self.t_E[spawns], kind="stable")]
        to = self._batch.column("to")[spawns].tolist()
        number = {name: a for a, name in enumerate(self.names)}
        self.parent_A, self.depth_A = np.full(len(self.names), -1), np.zeros(len(self.names), np.int64)
        for maker, name in zip(self.agent_E[spawns].tolist(), to, strict=True):
            child = number.get(name, -1)
            if child >= 0 and self.parent_A[child] < 0 and not self._is_below(maker, child):
                self.parent_A[child] = maker
        for a in range(len(self.names)):
            up = int(self.parent_A[a])
            while up >= 0:
                self.depth_A[a] += 1
                up = int(self.parent_A[up])

    def _is_below(self, agent: int, top: int) -> bool:
        while agent >= 0 and agent != top:
            agent = int(self.parent_A[agent])
        return agent == top

    def _roles(self) -> list[str | None]:
        role_E = self._batch.column("role")
        roles: list[str | None] = [None] * len(self.names)
        places, first = np.unique(self.agent_E, return_index=True)
        for a, i in zip(places.tolist(), first.tolist(), strict=True):
            roles[a] = None if role_E[i] is None else str(role_E[i])
        return roles

    def _per_agent(self, *names: str) -> list[float]:
        total: Floats = np.zeros(len(self.t_E))
        for name in names:
            total += np.nan_to_num(self._batch.column(name).astype(np.float64))
        sums: list[float] = np.bincount(self.agent_E, total, len(self.names)).tolist()
        return sums

    def _with_children(self, own: list[float]) -> list[float]:
        out = list(own)
        for a in np.argsort(-self.depth_A, kind="stable").tolist():
            if self.parent_A[a] >= 0:
                out[self.parent_A[a]] += out[a]
        return out

    @cached_property
    def agents(self) -> list[Agent]:
        """Every agent with its sums."""
        tokens, cost = self._per_agent("tokens_in", "tokens_out"), self._per_agent("cost_usd")
        tokens_below, cost_below = self._with_children(tokens), self._with_children(cost)
        count = np.bincount(self.agent_E, minlength=len(self.names)).tolist()
        first, last = np.full(len(self.names), np.inf), np.full(len(self.names), -np.inf)
        np.minimum.at(first, self.agent_E, self.t_E)
        np.maximum.at(last, self.agent_E, self.end_E)
        return [
            Agent(
                name=name, label=name, role=self.facts.role_A[a], parent=int(self.parent_A[a]), depth=int(self.depth_A[a]),
                spawn=-1, events=count[a], tokens_own=tokens[a], tokens_total=tokens_below[a], cost_own=cost[a] or None,
                cost_total=cost_below[a] or None, busy_s=None, start=float(first[a]), end=float(last[a]), path_share=0.0,
                is_outside=False,
            )
            for a, name in enumerate(self.names)
        ]  # fmt: skip

    def about(self) -> About:
        """What is known at first sight."""
        row, (start, end) = self._row, self.span
        costs = {"tokens": row.tokens, "wall_clock_s": row.wall_clock_s, "cost_usd": row.cost_usd}
        return About(
            version=VERSION, id=row.id, title=row.title, project=row.project, started=row.started, task_id=row.task_id,
            system=row.system, topology=row.topology, rewards={} if row.team_reward is None else {"team": float(row.team_reward)},
            costs={name: float(value) for name, value in costs.items() if value is not None}, metrics={},
            unpriced=dict(row.unpriced), errors=row.errors, events=row.events, edges=row.edges, start=start, end=end,
            agents=self.agents, tools=[], models=list(row.models), types=list(TYPES), edge_types=list(EDGE_TYPES),
            facts=[], alerts=[], notes=[_NOTE], can_fork=False, fork_refusal=_NO_FORK, has_reward=row.team_reward is not None,
            has_logp=False, is_masked=False, is_large=True, parent=None, is_steered=row.is_steered, is_partial=True,
        )  # fmt: skip

    def bins(self) -> bytes:
        """Its picture."""
        return bin_bytes(self)


class _Team(SimpleNamespace):
    """The arrays of the agents that a picture needs."""

    label_A: list[Any]

    def __len__(self) -> int:
        return len(self.label_A)
