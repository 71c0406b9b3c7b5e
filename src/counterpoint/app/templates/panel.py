"""plugin_name: how many tokens each agent wrote, the most first.

Always true: one row per agent that wrote a token; what a trace does not say counts as nothing.
"""

from __future__ import annotations

from collections import Counter

from msgspec import Struct

from counterpoint.app.viewer.panel import Panel
from counterpoint.trace import Trace


class PluginNameRow(Struct, frozen=True, kw_only=True):
    """One agent."""

    agent: str
    tokens: int


class PluginNameRows(Struct, frozen=True, kw_only=True):
    """All agents."""

    rows: list[PluginNameRow]


def _answer(trace: Trace) -> PluginNameRows:
    tokens: Counter[str] = Counter()
    for event in trace.events:
        tokens[event.agent] += event.tokens_out or 0
    return PluginNameRows(rows=[PluginNameRow(agent=agent, tokens=n) for agent, n in tokens.most_common() if n])


plugin_name = Panel("Plugin name", "0", _answer, (PluginNameRow, PluginNameRows))
