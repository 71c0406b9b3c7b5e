"""What the main transcript says that a run cost, and what it cost with its sub-agents, in words.

Always true: nothing is said where there are no sub-agents; a plus stands behind a sum with tokens that have no price, or of which
nobody knows the true count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from counterpoint.display import at_least, compact, counted, money
from counterpoint.trace import Trace
from counterpoint.trace.quantities import uncounted
from counterpoint.trace.sides import Side, Sides, sides_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from counterpoint.trace.records import Number


def sides_words(
    sides: Sides, tokens: Number | None, cost: Number | None, *, unpriced: Mapping[str, int] | None = None, unknown: int = 0
) -> str | None:
    """`by the main transcript 3.9 k tokens, $0.014; in truth 4.1 k, $0.017, of which 2 sub-agents 192, $0.003`; None without any.

    `tokens` and `cost` are those of the whole, `unpriced` what of them has no price, `unknown` how many counts are not true.
    """
    if not sides.sub_agents or (tokens is None and cost is None):
        return None
    whole = Side(None if tokens is None else int(tokens), None if cost is None else float(cost), sum((unpriced or {}).values()))
    main, all_of_it, subs = (_words(side, unknown) for side in (sides.main, whole, sides.subs))
    who = counted(sides.sub_agents, "sub-agent")
    return f"by the main transcript {main}; in truth {all_of_it}, of which {who} {subs}"


def sides_of_trace(trace: Trace) -> str | None:
    """The same of one trace."""
    return sides_words(sides_of(trace), trace.tokens, trace.cost_usd, unpriced=trace.unpriced, unknown=uncounted(trace.meta))


def sides_dict(sides: Sides | None) -> dict[str, Any] | None:
    """The same for JSON, both sides with names."""
    if sides is None:
        return None
    by_name = {name: {field: getattr(side, field) for field in ("tokens", "cost_usd", "unpriced")}
               for name, side in (("main", sides.main), ("subs", sides.subs))}  # fmt: skip
    return {"sub_agents": sides.sub_agents, **by_name}


def _words(side: Side, unknown: int) -> str:
    tokens = f"{at_least(compact(side.tokens), unknown)} tokens" if side.tokens is not None else ""
    paid = at_least(money(side.cost_usd), side.unpriced or unknown) if side.cost_usd is not None else ""
    return ", ".join(filter(None, (tokens, paid))) or "nothing that is counted"
