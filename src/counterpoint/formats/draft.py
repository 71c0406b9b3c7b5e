"""A trace in the making: an importer puts down what the source says, in any order, and `Draft` makes a sound trace of it.

How things are put down, and the lanes of agents, which draw the edges too, are in `importing/lane.py`. What had to be mended is
counted in `report.mended`, and an event's own clock reading stays in `at`.

Always true, whatever was put down: `check` has no error. Ids are unique, edges join events that exist and form no cycle, time
starts at 0 and does not fall along an edge, nobody acts before the spawn that made it, amounts are counts or absent.
"""

from __future__ import annotations

import heapq
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from counterpoint.formats.importing.clocks import Link, backward, one_time
from counterpoint.formats.importing.lane import STEP, DraftRows
from counterpoint.formats.importing.report import Report
from counterpoint.formats.importing.usage import PRICES, Prices
from counterpoint.formats.importing.values import number, writable
from counterpoint.trace import Edge, Event, Trace
from counterpoint.trace.keys import BEGAN, MODELS, NAMES, STOP_REASON, SUB_AGENTS, TITLE
from counterpoint.trace.quantities import AROUND, NO_TIMES
from counterpoint.trace.records import FIELDS
from counterpoint.trace.trace import summed_costs

OUT_OF_ORDER = "times that contradict the order of the records"
_TAKEN = frozenset({*FIELDS, "from", "extra"})
_PLAIN = frozenset({int, bool, type(None)})
"""Types of values that JSON holds as they are."""
_TITLE = 160
_ERROR = 500
# What vendors call the reason why a model stopped.
_STOPS = ("finish_reason", "finish_reasons", "finishReason", "llm.finish_reason", "gen_ai.response.finish_reasons")
# Marks that clients put around what people wrote; what stands between them is kept.
_TAGS = re.compile(r"</?[a-zA-Z][\w-]*(?:\s[^<>]*)?>")


