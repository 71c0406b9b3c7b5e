"""Which event and which agent a row of credit is about, and what each agent gets in all.

Always true: an agent's rows are summed at one unit, so that nothing counts twice: the agents' own rows where there are any; else
the finest unit of an additive mechanism; else all rows that name an event or a turn.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from counterpoint.trace import Trace
from counterpoint.trace.rows import Credit, CreditRow
from counterpoint.trace.statistics import spearman
from counterpoint.trace.team import team_of

EVENT_UNITS = ("orchestrator", "message", "tool")
"""Units whose ids may be events."""


class RowPlace(NamedTuple):
    """Numbers of an event (in file order) and of an agent; -1 for none."""

    event: int
    agent: int


class RowPlaces:
    """The places of one trace's rows."""

    def __init__(self, trace: Trace) -> None:
        self.trace, self.team = trace, team_of(trace)

    def of(self, row: CreditRow) -> RowPlace:
        """The event and the agent that a row's id names."""
        team, index = self.team, self.trace.index
        if row.unit in ("team", "role"):
            return RowPlace(-1, -1)
        if row.unit_id in index and row.unit not in ("agent", "turn"):
            return RowPlace(index[row.unit_id], int(team.agent_E[index[row.unit_id]]))
        if row.unit_id in team.number:
            return RowPlace(-1, team.number[row.unit_id])
        first, _, last = row.unit_id.rpartition("#")
        if row.unit == "token" and first in index:
            return RowPlace(index[first], int(team.agent_E[index[first]]))
        if row.unit == "turn":
            event = self._turns.get((first, last), index.get(first or row.unit_id, -1))
            return RowPlace(event, team.number.get(first, int(team.agent_E[event]) if event >= 0 else -1))
        return RowPlace(-1, -1)

    @cached_property
    def _turns(self) -> dict[tuple[str, str], int]:
        """(agent, turn) to its first event in the story."""
        first: dict[tuple[str, str], int] = {}
        for i in self.team.order_E.tolist():
            event = self.trace.events[i]
            if event.turn is not None:
                first.setdefault((event.agent, str(event.turn)), i)
        return first

    def by_agent(self, credit: Credit, trace: int = 0) -> dict[str, float]:
        """Agent to what its rows sum to."""
        units = set(credit.units)
        finest = [u for u in credit.units if u not in ("team", "role")]
        wanted = {"agent"} if "agent" in units else set(finest[-1:]) if credit.additive else set(finest)
        amounts: dict[int, list[float]] = {}
        for row in credit.rows:
            if row.trace == trace and row.unit in wanted and (a := self.of(row).agent) >= 0:
                amounts.setdefault(a, []).append(row.value)
        return {self.team.names[a]: math.fsum(values) for a, values in amounts.items()}


def rank_correlation(a: Mapping[str, float], b: Mapping[str, float]) -> tuple[float | None, int]:
    """Spearman's rho of the names that both have, equal amounts sharing their mean rank; None where one side has no order.

    rho = cov(rank_a, rank_b) / (sd(rank_a) sd(rank_b)). Spearman (1904).
    """
    names = [name for name in a if name in b]
    if len(names) < 2:
        return None, len(names)
    return spearman(*(_rounded([side[name] for name in names]) for side in (a, b))), len(names)


def _rounded(values: list[float]) -> NDArray[np.float64]:
    """Amounts that differ by rounding alone are equal."""
    return np.round(np.array(values) / (max(map(abs, values)) or 1.0), 9)
