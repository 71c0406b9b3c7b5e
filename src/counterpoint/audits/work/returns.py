"""Whether what an agent handed over was used: said again later, or acted on, by whom it was handed to.

Always true: only what the agent was the first to say counts, in windows of four words, or alone where a word is a number, a path
or an identifier; what it was told, or what others had said before, is no sign of use. A reader that says the same in other words
is missed: so *used* is at least this much. What has no text cannot be judged and is not counted.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import NamedTuple

from counterpoint.audits.facts import Facts

_UNSPACED = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]+(?:[-./:]\w+)*")
_WINDOW = 4
_TELLS = re.compile(r"(?=.*\d)\w{3,}$|\w+_\w+|\w+[./]\w|[a-z]+[A-Z]|\d{2,}")
"""A word that tells by itself where it comes from."""
_SAYS = ("message", "return", "aggregate", "orchestrator_decision", "tool_call", "spawn")


class Handover(NamedTuple):
    """What an agent handed over: how often, with a text; how often somebody made use of it."""

    given: int
    used: int


def _marks(text: str) -> set[Hashable]:
    words = _WORD.findall(text)
    low = [word.lower() for word in words]
    alone: set[Hashable] = {word.lower() for word in words if _TELLS.match(word)}
    return alone | {tuple(low[i : i + _WINDOW]) for i in range(len(low) - _WINDOW + 1)}


def handed_over(facts: Facts) -> dict[int, Handover]:
    """Agent to what it handed over: its returns, and its messages to others of the team."""
    team = facts.team
    handed = [i for i in team.order_E.tolist() if _is_handed(facts, i) and facts.text(i)]
    wanted = {mark for i in handed for mark in _marks(facts.text(i) or "")}
    by_mark: dict[Hashable, list[int]] = {}
    if handed:
        for i in team.order_E.tolist():
            text = facts.text(i)
            for mark in _marks(text) & wanted if text else ():
                by_mark.setdefault(mark, []).append(i)
    out: dict[int, Handover] = {}
    for i in handed:
        a = int(team.agent_E[i])
        reader = _reader(facts, i)
        is_used = any(_is_used(facts, i, a, reader, by_mark[mark]) for mark in _marks(facts.text(i) or ""))
        before = out.get(a, Handover(0, 0))
        out[a] = Handover(before.given + 1, before.used + is_used)
    return out


def _is_handed(facts: Facts, i: int) -> bool:
    event, team = facts.events[i], facts.team
    if not team.is_member_A[team.agent_E[i]] or event.type not in ("return", "message"):
        return False
    return event.type == "return" or i in facts.between


def _reader(facts: Facts, i: int) -> int | None:
    """Who it was handed to; None for everybody else of the team."""
    event, team = facts.events[i], facts.team
    to = team.number.get(event.to) if event.to is not None else None
    if to is None and event.type == "return":
        up = int(team.parent_A[team.agent_E[i]])
        return up if up >= 0 else None
    return to


def _is_used(facts: Facts, i: int, a: int, reader: int | None, places: list[int]) -> bool:
    """Whether these words, which stand at these events, were first said by the agent and later by the reader."""
    team, at = facts.team, int(facts.team.place_E[i])
    for j in places:
        who, place = int(team.agent_E[j]), int(team.place_E[j])
        if who != a and place < at:
            return False
        if place > at and who != a and (reader is None or who == reader) and facts.events[j].type in _SAYS:
            return bool(team.is_member_A[who])
    return False
