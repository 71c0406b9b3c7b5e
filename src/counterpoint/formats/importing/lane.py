"""How importers put a team down: events as rows, and a lane for each agent, which draws the edges.

A lane knows what its agent heard since its last step, so that a step has an edge from everything it read, of the kind of what was
heard (`return`, `message`, `causal` from a tool's answer); calls follow from the step that made them.

Always true: what came from outside the team has a `safety_flow` edge too; two or more returns heard at once make the step an
`aggregate`; ids are unique, and values of the wrong kind are kept in `extra`.
"""

from __future__ import annotations

from typing import Any

from counterpoint.formats.importing.usage import PRICES, Prices, Usage
from counterpoint.formats.importing.values import count, number, writable
from counterpoint.trace.keys import CACHE_WRITE_1H
from counterpoint.trace.records import FIELDS
from counterpoint.trace.trace import content_ref
from counterpoint.trace.vocabulary import EDGE_TYPES, EVENT_TYPES

STEP = "step"
"""The kind of a model's step until it is known whether its agent leads others (a decision) or not (a message)."""
_KINDS = frozenset({*EVENT_TYPES, STEP})
_EDGES = frozenset(EDGE_TYPES)
_TEXTS = frozenset({"role", "from_", "to", "tool", "model", "task", "decision", "policy", "key", "error", "source"})
_COUNTS = frozenset({"tokens_in", "tokens_out", "turn"})
_FIELDS = frozenset({*FIELDS, "extra"})


class DraftRows:
    """Events and the edges between their ids, as an importer puts them down. `Draft` makes a trace of them."""

    def __init__(self, prices: Prices = PRICES) -> None:
        self.prices = prices
        self.rows: dict[str, dict[str, Any]] = {}
        """Event id to its fields; `type` may still be `STEP`."""
        self.edges: dict[tuple[str, str, str], None] = {}
        self.contents: dict[str, str] = {}
        self.lanes: dict[str, Lane] = {}
        """Agent to its lane, for those that have one."""

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
        row: dict[str, Any] = {"id": name, "type": kind, "agent": writable(agent) or "unnamed", "at": number(at)}
        self.rows[name] = row
        if extra:
            present = {k: v for k, v in extra.items() if v is not None}
            if present:
                row["extra"] = present
        self._say(row, end, text, usage, fields)
        return name

    def set(
        self, id: str, *, end: float | None = None, text: str | None = None, usage: Usage | None = None, **fields: Any
    ) -> None:
        """Say more about an event: what is None says nothing, a value of the wrong kind is kept in `extra`."""
        self._say(self.rows[id], end, text, usage, fields)

    def _say(self, row: dict[str, Any], end: float | None, text: str | None, usage: Usage | None, fields: dict[str, Any]) -> None:
        for field, value in fields.items():
            if value is None:
                continue
            if field in _TEXTS and type(value) is str:  # by far the most common
                if value:
                    row[field] = value if value.isascii() else writable(value)
            else:
                self._field(row, field, value)
        if end is not None and row["at"] is not None:
            row["dur"] = round(max(end - row["at"], 0.0), 6)
        if text:
            row["content_ref"] = self.text(text)
        if usage is not None:
            self._usage(row, usage)

    def _field(self, row: dict[str, Any], field: str, value: Any) -> None:
        assert field in _FIELDS, field
        amount: Any = None
        if field in _COUNTS:
            amount = count(value)
        elif field in ("dur", "cost_usd"):
            amount = number(value)
            amount = amount if amount is None or amount >= 0 else None
        elif field in ("ok", "trusted"):
            amount = value if isinstance(value, bool) else None
        elif field == "extra":
            if present := {k: v for k, v in value.items() if v is not None}:
                row["extra"] = {**row.get("extra", {}), **present}
            return
        elif field in ("options", "reward", "logp", "content_ref", "at"):
            amount = value
        if amount is not None:
            row[field] = amount
        else:
            row["extra"] = {**row.get("extra", {}), f"source_{field.rstrip('_')}": value}

    def _usage(self, row: dict[str, Any], usage: Usage) -> None:
        row["tokens_in"], row["tokens_out"] = usage.input, usage.output
        if usage.cache_read or usage.cache_write or usage.reasoning:
            read, written, hour, thought = usage.cache_read, usage.cache_write, usage.cache_write_1h, usage.reasoning
            parts = {"tokens_cache_read": read, "tokens_cache_write": written, CACHE_WRITE_1H: hour, "tokens_reasoning": thought}
            row["extra"] = {**row.get("extra", {}), **{name: n for name, n in parts.items() if n}}
        if "cost_usd" not in row and (cost := self.prices.cost(row.get("model"), usage, at=row["at"])) is not None:
            row["cost_usd"] = round(cost, 9)

    def _fresh_id(self, name: str) -> str:
        if not name.isascii():
            name = writable(name)
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

    def waits(self, src: str, dst: str) -> None:
        """`dst` began when `src` was over: an edge of time, where no other edge says so already."""
        if not any((src, dst, kind) in self.edges for kind in _EDGES):
            self.edge(src, dst, "temporal")

    def text(self, text: str) -> str:
        """Keep a text and get its reference."""
        if not text.isascii():
            text = writable(text)
        ref = content_ref(text)
        self.contents[ref] = text
        return ref

    def lane(self, agent: str, *, role: str | None = None, name: str | None = None, leads: bool = False) -> Lane:
        """The lane of an agent, made on first use."""
        agent = writable(agent) or "unnamed"
        lane = self.lanes.get(agent)
        if lane is None:
            lane = self.lanes[agent] = Lane(self, agent)
        lane.role = lane.role or role
        lane.name = lane.name or name
        lane.leads = lane.leads or leads
        return lane

    def has_lane(self, agent: str) -> bool:
        """Whether an agent has been seen."""
        return agent in self.lanes


