"""`TeamState`, `AgentState` and `Limits`: what the agents of a team share, what one has heard, how far a team may go.

Always true: everything an agent hears is an event that its next call has an edge from. An edit of a fork is applied where an
effect is recorded, so no caller can forget it. A limit that is reached ends or refuses what would pass it, with an event.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from counterpoint.errors import InputError, did_you_mean
from counterpoint.lab.lm.model import Message, Model
from counterpoint.lab.tasks.task import Act, Instance, TextTask, ViewItem
from counterpoint.lab.team.edits import Edits
from counterpoint.lab.team.gates import Gate
from counterpoint.lab.team.harness import Harness
from counterpoint.lab.team.memory import Memory
from counterpoint.lab.team.toolbox import Toolbox
from counterpoint.recorder.control import Control
from counterpoint.recorder.orders import Order
from counterpoint.recorder.recorder import Reads, Recorder
from counterpoint.trace.model_calls import PromptIds
from counterpoint.trace.replay import Delete, Insert, Substitute


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of one run."""

    width: int = 4
    """Sub-agents that one agent may have at once."""
    agents: int = 1_024
    """Agents in the whole team, over the whole run."""
    depth: int = 3
    """Spawns between the root and the deepest agent."""
    turns: int = 40
    """Decisions of one orchestrator."""
    steps: int = 12
    """Model calls of one worker for one sub-task."""
    rounds: int = 2
    """Rounds of a debate, or of a critic's objections."""
    repairs: int = 1
    """How often a malformed answer is asked for again."""
    max_tokens: int = 128
    """Tokens of one completion."""
    temperature: float = 1.0
    context: int = 24_000
    """Characters of one prompt; older results are cut from the middle when it gets longer."""

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            least = 0 if f.name in ("repairs", "temperature", "rounds", "depth") else 1
            if isinstance(value, bool) or not isinstance(value, int | float) or value < least:
                raise InputError(f"{f.name} is {value!r}", where="limits", fix=f"{least} or more")

    @classmethod
    def of(cls, given: dict[str, Any]) -> Limits:
        """Limits from plain data, such as a trace's meta."""
        known = [f.name for f in fields(cls)]
        for name in given:
            if name not in known:
                raise InputError(f"no limit named {name!r}", fix=did_you_mean(name, known))
        return cls(**given)

    def as_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        return asdict(self)


class AgentStopped(Exception):
    """The operator stopped this agent; its own program ends, its spawner hears of it."""


@dataclass
class TeamState:
    """What all agents of one running team share."""

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
    watch: Callable[[str, AgentState, Mapping[str, Any]], None] | None = None
    """Told of every event as it is recorded, for a live picture: what happened, who, its fields."""
    gate: Gate | None = None
    """What keeps orders in outside text from agents; None: nothing does."""
    is_timeless: bool = False
    """Tools take no time in the recording, so that it is the same each time, however fast the machine."""
    agents: dict[str, AgentState] = field(default_factory=dict)
    badges: dict[str, str] = field(default_factory=dict)
    """Key of an event to how a fork came by it."""
    held: list[str] = field(default_factory=list)
    """Keys of irreversible calls that were not made because nobody had consented."""
    calls: dict[str, int] = field(default_factory=lambda: {"recorded": 0, "re-run": 0})
    kept: set[str] = field(default_factory=set)
    """References of texts that the recording holds."""
    prompts: PromptIds = field(default_factory=PromptIds)
    """Token ids of the prompts so far, so that each is kept once."""
    round: int = 0
    is_steered: bool = False
    workers: int = 0
    """Workers spawned so far."""
    failure: str = ""
    """What the root's model last failed with."""
    draft: str = ""
    """What the root would answer now: where it is stopped, or its budget is spent, that is the answer."""
    question: str = ""
    """What the team was asked."""
    question_event: str | None = None

    def __post_init__(self) -> None:
        self._texts: dict[str, str] = {}

    def emit(
        self,
        agent: AgentState,
        type: str,
        *,
        key: str,
        reads: Reads = (),
        text: str | None = None,
        agent_name: str | None = None,
        **fields: Any,
    ) -> str | None:
        """Record an effect; None when an edit says that it never happens. What was said is `text_of(event)` after an edit."""
        do = self.edits.at(key)
        if isinstance(do, Delete):
            return None
        extra = dict(fields.pop("extra", None) or {})
        if isinstance(do, Substitute) and do.value is not None:
            text = str(do.value)
            extra["edited"] = True
        who = agent_name or agent.name
        if agent_name is None and agent.turn:
            fields.setdefault("turn", agent.turn)  # an effect belongs to the turn that brought it about
        event = self.recorder.event(who, type, key=key, reads=reads, text=text, extra=extra or None, **fields)
        self._texts[event] = text or ""
        if self.watch is not None:
            self.watch(type, agent, {"id": event, "text": text, **fields})
        if isinstance(do, Insert):
            self.insert(do, event, key)
        return event

    def withheld(self, agent: AgentState, event: str) -> None:
        """Record that a gate kept something of this event from an agent."""
        assert self.gate is not None
        self.gate.counts[agent.name] += 1
        key, told = f"{agent.name}|gate|{self.gate.counts[agent.name]}", "text that gives orders was withheld"
        said = self.emit(agent, "safety_event", key=key, reads=[(event, "safety_flow")], ok=False, error="withheld", text=told)
        if said is not None:
            agent.unread.append((said, "safety_flow"))

    def text_of(self, event: str) -> str:
        """What an event said, after an edit of it."""
        return self._texts.get(event, "")

    def insert(self, do: Insert, event: str, key: str) -> None:
        """One more message, to the agent that it names."""
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
        to.hear(ViewItem("message", by, str(do.value)), said, "message")


class AgentState:
    """What one agent has heard and has still to read."""

    def __init__(self, team: TeamState, name: str, role: str, parent: AgentState | None) -> None:
        self.team, self.name, self.role, self.parent = team, name, role, parent
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.seen: list[ViewItem] = []
        self.unread: list[tuple[str, str]] = []
        """Events to read, each with the type of the edge."""
        self.turn = 0
        self.number = 0
        """Of a worker: its number in the team, counted from 1."""
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

    def hear(self, seen: ViewItem, event: str | None, kind: str) -> None:
        """Something to read from now on; without an event it never happened."""
        if event is None:
            return
        self.unread.append((event, kind))
        self.seen.append(seen if self.team.gate is None else self._gated(self.team.gate, seen, event))

    def _gated(self, gate: Gate, seen: ViewItem, event: str) -> ViewItem:
        """What it hears of this behind the team's gates; what is withheld is recorded."""
        text = gate.filter(seen)
        if text == seen.text:
            return seen
        self.team.withheld(self, event)
        return replace(seen, text=text)

    def forget(self) -> None:
        """Lose what it has seen, but for the question and the operator's words; what it still has to read stays."""
        self.seen = [seen for seen in self.seen if seen.kind in ("question", "operator")]
        self._body = []

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
            self.hear(ViewItem("operator", "operator", text if event is None else team.text_of(event)), event, "message")
        elif event is not None:
            self.unread.append((event, "message"))  # it happened to the agent, which is told nothing
        if order.action == "stop":
            raise AgentStopped

    def with_planted(self, text: str) -> tuple[str, str | None]:
        """What a compromised peer says with its first return: its text with the adversary's, and the vector (AV3)."""
        if self.has_returned:
            return text, None
        self.has_returned = True
        mine = [p for p in self.team.instance.planted if p.where == f"peer:{self.number}"]
        return (f"{text} {mine[0].text}", mine[0].vector) if mine else (text, None)
