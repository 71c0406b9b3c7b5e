"""Steering from the page: an order in, and what has become of the orders to each running team.

Always true: an order is sent by the functions of `counterpoint steer`, which refuse with the same words; what has taken effect is
known from the journal alone, so that the page, the command line and the trace say the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from counterpoint.app.viewer.shapes import LiveOrder, OrderReceipt
from counterpoint.errors import InputError, NotFound, did_you_mean
from counterpoint.recorder import orders
from counterpoint.recorder.orders import ACTIONS, Order
from counterpoint.trace import Event
from counterpoint.trace.steering import order_of

_NAMES = 200
_ORDERS = 50


class _OrderBody(Struct, forbid_unknown_fields=True):
    """The body of an order."""

    action: str
    agent: str = ""
    text: str = ""
    tree: bool | None = None


def read(body: bytes) -> Order:
    """The order that a request holds."""
    try:
        sent = msgspec.json.decode(body, type=_OrderBody)
    except msgspec.MsgspecError as error:
        fix = '{"action": "pause", "agent": "lead.1", "text": ""}'
        raise InputError(f"is not an order: {error}", where="body", fix=f"as in {fix}") from error
    if sent.action not in ACTIONS:
        raise InputError(f"no order named {sent.action!r}", where="action", fix=did_you_mean(sent.action, ACTIONS))
    return Order(action=sent.action, agent=sent.agent, text=sent.text, tree=sent.tree)  # type: ignore[arg-type]


def send(store: Path | None, trace_id: str, order: Order) -> OrderReceipt:
    """Send it to a trace of the store on view."""
    if store is None:
        raise NotFound("there is no store here, so nothing is running", fix="counterpoint view STORE")
    sent = orders.send(store, trace_id, order)
    return OrderReceipt(id=sent.id, action=sent.action, agent=sent.agent, tree=sent.is_for_tree, by=sent.by)


class Steering:
    """What the page is told about steering one running trace, kept as its journal grows."""

    def __init__(self, journal: Path) -> None:
        # A control file has the name of its journal.
        self._control = journal.parent.parent / "control" / journal.name
        self._agents: dict[str, bool] = {}
        self._paused: set[str] = set()
        self._stopped: set[str] = set()
        self._orders: deque[LiveOrder] = deque(maxlen=_ORDERS)

    def more(self, events: Iterable[Event]) -> None:
        """Take in new events."""
        fresh = list(events)
        orders.agents_of(fresh, self._agents)
        for event in fresh:
            told = order_of(event) if event.type == "human_intervention" else None
            if told is None or event.to is None:
                continue
            action = str(told.get("action"))
            self._orders.append(LiveOrder(id=told["id"], action=action, agent=event.to, event=event.id))
            if action == "pause" and event.to not in self._stopped:
                self._paused.add(event.to)
            elif action in ("resume", "stop"):
                self._paused.discard(event.to)
            if action == "stop":
                self._stopped.add(event.to)

    def now(self) -> dict[str, Any]:
        """The fields of `LiveTrace` about it; empty where the team takes no orders."""
        if not self._control.exists():
            return {}
        here = (name for name, is_here in self._agents.items() if is_here)
        return {
            "is_steerable": True,
            "names": list(islice(here, _NAMES)),
            "paused": sorted(self._paused),
            "stopped": sorted(self._stopped),
            "orders": list(self._orders),
        }
