"""Which tool call of an Inspect sample made which agent, and which tool event answers which call of the model.

A tool event's `agent_span_id` says it. Where it is absent (older logs), an agent span inside a tool's span belongs to the one
tool event of that name, by the same agent, that was running when the span began; where there are several, to none.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from counterpoint.formats.importing.values import seconds, string
from counterpoint.formats.inspect.spans import Agent, Spans

_STATED, _CONCLUDED = "agent_span_id", "the one tool call of that name running when the agent's span began"


class Links:
    """Tool events by call id, and agents by tool event."""

    def __init__(self, events: list[dict[str, Any]], spans: Spans) -> None:
        self._spans = spans
        self._waiting: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self._agent_of: dict[int, Agent] = {}
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

    def _link(self, agent: Agent, event: dict[str, Any], rule: str) -> None:
        if agent.id not in self.tool_of:
            self._agent_of[id(event)] = agent
            self.tool_of[agent.id] = event
            self.rule[agent.id] = rule

    def is_stated(self, agent: Agent) -> bool:
        """Whether the log itself says which call made the agent."""
        return self.rule.get(agent.id) == _STATED

    def _runs(self, event: dict[str, Any], agent: Agent) -> bool:
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

    def agent_of(self, event: dict[str, Any] | None) -> Agent | None:
        """The agent that a tool event made."""
        return self._agent_of.get(id(event))

    def take(self, call: str | None, tool: str) -> dict[str, Any] | None:
        """The tool event of a call the model made: each is given once, for ids come again in careless dialects."""
        waiting = self._waiting.get(call or "", [])
        found = next((e for e in waiting if e.get("function") == tool), waiting[0] if waiting else None)
        if found is not None:
            waiting[:] = [e for e in waiting if e is not found]
        return found
