"""`Team` and `Agent`: the few primitives that every topology is written in.

Always true: what an agent does depends on the task, the harness, what its model and tools answered and what it heard, and never
on which of two agents was faster: returns are heard at barriers, in the order of spawning. A malformed answer, a refused spawn, a
failing tool or model is an event, never an exception that reaches a topology. Names of agents are spawn paths, and keys of events
hold nothing that an edit elsewhere would change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from counterpoint.lab.lm.model import BudgetExhausted
from counterpoint.lab.tasks.task import Choice, Subtask, ViewItem
from counterpoint.lab.team.state import AgentState, AgentStopped, TeamState
from counterpoint.lab.team.tool_use import use_tool
from counterpoint.lab.team.turn import TurnResult, choose


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
class Team(TeamState):
    """One running team."""

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
            agent.hear(ViewItem("question", "user", self.text_of(event)), event, "message")
        return agent


class Agent(AgentState):
    """One agent: what it can do."""

    async def choose(self, purpose: str, choices: Sequence[Choice], *, key: str, item: str | None = None) -> TurnResult:
        """Ask the model for one of these; see `turn`."""
        await self.safe_point(key)
        return await choose(self, purpose, choices, key=key, item=item)

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
            self.hear(ViewItem("error", self.name, text), event, "causal")
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
        child.hear(ViewItem("question", "user", team.question), team.question_event, "message")
        if brief:
            child.hear(ViewItem("brief", "user", team.text_of(event)), event, "spawn")
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
            to.hear(ViewItem(kind, self.name, self.team.text_of(event), task), event, "message")  # type: ignore[arg-type]
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
        except BudgetExhausted as spent:
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

    def hear_return(self, back: Returned) -> None:
        """Read what a sub-agent brought back."""
        if back.event is not None:
            self.hear(ViewItem("return", back.agent, back.text or "(nothing)", back.task), back.event, "return")
            self.unread += [(event, "causal") for event in back.by]


def parts_of(subtasks: Sequence[Subtask]) -> str:
    """The natural split in words, for the agent that may hand it out."""
    return "The work can be split into these parts:\n" + "\n".join(f"{s.id}: {s.text}" for s in subtasks)
