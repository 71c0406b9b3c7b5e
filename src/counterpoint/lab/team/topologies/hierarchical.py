"""Hierarchical: the root spawns leads, leads spawn workers or leads, and each level merges for the one above.

Always true: a tree no deeper than the limit; a lead that may not go deeper has workers. What a lead returns is its merged
draft, so what its rule drops is lost above it.
"""

from __future__ import annotations

from collections.abc import Sequence

from counterpoint.lab.lm.model import BudgetExhausted
from counterpoint.lab.tasks.task import Subtask
from counterpoint.lab.team.agent import Agent, Returned, Team, parts_of
from counterpoint.lab.team.orchestration import Orchestration, manage
from counterpoint.lab.team.state import AgentStopped
from counterpoint.lab.team.topology import Topology


async def _run(team: Team) -> str:
    return await manage(_orchestration(team.root("orchestrator"), team.instance.subtasks, last="stop"))


def _orchestration(lead: Agent, subtasks: Sequence[Subtask], *, last: str, item: str = "") -> Orchestration:
    """Groups for leads while there is room below and enough to split, else the parts themselves for workers."""
    parts = len(subtasks)
    if parts <= 2 or lead.depth + 2 > lead.team.limits.depth:
        return Orchestration(lead, subtasks, last=last, item=item)
    size = max(2, -(-parts // lead.team.limits.width))
    groups = [tuple(subtasks[i : i + size]) for i in range(0, parts, size)]
    named = {"+".join(s.id for s in group): group for group in groups}

    async def leads(agent: Agent, subtask: Subtask) -> Returned:
        return await _lead(agent, subtask, named[subtask.id])

    whole = [Subtask(name, parts_of(group)) for name, group in named.items()]
    return Orchestration(lead, whole, role="lead", last=last, doing=leads, item=item)


async def _lead(agent: Agent, subtask: Subtask, group: Sequence[Subtask]) -> Returned:
    work = _orchestration(agent, group, last="return", item=group[0].id)
    ok, why = True, ""
    try:
        text = await manage(work)
    except (AgentStopped, BudgetExhausted) as ended:
        text, ok, why = work.draft, bool(work.draft), str(ended) or "stopped"
    parent = agent.parent
    assert parent is not None
    event = agent.team.emit(
        agent, "return", key=f"{agent.name}|return|{subtask.id}", reads=agent.fresh(), text=text or "(nothing)",
        from_=agent.name, to=parent.name, role=agent.role, task=subtask.id, ok=ok, error=why or None,
    )  # fmt: skip
    return Returned(agent.name, subtask.id, "" if event is None else agent.team.text_of(event), event, ok=ok)


hierarchical = Topology(run=_run)
