"""AutoGen's group chats as one room: everybody hears what is said aloud, each at its next turn.

Always true: a turn reads everything said by others since the speaker's last one; thoughts and tool work are heard by nobody else.
"""

from __future__ import annotations

import re
from typing import Any

from counterpoint.formats.draft import Draft
from counterpoint.formats.importing.lane import Lane
from counterpoint.formats.importing.usage import Usage

READERS = frozenset({"WebSurfer", "FileSurfer", "MultimodalWebSurfer", "Executor", "ComputerTerminal", "Computer_terminal"})
"""Members of Magentic-One whose turns are what a page, a file or a program says."""
_LEADER = re.compile(r"orchestrator|manager", re.IGNORECASE)


def is_leader(name: str) -> bool:
    """Whether a member decides who speaks: AutoGen calls these managers, Magentic-One orchestrators."""
    return _LEADER.search(name) is not None


class Room:
    """The members, and what was said aloud."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self._said: list[tuple[str, str]] = []
        self._heard: dict[str, int] = {}
        self._skipped: dict[str, set[int]] = {}

    def lane(self, name: str) -> Lane:
        """A member's lane, caught up with what was said."""
        lane = self.draft.lane(name, role=name, leads=is_leader(name))
        skipped = self._skipped.get(name, ())
        for k in range(self._heard.get(name, 0), len(self._said)):
            event, speaker = self._said[k]
            if speaker != name and k not in skipped:
                lane.hears(event, "message")
        self._heard[name] = len(self._said)
        return lane

    def aloud(self, event: str | None, speaker: str) -> None:
        """An event that all others hear."""
        if event is not None:
            self._said.append((event, speaker))

    def skip(self, name: str) -> None:
        """A member has heard the last thing said in another way."""
        self._skipped.setdefault(name, set()).add(len(self._said) - 1)

    def human(self, name: str, text: str, *, at: float | None = None, id: str | None = None, **fields: Any) -> str:
        """A person speaks to the room."""
        fields = {"role": name, "from_": name, "source": "user", "trusted": True, **fields}
        event = self.draft.event("human_intervention", name, id=id, at=at, text=text, **fields)
        self.aloud(event, name)
        return event

    def turn(
        self, name: str, text: str, *, end: float | None = None, usage: Usage | None = None, id: str | None = None, **fields: Any
    ) -> str | None:
        """A member speaks to the room."""
        if name in READERS:
            fields = {"source": "tool", "trusted": False, **fields}
        event = self.lane(name).step(end=end, text=text, usage=usage, id=id, **fields)
        self.aloud(event, name)
        return event
