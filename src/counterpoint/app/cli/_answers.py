"""The answers before the events, and the figures beside the tree.

Always true: the answers are those of the viewer's answer strip, so that terminal and page say the same; figures of a lane are the
sums over its agents.
"""

from __future__ import annotations

import numpy as np

from counterpoint.app.cli._lanes_text import Screen
from counterpoint.app.cli._output import number, plain_text
from counterpoint.app.viewer.about import about
from counterpoint.app.viewer.seen import Seen
from counterpoint.trace.lanes import Lane


def answers(look: Seen, on: Screen) -> list[str]:
    """Computed facts, each with the agent or the event it is about."""
    return [plain_text(fact.text).replace("×", on.times()) for fact in about(look.trace).facts]


def figures(look: Seen, lanes: list[Lane]) -> dict[str, list[str]]:
    """Columns beside the tree, the most telling first."""
    facts, agents = look.facts, about(look.trace).agents
    path = _per_lane(np.array([agent.path_share for agent in agents]), lanes)
    tokens = _per_lane(np.array([agent.tokens_own for agent in agents]), lanes)
    events = _per_lane(np.array([agent.events for agent in agents]), lanes)
    columns = {"path%": [f"{100 * x:.0f}" if x else "-" for x in path]}
    if bool(facts.has_tokens_E.any()):
        columns["tokens"] = [_short(x) if x else "-" for x in tokens]
    columns["events"] = [number(int(x)) for x in events]
    columns["role"] = [plain_text(lane.role or "-")[:16] for lane in lanes]
    return columns


def _per_lane(values_A: np.ndarray, lanes: list[Lane]) -> list[float]:
    return [float(values_A[list(lane.agents)].sum()) for lane in lanes]


def _short(value: float) -> str:
    return f"{int(value):,}" if value < 10_000 else f"{value / 1000:,.0f}k" if value < 1e7 else f"{value / 1e6:,.1f}M"