class Draft(DraftRows):
    """One trace, from the first event that is put down until `traces` makes it."""

    def __init__(
        self,
        trace_id: str,
        task_id: str,
        *,
        system: str,
        prices: Prices = PRICES,
        records: Report | None = None,
        run: str | None = None,
    ) -> None:
        """`records` is what there is to say about the records of the whole session; `run` tells apart runs of one id."""
        super().__init__(prices)
        self._run = run
        self.trace_id, self.task_id, self.system = writable(trace_id) or "unnamed", writable(task_id) or "unnamed", system
        self.topology: str | None = None
        """Set it where the source says; else it follows from who spawned whom."""
        self.rewards: dict[str, float] = {}
        self.metrics: dict[str, float] = {}
        self.costs: dict[str, float] = {}
        """Totals that the source states: they count where they are more than what the events carry."""
        self.meta: dict[str, Any] = {}
        self.report = Report()
        self.unspawned: set[str] = set()
        """Sub-agents of which there is a transcript and no spawn."""
        self._records = records
        self._has_times = True
        self.has_one_clock = True
        """Whether one machine wrote all times; spans of several processes may have as many clocks."""

    def own_cost(self, usd: float) -> None:
        """The run's own cost, where list prices would say what each step cost."""
        for row in self.rows.values():
            row.pop("cost_usd", None)
        self.costs["cost_usd"] = usd

    def traces(self) -> Iterator[Trace]:
        """The trace, or nothing when no event was put down."""
        if self.rows:
            yield self._trace()
            # Lanes and their draft hold each other, and would stay in memory until somebody looks for loops.
            nowhere = DraftRows(self.prices)
            for lane in self.lanes.values():
                lane.draft = nowhere

    def _trace(self) -> Trace:
        self._settle_kinds()
        self._settle_errors()
        index = {name: i for i, name in enumerate(self.rows)}
        rows = list(self.rows.values())
        self._root_at_spawns(rows)
        pairs = [(index[s], index[d], k) for s, d, k in self.edges if s in index and d in index]
        self.report.mended.update({"edges to nowhere": len(self.edges) - len(pairs)} if len(pairs) < len(self.edges) else {})
        times, pairs = self._clocks(rows, pairs)
        order, mended, dropped = ordered(times, [(s, d) for s, d, _ in pairs])
        moved = sum(mended[i] > t + 1e-6 for i, t in enumerate(times))
        self.report.mended.update({OUT_OF_ORDER: moved} if moved else {})
        self.report.mended.update({"edges of a cycle": len(dropped)} if dropped else {})
        names = list(self.rows)
        edges = [Edge(names[s], names[d], k) for j, (s, d, k) in enumerate(pairs) if j not in dropped]  # type: ignore[arg-type]
        self._refuse_late_spawns(rows, mended)
        events = [_event(rows[i], mended[i]) for i in order]
        costs = dict(summed_costs(events))
        if not self._has_times:
            del costs["wall_clock_s"]
        if any(e.cost_usd is not None for e in events):
            costs["cost_usd"] = sum(e.cost_usd or 0 for e in events)
        costs.update({name: stated for name, stated in self.costs.items() if stated > costs.get(name, 0)})
        about = self.report.as_dict()
        if self._records is not None and (self._records.broken_count or self._records.unknown):
            about["session"] = self._records.as_dict(short=True)
        if self._run is not None:
            about["run"] = self._run
        meta = {**self._for_people(events), **self.meta, "import": about}
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

    def _for_people(self, events: list[Event]) -> dict[str, Any]:
        """What people look for in a list: what was asked, when, which models answered, what the agents are called."""
        by_model: Counter[str] = Counter()
        for e in events:
            if e.model:
                by_model[e.model] += (e.tokens_in or 0) + (e.tokens_out or 0)
        names = {agent: writable(lane.name)[:_TITLE] for agent, lane in self.lanes.items() if lane.name and lane.name != agent}
        timed = [row for row in self.rows.values() if row["at"] is not None]
        times = [row["at"] for row in timed if row.get("role") not in AROUND] or [row["at"] for row in timed]
        fields = {
            TITLE: one_line(self._asked(events)),
            MODELS: [model for model, _ in by_model.most_common()],
            NAMES: names,
            BEGAN: round(min(times), 3) if times else None,
            SUB_AGENTS: sorted(self.unspawned),
        }
        return {key: value for key, value in fields.items() if value}

    def _asked(self, events: list[Event]) -> str:
        """The first words of a human; else the first task that anybody was given."""
        asked = (e for e in events if e.type == "human_intervention" and e.content_ref and not (e.extra or {}).get("interrupted"))
        handed = (e for e in events if e.type in ("message", "spawn") and e.source in ("user", "peer", None) and e.content_ref)
        first = next(asked, None) or next(handed, None)
        return self.contents[str(first.content_ref)] if first else ""

    def _settle_kinds(self) -> None:
        """Steps of an agent that leads are decisions; those of others are messages."""
        leading = {row["agent"] for row in self.rows.values() if row["type"] == "spawn"}
        leading |= {agent for agent, lane in self.lanes.items() if lane.leads}
        for row in self.rows.values():
            if row["type"] == STEP:
                row["type"] = "orchestrator_decision" if row["agent"] in leading else "message"
                if row["type"] == "message" and "to" not in row:
                    row["extra"] = {**row.get("extra", {}), "aloud": True}  # addressed to no agent: not a message between agents
            if row["type"] != "orchestrator_decision" and row.get("decision") is not None:
                row["extra"] = {**row.get("extra", {}), "decided": row.pop("decision")}

    def _settle_errors(self) -> None:
        """A failure stands once, with what was said of it: on the result of a call where there is one, else on the call."""
        for src, dst, kind in self.edges:
            call, result = self.rows.get(src), self.rows.get(dst)
            if kind != "tool_dependency" or call is None or result is None or result["type"] != "tool_result":
                continue
            if call.get("ok") is False or result.get("ok") is False or "error" in call or "error" in result:
                error = call.pop("error", None)
                call.pop("ok", None)
                result["ok"] = False
                if error and "error" not in result:
                    result["error"] = error
        for row in self.rows.values():
            if row.get("ok") is False and row["type"] == "human_intervention" and "error" not in row:
                del row["ok"]  # a person who says no has not failed; what was refused says so itself
            elif row.get("ok") is False and "error" not in row and row["type"] not in ("message", "safety_event"):
                text = self.contents.get(row.get("content_ref", ""), "").strip()
                if text:
                    row["error"] = text[:_ERROR]

    def _root_at_spawns(self, rows: list[dict[str, Any]]) -> None:
        """What an agent does without an earlier event of its own follows from its spawn."""
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

    def _clocks(self, rows: list[dict[str, Any]], edges: list[Link]) -> tuple[list[float], list[Link]]:
        """Times by one clock, and the edges without those that one clock refutes."""
        times = self._times(rows)
        agents = [str(row["agent"]) for row in rows]
        if not self._has_times:
            return times, edges
        if not self.has_one_clock:
            times, moved = one_time(agents, times, edges)
            self.report.mended.update({"clock skew": moved} if moved else {})
            return times, edges
        if refuted := backward(agents, times, edges):
            self.report.mended["messages later than their reader's step: not linked"] += len(refuted)
            edges = [edge for k, edge in enumerate(edges) if k not in refuted]
        return times, edges

    def _times(self, rows: list[dict[str, Any]]) -> list[float]:
        known = [row["at"] for row in rows if row["at"] is not None]
        if not known:
            self._has_times = False
            self.report.lacks[NO_TIMES] += 1
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
        """Where the records say that an agent acted before it was spawned, the spawn keeps its place and loses its agent."""
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


