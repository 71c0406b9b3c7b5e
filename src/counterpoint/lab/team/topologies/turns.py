"""Turns: in a world of a package, whoever has the turn acts; in a task, workers do one part after another.

Always true: agents whose turn comes at once are asked at once, and none sees what another does in the same step; an agent's view
holds the rules and what it sees now, nothing older. Each step of the world is one event that reads every action; each
observation is an event that reads that step, and has in `reward` what its agent was paid since its last one (R2). Words go to
those whom the package lets hear them, as messages that an edit may change before the world hears them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from counterpoint.lab.tasks import grammar
from counterpoint.lab.tasks.packages.world_task import Moves, WorldTask
from counterpoint.lab.tasks.task import Choice, ViewItem
from counterpoint.lab.team.agent import Agent, Team
from counterpoint.lab.team.orchestration import Orchestration, end
from counterpoint.lab.team.state import AgentStopped
from counterpoint.lab.team.topology import Topology
from counterpoint.lab.team.turn import TurnResult
from counterpoint.lab.worlds.packages import Episode

_WORLD, _OUTSIDE = "world", "environment"


async def _run(team: Team) -> str:
    if isinstance(team.task, WorldTask):
        return await _Table(team, team.task.episode(team.instance.seed)).play()
    lead = team.root("orchestrator")
    work = Orchestration(lead, team.instance.subtasks)
    async with work:
        for n, part in enumerate(team.instance.subtasks, 1):
            worker = lead.spawn("worker", n, None)
            if worker is None:
                break
            event = lead.tell(worker, part.text, key=f"lead|delegate|{worker.name}|{part.id}", kind="subtask", task=part.id)
            if event is not None:
                work.send(worker, part)
                await work.gather()
        return await end(work, "everybody had a turn")


class _Table:
    """A world that is played: its episode, and the agents in it."""

    def __init__(self, team: Team, episode: Episode) -> None:
        self.team, self.episode, self.moves = team, episode, Moves()
        self.lead = team.root("table")
        made = {name: self.lead.spawn(episode.role(name), name, None) for name in episode.agents}
        self.agents: dict[str, Agent] = {name: agent for name, agent in made.items() if agent is not None}
        self.paid = dict.fromkeys(episode.agents, 0.0)
        self.last: str | None = None
        """The event of the last step."""
        self.acts: dict[str, str] = {}
        """The event of each agent's last action."""

    async def play(self) -> str:
        """Step until nobody has a turn; gives what everybody did, which is also what is left of an episode that breaks off."""
        try:
            await self._steps()
        finally:
            answer = self.moves.text(self.episode.actions)
            self.team.draft = "" if self.team.failure else answer
        return answer

    async def _steps(self) -> None:
        while turn := self.episode.turn():
            self.team.round += 1
            await self.lead.safe_point(f"lead|step|{self.team.round}")
            here = [name for name in turn if name in self.agents]
            for name in here:
                self._show(name)
            every = await asyncio.gather(*(self._ask(name) for name in here), return_exceptions=True)
            for one in every:
                if isinstance(one, BaseException):
                    raise one
            said = {name: one for name, one in zip(here, every, strict=True) if isinstance(one, TurnResult)}
            errors = [str(one.error) for one in said.values()]
            if errors and all(error.startswith("model: ") for error in errors):
                self.team.failure = errors[0]
                return
            self._step(turn, said)
        for name in self.agents:
            self._show(name, "(the end)")

    def _show(self, name: str, end: str = "") -> None:
        """Let an agent see what it may know now, and forget what it saw before; at the end it is told no more than that."""
        agent, text, team = self.agents[name], end or self.episode.observe(name), self.team
        key = f"{agent.name}|{'ends' if end else 'sees'}|{team.round}"
        paid = self.episode.rewards[name]
        earned, self.paid[name] = paid - self.paid[name], paid
        if self.last is None:
            event = team.emit(
                agent, "message", key=key, reads=agent.fresh(), text=text, agent_name=_WORLD, role=_OUTSIDE, from_=_WORLD,
                to=agent.name, source="system", trusted=True,
            )  # fmt: skip
        else:
            reads = [(at, "tool_dependency") for at in (self.acts.get(name), self.last) if at is not None]
            event = team.emit(
                agent, "tool_result", key=key, reads=reads, text=text, role=agent.role, tool=grammar.ACT, source="tool",
                trusted=True, ok=True, reward={"R2": earned},
            )  # fmt: skip
        agent.forget()
        if event is not None:
            agent.hear(ViewItem("result", _WORLD, team.text_of(event)), event, "tool_dependency")

    async def _ask(self, name: str) -> TurnResult:
        agent = self.agents[name]
        try:
            return await agent.choose(
                "act", _choices(self.episode, name), key=f"{agent.name}|acts|{self.team.round}", item=f"step {self.team.round}"
            )
        except AgentStopped:
            del self.agents[name]
            return TurnResult(None, None, "stopped")

    def _step(self, turn: tuple[str, ...], chosen: Mapping[str, TurnResult]) -> None:
        """The world's own step with what was chosen; who chose nothing legal gives it an empty text."""
        actions, words = dict.fromkeys(turn, ""), {}
        for name, result in chosen.items():
            actions[name] = _action(result)
            if result.event is not None:
                self.acts[name] = result.event
            if result.act is not None and result.act.target not in (grammar.ACT, "") and (said := self._tell(name, result)):
                words[name] = said
        reads = [(result.event, "tool_dependency") for result in chosen.values() if result.event is not None]
        self.episode.step(actions, words)
        self.moves.add(actions, words)
        text = f"step {self.team.round}: team reward {self.episode.team_reward:g}"
        self.last = self.team.emit(
            self.lead, "tool_result", key=f"world|step|{self.team.round}", reads=reads, role=_OUTSIDE, tool=grammar.ACT,
            text=text, agent_name=_WORLD, source="tool", trusted=True, ok=True,
        ) or self.last  # fmt: skip

    def _tell(self, name: str, result: TurnResult) -> str:
        """The words that go along with an action, as a message to those who hear them."""
        agent, hear = self.agents[name], self.episode.listeners(name)
        if result.act is None or result.event is None or not result.act.text.strip() or not hear:
            return ""
        event = self.team.emit(
            agent, "message", key=f"{agent.name}|says|{self.team.round}", reads=[(result.event, "causal")],
            text=result.act.text.strip(), from_=agent.name, to=self.agents[hear[0]].name if len(hear) == 1 else None,
            role=agent.role,
        )  # fmt: skip
        if event is None:
            return ""
        for other in hear:
            if other in self.agents:
                self.agents[other].unread.append((event, "message"))
        return self.team.text_of(event)


def _choices(episode: Episode, name: str) -> list[Choice]:
    """What is legal as choices: actions by their texts, or with words as their targets."""
    legal = episode.legal(name)
    if legal is None:
        return [Choice("tool", grammar.ACT, None, "your action")]
    if episode.talks:
        return [Choice("tool", action, None, "words for those who hear you") for action in legal]
    return [Choice("tool", grammar.ACT, action) for action in legal]


def _action(result: TurnResult) -> str:
    """The action that was chosen, as the package reads it."""
    if result.act is None or result.error == "deleted":
        return ""
    return result.act.text if result.act.target == grammar.ACT else result.act.target


turns = Topology(run=_run, root="orchestrator", is_fixed=True)
