"""Traces out of a log: the rows of an episode become its events, in their order, with edges, costs and texts.

Always true: the trace of an episode is a function of its rows alone. Events are made type by type (`event_makers.py`) and put
back into their order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from counterpoint.lab.worlds.teamworld.config import Config
from counterpoint.lab.worlds.teamworld.event_log import EVENT, EventLog
from counterpoint.lab.worlds.teamworld.event_makers import EventRows, Makers, Said, marked
from counterpoint.lab.worlds.teamworld.events import CRITIC, JUDGE
from counterpoint.trace import Edge, Event, Trace
from counterpoint.trace.vocabulary import EDGE_TYPES, EVENT_TYPES


def agent_names(parent: np.ndarray, ordinal: np.ndarray, spawned: int) -> list[str]:
    """The agents' names by slot: the orchestrator, then spawn paths such as `a3` and `a3.1`."""
    names = ["orchestrator"]
    for slot in range(1, spawned + 1):
        above, place = int(parent[slot]), int(ordinal[slot])
        names.append(f"a{place}" if above == 0 else f"{names[above]}.{place}")
    return names


def _rounded(seconds: np.ndarray) -> np.ndarray:
    """To microseconds, as `round` does it; many events of a batch have one time."""
    distinct, code = np.unique(seconds, return_inverse=True)
    return np.array([round(t, 6) for t in distinct.tolist()])[code]


class Episodes:
    """The rows of a log, split by episode, and within an episode by type of event."""

    def __init__(self, config: Config, log: EventLog, episodes: int) -> None:
        self.config = config
        self._table = log.table()
        ep = self._table["ep"]
        self._order = np.argsort(ep, kind="stable")
        self._bounds = np.searchsorted(ep[self._order], np.arange(episodes + 1))
        src, dst, kind = log.edge_table()
        by_ep = np.argsort(ep[src], kind="stable")
        place = np.empty(len(ep), np.int64)
        place[self._order] = np.arange(len(ep)) - self._bounds[ep[self._order]]
        self._edges = (place[src[by_ep]], place[dst[by_ep]], kind[by_ep])
        self._edge_bounds = np.searchsorted(ep[src[by_ep]], np.arange(episodes + 1))
        self._ids = [f"e{i + 1}" for i in range(int(np.diff(self._bounds).max(initial=0)))]
        codes = ep.astype(np.int64) * len(EVENT_TYPES) + self._table["type"]
        by_type = np.argsort(codes, kind="stable")
        self._by_type = {name: column[by_type] for name, column in self._table.items()}
        self._by_type["t"] = _rounded(self._by_type["t"])
        self._type_bounds = np.searchsorted(codes[by_type], np.arange(episodes * len(EVENT_TYPES) + 1))
        self._places = place[by_type]
        self._makers = Makers(config)

    def count(self, ep: int) -> int:
        """Events of an episode."""
        return int(self._bounds[ep + 1] - self._bounds[ep])

    def _rows(self, ep: int) -> np.ndarray:
        return self._order[self._bounds[ep] : self._bounds[ep + 1]]

    def trace(self, ep: int, names: list[str], rewards: Mapping[str, float], **fields: Any) -> Trace:
        """The trace of one episode."""
        events, texts, costs = self._events(ep, names, fields.pop("policy", None))
        at, ids = slice(self._edge_bounds[ep], self._edge_bounds[ep + 1]), self._ids
        src, dst, kind = (column[at].tolist() for column in self._edges)
        edges = [Edge(ids[a], ids[b], EDGE_TYPES[k]) for a, b, k in zip(src, dst, kind, strict=True)]
        shape: Any = self.config.topology
        return Trace(events=events, edges=edges, rewards=dict(rewards), costs=costs, contents=texts, topology=shape, **fields)

    def means(self, ep: int) -> dict[str, float]:
        """R2, R3, R5, R6: means over the events that carry them; R4 sums to the quality gained."""
        rows = self._rows(ep)
        kind, reward, purpose, agent = (self._table[n][rows] for n in ("type", "reward", "purpose", "agent"))
        back, verdict = kind == EVENT["return"], (kind == EVENT["message"]) & ((agent == CRITIC) | (agent >= JUDGE))
        checks = (back & (purpose == 1)) | verdict
        by_channel = {"R2": reward[back & (purpose != 1)], "R5": reward[kind == EVENT["tool_result"]], "R6": reward[checks]}
        out = {name: float(np.mean(some)) for name, some in by_channel.items() if len(some)}
        roles = [float(np.mean(reward[some])) for some in (back, verdict) if some.any()]
        if roles:
            out["R3"] = float(np.mean(roles))
        drafts = reward[kind == EVENT["aggregate"]]
        return out | ({"R4": float(np.sum(drafts))} if len(drafts) else {})

    def _events(self, ep: int, names: list[str], policy: str | None) -> tuple[list[Event], dict[str, str], dict]:
        """The events in order, their texts by reference, and the sums of their costs."""
        bounds = self._type_bounds[ep * len(EVENT_TYPES) : (ep + 1) * len(EVENT_TYPES) + 1].tolist()
        start, whole = bounds[0], slice(bounds[0], bounds[-1])
        ids = [self._ids[i] for i in self._places[whole].tolist()]
        t = self._by_type["t"][whole].tolist()
        events: list[Event] = []
        texts: list[Said | None] = []
        for name, write in self._makers.of_types(policy).items():
            a, b = bounds[EVENT[name]], bounds[EVENT[name] + 1]
            if a < b:
                part = EventRows(self._by_type, slice(a, b), ids[a - start : b - start], t[a - start : b - start], names)
                some, about = write(part)
                events += marked(some, part)
                texts += about
        back = np.empty(len(ids), np.int64)
        back[self._places[whole]] = np.arange(len(ids))
        places = back.tolist()
        contents = dict([text for i in places if (text := texts[i])])
        calls = events[bounds[EVENT["tool_call"]] - start : bounds[EVENT["tool_call"] + 1] - start]
        return [events[i] for i in places], contents, self._costs(self._rows(ep), t, calls)

    def _costs(self, rows: np.ndarray, t: list[float], calls: list[Event]) -> dict[str, Any]:
        """What `summed_costs` counts, from columns, and the money."""
        tokens = self._table["tokens_in"][rows] + self._table["tokens_out"][rows]
        types = np.bincount(self._table["type"][rows], minlength=len(EVENT_TYPES))
        end = max(max(t, default=0), max((e.t + (e.dur or 0) for e in calls), default=0))
        money = tokens * np.array(self.config.token_price_usd)[self._table["family"][rows]]
        count = {"tool_calls": int(types[EVENT["tool_call"]]), "messages": int(types[EVENT["message"]])}
        return {"tokens": int(tokens.sum()), "wall_clock_s": end - min(t, default=0), **count, "cost_usd": sum(money.tolist())}
