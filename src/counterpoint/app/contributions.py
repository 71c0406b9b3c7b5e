"""What each agent of a run cost and what became of its work: the answer to "who earned it" that needs no reward.

Always true: cost, time, path share and failures are those of `counterpoint top`; the share of the result is provenance's; what
the record does not say is None. Files written count by the words of the calls that wrote them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

from counterpoint.audit.facts import Facts
from counterpoint.audit.rollups import rollup
from counterpoint.trace import Trace

_WRITES = re.compile(r"write|edit|patch|create_file|str_replace", re.I)


class Contribution(Struct, frozen=True, kw_only=True):
    """One agent's."""

    agent: str
    parent: str | None
    tokens: int | None
    cost_usd: float | None
    busy_s: float | None
    path: float | None
    """Share of the critical path."""
    calls: int
    failures: int
    result: float | None
    """Share of the result's words that appear first in its words or tool results; None where the result is not in words."""
    is_read: bool
    """Whether another agent read anything of it, by the recorded edges."""
    written: int
    """Words in calls of tools that write files."""

    @property
    def used(self) -> str:
        """What became of its work, in words."""
        if self.parent is None:
            return "leads"
        parts = ["in the result"] if self.result else []
        parts += [f"wrote {self.written:,} words to files"] if self.written else []
        if not parts:
            parts = ["read, not in the result" if self.result is not None else "read"] if self.is_read else ["not read"]
        return ", ".join(parts)


def contributions(trace: Trace, shares: Mapping[str, float] | None, *, facts: Facts | None = None) -> list[Contribution]:
    """Every member's, the largest share of the result first, then the most expensive; `shares` are provenance's, by agent."""
    facts = facts or Facts(trace)
    team = facts.team
    read = set(team.agent_E[facts.read_E].tolist())
    written: dict[int, int] = {}
    for i in team.events_of(("tool_call",)):
        event = facts.events[i]
        if event.tool and _WRITES.search(event.tool):
            a = int(team.agent_E[i])
            written[a] = written.get(a, 0) + len((trace.text(event) or "").split())
    out = []
    for row in rollup(trace, "agent", facts=facts):
        a = team.number[row.name or ""]
        if not team.is_member_A[a]:
            continue
        out.append(
            Contribution(
                agent=row.name or "",
                parent=row.parent,
                tokens=row.tokens_own,
                cost_usd=row.cost_own,
                busy_s=row.busy_s,
                path=row.path,
                calls=row.calls,
                failures=row.errors,
                result=None if shares is None else shares.get(row.name or "", 0.0),
                is_read=a in read,
                written=written.get(a, 0),
            )
        )
    return sorted(out, key=lambda c: (-(c.result or 0.0), -(c.cost_usd or 0.0), -(c.tokens or 0), c.agent))
