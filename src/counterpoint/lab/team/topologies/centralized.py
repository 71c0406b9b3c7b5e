"""Centralized: one orchestrator spawns workers, gives them parts, merges what comes back, and stops.

Always true: a star; workers hear nobody but the orchestrator.
"""

from __future__ import annotations

from counterpoint.lab.team.agent import Team
from counterpoint.lab.team.orchestration import Orchestration, manage
from counterpoint.lab.team.topology import Topology


async def _run(team: Team) -> str:
    lead = team.root("orchestrator")
    return await manage(Orchestration(lead, team.instance.subtasks))


centralized = Topology(run=_run)
