"""`Orchestration`: what one orchestrator manages (workers, sub-tasks, what came back, what is merged), and the loop over it.

Always true: what is offered at a turn follows from its state alone; workers run at once, and what they return is heard at a
barrier (waiting, merging or stopping), in the order in which they were sent; a loop that reaches its limit stops with what is
merged, by an event whose policy is `forced`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from counterpoint.lab.tasks.task import Act, Choice, Subtask, ViewItem
from counterpoint.lab.team.agent import Agent, Returned
from counterpoint.lab.team.checks import checked

_IDLE_SHOWN = 4
_FAILURES = 3


class Executor(Protocol):
    """How a sub-agent does a sub-task."""

    async def __call__(self, agent: Agent, subtask: Subtask) -> Returned: ...


async def _works(agent: Agent, subtask: Subtask) -> Returned:
    return await agent.work(subtask)


class Orchestration:
    """The state of one orchestrator's work."""

    def __init__(
        self,
        lead: Agent,
        subtasks: Sequence[Subtask],
        *,
        role: str = "worker",
        last: str = "stop",
        doing: Executor = _works,
        item: str = "",
        hires: bool = True,
    ) -> None:
        """`item` tells apart the orchestrations of a lead that is given one group after another."""
        self.lead, self.role, self.last, self.doing = lead, role, last, doing
        self.tag, self.hires = f"{item}-" if item else "", hires
        self.todo = list(subtasks)
        self.first = subtasks[0].id if subtasks else ""
        self.idle: list[Agent] = []
        self.busy: deque[tuple[Agent, asyncio.Task[Returned]]] = deque()
        self.done: list[Returned] = []
        self.merged = 0
        self.draft = ""
        self.answer = ""

    @property
    def hired(self) -> int:
        """Sub-agents so far."""
        return len(self.idle) + len(self.busy)

    def choices(self, *, is_last: bool = False) -> list[Choice]:
        """What is legal now; on the last turn there is, only to answer."""
        verb = "stop" if self.last == "stop" else "return"
        offered = self._choices(verb)
        return [c for c in offered if c.verb == verb] if is_last else offered

    def _choices(self, verb: str) -> list[Choice]:
        team = self.lead.team
        out = []
        if self.hires and self.hired < team.limits.width:
            out.append(Choice("spawn", self.role, "", f"one more {self.role}"))
        if self.todo:
            out += [Choice("delegate", a.name, self.todo[0].id, "a part to do") for a in self.idle[:_IDLE_SHOWN]]
        out.append(Choice("noop", "", "", "wait for those who work"))
        if self.busy or len(self.done) > self.merged:
            out += [Choice("aggregate", rule, "", "merge what came back") for rule in team.task.rules]
        if self.draft:
            out.append(Choice(verb, "", "", "answer with what is merged"))  # type: ignore[arg-type]
        out.append(Choice(verb, "", None, team.instance.answer_format))  # type: ignore[arg-type]
        return out

    async def perform(self, act: Act, because: str | None, turn: int) -> bool:
        """Carry out an act; whether it was the last."""
        match act.verb:
            case "spawn":
                child = self.lead.spawn(self.role, f"{self.tag}{turn}", because, place=self._place())
                if child is not None:
                    self.idle.append(child)
            case "delegate":
                self._delegate(act, because)
            case "noop":
                await self.gather()
            case "aggregate":
                await self.gather()
                self.merge(act.target, because, turn)
            case "stop" | "return":
                await self.gather(is_heard=False)
                self.answer = act.text or self.draft
                return True
        return False

    def _place(self) -> int | None:
        """Which worker of the team the next one is; below the root, where others spawn at the same time, by its part."""
        if self.lead.parent is None:
            return None
        ids = [s.id for s in self.lead.team.instance.subtasks]
        return (ids.index(self.first) if self.first in ids else 0) + self.hired + 1

    def _delegate(self, act: Act, because: str | None) -> None:
        agent = next(a for a in self.idle if a.name == act.target)
        subtask = next(s for s in self.todo if s.id == act.text.strip())
        key = f"{self.lead.name}|delegate|{agent.name}|{subtask.id}"
        self.todo.remove(subtask)
        event = self.lead.tell(agent, subtask.text, key=key, kind="subtask", because=because, task=subtask.id)
        if event is None:
            return  # the message never arrived: nobody works on it
        self.lead.unread.append((event, "causal"))  # who is idle decides what is offered next
        self.idle.remove(agent)
        self.send(agent, subtask)

    def send(self, agent: Agent, subtask: Subtask) -> None:
        """Let an agent do a part, behind the team's gates, at the same time as all others."""
        doing = checked(self.lead, self.doing, agent, subtask)
        self.busy.append((agent, asyncio.create_task(doing, name=f"{agent.name}:{subtask.id}")))

    async def gather(self, *, is_heard: bool = True) -> None:
        """Wait for everybody; hear what they bring, in the order in which they were sent."""
        while self.busy:
            agent, task = self.busy[0]  # busy until it is back, so that an interruption ends it too
            back = await task
            self.busy.popleft()
            if is_heard:
                self.lead.hear_return(back)
            if back.event is not None:
                self.done.append(back)
            self.idle.append(agent)

    def merge(self, rule: str, because: str | None, turn: int) -> None:
        """Put everything that came back together, by a rule."""
        lead, team = self.lead, self.lead.team
        good = [r for r in self.done if r.ok]
        draft = team.task.merge(team.instance, rule, [r.text for r in good])
        reads = [(r.event, "aggregate") for r in good if r.event is not None]
        reads += [(event, "causal") for r in good for event in r.by]
        reads += [(because, "causal")] if because else []
        event = team.emit(
            lead,
            "aggregate",
            key=f"{lead.name}|aggregate|{self.tag}{turn}",
            reads=reads,
            text=draft,
            role=lead.role,
            reward={"draft": team.task.check(team.instance, draft).value},  # for credit alone: no agent reads it
            extra={"rule": rule},
        )
        self.merged = len(self.done)
        if event is None:
            return
        self.draft = team.text_of(event)
        if lead.parent is None:
            team.draft = self.draft
        lead.hear(ViewItem("result", f"aggregate {rule}", self.draft), event, "aggregate")

    async def __aenter__(self) -> Orchestration:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *about: object) -> None:
        """At the end, wait for the agents that still work; when the run itself is interrupted, end them first."""
        if kind is not None and issubclass(kind, asyncio.CancelledError):
            for _, task in self.busy:
                task.cancel()
        await asyncio.gather(*(task for _, task in self.busy), return_exceptions=True)


async def manage(work: Orchestration) -> str:
    """Let the orchestrator decide, turn by turn, until it stops or may not go on."""
    lead, failures = work.lead, 0
    async with work:
        for turn in range(1, lead.team.limits.turns + 1):
            is_last = turn == lead.team.limits.turns
            chosen = await lead.choose("turn", work.choices(is_last=is_last), key=f"{lead.name}|turn|{work.tag}{turn}")
            if chosen.act is None:
                failures += 1
                if failures == _FAILURES:
                    return await end(work, "no legal action, three times")
                continue
            failures = 0
            if await work.perform(chosen.act, chosen.event, turn):
                return work.answer
        return await end(work, "no turns left")


async def end(work: Orchestration, why: str) -> str:
    """Stop because the orchestrator may not go on."""
    await work.gather()
    if len(work.done) > work.merged:
        work.merge(work.lead.team.task.rules[0], None, 0)
    lead = work.lead
    lead.team.emit(
        lead, "orchestrator_decision", key=f"{lead.name}|end|{work.tag}", reads=lead.take_unread(), decision="stop",
        policy="forced", role=lead.role, text=work.draft, error=why,
    )  # fmt: skip
    return work.draft
