"""Who acts in an Inspect sample: its spans as a tree, the agent of each event, and the call that made each agent.

An agent span is an agent; so is a tool's or handoff's span in which a model is called outside any agent span (a helper). A
scorer's span that calls a model is a judge. Everything else is the sample's own agent, `main`.

Which call made an agent is said by a tool event's `agent_span_id`. Where it is absent (older logs), an agent span inside a
tool's span belongs to the one tool event of that name, by the same agent, that was running when the span began; where there
are several, to none.

Always true: a parent that is missing, or a circle of parents, ends at `main`.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from counterpoint.formats.importing.values import as_list, seconds, string

MAIN = "main"
_SCORERS = frozenset({"scorer", "scorers"})
_STOPS = frozenset({"agent", "tool", "handoff"}) | _SCORERS


@dataclass
class SampleAgent:
    """An agent instance of a sample."""

    id: str
    role: str | None
    kind: str
    """agent, helper, judge, or main."""
    parent: str | None = None
    """The agent whose span holds this one."""
    tool_span: str | None = None
    """The tool's span it runs in, where there is one."""
    begun: float | None = None


class SampleSpans:
    """The spans of a sample's events."""

    def __init__(self, events: list[dict[str, Any]]) -> None:
        self._spans: dict[str, dict[str, Any]] = {}
        for event in events:
            if event.get("event") == "span_begin" and (name := string(event.get("id"))):
                self._spans.setdefault(name, event)
        self._makes_agent = {s: None for s, e in self._spans.items() if e.get("type") == "agent"}
        for event in events:
            if event.get("event") == "model":
                self._mark(string(event.get("span_id")))
        self.agents: dict[str, SampleAgent] = {MAIN: SampleAgent(MAIN, "solver", "main")}
        self._of: dict[str | None, str] = {}
        for span in self._makes_agent:
            self._add(span)

    def _path(self, span: str | None) -> list[str]:
        """A span and what it lies in, innermost first."""
        path: list[str] = []
        visited: set[str] = set()
        while span is not None and span in self._spans and span not in visited:
            visited.add(span)
            path.append(span)
            span = string(self._spans[span].get("parent_id"))
        return path

    def _kind(self, span: str) -> str:
        return str(self._spans[span].get("type") or "")

    def _mark(self, span: str | None) -> None:
        """A model call makes the nearest tool, handoff or scorer span around it an agent."""
        span_of_agent = next((s for s in self._path(span) if self._kind(s) in _STOPS), None)
        if span_of_agent is not None:
            self._makes_agent[span_of_agent] = None

    def _add(self, span: str) -> None:
        event, path = self._spans[span], self._path(span)
        kind = {"agent": "agent", "tool": "helper", "handoff": "helper"}.get(self._kind(span), "judge")
        above = next((s for s in path[1:] if s in self._makes_agent), None)
        around = path[1:] if above is None else path[1 : path.index(above)]
        tool_span = span if kind == "helper" else next((s for s in around if self._kind(s) in ("tool", "handoff")), None)
        parent = None if kind == "judge" else above or MAIN
        self.agents[span] = SampleAgent(span, string(event.get("name")), kind, parent, tool_span, seconds(event.get("timestamp")))

    def owner(self, span: str | None) -> str:
        """The agent that acts in a span."""
        if span not in self._of:
            self._of[span] = next((s for s in self._path(span) if s in self._makes_agent), MAIN)
        return self._of[span]

    def name(self, span: str | None) -> str | None:
        """A span's name."""
        return string(self._spans.get(span or "", {}).get("name"))

    def inside(self, span: str | None) -> str | None:
        """The span that a span lies in."""
        return string(self._spans.get(span or "", {}).get("parent_id"))


def flat(events: Any) -> list[dict[str, Any]]:
    """Events in order, with those that older logs nest in a tool's or a subtask's event put behind it, in a span of their own."""
    out: list[dict[str, Any]] = []
    _flatten(events, None, out, 0)
    return out


