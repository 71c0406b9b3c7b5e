"""What a tool is to a team: a name, what its arguments are, what it does to the world, and a call.

Always true: a tool's `effect` says what running it again would do. `pure`: nothing, the same answer. `local`: it changes the
calling agent's own folder and nothing else, so that running the agent's earlier calls again rebuilds it. `shared`: it changes
what this team shares in memory. `irreversible`: it changes the world outside; a fork never runs it without consent. A call that
goes wrong is a `ToolResult` with `ok=False`, never an exception.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from counterpoint.lab.tasks.task import Instance

Effect = Literal["pure", "local", "shared", "irreversible"]


@dataclass
class Place:
    """Where one agent's tools work."""

    agent: str
    """The agent's name, its spawn path: `lead`, `lead.1`, `lead.1.2`."""
    folder: Path
    """The agent's own folder; made by the first tool that needs it."""
    shared: dict[str, Any]
    """What the team shares in memory, one dictionary for all."""
    event: str = ""
    """The id of the tool_call event."""
    round: int = 0
    """The team's round: what others shared in this round is not visible before the next, so that timing decides nothing."""


@dataclass(frozen=True)
class ToolResult:
    """What came back."""

    text: str
    ok: bool = True
    error: str | None = None
    """A short reason, such as `timeout` or `not allowed`, where ok is false."""
    trusted: bool = False
    source: Literal["tool", "memory"] = "tool"
    reads: tuple[str, ...] = ()
    """Events of other agents that this result rests on, such as the calls that wrote the notes it shows."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Kept in the event: documents that were opened, rows, bytes cut off."""


@runtime_checkable
class Tool(Protocol):
    """A tool of one running team."""

    @property
    def name(self) -> str:
        """What agents call it."""

    @property
    def version(self) -> str:
        """Changes whenever the same call could be answered otherwise."""

    @property
    def effect(self) -> Effect:
        """What running it again would do."""

    @property
    def about(self) -> str:
        """One line for the prompt: what it does, and its argument."""

    @property
    def arguments(self) -> Mapping[str, Any]:
        """JSON schema of its arguments, an object."""

    @property
    def main(self) -> str:
        """The argument that a bare text fills."""

    async def call(self, args: Mapping[str, Any], place: Place) -> ToolResult:
        """Do it. Arguments have been checked against `arguments`."""

    async def close(self) -> None:
        """End what still runs, and remove what was left behind."""


class ToolMaker(Protocol):
    """A tool plug-in (`lab/team/tools/NAME.py` defines an object NAME that follows this).

    What it makes may have an `example`: arguments that `counterpoint.lab.testing.check_tool` calls it with, and needs. The
    check's instance has the document D-1, a table t(a), the file data.txt and the drawing grid.txt.
    """

    def __call__(self, instance: Instance, **options: Any) -> Tool:
        """The tool over one instance's documents, database or files."""


@lru_cache(maxsize=64)
def fingerprint(*parts: Hashable) -> str:
    """A short digest of what a tool answers from, for its version: twelve hexadecimal digits, equal for equal parts everywhere.

    Parts are compared by what they print as.
    """
    return hashlib.blake2b(repr(parts).encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