def one_line(text: str) -> str:
    """The beginning of a text on one line, cut between words."""
    words = " ".join(_TAGS.sub(" ", text[: 8 * _TITLE]).split())
    return words if len(words) <= _TITLE else words[: _TITLE - 1].rsplit(" ", 1)[0] + "…"


def _event(row: dict[str, Any], t: float) -> Event:
    if "extra" in row:
        given = row["extra"].items()
        extra = {f"source_{k}" if k in _TAKEN else writable(str(k)): v if type(v) in _PLAIN else _safe(v) for k, v in given}
        if not extra.keys().isdisjoint(_STOPS):
            reasons = [v[0] if isinstance(v, list) and v else v for k in _STOPS if (v := extra.pop(k, None))]
            extra = {**({STOP_REASON: reasons[0]} if reasons else {}), **extra}
        row["extra"] = extra
    return Event(t=t, **row)


def _safe(value: Any) -> Any:
    """A value that JSON can hold."""
    if isinstance(value, str):
        return writable(value)
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {writable(str(k)): _safe(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_safe(v) for v in value]
    return writable(str(value))


def _numbers(values: dict[str, float]) -> dict[str, Any]:
    return {writable(name): amount for name, value in values.items() if (amount := number(value)) is not None}


# -- order in time -------------------------------------------------------------------------------------------------------------


class EventOrder(NamedTuple):
    """Events in an order in which every edge that is kept leads forward, with times that do not fall along one."""

    order: list[int]
    """Event numbers, causes first."""
    times: list[float]
    """Mended time by event number."""
    dropped: set[int]
    """Numbers of the edges that closed a cycle."""


def ordered(times: Sequence[float], edges: Sequence[tuple[int, int]]) -> EventOrder:
    """Order events by time as far as the edges allow.

    Edges are believed before clocks: where the two contradict each other, the effect is moved to its cause. An edge that would
    close a cycle is dropped, the latest first.
    """
    n = len(times)
    if all(src < dst and times[src] <= times[dst] for src, dst in edges) and all(times[i] <= times[i + 1] for i in range(n - 1)):
        return EventOrder(list(range(n)), list(times), set())
    after: list[list[int]] = [[] for _ in range(n)]
    waiting = [0] * n
    for k, (src, dst) in enumerate(edges):
        after[src].append(k)
        waiting[dst] += 1
    return _kahn(list(times), edges, after, waiting)


def _kahn(mended: list[float], edges: Sequence[tuple[int, int]], after: list[list[int]], waiting: list[int]) -> EventOrder:
    n = len(mended)
    ready = [(mended[i], i) for i in range(n) if waiting[i] == 0]
    heapq.heapify(ready)
    by_time: list[int] = []  # who is freed next from a cycle; made only when there is one
    order: list[int] = []
    is_done = [False] * n
    dropped: set[int] = set()
    while len(order) < n:
        if not ready:
            by_time = by_time or sorted((i for i in range(n) if not is_done[i]), key=lambda i: (-mended[i], -i))
            while is_done[by_time[-1]]:
                by_time.pop()
            heapq.heappush(ready, (mended[by_time[-1]], by_time[-1]))
        _, i = heapq.heappop(ready)
        if is_done[i]:
            continue
        is_done[i] = True
        order.append(i)
        for k in after[i]:
            dst = edges[k][1]
            if is_done[dst]:
                dropped.add(k)
                continue
            mended[dst] = max(mended[dst], mended[i])
            waiting[dst] -= 1
            if waiting[dst] == 0:
                heapq.heappush(ready, (mended[dst], dst))
    return EventOrder(order, mended, dropped)