def _flatten(events: Any, span: str | None, out: list[dict[str, Any]], depth: int) -> None:
    for event in as_list(events):
        if not isinstance(event, dict):
            continue
        if span is not None:
            event = {**event, "span_id": string(event.get("span_id")) or span}
        out.append(event)
        nested = as_list(event.get("events"))
        if not nested or depth > 20:
            continue
        if event.get("event") != "tool":
            _flatten(nested, span, out, depth + 1)
            continue
        inner = f"tool:{event.get('id')}"
        kind, name = ("agent", event["agent"]) if string(event.get("agent")) else ("tool", event.get("function"))
        begin = {"event": "span_begin", "id": inner, "type": kind, "name": name, "parent_id": span}
        out.append({**begin, "timestamp": event.get("timestamp")})
        if kind == "agent":
            event.setdefault("agent_span_id", inner)
        _flatten(nested, inner, out, depth + 1)
        out.append({"event": "span_end", "id": inner, "timestamp": event.get("completed")})


# -- which tool call made which agent ------------------------------------------------------------------------------------------


_STATED, _CONCLUDED = "agent_span_id", "the one tool call of that name running when the agent's span began"


class ToolLinks:
    """Tool events by call id, and agents by tool event."""

    def __init__(self, events: list[dict[str, Any]], spans: SampleSpans) -> None:
        self._spans = spans
        self._waiting: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self._agent_of: dict[int, SampleAgent] = {}
        self.tool_of: dict[str, dict[str, Any]] = {}
        """Agent to the tool event that made it."""
        self.rule: dict[str, str] = {}
        """Agent to the rule that linked it, for those that are."""
        tools = [e for e in events if e.get("event") == "tool"]
        for event in tools:
            self._waiting[str(event.get("id"))].append(event)
            if (agent := spans.agents.get(string(event.get("agent_span_id")) or "")) is not None and agent.kind == "agent":
                self._link(agent, event, _STATED)
        for agent in spans.agents.values():
            if agent.tool_span is not None and agent.id not in self.tool_of:
                running = [e for e in tools if id(e) not in self._agent_of and self._runs(e, agent)]
                if len(running) == 1:
                    self._link(agent, running[0], _CONCLUDED)

    def _link(self, agent: SampleAgent, event: dict[str, Any], rule: str) -> None:
        if agent.id not in self.tool_of:
            self._agent_of[id(event)] = agent
            self.tool_of[agent.id] = event
            self.rule[agent.id] = rule

    def is_stated(self, agent: SampleAgent) -> bool:
        """Whether the log itself says which call made the agent."""
        return self.rule.get(agent.id) == _STATED

    def _runs(self, event: dict[str, Any], agent: SampleAgent) -> bool:
        begun, start, end = agent.begun, seconds(event.get("timestamp")), seconds(event.get("completed"))
        is_named = event.get("function") == self._spans.name(agent.tool_span)
        if not is_named or self.caller(event) != agent.parent:
            return False
        return begun is None or ((start is None or start <= begun) and (end is None or begun <= end))

    def caller(self, event: dict[str, Any]) -> str:
        """The agent that called a tool; the event may stand in the tool's own span or in the caller's."""
        span = string(event.get("span_id"))
        if span in self._spans.agents and self._spans.agents[span].kind == "helper":
            span = self._spans.inside(span)
        return self._spans.owner(span)

    def agent_of(self, event: dict[str, Any] | None) -> SampleAgent | None:
        """The agent that a tool event made."""
        return self._agent_of.get(id(event))

    def take(self, call: str | None, tool: str) -> dict[str, Any] | None:
        """The tool event of a call the model made: each is given once, because some dialects use an id again."""
        waiting = self._waiting.get(call or "", [])
        event = next((e for e in waiting if e.get("function") == tool), waiting[0] if waiting else None)
        if event is not None:
            waiting[:] = [e for e in waiting if e is not event]
        return event
