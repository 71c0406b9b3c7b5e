"""A conversation in one room: named speakers take turns and everybody hears, as group chats are logged.

Always true: the turn with number i is the event `s{i}`; a speaker's turn reads everything said since its last one, by
`message` edges, and its own last turn; an aside (a thought) is heard by its speaker alone. What a terminal prints is taken
for the result of a call by whoever spoke before it: this is inferred, and counted so.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from counterpoint.formats.draft import Draft
from counterpoint.formats.importing.lane import Lane

HUMANS = frozenset({"human", "human_user", "Human"})
_TERMINALS = frozenset({"Computer_terminal", "ComputerTerminal", "computer_terminal"})
# Their turns are what a page or a file says.
_READERS = frozenset({"WebSurfer", "FileSurfer", "MultimodalWebSurfer"})
_EXIT = re.compile(r"\s*exitcode: (-?\d+)")
_CALL_RULE = "the terminal answers whoever spoke before it"


class Turn(NamedTuple):
    """What one speaker says once."""

    speaker: str
    text: str
    to: str | None = None
    """Whom it is meant for, where the source says so; all hear it."""
    is_aside: bool = False
    decision: str | None = None


def put_down(draft: Draft, turns: Sequence[Turn], *, leader: str | None = None, task: str = "") -> None:
    """Put a conversation into a draft; `task` is what a human asked for, where no turn of the conversation says it."""
    names = dict.fromkeys(t.speaker for t in turns if t.speaker not in HUMANS | _TERMINALS)
    lanes = {name: draft.lane(name, role=name, leads=name == leader) for name in names}
    if task:
        asked = _asked(draft, "user", "task", task)
        for lane in lanes.values():
            lane.hears(asked, "message")
    before: Lane | None = None
    for i, turn in enumerate(turns):
        if turn.speaker in _TERMINALS:
            event = _printed(draft, before, turn, i)
            others = [lane for lane in lanes.values() if lane is not before]
        elif turn.speaker in HUMANS:
            event = _asked(draft, turn.speaker, f"s{i}", turn.text)
            others = list(lanes.values())
        else:
            before = lanes[turn.speaker]
            event = _said(before, turn, i)
            others = [] if turn.is_aside else [lane for lane in lanes.values() if lane is not before]
        for lane in others:
            lane.hears(event, "message")


def _asked(draft: Draft, human: str, name: str, text: str) -> str:
    return draft.event("human_intervention", human, id=name, text=text, role=human, from_=human, source="user", trusted=True)


def _said(lane: Lane, turn: Turn, i: int) -> str:
    is_reader = turn.speaker in _READERS
    event = lane.step(
        id=f"s{i}",
        text=turn.text,
        from_=turn.speaker,
        to=turn.to,
        decision=turn.decision,
        source="tool" if is_reader else "peer",
        trusted=not is_reader,
        extra={"is_aside": True} if turn.is_aside else None,
    )
    assert event is not None
    return event


def _printed(draft: Draft, lane: Lane | None, turn: Turn, i: int) -> str:
    found = _EXIT.match(turn.text)
    ok = None if found is None else int(found[1]) == 0
    if lane is None:
        draft.report.loose(f"s{i}: a terminal's output that nobody asked for")
        fields: dict[str, Any] = {"tool": turn.speaker, "ok": ok, "source": "tool", "trusted": False}
        return draft.event("tool_result", turn.speaker, id=f"s{i}", text=turn.text, **fields)
    draft.report.linked(_CALL_RULE, exact=False)
    lane.call(turn.speaker, id=f"s{i}:call", call=f"s{i}")
    return lane.result(f"s{i}", turn.text, id=f"s{i}", ok=ok)
