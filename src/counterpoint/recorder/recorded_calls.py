"""What a recorded team asked the outside, and who its agents were: what a replay looks up.

Always true: a call is found by the agent that made it, the function and what it was asked; equal ones are found in the order in
which they were made, each once. An agent is found by who spawned it, its name and its brief, so that it keeps its number in
whatever order its siblings come.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from counterpoint.recorder.answers import Answer, Find, Unpackable, unpack
from counterpoint.trace import Event, Trace, content_ref
from counterpoint.trace.keys import REPLAY

_NUMBERED = re.compile(r"-\d+$")


@dataclass(frozen=True)
class RecordedCall:
    """A call of a tool or a model, and how it ended."""

    event: Event
    result: Event | None
    """The tool's result; of a model's step the same event; None where the recording ended before."""
    place: int

    @property
    def ids(self) -> frozenset[str]:
        """The events that it left."""
        return frozenset({self.event.id} | ({self.result.id} if self.result is not None else set()))

    @property
    def end(self) -> float:
        """When the answer came."""
        return round(float(self.event.t) + float(self.event.dur or 0.0), 6)

    @property
    def runs(self) -> bool:
        """Whether other things were recorded while it ran, so that it has to run again."""
        return replay_note(self.result or self.event).get("runs") is True

    def answer(self, trace: Trace, find: Find) -> Answer:
        """What it gave; `Unpackable` where that is not known."""
        result = self.result
        if result is None:
            raise Unpackable("a call without an end")
        note = replay_note(result)
        if "answer" in note:
            return unpack(trace.contents.get(note["answer"], ""), find)
        if "lost" in note or not result.ok:
            raise Unpackable(str(note.get("lost", "an error")))
        return Answer(trace.text(result))


class RecordedCalls:
    """The calls and agents of one trace."""

    def __init__(self, trace: Trace, absent: Iterable[Mapping[str, Any]] = ()) -> None:
        """`absent` are agents that an earlier fork did not spawn."""
        self.every: list[RecordedCall] = []
        self._calls: dict[tuple[str, str, str], deque[RecordedCall]] = defaultdict(deque)
        self._agents: dict[tuple[str, str], list[str]] = defaultdict(list)
        self.names = set(trace.agents)
        answers = {e.src: e.dst for e in trace.edges if e.type == "tool_dependency"}
        for place, event in enumerate(trace.events):
            if event.type == "spawn" and event.to is not None:
                self._agents[event.agent, event.content_ref or ""].append(event.to)
            asked = _asked(event)
            if asked is None:
                continue
            result: Event | None = event
            if event.type == "tool_call":
                at = trace.index.get(answers.get(event.id, ""))
                result = None if at is None else trace.events[at]
            call = RecordedCall(event, result, place)
            self.every.append(call)
            self._calls[event.agent, *asked].append(call)
        self._by_id = {call.event.id: call for call in self.every}
        for note in absent:
            self._agents[note["agent"], note["brief"]].insert(int(note["n"]), note["to"])
            self.names.add(note["to"])

    def claim(self, agent: str, name: str, asked: str) -> RecordedCall | None:
        """The next recorded call like this one; each is given once."""
        waiting = self._calls.get((agent, name, asked))
        return waiting.popleft() if waiting else None

    def of(self, event: Event | None) -> RecordedCall | None:
        """The call that began with this event."""
        return None if event is None else self._by_id.get(event.id)

    def agent(self, boss: str, name: str, brief: str | None, *, claims: bool) -> str | None:
        """The recorded agent that is spawned here: of this name, numbered or not, with this brief; claimed, it is given once."""
        names = self._agents.get((boss, content_ref(brief) if brief is not None else ""), [])
        found = next((one for one in names if one == name or _NUMBERED.sub("", one) == name), None)
        if found is not None and claims:
            names.remove(found)
        return found

    def forget(self, boss: str, name: str) -> None:
        """An agent has begun with another brief: it does not begin again."""
        for (who, _), names in self._agents.items():
            if who == boss and name in names:
                names.remove(name)


def _asked(event: Event) -> tuple[str, str] | None:
    """The function that was called, and what it was asked; None for what is no call."""
    if event.type == "tool_call":
        return str(event.tool), event.content_ref or ""
    note = replay_note(event)
    return ("", note["asked"]) if "asked" in note else None


def replay_note(event: Event) -> dict[str, Any]:
    """What a replay needs to know of a call."""
    note = (event.extra or {}).get(REPLAY)
    return note if isinstance(note, dict) else {}


def event_name(event: Event) -> tuple[Any, ...]:
    """What an event is, but for the how manieth it is of its agent's: what its twin in another run is, too."""
    kind = "step" if "asked" in replay_note(event) else event.type  # a step's type goes by what was there to read
    return (event.agent, kind, event.tool, event.to, event.decision)


def is_ours(event: Event) -> bool:
    """Whether the recorder put it in: it stands for much that an agent knew, which goes by who came first in its framework."""
    return event.type == "aggregate" and (event.extra or {}).get("is_implicit") is True


def framework_agents(trace: Trace) -> frozenset[str]:
    """Agents that a framework runs, and no function with @rec.agent: their spawns and returns are its own."""
    told = ((e.to if e.type == "spawn" else e.agent, e.extra or {}) for e in trace.events if e.type in ("spawn", "return"))
    return frozenset(str(agent) for agent, extra in told if {"framework", "langgraph_step"} & extra.keys())
