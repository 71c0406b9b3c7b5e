"""The answers before the events: where the time and tokens went, what failed first, what came from outside and what it did.

Always true: only what is computed is said; what the trace does not record is left out, not guessed. Figures of a lane are the
sums over its agents.
"""

from __future__ import annotations

import numpy as np

from counterpoint.app.cli._lanes_text import Screen
from counterpoint.app.cli._output import number, plain_text
from counterpoint.audit.authority import authority
from counterpoint.audit.facts import Facts
from counterpoint.audit.rollups import path_weight
from counterpoint.audit.taint import MayTaint
from counterpoint.trace.lanes import Lane
from counterpoint.trace.rows import Shares

__all__ = ["answers", "figures"]


def _per_lane(values_A: np.ndarray, lanes: list[Lane]) -> list[float]:
    return [float(values_A[list(lane.agents)].sum()) for lane in lanes]


def _path_A(facts: Facts) -> np.ndarray:
    """Each agent's share of the critical path."""
    weight_E, _ = path_weight(facts)
    _, path = facts.critical_path(weight_E)
    out = np.zeros(len(facts.team))
    np.add.at(out, facts.team.agent_E[path], np.asarray(weight_E, np.float64)[path])
    return out / out.sum() if out.sum() > 0 else out


def figures(facts: Facts, lanes: list[Lane]) -> dict[str, list[str]]:
    """Columns beside the tree, the most telling first."""
    team = facts.team
    path = _per_lane(_path_A(facts), lanes)
    tokens = _per_lane(team.per_agent(facts.tokens_E), lanes)
    events = _per_lane(team.per_agent(np.ones(facts.n, np.int64)), lanes)
    columns = {"path%": [f"{100 * x:.0f}" if x else "-" for x in path]}
    if bool(facts.has_tokens_E.any()):
        columns["tokens"] = [_short(x) if x else "-" for x in tokens]
    columns["events"] = [number(int(x)) for x in events]
    columns["role"] = [plain_text(lane.role or "-")[:16] for lane in lanes]
    return columns


def _short(value: float) -> str:
    return f"{int(value):,}" if value < 10_000 else f"{value / 1000:,.0f}k" if value < 1e7 else f"{value / 1e6:,.1f}M"


def answers(facts: Facts, lanes: list[Lane], shares: Shares | None, may: MayTaint, on: Screen) -> list[str]:
    """Facts, each with the agent or the event it is about."""

    def name(k: int) -> str:
        return plain_text(lanes[k].label(on.times()))

    out: list[str] = []
    path = _per_lane(_path_A(facts), lanes)
    if any(path):
        out.append(f"slowest: {name(int(np.argmax(path)))} ({100 * max(path):.0f} % of path)")
    tokens = _per_lane(facts.team.per_agent(facts.tokens_E), lanes)
    if any(tokens):
        out.append(f"dearest: {name(int(np.argmax(tokens)))} ({100 * max(tokens) / sum(tokens):.0f} % of tokens)")
    if shares is not None and shares.method != "uniform":
        earned = [sum(shares.agents.get(facts.team.names[a], 0.0) for a in lane.agents) for lane in lanes]
        out.append(f"credit: {name(int(np.argmax(earned)))} {max(earned):+.2f}")
    failed = facts.in_story(facts.failed_E)
    if failed:
        event = facts.events[failed[0]]
        out.append(f"first failure: {plain_text(event.id)} of {plain_text(event.agent)}, {len(failed):,} in all")
    sinks = [sink for sink in authority(facts.trace, may, facts=facts) if sink.status == "violation"]
    if sinks:
        out.append(f"{len(sinks):,} {'incident' if len(sinks) == 1 else 'incidents'}: counterpoint audit --taint")
    return out
