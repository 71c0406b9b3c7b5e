"""A trace in the making: an importer puts down what the source says, in any order, and `Draft` makes a sound trace of it.

Always true, whatever was put down: ids are unique, edges join events that exist and form no cycle, time starts at 0 and does
not fall along an edge, nobody acts before the spawn that made it, amounts are counts or absent; so `check` has no error. What
had to be mended for that is counted in `report.mended`, and an event's own clock reading stays in `at`.

The steps of agents are best put down through lanes (`lane.py`), which draw the edges too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from counterpoint.formats.importing.lane import Lane
from counterpoint.formats.importing.order import ordered
from counterpoint.formats.importing.report import Report
from counterpoint.formats.importing.usage import PRICES, Prices, Usage
from counterpoint.formats.importing.values import count, number
from counterpoint.trace import Edge, Event, Trace
from counterpoint.trace.records import FIELDS
from counterpoint.trace.trace import content_ref, summed_costs
from counterpoint.trace.vocabulary import EDGE_TYPES, EVENT_TYPES

STEP = "step"
"""The kind of a model's step until it is known whether its agent leads others (a decision) or not (a message)."""
_KINDS = frozenset({*EVENT_TYPES, STEP})
_EDGES = frozenset(EDGE_TYPES)
_TEXTS = frozenset({"role", "from_", "to", "tool", "model", "task", "decision", "policy", "key", "error", "source"})
_COUNTS = frozenset({"tokens_in", "tokens_out", "turn"})
_TAKEN = frozenset({*FIELDS, "from", "extra"})
_NO_TIMES = "timestamps: t counts events"


