"""How far a team may go: agents, depth, turns, repairs, output, time.

Always true: a limit that is reached ends or refuses what would pass it, with an event that says so; it is never an exception that
ends the run.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from counterpoint.errors import InputError, did_you_mean


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of one run."""

    width: int = 4
    """Sub-agents that one agent may have at once."""
    agents: int = 1_024
    """Agents in the whole team, over the whole run."""
    depth: int = 3
    """Spawns between the root and the deepest agent."""
    turns: int = 40
    """Decisions of one orchestrator."""
    steps: int = 12
    """Model calls of one worker for one sub-task."""
    rounds: int = 2
    """Rounds of a debate, or of a critic's objections."""
    repairs: int = 1
    """How often a malformed answer is asked for again."""
    max_tokens: int = 128
    """Tokens of one completion."""
    temperature: float = 1.0
    context: int = 24_000
    """Characters of one prompt; older results are cut from the middle when it gets longer."""

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            least = 0 if f.name in ("repairs", "temperature", "rounds", "depth") else 1
            if isinstance(value, bool) or not isinstance(value, int | float) or value < least:
                raise InputError(f"{f.name} is {value!r}", where="limits", fix=f"{least} or more")

    @classmethod
    def of(cls, given: dict[str, Any]) -> Limits:
        """Limits from plain data, such as a trace's meta."""
        known = [f.name for f in fields(cls)]
        for name in given:
            if name not in known:
                raise InputError(f"no limit named {name!r}", fix=did_you_mean(name, known))
        return cls(**given)

    def as_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        return asdict(self)
