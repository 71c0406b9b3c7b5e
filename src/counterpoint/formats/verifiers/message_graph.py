"""A trace of verifiers v1: messages as a graph of nodes, model calls beside it, sub-agents by semantic links.

A node that a model call produced is a step; what stands before it on its path and its agent has not met was heard. Whose step
it is: that of the agent it was called by (`subagent_call` makes a new one), of the node it goes on from (`continuation`,
`compaction`), or of the nearest step above it. A step without any of these, beside the first, is an agent whose spawn is
unknown.

Always true: a node is put down once; tokens stand on the call that states them.
"""

from __future__ import annotations

from typing import Any

from counterpoint.formats.draft import Draft
from counterpoint.formats.importing.chat import Message, message_of
from counterpoint.formats.importing.lane import Lane
from counterpoint.formats.importing.usage import Usage
from counterpoint.formats.importing.values import as_dict, as_list, count, number, seconds, string
from counterpoint.formats.verifiers.rows import usage_of

_SAME = frozenset({"continuation", "compaction", "compaction_attempt"})
_KNOWN = _SAME | {"subagent_call", "subagent_return", "agent_message", "subagent_cancel"}


class GraphTalk:
    """The nodes of one trace on their way into a draft."""

    def __init__(self, draft: Draft, record: dict[str, Any], agent: str, prefix: str = "") -> None:
        self.draft, self.agent, self.prefix = draft, agent, prefix
        self.role = string(as_dict(record.get("agent")).get("name"))
        self.nodes = [as_dict(node) for node in as_list(record.get("nodes"))]
        self.calls: dict[int, dict[str, Any]] = {}
        for call in as_list(record.get("calls")):
            if isinstance(call, dict) and (node := count(call.get("node"))) is not None:
                self.calls[node] = call
            elif isinstance(call, dict) and call.get("error"):
                draft.meta["failed_model_calls"] = draft.meta.get("failed_model_calls", 0) + 1
        self.last: str | None = None
        """The trace's latest step."""
        self._owner: dict[int, str] = {}
        self._event: dict[int, str] = {}
        self._met: dict[str, set[int]] = {}
        self._spawn: dict[str, str] = {}

    def play(self) -> None:
        """Every step in the order in which it was committed."""
        for i, node in enumerate(self.nodes):
            if node.get("sampled") is True:
                self._step(i, node)

    def _links(self, node: dict[str, Any]) -> list[tuple[int, str]]:
        found = [
            (count(as_dict(x).get("node")), string(as_dict(x).get("type")) or "") for x in as_list(node.get("semantic_parents"))
        ]
        return [(source, kind) for source, kind in found if source is not None and source in self._event]

    def _parent(self, i: int) -> int | None:
        found = count(self.nodes[i].get("parent"))
        return found if found is not None and found < i else None  # a parent is older: no circle can be

    def _lane(self, agent: str) -> Lane:
        is_main = agent == self.agent
        return self.draft.lane(agent, role=self.role if is_main else "sub-agent", leads=is_main)

    # -- whose step ------------------------------------------------------------------------------------------------------

    def _who(self, i: int, links: list[tuple[int, str]]) -> str:
        for source, kind in links:
            if kind == "subagent_call":
                return self._spawned(i, source)
        for source, kind in links:
            if kind in _SAME:
                return self._owner[source]
        above = self._parent(i)
        while above is not None and above not in self._owner:
            above = self._parent(above)
        if above is not None:
            return self._owner[above]
        if not self._owner:
            return self.agent
        agent = f"{self.agent}/branch-{i}"
        self.draft.report.loose(f"the agent {agent}: nothing says who called it")
        return agent

    def _spawned(self, i: int, source: int) -> str:
        agent, parent = f"{self.agent}/sub-{i}", self._owner[source]
        extra = {"by_code": True}  # what the model said is the call of a tool, an event of its own
        spawn = self.draft.event("spawn", parent, id=f"{self.prefix}n{i}/spawn", to=agent, role="sub-agent", extra=extra)
        at = self.draft.rows[self._event[source]]
        self.draft.set(spawn, at=None if at["at"] is None else at["at"] + (at.get("dur") or 0.0))
        self.draft.edge(self._event[source], spawn, "causal")
        self._lane(agent).hears(spawn, "spawn")
        self._spawn[agent] = spawn
        self.draft.report.linked("subagent_call")
        return agent

    # -- a step ----------------------------------------------------------------------------------------------------------

    def _step(self, i: int, node: dict[str, Any]) -> None:
        links = self._links(node)
        agent = self._who(i, links)
        lane, call = self._lane(agent), as_dict(self.calls.get(i))
        time = as_dict(call.get("time"))
        at, end = seconds(time.get("start")) or None, seconds(time.get("end")) or None
        for n in self._unmet(i, agent):
            self._hear(lane, n, at)
        for source, kind in links:
            self._follow(lane, source, kind, i)
        message = message_of(node.get("message")) or Message("assistant")
        usage = usage_of(call.get("usage"))
        if usage is None and isinstance(node.get("mask"), list) and node["mask"]:
            usage = Usage(output=sum(bool(m) for m in node["mask"]))
            self.draft.report.lacks["tokens read by some model calls"] += 1
        elif usage is None:
            self.draft.report.lacks["tokens of some model calls"] += 1
        event = self._say(lane, i, node, call, message, usage, at, end)
        self._owner[i], self._event[i], self.last = agent, event, event
        self._met.setdefault(agent, set()).add(i)

    def _say(
        self,
        lane: Lane,
        i: int,
        node: dict[str, Any],
        call: dict[str, Any],
        message: Message,
        usage: Usage | None,
        at: float | None,
        end: float | None,
    ) -> str:
        logprobs = [p for value in as_list(node.get("logprobs")) if (p := number(value)) is not None]
        error = string(as_dict(call.get("error")).get("message"))
        step = lane.step(
            id=f"{self.prefix}n{i}",
            at=at,
            end=end,
            text=message.text,
            thinking=message.thinking,
            usage=usage,
            model=string(call.get("model")),
            only_calls=bool(message.calls),
            logp=sum(logprobs) if logprobs else None,
            ok=False if error else None,
            error=error,
        )
        for k, made in enumerate(message.calls):
            name = made.id or f"call{k}"
            event = lane.call(made.tool, made.text, call=name, id=f"{self.prefix}n{i}/{name}", at=end or at)
            step = step or event
        return step or f"{self.prefix}n{i}"

    def _unmet(self, i: int, agent: str) -> list[int]:
        """The nodes before a step that its agent has not met, oldest first."""
        met = self._met.setdefault(agent, set())
        path: list[int] = []
        above = self._parent(i)
        while above is not None and above not in met:
            path.append(above)
            above = self._parent(above)
        met.update(path)
        return path[::-1]

    def _hear(self, lane: Lane, n: int, at: float | None) -> None:
        message = message_of(self.nodes[n].get("message"))
        if n in self._event:
            is_own_kind = message is not None and message.role in ("user", "system")
            lane.hears(self._event[n], "message" if is_own_kind else "causal")
            return
        if message is None:
            return
        key, spawn = f"{self.prefix}n{n}", self._spawn.get(lane.agent)
        if message.role == "tool":
            event = lane.result(message.call, message.text, id=key, at=at, tool=message.tool)
        elif message.role == "user" and spawn is not None and lane.last is None and "content_ref" not in self.draft.rows[spawn]:
            self.draft.set(spawn, text=message.text)
            event = spawn
        elif message.role == "user" and lane.agent == self.agent and lane.last is None:
            event = lane.told(message.text, id=key, at=at)
        elif message.role == "user":
            event = lane.told(message.text, by="environment", source="tool", trusted=False, id=key, at=at)
        else:
            extra = {"prompted_role": message.role} if message.role != "system" else None
            event = lane.told(message.text, by="system", source="system", id=key, at=at, extra=extra)
        self._event[n] = event

    def _follow(self, lane: Lane, source: int, kind: str, i: int) -> None:
        """What a semantic link brings to a step."""
        event, other = self._event[source], self._owner.get(source)
        if kind == "subagent_return" and other is not None and other != lane.agent:
            child = self._lane(other)
            if child.last == event:
                child.returns(lane.agent, id=f"{event}/return")
            else:
                lane.hears(event, "return")
        elif kind == "agent_message":
            lane.hears(event, "message")
        elif kind == "subagent_cancel" and other is not None:
            ended = self.draft.event(
                "despawn", other, id=f"{self.prefix}n{i}/cancel", at=self.draft.rows[event]["at"], to=lane.agent
            )
            self.draft.edge(event, ended, "causal")
        elif kind not in _KNOWN:
            self.draft.report.unknown[f"semantic link {kind}"] += 1
