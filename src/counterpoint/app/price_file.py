"""Prices people give: read from a file, and traces priced by it anew.

Always true: what the file does not name keeps the cost that it has; what has none gets the package's list price, where there is
one; nothing that is stored is changed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec.structs import replace

from counterpoint.display import compact, money
from counterpoint.files import read_toml
from counterpoint.formats.importing.usage import PRICES, Prices, Usage
from counterpoint.trace import Trace
from counterpoint.trace.naming import short_model

if TYPE_CHECKING:
    from counterpoint.trace.records import Number

_SHOWN = 4


def read_prices(path: str | os.PathLike[str] | None) -> Prices:
    """The package's prices, with those of a file on top where one is named."""
    if not path:
        return PRICES
    return Prices.with_file(read_toml(path, fix='write ["model"] tables with input and output'), where=os.fspath(path))


def reprice(trace: Trace, prices: Prices) -> Trace:
    """The trace with the costs that these prices give: anew for models that the file names, added where there was none."""
    events, is_new = list(trace.events), False
    for i, event in enumerate(events):
        if event.tokens_in is None and event.tokens_out is None:
            continue
        if event.cost_usd is None or prices.is_own(event.model):
            cost = prices.cost(event.model, Usage.of_event(event), at=event.at)
            if cost is not None:
                events[i], is_new = replace(event, cost_usd=round(cost, 9)), True
    if not is_new:
        return trace
    costs, counted = dict(trace.costs), sum(e.cost_usd or 0 for e in trace.events)
    if costs.get("cost_usd", 0) <= counted * (1 + 1e-6):  # it was only the sum of what the events carried
        costs.pop("cost_usd", None)
    return replace(trace, events=events, costs=costs)


def price_file(unpriced: Mapping[str, int], *, most: int | None = None) -> str:
    """A price file for models without a price: each with its tokens, and `nan` where the price goes; it is refused until then."""
    named = [(name, count) for name, count in unpriced.items() if name]
    lines = []
    for name, count in named[:most]:
        lines.append(f"[{json.dumps(name, ensure_ascii=False)}]  # {compact(count)} tokens\ninput = nan\noutput = nan")
    if left := len(named) - len(lines):
        lines.append(f"# and {left:,} more models: `price_file` of counterpoint top --json has them all")
    return "\n".join(lines)


def cost_words(cost: Number | None, unpriced: Mapping[str, int]) -> str:
    """A cost with what it leaves out: `$93.00 and 84 M tokens without a price: gpt-5.5`; `-` where nothing is known of either."""
    left = sum(unpriced.values())
    if not left:
        return money(cost)
    names = [short_model(name) for name in unpriced if name]
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    unnamed = unpriced.get("", 0)
    which = ", ".join(names[:_SHOWN]) + more + (f"{', ' if names else ''}{compact(unnamed)} of no named model" if unnamed else "")
    text = f"{compact(left)} tokens without a price: {which}"
    return text if cost is None else f"{money(cost)} and {text}"
