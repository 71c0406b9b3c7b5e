"""`Team` and `Agent`: the few primitives that every topology is written in, and the recording of what they do.

Always true: what an agent does depends on the task, the harness, what its model and tools answered and what it heard, and never
on which of two agents was faster: returns are heard at barriers, in the order of spawning. Everything an agent hears is an
event that its next call has an edge from. A malformed answer, a refused spawn, a failing tool or model is an event, never an
exception that reaches a topology. Names of agents are spawn paths, and keys of events hold nothing that an edit elsewhere would
change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from counterpoint.envs.task import Act, Choice, Instance, Seen, Subtask, TextTask
from counterpoint.team.acting import Chosen, choose
from counterpoint.team.control import Control
from counterpoint.team.edits import Edits
from counterpoint.team.harness import Harness
from counterpoint.team.limits import Limits
from counterpoint.team.memory import Memory
from counterpoint.team.model import BudgetSpent, Message, Model
from counterpoint.team.orders import Order
from counterpoint.team.recorder import Reads, Recorder
from counterpoint.team.toolbox import Toolbox
from counterpoint.team.using import use_tool
from counterpoint.trace.replay import Delete, Insert, Substitute


class AgentStopped(Exception):
    """The operator stopped this agent; its own program ends, its spawner hears of it."""


@dataclass(frozen=True)
class Returned:
    """What came back from one sub-task; `event` is None where the return never arrived."""

    agent: str
    task: str
    text: str
    event: str | None
    ok: bool = True
    by: tuple[str, ...] = ()
    """Events that decided that this is what came back, such as a critic's verdict."""


@dataclass
class Team:
    """One running team: what all its agents share."""

    task: TextTask
    instance: Instance
    harness: Harness
    model: Model
    toolbox: Toolbox
    limits: Limits
    recorder: Recorder
    control: Control
    edits: Edits
    memory: Memory
    consent: frozenset[str] | None = None
    """In a fork or a resumed run, the irreversible tools that may run; None in a first run, where all may."""
    watch: Callable[[str, Agent, Mapping[str, Any]], None] | None = None
    """Told of every event as it is recorded, for a live picture: what happened, who, its fields."""
    agents: dict[str, Agent] = field(default_factory=dict)
    badges: dict[str, str] = field(default_factory=dict)
    """Key of an event to how a fork came by it."""
    held: list[str] = field(default_factory=list)
    """Keys of irreversible calls that were not made for want of consent."""
    calls: dict[str, int] = field(default_factory=lambda: {"recorded": 0, "re-run": 0})
    kept: set[str] = field(default_factory=set)
    """References of texts that the recording holds."""
    round: int = 0
    is_steered: bool = False
    workers: int = 0
    """Workers spawned so far."""
    failure: str = ""
    """What the root's model last failed with."""
    draft: str = ""
    """What the root would answer now: where it is stopped, or its budget is spent, that is the answer."""

    def root(self, role: str) -> Agent:
        """The agent that hears the question."""
        agent = Agent(self, "lead", role, None)
        self.agents[agent.name] = agent
        asked = f"{self.instance.question}\nAnswer format: {self.instance.answer_format}"
        said = f"{asked}\n{parts_of(self.instance.subtasks)}"
        event = self.emit(
            agent,
            "message",
            key="user|question",
            agent_name="user",
            role="user",
            to="lead",
            text=said,
            source="user",
            trusted=True,
        )
        self.question_event, self.question = event, asked
        if event is not None:
            agent.hear(Seen("question", "user", self.said(event)), event, "message")
        return agent

    question_event: str | None = None
    question: str = ""

    def emit(
        self,
        agent: Agent,
        type: str,
        *,
        key: str,
        reads: Reads = (),
        text: str | None = None,
        agent_name: str | None = None,
        **fields: Any,
    ) -> str | None:
        """Record an effect; None when an edit says that it never happens. What was said is `said(event)` after an edit."""
        do = self.edits.at(key)
        if isinstance(do, Delete):
            return None
        extra = dict(fields.pop("extra", None) or {})
        if isinstance(do, Substitute) and do.value is not None:
            text = str(do.value)
            extra["edited"] = True
        who = agent_name or agent.name
        event = self.recorder.event(who, type, key=key, reads=reads, text=text, extra=extra or None, **fields)
        self._told[event] = text or ""
        if self.watch is not None:
            self.watch(type, agent, {"id": event, "text": text, **fields})
        if isinstance(do, Insert):
            self.insert(do, event, key)
        return event

    def __post_init__(self) -> None:
        self._told: dict[str, str] = {}

    def said(self, event: str) -> str:
        """What an event said, after an edit of it."""
        return self._told.get(event, "")

    def insert(self, do: Insert, event: str, key: str) -> None:
        """One more message, to whoever it names."""
        to = self.agents.get(str(do.about.get("to", "lead")))
        if to is None:
            return
        by = str(do.about.get("from", "operator"))
        said = self.recorder.event(
            by,
            "message",
            key=f"{key}|insert",
            reads=[(event, "temporal")],
            text=str(do.value),
            to=to.name,
            extra={"edited": True},
        )
        to.hear(Seen("message", by, str(do.value)), said, "message")


