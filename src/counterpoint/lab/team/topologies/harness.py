"""Harness: one policy inside a fixed tool grammar; a worker is one more thing that it can call.

Always true: a star through one gateway: whoever is spawned hears and answers the one agent alone. The agent works itself, with
the task's tools, and may hand out parts; with `limits.depth = 0` nobody can be spawned, and spawning is not offered.
"""

from __future__ import annotations

from counterpoint.lab.tasks.task import Choice
from counterpoint.lab.team.agent import Team
from counterpoint.lab.team.orchestration import Orchestration, end
from counterpoint.lab.team.tool_use import use_tool
from counterpoint.lab.team.topology import Topology

_FAILURES = 3


async def _run(team: Team) -> str:
    agent = team.root("agent")
    work = Orchestration(agent, team.instance.subtasks, hires=team.limits.depth > 0)
    failures = 0
    async with work:
        for turn in range(1, team.limits.turns + 1):
            is_last = turn == team.limits.turns
            tools = [] if is_last else [Choice("tool", t.name, None, t.main) for t in team.toolbox.offered("agent")]
            key = f"lead|turn|{turn}"
            chosen = await agent.choose("turn", [*tools, *work.choices(is_last=is_last)], key=key)
            if chosen.act is None:
                failures += 1
                if failures == _FAILURES:
                    return await end(work, "no legal action, three times")
            elif chosen.act.verb == "tool":
                await use_tool(agent, chosen.act, chosen.event, key, None)
            elif await work.perform(chosen.act, chosen.event, turn):
                return work.answer
        return await end(work, "no turns left")


harness = Topology(run=_run, root="agent", workers=("agent", "worker"))
