"""Where invented events are collected, put into time order and numbered.

Always true: time is whole milliseconds until it is written; an edge leads from an event that was added earlier and starts no
later, so events in time order (stable) are in topological order; after `settle`, ids are e1, e2, ... in that order, edges
stand by destination, and nothing added later may start before what was settled.
"""

from __future__ import annotations

from array import array
from typing import Any

import numpy as np
from msgspec.structs import force_setattr

from counterpoint.envs.synthetic.dice import Dice
from counterpoint.envs.synthetic.texts import Texts
from counterpoint.trace.records import Edge, Event
from counterpoint.trace.vocabulary import EdgeType, EventType

# Micro-dollars per token, read and written: invented, and whole so that costs add up exactly.
_READ_PRICE, _WRITE_PRICE = 1, 4


class Script:
    """A run as it is written: events by handle (0, 1, ... in order of adding), their edges, and running totals."""

    def __init__(self, seed: int, tool_steps: int, *, contents: bool) -> None:
        self.dice = Dice(seed, 0)
        self.texts = Texts(seed, is_kept=contents)
        self.ref = self.texts.ref
        self.events: list[Event] = []
        self.edges: list[Edge] = []
        self.end = 0
        """When the last event so far is over, in milliseconds."""
        self.micro_usd = 0
        self.failed_calls = 0
        self.busy = 0
        """Milliseconds of sub-agent work."""
        self.steps_done = 0
        self.incidents = self._choose_incidents(tool_steps)
        """Which tool steps bring back an injected instruction: one, and one more per two thousand."""
        self._count = 0
        self._new: list[Event] = []
        self._starts: list[int] = []
        self._places = array("i")
        self._src, self._dst, self._kinds = array("i"), array("i"), list[EdgeType]()

    def _choose_incidents(self, tool_steps: int) -> set[int]:
        dice = self.dice
        return {dice.below(tool_steps) for _ in range(1 + tool_steps // 2000)} if tool_steps >= 8 else set()

    def add(self, at: int, kind: EventType, agent: str, dur: int, **fields: Any) -> int:
        """One more event from `at` for `dur` milliseconds; its handle."""
        self._new.append(Event(id="-", t=at / 1000, type=kind, agent=agent, dur=dur / 1000, **fields))
        self._starts.append(at)
        if at + dur > self.end:
            self.end = at + dur
        self._count += 1
        return self._count - 1

    def edge(self, src: int, dst: int, kind: EdgeType) -> None:
        """`dst` read, or waited for, `src`."""
        self._src.append(src)
        self._dst.append(dst)
        self._kinds.append(kind)

    def price(self, tokens_in: int, tokens_out: int) -> float:
        """What so many tokens cost, in dollars; added to the total."""
        micro = tokens_in * _READ_PRICE + tokens_out * _WRITE_PRICE
        self.micro_usd += micro
        return micro / 1_000_000

    def settle(self) -> None:
        """Number everything added since the last time, in time order."""
        starts, new, base = self._starts, self._new, len(self.events)
        order = sorted(range(len(new)), key=starts.__getitem__)
        places = array("i", bytes(4 * len(new)))
        for place, i in enumerate(order, base):
            # Nobody else holds these records yet, so this is the last step of making them and not a change.
            force_setattr(new[i], "id", f"e{place + 1}")
            places[i] = place
            self.events.append(new[i])
        self._places.extend(places)
        self._settle_edges()
        self._new, self._starts = [], []

    def _settle_edges(self) -> None:
        place = np.frombuffer(self._places, np.int32)
        src, dst = place[np.frombuffer(self._src, np.int32)], place[np.frombuffer(self._dst, np.int32)]
        events, kinds = self.events, self._kinds
        del place  # an array that is looked at cannot grow
        for k, s, d in zip(*(a.tolist() for a in _by_destination(src, dst)), strict=True):
            self.edges.append(Edge(events[s].id, events[d].id, kinds[k]))
        self._src, self._dst, self._kinds = array("i"), array("i"), []


def _by_destination(src: Any, dst: Any) -> tuple[Any, Any, Any]:
    order = np.lexsort((src, dst))
    return order, src[order], dst[order]
