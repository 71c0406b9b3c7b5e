"""Planner, executor, critic: one gives out parts, one does them, one accepts or objects.

Always true: a triangle with a loop, a critic for each executor; a part that the critic rejects goes back with the objection,
`limits.rounds` times at most, and is then taken as it is. The critic sees the part and what was returned, and has the same
tools.
"""

from __future__ import annotations

from dataclasses import replace

from counterpoint.lab.tasks.task import Subtask
from counterpoint.lab.team.agent import Agent, Returned, Team
from counterpoint.lab.team.checks import judged
from counterpoint.lab.team.orchestration import Orchestration, manage
from counterpoint.lab.team.topology import Topology


async def _run(team: Team) -> str:
    planner = team.root("planner")
    critics: dict[str, Agent | None] = {}

    async def executes(agent: Agent, subtask: Subtask) -> Returned:
        if agent.name not in critics:
            told = next((event for event, kind in reversed(agent.unread) if kind == "message"), None)
            critics[agent.name] = planner.spawn("critic", f"{agent.name.rpartition('.')[2]}c", told)
        return await _execute(agent, critics[agent.name], subtask)

    return await manage(Orchestration(planner, team.instance.subtasks, role="executor", doing=executes))


async def _execute(agent: Agent, critic: Agent | None, subtask: Subtask) -> Returned:
    back = await agent.work(subtask)
    for again in range(agent.team.limits.rounds):
        if critic is None or not back.ok or back.event is None:
            return back
        objection, verdict = await judged(critic, subtask, back, again)
        if objection is None:
            return replace(back, by=(verdict,) if verdict else ())
        key = f"{critic.name}|objection|{subtask.id}|{again}"
        if critic.tell(agent, objection, key=key, because=verdict, task=subtask.id) is None:
            return back
        back = await agent.work(Subtask(f"{subtask.id}~{again + 1}", subtask.text))
        back = replace(back, task=subtask.id)
    return back


planner_executor_critic = Topology(run=_run, root="planner", workers=("executor", "critic"))
