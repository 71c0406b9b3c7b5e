"""A note on the board that the team shares: one line, seen by the others from the next round on.

Always true: what an agent sees depends on rounds and names and never on which of two agents was faster: notes stand in the order
(round, agent, number), and those of this round are not shown yet. A note is one line, so no note can look like two, or like
another agent's. The same call made again (a run that is resumed, a fork) writes its note once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from counterpoint.lab.tasks.task import Instance
from counterpoint.lab.team.tool import Effect, Place, ToolResult

_EARLIER = -1
"""The round of what lay on the board before the team began."""


@dataclass(frozen=True)
class BoardNote:
    """One note."""

    round: int
    agent: str
    number: int
    """Which of the agent's notes of this round it is, counted from 1."""
    text: str
    event: str = ""
    """The event of the call that wrote it; empty for what was there before."""

    @property
    def place(self) -> tuple[Any, ...]:
        """What notes are ordered by; agents by spawn path, so that lead.2 comes before lead.10."""
        path = tuple((int(part), "") if part.isdecimal() else (0, part) for part in self.agent.split("."))
        return self.round, path, self.number

    def line(self) -> str:
        """The note as it is shown."""
        return f"{self.agent}: {self.text}"


class Board:
    """The notes of one team."""

    def __init__(self, before: Iterable[str] = ()) -> None:
        """`before`: what lies there from the start, written by nobody of this team."""
        self._notes = [BoardNote(_EARLIER, "earlier", k, one_line(text)) for k, text in enumerate(before, 1)]

    def write(self, agent: str, text: str, *, round: int, event: str = "") -> BoardNote:
        """Put up a note."""
        for note in self._notes:
            if event and note.event == event:
                return note
        number = 1 + sum(note.agent == agent and note.round == round for note in self._notes)
        note = BoardNote(round, agent, number, one_line(text), event)
        self._notes.append(note)
        return note

    def read(self, round: int) -> list[BoardNote]:
        """The notes of earlier rounds, in their fixed order."""
        return sorted((note for note in self._notes if note.round < round or note.round == _EARLIER), key=lambda note: note.place)


def one_line(text: str) -> str:
    """The text with every run of white space, line ends included, as one space."""
    return " ".join(text.split())


def board_of(shared: dict[str, Any], instance: Instance) -> Board:
    """The team's board, with the instance's planted notes on it from the start."""
    if "board" not in shared:
        shared["board"] = Board(planted.text for planted in instance.planted if planted.where == "note")
    board = shared["board"]
    assert isinstance(board, Board)
    return board


class note:
    """The tool `note`."""

    name = "note"
    version = "1"
    effect: Effect = "shared"
    about = "writes a note that all can read from the next round on; argument: the text"
    main = "text"
    example: Mapping[str, Any] = {"text": "the harbour has two cranes"}

    def __init__(self, instance: Instance, *, longest: int = 1000) -> None:
        """`longest`: the most characters of a note."""
        self._instance = instance
        self.arguments: Mapping[str, Any] = {
            "type": "object",
            "properties": {"text": {"type": "string", "minLength": 1, "maxLength": longest}},
            "required": ["text"],
            "additionalProperties": False,
        }

    async def call(self, args: Mapping[str, Any], place: Place) -> ToolResult:
        """Put the note up."""
        board_of(place.shared, self._instance).write(place.agent, args["text"], round=place.round, event=place.event)
        return ToolResult("noted", source="memory", trusted=True)

    async def close(self) -> None:
        """The board goes with the team."""
