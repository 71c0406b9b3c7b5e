"""The mark of a hand: which events are orders of an operator, and which traces were steered by one.

Always true: what a human says as a matter of course (a prompt in an imported session) is no order; an order says so in its
`extra`. A trace that was steered is one whose `meta` says so, or that holds an order.
"""

from __future__ import annotations

from typing import Any

from counterpoint.trace.records import Event
from counterpoint.trace.trace import Trace

STEERED = "steered"
"""The name in `meta`."""
_ORDER = "order"


def order_of(event: Event) -> dict[str, Any] | None:
    """The order that an event records (id, action, agent, by); None where it records none."""
    if event.type != "human_intervention" or not event.extra:
        return None
    order = event.extra.get(_ORDER)
    return order if isinstance(order, dict) and isinstance(order.get("id"), str) else None


def is_steered(trace: Trace) -> bool:
    """Whether somebody intervened while the trace was made."""
    if trace.meta.get(STEERED) is True:
        return True
    return any(event.type == "human_intervention" and order_of(event) is not None for event in trace.events)
