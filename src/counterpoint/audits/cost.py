"""What a run cost: recorded, or by the survey's model C_rollout(G).

Always true: a price has a unit and no default but zero for what is not priced; without a price for tokens or calls there is no
modelled cost. T_total is used once and never multiplied by the number of agents.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from counterpoint.audits.facts import Facts
from counterpoint.audits.records import Measure, ids, standing


class Prices(Struct, frozen=True, kw_only=True):
    """What things cost, in US dollars."""

    token: float | None = None
    """Per token, read or written (c_tok)."""
    tool: float | None = None
    """Per tool call (c_tool)."""
    spawn: float = 0.0
    """Per sub-agent: the part of C_orch that grows with K."""
    event: float = 0.0
    """Per event: the part of C_orch that grows with |G|."""
    orchestration: Callable[[int, int], float] | None = None
    """C_orch(K, |G|) as a function, instead of spawn * K + event * |G|."""

    def c_orch(self, sub_agents: int, events: int) -> float:
        """C_orch(K, |G|)."""
        if self.orchestration is not None:
            return self.orchestration(sub_agents, events)
        return self.spawn * sub_agents + self.event * events


def cost(facts: Facts, prices: Prices) -> list[Measure]:
    """The modelled and the recorded cost."""
    return [_modelled(facts, prices), _recorded(facts)]


def _modelled(facts: Facts, prices: Prices) -> Measure:
    """C_rollout(G) = sum_i (L_i c_tok + T_i c_tool) + C_orch(K, |G|), survey section 6.

    Both sums are linear in i, so L and T are the team's totals; L is `costs.tokens` where that is more than the events carry.
    """
    name = "rollout_cost"
    if prices.token is None and prices.tool is None:
        return Measure.missing(name, "no price for tokens or tool calls was given")
    tokens = int(facts.trace.tokens or 0)
    if prices.token and not tokens:
        return Measure.missing(name, "the trace has no token counts")
    calls = int(facts.team.of_types(("tool_call",)).sum())
    sub_agents = int((facts.team.parent_A >= 0).sum())
    value = tokens * (prices.token or 0.0) + calls * (prices.tool or 0.0) + prices.c_orch(sub_agents, facts.n)
    text = f"L {tokens:,} tokens, T {calls:,} calls, K {sub_agents:,} sub-agents, |G| {facts.n:,} events, at the given prices"
    return Measure.of(name, value, text, status="estimated")


def _recorded(facts: Facts) -> Measure:
    name, value, has = "recorded_cost", facts.trace.cost_usd, facts.has_cost_E
    stated = facts.trace.costs.get("cost_usd")
    if value is None:
        return Measure.missing(name, "no event carries cost_usd")
    if not bool(has.any()):
        return Measure.of(name, value, "stated by the source in costs.cost_usd; no event carries it", status="estimated")
    events = ids(facts.trace, facts.in_story(has))
    text = f"{int(has.sum()):,} events carry cost_usd"
    if value == stated and value > float(facts.cost_E.sum()) * (1 + 1e-6):
        return Measure.of(name, value, f"costs.cost_usd; {text}, and less together", status="estimated", events=events)
    billed = facts.has_tokens_E & (facts.tokens_E > 0)
    short = int((billed & ~has).sum())
    text += f"; {short:,} with tokens do not" if short else ""
    status, bound = standing(not short)
    return Measure.of(name, value, text, status=status, bound=bound, events=events)
