"""Debate: everybody states a verdict, hears all others, states it again; a resolver decides.

Always true: nobody is spawned after the start; in each round everybody hears what all others said in the round before, never what
they say in the same one. The resolver reads every last word.
"""

from __future__ import annotations

import asyncio

from counterpoint.lab.lm.model import BudgetExhausted
from counterpoint.lab.tasks.task import Choice, ViewItem
from counterpoint.lab.team.agent import Agent, Returned, Team
from counterpoint.lab.team.orchestration import Orchestration, manage
from counterpoint.lab.team.state import AgentStopped
from counterpoint.lab.team.tool_use import use_tool
from counterpoint.lab.team.topology import Topology
from counterpoint.lab.team.turn import TurnResult


async def _run(team: Team) -> str:
    lead = team.root("resolver")
    panel = [a for a in (lead.spawn("debater", n, None) for n in range(1, team.limits.width + 1)) if a is not None]
    last: list[tuple[Agent, TurnResult]] = []
    for round_ in range(team.limits.rounds + 1):
        team.round = round_
        said = await asyncio.gather(*(_speak(agent, round_) for agent in panel))
        last = list(zip(panel, said, strict=True))
        if round_ < team.limits.rounds:
            for speaker, chosen in last:
                _broadcast(panel, speaker, chosen)
    return await _resolve(lead, last)


async def _speak(agent: Agent, round_: int) -> TurnResult:
    """One statement, in the first round after looking things up; the last is returned to the resolver, the others go to all."""
    team, is_last = agent.team, round_ == agent.team.limits.rounds
    verb = "return" if is_last else "message"
    choice = Choice(verb, "", None, team.instance.answer_format)  # type: ignore[arg-type]
    steps = team.limits.steps if round_ == 0 else 1
    try:
        for k in range(steps):
            tools = [Choice("tool", t.name, None, t.main) for t in team.toolbox.offered("debater")] if k + 1 < steps else []
            key = f"{agent.name}|round|{round_}|{k}"
            chosen = await agent.choose("debate", [*tools, choice], key=key, item=f"round {round_}")
            if chosen.act is None or chosen.act.verb != "tool":
                return chosen
            await use_tool(agent, chosen.act, chosen.event, key, f"round {round_}")
    except (AgentStopped, BudgetExhausted) as ended:
        return TurnResult(None, None, str(ended) or "stopped")
    return TurnResult(None, None, "no steps left")


def _broadcast(panel: list[Agent], speaker: Agent, chosen: TurnResult) -> None:
    if chosen.act is None or chosen.event is None:
        return
    for other in panel:
        if other is not speaker:
            other.hear(ViewItem("message", speaker.name, chosen.act.text), chosen.event, "message")


async def _resolve(lead: Agent, last: list[tuple[Agent, TurnResult]]) -> str:
    work = Orchestration(lead, [], hires=False)
    for agent, chosen in last:
        if chosen.act is not None and chosen.event is not None:
            back = Returned(agent.name, "all", chosen.act.text, chosen.event)
            work.done.append(back)
            lead.hear_return(back)
    work.idle = [agent for agent, _ in last]
    return await manage(work)


debate = Topology(run=_run, root="resolver", workers=("debater",), is_fixed=True)
