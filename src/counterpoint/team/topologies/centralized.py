"""Centralized: one orchestrator spawns workers, gives them parts, merges what comes back, and stops.

Always true: a star; workers hear nobody but the orchestrator.
"""

from __future__ import annotations

from counterpoint.team.desk import Desk, manage
from counterpoint.team.runtime import Team
from counterpoint.team.topology import Topology


async def _run(team: Team) -> str:
    lead = team.root("orchestrator")
    return await manage(Desk(lead, team.instance.subtasks))


centralized = Topology(run=_run)
