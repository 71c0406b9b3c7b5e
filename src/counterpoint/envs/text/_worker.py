"""What the players of the text tasks share: what a view holds (papers, hits, answers), and how to ask and to finish.

Always true: a `Desk` is made from one view and nothing else; odd, cut or edited texts are passed over, never an exception. Every
question to a tool is asked at most twice, so a player comes to its end whatever the tools answer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import lru_cache
from typing import TypeVar

from counterpoint.envs.task import Act, Draw, Seen, View
from counterpoint.envs.text._acting import use

H = TypeVar("H", bound=Hashable)
T = TypeVar("T")
_LINE = re.compile(r"^[ \t]*(\S{1,80}) \| ([^\n|]{1,200})(?: \| ([^\n]*))?$", re.MULTILINE)
_ASKED_MOST = 2
JUDGING = ("judge", "debate", "resolve")
_SAID = ("return", "message", "note")
_OWN = ("RETU", "STOP", "MESS")


@lru_cache(maxsize=16_384)
def _lines(text: str) -> tuple[tuple[str, str, str | None], ...]:
    return tuple((m[1], m[2].strip(), m[3]) for m in _LINE.finditer(text))


def _names(text: str, what: str, start: int) -> bool:
    """Whether a text names this after some place, and no longer word that begins so."""
    at = text.find(what, start)
    while at >= 0:
        after = text[at + len(what) : at + len(what) + 1]
        if not (after.isalnum() or after == "_"):
            return True
        at = text.find(what, at + 1)
    return False


class Desk:
    """One agent's view, sorted: the papers it has opened, the hits it has seen, what it was asked, what others answered."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.papers: dict[str, tuple[str, str]] = {}
        """Opened papers by id: title and text."""
        self.hits: dict[str, str] = {}
        """Ids that a search or an opened paper showed, with titles."""
        self._calls: list[tuple[str, bool]] = []
        """Own acts, and whether an error came back."""
        for seen in view.seen:
            self._sort(seen)

    def _sort(self, seen: Seen) -> None:
        if seen.kind == "own":
            self._calls.append((seen.text, False))
        elif seen.kind == "error" and self._calls:
            self._calls[-1] = (self._calls[-1][0], True)
        elif seen.kind == "result":
            head, _, body = seen.text.partition("\n")
            found = _lines(head)
            if seen.by == "open" or (seen.by != "search" and found and found[0][2] is None and body.strip()):
                if found and body.strip():
                    self.papers[found[0][0]] = (found[0][1], body)
            else:
                for id_, title, _ in _lines(seen.text):
                    self.hits.setdefault(id_, title)

    @property
    def is_judge(self) -> bool:
        """Whether this turn is about what was said."""
        return self.view.purpose in JUDGING

    def part(self) -> str:
        """The sub-task that was given last; empty for who works on the whole question."""
        return next((seen.text for seen in reversed(self.view.seen) if seen.kind == "subtask"), "")

    def whole(self) -> str:
        """All that the user, the lead or the operator asked; a lead's question lists the parts too."""
        return "\n".join(s.text for s in self.view.seen if s.kind in ("question", "subtask", "brief", "operator"))

    def turned(self, items: Sequence[T]) -> list[T]:
        """The same in another order for each agent, so that those who work on the same question begin in different places."""
        name = self.view.agent.rpartition(".")[2]
        at = 2 * (int(name) - 1) % len(items) if name.isdecimal() and items else 0
        return [*items[at:], *items[:at]]

    def answers(self) -> list[tuple[str, str]]:
        """What others returned or said and what this agent answered itself, with the sub-task that it is about."""
        out = [(s.text, s.task) for s in self.view.seen if s.kind in _SAID]
        return out + [(s.text, s.task) for s in self.view.seen if s.kind == "own" and s.text.lstrip()[:4].upper() in _OWN]

    def results(self, tool: str) -> list[str]:
        """What a tool answered, in order."""
        return [s.text for s in self.view.seen if s.kind == "result" and s.by == tool]

    def asked(self, tool: str, what: str) -> bool:
        """Whether this was asked already and need not be asked again; a call that failed is tried once more."""
        head = f"TOOL {tool}"
        calls = [is_error for text, is_error in self._calls if text.startswith(head) and _names(text, what, len(head))]
        return len(calls) >= _ASKED_MOST or (bool(calls) and not calls[-1])

    def ask(self, tool: str, what: str) -> Act | None:
        """The call, where the tool is offered and was not asked this already."""
        return None if self.asked(tool, what) else use(self.view, tool, what)

    def board(self) -> Act | None:
        """Look at the shared notes once, where there are any."""
        return self.ask("notes", "")

    def judged(self) -> str | None:
        """What a critic has to judge: what was returned or said last; None for who is no critic."""
        texts = [c.text for c in self.view.choices if c.text]
        if self.view.purpose != "judge" or not (self.view.role == "critic" or any(t.startswith("ACCEPT") for t in texts)):
            return None
        said = [s.text for s in self.view.seen if s.kind in ("return", "message")]
        return said[-1] if said else ""


def most_said(items: Iterable[H]) -> H | None:
    """What was said most often; of equals the first."""
    counts = Counter(items)
    return max(counts, key=counts.__getitem__) if counts else None


def slip(draw: Draw, skill: float, name: str, ways: Sequence[Callable[[], T]], right: T) -> T:
    """The right value, or with chance 1 - skill one of several wrong ones."""
    if draw(name) < skill or not ways:
        return right
    return ways[min(int(draw(f"{name}: how") * len(ways)), len(ways) - 1)]()