class Agent:
    """One agent: what it heard, and what it can do."""

    def __init__(self, team: Team, name: str, role: str, parent: Agent | None) -> None:
        self.team, self.name, self.role, self.parent = team, name, role, parent
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.seen: list[Seen] = []
        self.unread: list[tuple[str, str]] = []
        """Events to read, each with the type of the edge."""
        self.turn = 0
        self.number = 0
        """Of a worker: the how-manieth of the team, from 1."""
        self.has_returned = False
        self._body: list[Message] = []
        self.last_prompt: tuple[str, list[str]] | None = None
        """Key of its last call, and the references of that prompt."""
        self.room = 0
        """Characters of its prompts, where its model took less than the team's limit."""
        self.folder_past: list[Act] = []
        """Calls that its folder has been through, recorded ones too."""
        self.folder_done = 0
        """How many of them have run here."""

    def hear(self, seen: Seen, event: str | None, kind: str) -> None:
        """Something to read from now on; without an event it never happened."""
        if event is None:
            return
        self.seen.append(seen)
        self.unread.append((event, kind))

    def body(self) -> list[Message]:
        """All that it has seen as messages; each is made once."""
        for seen in self.seen[len(self._body) :]:
            self._body.append(self.team.harness.message(seen))
        return self._body

    def fresh(self) -> list[tuple[str, str]]:
        """All that is new, each once; for an event that its agent does not remember: the next one reads it again."""
        return list(dict.fromkeys(self.unread))

    def take_unread(self) -> list[tuple[str, str]]:
        """What the next event reads: all that is new, each once; from then on the agent knows it by that event."""
        fresh = self.fresh()
        self.unread = []
        return fresh

    # -- acting ----------------------------------------------------------------------------------------------------------

    async def choose(self, purpose: str, choices: Sequence[Choice], *, key: str, item: str | None = None) -> Chosen:
        """Ask the model for one of these; see `acting`."""
        await self.safe_point(key)
        return await choose(self, purpose, choices, key=key, item=item)

    async def safe_point(self, key: str) -> None:
        """Hear the operator, wait while paused, end when stopped."""
        n = 0
        while orders := await self.team.control.safe_point(self.name, key):
            for order in orders:
                self._obey(order, f"{key}|operator|{n}")
                n += 1

    def _obey(self, order: Order, key: str) -> None:
        team = self.team
        team.is_steered = True
        note = {"id": order.id, "action": order.action, "agent": order.agent, "by": order.by}
        text = order.text or order.action
        event = team.emit(
            self,
            "human_intervention",
            key=key,
            agent_name="operator",
            role="human",
            to=self.name,
            text=text,
            extra={"order": note},
        )
        if order.action == "message":
            self.hear(Seen("operator", "operator", text if event is None else team.said(event)), event, "message")
        elif event is not None:
            self.unread.append((event, "message"))  # it happened to the agent, which is told nothing
        if order.action == "stop":
            raise AgentStopped

    def spawn(self, role: str, number: int | str, because: str | None, *, place: int | None = None) -> Agent | None:
        """A new agent, or None where a limit or an edit says no.

        `place` is which worker of the team it is, where several agents spawn at once: who is faster must not decide that.
        """
        team, limits = self.team, self.team.limits
        why, key = None, f"{self.name}|spawn|{number}"
        # Of leads that spawn at the same time the slower one may find the team full: a replay goes by the recording.
        known = team.memory.spawned.get(key)
        if known is False or (known is None and len(team.agents) >= limits.agents):
            why = f"{limits.agents} agents are the limit"
        elif self.depth + 1 > limits.depth:
            why = f"{self.name} is at depth {self.depth}, and {limits.depth} is the limit"
        reads = [(because, "spawn")] if because else []
        if why is not None:
            text = f"spawn refused: {why}"
            event = team.emit(self, "safety_event", key=key, reads=reads, text=text, ok=False, error="limit")
            self.hear(Seen("error", self.name, text), event, "causal")
            return None
        is_worker = role not in ("lead", "critic")
        worker = 0 if not is_worker else team.workers + 1 if place is None else place
        shards = team.instance.shards if is_worker else ()
        brief = "\n".join(shards[(worker - 1) % len(shards)]) if shards else ""
        name = f"{self.name}.{number}"
        event = team.emit(self, "spawn", key=key, reads=reads, to=name, role=role, text=brief or None)
        if event is None:
            return None
        child = Agent(team, name, role, self)
        team.agents[name] = child
        child.number, team.workers = worker, max(worker, team.workers)
        child.hear(Seen("question", "user", team.question), team.question_event, "message")
        if brief:
            child.hear(Seen("brief", "user", team.said(event)), event, "spawn")
        else:
            child.unread.append((event, "spawn"))
        return child

    def tell(
        self, to: Agent, text: str, *, key: str, kind: str = "message", because: str | None = None, task: str = ""
    ) -> str | None:
        """A message to one agent."""
        reads = [(because, "causal")] if because else self.fresh()
        event = self.team.emit(
            self, "message", key=key, reads=reads, text=text, from_=self.name, to=to.name, role=self.role, task=task or None
        )
        if event is not None:
            to.hear(Seen(kind, self.name, self.team.said(event), task), event, "message")  # type: ignore[arg-type]
        return event

    async def work(self, subtask: Subtask, *, purpose: str = "work", more: Sequence[Choice] = ()) -> Returned:
        """Do a sub-task with tools until something is returned; whatever goes wrong is a return that says so."""
        team, steps = self.team, self.team.limits.steps
        back = Choice("return", "", None, team.instance.answer_format)
        try:
            for k in range(steps):
                tools = [Choice("tool", t.name, None, t.main) for t in team.toolbox.offered(self.role)] if k + 1 < steps else []
                key = f"{self.name}|step|{subtask.id}|{k}"
                chosen = await self.choose(purpose, [*tools, *more, back], key=key, item=subtask.id)
                act = chosen.act
                if act is None:
                    return self._failed(subtask, chosen.error or "no legal action", key)
                if act.verb == "tool":
                    await use_tool(self, act, chosen.event, key, subtask.id)
                elif act.verb == "return":
                    return Returned(self.name, subtask.id, act.text, chosen.event)
            return self._failed(subtask, "no steps left", f"{self.name}|step|{subtask.id}|{steps}")
        except AgentStopped:
            return self._failed(subtask, "stopped", f"{self.name}|stopped|{subtask.id}")
        except BudgetSpent as spent:
            return self._failed(subtask, spent.what, f"{self.name}|budget|{subtask.id}")

    def _failed(self, subtask: Subtask, why: str, key: str) -> Returned:
        """A return that says that there is nothing to return."""
        to = self.parent.name if self.parent else None
        text = f"(nothing: {why})"
        event = self.team.emit(
            self, "return", key=f"{key}|failed", reads=self.fresh(), text=text, from_=self.name, to=to, role=self.role,
            task=subtask.id, ok=False, error=why,
        )  # fmt: skip
        return Returned(self.name, subtask.id, "", event, ok=False)

    def with_planted(self, text: str) -> tuple[str, str | None]:
        """What a compromised peer says with its first return: its text with the adversary's, and the vector (AV3)."""
        if self.has_returned:
            return text, None
        self.has_returned = True
        mine = [p for p in self.team.instance.planted if p.where == f"peer:{self.number}"]
        return (f"{text} {mine[0].text}", mine[0].vector) if mine else (text, None)

    def hear_return(self, back: Returned) -> None:
        """Read what a sub-agent brought back."""
        if back.event is not None:
            self.hear(Seen("return", back.agent, back.text or "(nothing)", back.task), back.event, "return")
            self.unread += [(event, "causal") for event in back.by]


def parts_of(subtasks: Sequence[Subtask]) -> str:
    """The natural split in words, for whoever may hand it out."""
    return "The work can be split into these parts:\n" + "\n".join(f"{s.id}: {s.text}" for s in subtasks)