class Draft:
    """Rows of events and edges between their ids, until `traces` makes them one."""

    def __init__(
        self, trace_id: str, task_id: str, *, system: str, prices: Prices = PRICES, records: Report | None = None
    ) -> None:
        """`records` is what there is to say about the records of the whole session."""
        self.trace_id, self.task_id, self.system = _plain(trace_id) or "unnamed", _plain(task_id) or "unnamed", system
        self.prices = prices
        self.topology: str | None = None
        """Set it where the source says; else it follows from who spawned whom."""
        self.rows: dict[str, dict[str, Any]] = {}
        """Event id to its fields; `type` may still be `STEP`."""
        self.edges: dict[tuple[str, str, str], None] = {}
        self.contents: dict[str, str] = {}
        self.rewards: dict[str, float] = {}
        self.metrics: dict[str, float] = {}
        self.meta: dict[str, Any] = {}
        self.report = Report()
        self._records = records
        self._lanes: dict[str, Lane] = {}

    # -- putting down ----------------------------------------------------------------------------------------------------

    def event(
        self,
        kind: str,
        agent: str,
        *,
        id: str | None = None,
        at: float | None = None,
        end: float | None = None,
        text: str | None = None,
        usage: Usage | None = None,
        extra: dict[str, Any] | None = None,
        **fields: Any,
    ) -> str:
        """Put an event down and get its id: the one given, made unique. `at` and `end` are seconds since the epoch."""
        assert kind in _KINDS, kind
        name = self._fresh_id(id or f"{kind}{len(self.rows)}")
        row: dict[str, Any] = {"id": name, "type": kind, "agent": _plain(agent) or "unnamed", "at": number(at)}
        self.rows[name] = row
        if extra:
            kept = {k: v for k, v in extra.items() if v is not None}
            if kept:
                row["extra"] = kept
        self._say(row, end, text, usage, fields)
        return name

    def set(
        self, id: str, *, end: float | None = None, text: str | None = None, usage: Usage | None = None, **fields: Any
    ) -> None:
        """Say more about an event: what is None says nothing, a value of the wrong kind is kept in `extra`."""
        self._say(self.rows[id], end, text, usage, fields)

    def _say(
        self, row: dict[str, Any], end: float | None, text: str | None, usage: Usage | None, fields: dict[str, Any]
    ) -> None:
        for field, value in fields.items():
            if value is None:
                continue
            if field in _TEXTS and type(value) is str:  # by far the most common
                if value:
                    row[field] = value if value.isascii() else _plain(value)
            else:
                self._field(row, field, value)
        if end is not None and row["at"] is not None:
            row["dur"] = round(max(end - row["at"], 0.0), 6)
        if text:
            row["content_ref"] = self.text(text)
        if usage is not None:
            self._usage(row, usage)

    def _field(self, row: dict[str, Any], field: str, value: Any) -> None:
        kept: Any = None
        if field in _COUNTS:
            kept = count(value)
        elif field in ("dur", "cost_usd"):
            kept = number(value)
            kept = kept if kept is None or kept >= 0 else None
        elif field in ("ok", "trusted"):
            kept = value if isinstance(value, bool) else None
        elif field == "extra":
            row["extra"] = {**row.get("extra", {}), **{k: v for k, v in value.items() if v is not None}}
            return
        elif field in ("options", "reward", "logp", "content_ref", "at"):
            kept = value
        if kept is not None:
            row[field] = kept
        else:
            row["extra"] = {**row.get("extra", {}), f"source_{field.rstrip('_')}": value}

    def _usage(self, row: dict[str, Any], usage: Usage) -> None:
        row["tokens_in"], row["tokens_out"] = usage.input, usage.output
        parts = {"cache_read": usage.cache_read, "cache_write": usage.cache_write, "reasoning": usage.reasoning}
        if any(parts.values()):
            row["extra"] = {**row.get("extra", {}), **{f"tokens_{name}": n for name, n in parts.items() if n}}
        if "cost_usd" not in row and (cost := self.prices.cost(row.get("model"), usage)) is not None:
            row["cost_usd"] = round(cost, 9)

    def _fresh_id(self, name: str) -> str:
        name = _plain(name)
        if name not in self.rows:
            return name
        k = 2
        while f"{name}~{k}" in self.rows:
            k += 1
        return f"{name}~{k}"

    def edge(self, src: str | None, dst: str | None, kind: str) -> None:
        """`dst` depends on, or read, `src`. An end that is None is no edge; one that never comes is counted."""
        assert kind in _EDGES, kind
        if src is not None and dst is not None and src != dst:
            self.edges[src, dst, kind] = None

    def text(self, text: str) -> str:
        """Keep a text and get its reference."""
        text = _plain(text)
        ref = content_ref(text)
        self.contents[ref] = text
        return ref

    def lane(self, agent: str, *, role: str | None = None, leads: bool = False) -> Lane:
        """The lane of an agent, made on first use."""
        agent = _plain(agent) or "unnamed"
        lane = self._lanes.get(agent)
        if lane is None:
            lane = self._lanes[agent] = Lane(self, agent)
        lane.role = lane.role or role
        lane.leads = lane.leads or leads
        return lane

    def has_lane(self, agent: str) -> bool:
        """Whether an agent has been seen."""
        return agent in self._lanes

    # -- making it a trace -----------------------------------------------------------------------------------------------

    def traces(self) -> Iterator[Trace]:
        """The trace, or nothing when no event was put down."""
        if self.rows:
            yield self._trace()

    def _trace(self) -> Trace:
        self._settle_kinds()
        index = {name: i for i, name in enumerate(self.rows)}
        rows = list(self.rows.values())
        self._root_at_spawns(rows)
        kept = [(index[s], index[d], k) for s, d, k in self.edges if s in index and d in index]
        self.report.mended.update({"edges to nowhere": len(self.edges) - len(kept)} if len(kept) < len(self.edges) else {})
        times = self._times(rows)
        order, mended, dropped = ordered(times, [(s, d) for s, d, _ in kept])
        skewed = [i for i, t in enumerate(times) if mended[i] > t + 1e-6]
        self.report.mended.update({"clock skew": len(skewed)} if skewed else {})
        self.report.mended.update({"edges of a cycle": len(dropped)} if dropped else {})
        names = list(self.rows)
        edges = [Edge(names[s], names[d], k) for j, (s, d, k) in enumerate(kept) if j not in dropped]  # type: ignore[arg-type]
        self._refuse_late_spawns(rows, mended)
        events = [_event(rows[i], mended[i]) for i in order]
        costs = dict(summed_costs(events))
        if any(e.cost_usd is not None for e in events):
            costs["cost_usd"] = sum(e.cost_usd or 0 for e in events)
        about = self.report.as_dict()
        if self._records is not None and (self._records.broken_count or self._records.unknown):
            about["session"] = self._records.as_dict()
        meta = {**self.meta, "import": about}
        return Trace(
            trace_id=self.trace_id,
            task_id=self.task_id,
            system=self.system,
            topology=self.topology or self._shape(events),  # type: ignore[arg-type]
            events=events,
            edges=edges,
            rewards=_numbers(self.rewards),
            costs=costs,
            metrics=_numbers(self.metrics) or None,
            meta=meta,
            contents=self.contents,
        )

    def _settle_kinds(self) -> None:
        """An agent that leads decides; one that does not says what it says."""
        leading = {row["agent"] for row in self.rows.values() if row["type"] == "spawn"}
        leading |= {agent for agent, lane in self._lanes.items() if lane.leads}
        for row in self.rows.values():
            if row["type"] == STEP:
                row["type"] = "orchestrator_decision" if row["agent"] in leading else "message"
                if row["type"] == "message" and "to" not in row:
                    row["extra"] = {**row.get("extra", {}), "aloud": True}  # said to nobody: no message of the team's
            if row["type"] != "orchestrator_decision" and row.get("decision") is not None:
                row["extra"] = {**row.get("extra", {}), "decided": row.pop("decision")}

    def _root_at_spawns(self, rows: list[dict[str, Any]]) -> None:
        """Whatever an agent does without an earlier event of its own follows from its spawn."""
        spawns: dict[str, str] = {}
        for row in rows:
            if row["type"] == "spawn" and row.get("to"):
                spawns.setdefault(row["to"], row["id"])
        if not spawns:
            return
        agent_of = {row["id"]: row["agent"] for row in rows}
        follows = {d for s, d, _ in self.edges if agent_of.get(s) == agent_of.get(d)}
        is_rooted = {d for s, d, kind in self.edges if kind == "spawn"}
        met: set[str] = set()
        for row in rows:
            spawn = spawns.get(row["agent"])
            if spawn is None or row["id"] in follows or row["id"] == spawn:
                continue
            kind = "temporal" if row["agent"] in met else "spawn"
            met.add(row["agent"])
            if row["id"] not in is_rooted:
                self.edge(spawn, row["id"], kind)

    def _times(self, rows: list[dict[str, Any]]) -> list[float]:
        known = [row["at"] for row in rows if row["at"] is not None]
        if not known:
            self.report.lacks[_NO_TIMES] += 1
            return [float(i) for i in range(len(rows))]
        missing = len(rows) - len(known)
        self.report.lacks.update({"the time of some events: taken from the one before": missing} if missing else {})
        start, last = min(known), known[0]
        times = []
        for row in rows:
            last = last if row["at"] is None else row["at"]
            times.append(round(last - start, 6))
        return times

    def _refuse_late_spawns(self, rows: list[dict[str, Any]], times: list[float]) -> None:
        """Where the records say that an agent acted before it was made, the spawn keeps its place and loses its agent."""
        first: dict[str, float] = {}
        for row, t in zip(rows, times, strict=True):
            first[row["agent"]] = min(t, first.get(row["agent"], t))
        for row, t in zip(rows, times, strict=True):
            if row["type"] == "spawn" and row.get("to") in first and first[row["to"]] < t:
                row["extra"] = {**row.get("extra", {}), "contradicted_to": row.pop("to")}
                self.report.mended["spawns after their agent acted"] += 1

    def _shape(self, events: list[Event]) -> str:
        parent = {e.to: e.agent for e in events if e.type == "spawn" and e.to}
        if not parent:
            return "unknown"
        return "hierarchical" if any(boss in parent for boss in parent.values()) else "centralized"


def _event(row: dict[str, Any], t: float) -> Event:
    if "extra" in row:
        row["extra"] = {f"source_{k}" if k in _TAKEN else _plain(str(k)): _safe(v) for k, v in row["extra"].items()}
    return Event(t=t, **row)


def _safe(value: Any) -> Any:
    """A value that JSON can hold."""
    if isinstance(value, str):
        return _plain(value)
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {_plain(str(k)): _safe(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_safe(v) for v in value]
    return _plain(str(value))


def _numbers(values: dict[str, float]) -> dict[str, Any]:
    return {_plain(name): found for name, value in values.items() if (found := number(value)) is not None}


def _plain(text: str) -> str:
    """Text that can be written down: lone surrogates become question marks."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace").decode()
    return text
