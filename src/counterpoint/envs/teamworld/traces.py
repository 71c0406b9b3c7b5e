"""Traces out of a log: the rows of an episode become its events, in their order, with edges, costs and texts.

Always true: the trace of an episode is a function of its rows alone. Events are made type by type (`event_makers.py`) and put
back into their order.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from counterpoint.envs.teamworld.config import Config
from counterpoint.envs.teamworld.event_log import EVENT, EventLog
from counterpoint.envs.teamworld.event_makers import EventRows, Makers, Said, marked
from counterpoint.envs.teamworld.events import CRITIC, JUDGE
from counterpoint.trace import Edge, Event, Trace
from counterpoint.trace.vocabulary import EDGE_TYPES, EVENT_TYPES


def agent_names(parent: np.ndarray, ordinal: np.ndarray, spawned: int) -> list[str]:
    """The agents' names by slot: the orchestrator, then spawn paths such as `a3` and `a3.1`."""
    names = ["orchestrator"]
    for slot in range(1, spawned + 1):
        above, place = int(parent[slot]), int(ordinal[slot])
        names.append(f"a{place}" if above == 0 else f"{names[above]}.{place}")
    return names


class Episodes:
    """The rows of a log, split by episode."""

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
        self._makers = Makers(config)

    def count(self, ep: int) -> int:
        """Events of an episode."""
        return int(self._bounds[ep + 1] - self._bounds[ep])

    def _rows(self, ep: int) -> np.ndarray:
        return self._order[self._bounds[ep] : self._bounds[ep + 1]]

    def trace(self, ep: int, names: list[str], rewards: Mapping[str, float], **fields: Any) -> Trace:
        """The trace of one episode."""
        events, texts, costs = self._events(self._rows(ep), names, fields.pop("policy", None))
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
        found = {"R2": reward[back & (purpose != 1)], "R5": reward[kind == EVENT["tool_result"]], "R6": reward[checks]}
        out = {name: float(np.mean(some)) for name, some in found.items() if len(some)}
        roles = [float(np.mean(reward[some])) for some in (back, verdict) if some.any()]
        if roles:
            out["R3"] = float(np.mean(roles))
        drafts = reward[kind == EVENT["aggregate"]]
        return out | ({"R4": float(np.sum(drafts))} if len(drafts) else {})

    def _events(self, rows: np.ndarray, names: list[str], policy: str | None) -> tuple[list[Event], dict[str, str], dict]:
        """The events in order, their texts by reference, and the sums of their costs."""
        types = self._table["type"][rows]
        by_type = np.argsort(types, kind="stable")
        bounds = np.searchsorted(types[by_type], np.arange(len(EVENT_TYPES) + 1)).tolist()
        ids = [self._ids[i] for i in by_type.tolist()]
        t = [round(v, 6) for v in self._table["t"][rows[by_type]].tolist()]
        made: list[Event] = []
        texts: list[Said | None] = []
        for name, write in self._makers.of_types(policy).items():
            a, b = bounds[EVENT[name]], bounds[EVENT[name] + 1]
            if a < b:
                part = EventRows(self._table, rows[by_type[a:b]], ids[a:b], t[a:b], names)
                some, about = write(part)
                made += marked(some, part)
                texts += about
        back = np.empty(len(rows), np.int64)
        back[by_type] = np.arange(len(rows))
        places = back.tolist()
        contents = dict([said for i in places if (said := texts[i])])
        calls = made[bounds[EVENT["tool_call"]] : bounds[EVENT["tool_call"] + 1]]
        return [made[i] for i in places], contents, self._costs(rows, t, calls)

    def _costs(self, rows: np.ndarray, t: list[float], calls: list[Event]) -> dict[str, Any]:
        """What `summed_costs` counts, from columns, and the money."""
        tokens = self._table["tokens_in"][rows] + self._table["tokens_out"][rows]
        types = np.bincount(self._table["type"][rows], minlength=len(EVENT_TYPES))
        end = max(max(t, default=0), max((e.t + (e.dur or 0) for e in calls), default=0))
        money = tokens * np.array(self.config.token_price_usd)[self._table["family"][rows]]
        count = {"tool_calls": int(types[EVENT["tool_call"]]), "messages": int(types[EVENT["message"]])}
        return {"tokens": int(tokens.sum()), "wall_clock_s": end - min(t, default=0), **count, "cost_usd": sum(money.tolist())}
