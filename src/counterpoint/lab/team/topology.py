"""What a topology is: a small program over a team, and which roles may use which tools in it.

Always true: a topology asks agents and moves what they say; it decides nothing that the survey counts as a decision, except
where it is the topology (a debate has rounds, a critic is asked). Its allow-list says per role which tools there are; nobody
has more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from counterpoint.lab.tasks.task import Instance
from counterpoint.lab.team.agent import Team


@dataclass(frozen=True, kw_only=True)
class Topology:
    """One topology plug-in (`lab/team/topologies/NAME.py` defines an object NAME of this class)."""

    run: Callable[[Team], Awaitable[str]]
    """The program; gives the answer."""
    root: str = "orchestrator"
    """The role of the agent that hears the question."""
    workers: tuple[str, ...] = ("worker",)
    """Roles that have the task's tools."""
    is_fixed: bool = False
    """Whether nobody decides who is in the team: it is there from the start, and stays."""
    more: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Tools that a role has beside the task's."""

    def allowed(self, instance: Instance, also: tuple[str, ...] = ()) -> dict[str, tuple[str, ...]]:
        """The allow-list for an instance, with further tools for all who work."""
        return {role: (*instance.tools, *self.more.get(role, ()), *also) for role in self.workers}