class Lane:
    """One agent. Made by `Rows.lane`."""

    def __init__(self, draft: DraftRows, agent: str) -> None:
        self.draft, self.agent = draft, agent
        self.role: str | None = None
        self.name: str | None = None
        """What people call it: a nickname, or the description of its task."""
        self.leads = False
        """Whether its steps are orchestrator decisions even where it spawns nobody (the main agent)."""
        self.last: str | None = None
        """Its latest step, call or return: what a new step follows from when nothing was heard."""
        self.heard: list[tuple[str, str]] = []
        """What came in since its last step: event id and kind of edge."""
        self._mail: list[str] = []
        """Messages that were sent to it, and of which its own records do not say when it read them."""
        self._step: str | None = None
        self._pending: dict[str, Any] | None = None
        self._reads: list[tuple[str, str]] = []
        self._calls: dict[str, str] = {}
        self._turn = 0
        self._has_acted = False
        self._latest: float | None = None

    # -- hearing ---------------------------------------------------------------------------------------------------------

    def hears(self, event: str, edge: str = "causal", at: float | None = None) -> None:
        """An event is in the agent's context from now on (from `at`; else from its own end); its next step reads it."""
        self.heard.append((event, edge))
        self.reached(at if at is not None else self._end(event))

    def gets(self, event: str) -> None:
        """A message was sent to the agent, and its own records do not show it: the first step after it reads it."""
        self._mail.append(event)

    def _open_mail(self, begin: float | None, end: float | None) -> None:
        """Read what was there when a step began. Where nothing else says why an agent that had come to rest took a step, a
        message that came before the step was over did."""
        latest = end if not self.heard and self.last is not None and end is not None else begin
        waiting = []
        for event in self._mail:
            at = self.draft.rows[event]["at"]
            if at is None or latest is None or at <= latest:
                self.hears(event, "message")
            else:
                waiting.append(event)
        self._mail = waiting

    def reached(self, at: float | None) -> None:
        """Something came to the agent at this moment: its next step did not begin before."""
        if at is not None and (self._latest is None or at > self._latest):
            self._latest = at

    def _end(self, event: str) -> float | None:
        row = self.draft.rows[event]
        at: float | None = row["at"]
        return None if at is None else at + row.get("dur", 0.0)

    def prompt(
        self, text: str, *, by: str = "user", at: float | None = None, id: str | None = None, source: str = "user", **fields: Any
    ) -> str:
        """Somebody outside the team speaks to the agent: a human (`human_intervention`), or the system around it."""
        kind = "human_intervention" if source == "user" else "message"
        role = by if source in ("user", "peer") else source  # a harness or a pipeline that speaks is no member of the team
        fields = {"role": role, "from_": by, "to": self.agent, "source": source, "trusted": True, **fields}
        event = self.draft.event(kind, by, id=id, at=at, text=text, **fields)
        self.hears(event, "message")
        return event

    def result(
        self,
        call: str | None,
        text: str = "",
        *,
        at: float | None = None,
        id: str | None = None,
        tool: str | None = None,
        ok: bool | None = None,
        **fields: Any,
    ) -> str:
        """A tool's answer, to the call of that id where there was one. From outside the team, unless you say otherwise."""
        called = self._calls.get(call) if call is not None else None
        row = self.draft.rows.get(called) if called else None
        fields = {"source": "tool", "trusted": False, **fields}
        tool = tool or (row.get("tool") if row else None)
        event = self.draft.event("tool_result", self.agent, id=id, at=at, text=text, tool=tool, ok=ok, role=self.role, **fields)
        if row is not None:
            self.draft.edge(called, event, "tool_dependency")
            if at is not None and row["at"] is not None and "dur" not in row:
                row["dur"] = round(max(at - row["at"], 0.0), 6)
        self.hears(event)
        return event

    # -- acting ----------------------------------------------------------------------------------------------------------

    def step(
        self,
        *,
        at: float | None = None,
        end: float | None = None,
        text: str = "",
        thinking: str = "",
        usage: Usage | None = None,
        model: str | None = None,
        id: str | None = None,
        only_calls: bool = False,
        kind: str | None = None,
        **fields: Any,
    ) -> str | None:
        """One answer of the model. With `only_calls`, an answer without words that only calls tools: where the agent leads
        nobody it is no event of its own, and its tokens stand on its first call.

        Without `at` the step began when the last thing it read came in; `end` is when it was done.
        """
        if self._mail:
            self._open_mail(*((at, at) if at is not None else (self._began(end), end)))
        start = at if at is not None else self._began(end)
        step_fields = {"usage": usage, "model": model, **fields}
        if only_calls and not text and not self.leads and kind is None:
            self._pending, self._reads, self.heard, self._step = step_fields, self._take(), [], None
            return None
        self._pending = None
        reads = self._take()
        kind = kind or ("aggregate" if sum(edge == "return" for _, edge in reads) >= 2 else STEP)
        words = text or thinking
        if text and thinking:
            step_fields["extra"] = {**(step_fields.get("extra") or {}), "thinking_ref": self.draft.text(thinking)}
        elif thinking:
            step_fields["extra"] = {**(step_fields.get("extra") or {}), "is_thinking": True}
        event = self.draft.event(
            kind, self.agent, id=id, at=start, end=end, text=words, role=self.role, turn=self._turn, **step_fields
        )
        self._turn += 1
        self._read(event, reads, is_aggregate=kind == "aggregate")
        self.last = self._step = event
        self._has_acted = False
        return event

    def _began(self, end: float | None) -> float | None:
        known = [self._latest, self._end(self._step) if self._step else None]
        latest = max((t for t in known if t is not None), default=end)
        return latest if end is None or latest is None else min(latest, end)

    def _take(self) -> list[tuple[str, str]]:
        reads, self.heard = self.heard, []
        if self.last is not None and not any(self._is_own(e) for e, _ in reads):
            reads.append((self.last, "causal"))
        return reads

    def _is_own(self, event: str) -> bool:
        row = self.draft.rows[event]
        return bool(row["type"] == "tool_result" and row["agent"] == self.agent)

    def _read(self, event: str, reads: list[tuple[str, str]], *, is_aggregate: bool = False) -> None:
        for src, edge in reads:
            self.draft.edge(src, event, "aggregate" if is_aggregate and edge == "return" else edge)
            if self.draft.rows[src].get("trusted") is False:
                self.draft.edge(src, event, "safety_flow")

    def _acts(self, event: str) -> None:
        """An event that follows from the present step."""
        self._has_acted = True
        if self._step is not None:
            self.draft.edge(self._step, event, "causal")
        elif self._reads:
            self._read(event, self._reads)
        elif self.last is not None:
            self.draft.edge(self.last, event, "causal")
        if self._pending is not None:
            self.draft.set(event, **self._pending)
            self._pending = None
        if self._step is None:
            self.last = event

    def call(
        self, tool: str, text: str = "", *, call: str | None = None, at: float | None = None, id: str | None = None, **fields: Any
    ) -> str:
        """A tool call of the present step; `call` is the source's id that the answer will name."""
        event = self.draft.event("tool_call", self.agent, id=id, at=at, text=text, tool=tool, role=self.role, **fields)
        self._acts(event)
        if call is not None:
            self._calls[call] = event
        return event

    def called(self, call: str) -> str | None:
        """The event of a call, by the source's id."""
        return self._calls.get(call)

    def spawn(
        self,
        child: str | None,
        *,
        role: str | None = None,
        name: str | None = None,
        text: str = "",
        at: float | None = None,
        id: str | None = None,
        **fields: Any,
    ) -> str:
        """Make an agent; None for an attempt that made none. `name` is what people call it."""
        event = self.draft.event("spawn", self.agent, id=id, at=at, text=text, to=child, role=role, **fields)
        self._acts(event)
        if self._step is not None:
            self.draft.rows[self._step].setdefault("decision", "spawn")
        if child is not None:
            self.draft.lane(child, role=role, name=name).hears(event, "spawn")
        return event

    def send(
        self, to: str | None, text: str = "", *, at: float | None = None, id: str | None = None, heard: bool = True, **fields: Any
    ) -> str:
        """A message to another agent of the team (None for everybody), which hears it unless `heard` is false."""
        fields = {"from_": self.agent, "to": to, "source": "peer", "trusted": True, **fields}
        event = self.draft.event("message", self.agent, id=id, at=at, text=text, role=self.role, **fields)
        self._acts(event)
        if self._step is not None:
            self.draft.rows[self._step].setdefault("decision", "communicate")
        if to is not None and heard:
            self.draft.lane(to).hears(event, "message")
        return event

    def returns(
        self,
        to: str | None,
        text: str | None = None,
        *,
        at: float | None = None,
        id: str | None = None,
        heard: bool = True,
        **fields: Any,
    ) -> str:
        """The agent's result goes back. Its last step, where nothing came after it, is that return; else it is a new event."""
        fields = {"from_": self.agent, "to": to, "source": "peer", "trusted": True, **fields}
        last = self.draft.rows.get(self._step) if self._step and self._step == self.last and not self.heard else None
        if last is not None and last["type"] in (STEP, "message", "aggregate") and not self._has_acted:
            event = str(last["id"])
            last["type"] = "return"
            last.pop("decision", None)
            self.draft.set(event, **fields)
            if text and "content_ref" not in last:
                self.draft.set(event, text=text)
        else:
            event = self.draft.event("return", self.agent, id=id, at=at, text=text, role=self.role, **fields)
            self._open_mail(at, at)
            self._read(event, self._take())
        self.last = self._step = event
        if to is not None and heard:
            self.draft.lane(to).hears(event, "return", at)
        return event

    def despawn(self, child: str, *, at: float | None = None, id: str | None = None, **fields: Any) -> str:
        """End an agent."""
        event = self.draft.event("despawn", self.agent, id=id, at=at, to=child, role=self.role, **fields)
        self._acts(event)
        return event

    def stops(self) -> None:
        """The agent's last step was the decision to stop."""
        if self._step is not None and not self.heard:
            self.draft.rows[self._step].setdefault("decision", "stop")
