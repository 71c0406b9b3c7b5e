"""What the players of the text tasks share: what a view holds (papers, hits, answers), how to ask, how to answer, and rows.

Always true: a player acts on one view and nothing else; odd, cut or edited texts are passed over, never an exception. An act is
one of the view's choices, its text one line. Every question to a tool is asked at most twice, so a player comes to its end.
"""

from __future__ import annotations

import re
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from functools import lru_cache
from typing import Any, Protocol, TypeVar

from counterpoint.errors import NotFound, did_you_mean
from counterpoint.lab.tasks.task import Act, Choice, Draw, Score, View, ViewItem

H = TypeVar("H", bound=Hashable)
T = TypeVar("T")
_LINE = re.compile(r"^[ \t]*(\S{1,80}) \| ([^\n|]{1,200})(?: \| ([^\n]*))?$", re.MULTILINE)
_ASKED_MOST = 2
JUDGING = ("judge", "debate", "resolve")
_SAID = ("return", "message", "note")
_ASKS = ("question", "subtask", "brief", "operator")
_KEPT = 64
"""Agents whose sorted views are kept."""
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


class SortedView:
    """One agent's view, sorted: the papers it has opened, the hits it has seen, what it was asked, what others answered."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.papers: dict[str, tuple[str, str]] = {}
        """Opened papers by id: title and text."""
        self.hits: dict[str, str] = {}
        """Ids that a search or an opened paper showed, with titles."""
        self._titles: dict[str, str] = {}
        """Title to the first paper that has it."""
        self._calls: list[tuple[str, bool]] = []
        """Own acts, and whether an error came back."""
        self._acts = ""
        """The same as one text: what is not in it was not asked."""
        self._part, self._asked = "", list[str]()
        self._others, self._own = list[tuple[str, str]](), list[tuple[str, str]]()
        self.memo: dict[Hashable, Any] = {}
        """What a player has worked out from the papers; emptied where one of them changes."""
        for item in view.seen:
            self._sort(item)

    def grown(self, view: View) -> bool:
        """Take over a later view of the same agent, reading only what is new; whether it is one."""
        mine, now = self.view.seen, view.seen
        if len(now) < len(mine) or now[: len(mine)] != mine:
            return False
        self.view = view
        for item in now[len(mine) :]:
            self._sort(item)
        return True

    def _sort(self, item: ViewItem) -> None:
        if item.kind in _ASKS:
            self._asked.append(item.text)
            self._part = item.text if item.kind == "subtask" else self._part
        elif item.kind in _SAID:
            self._others.append((item.text, item.task))
        elif item.kind == "own":
            self._calls.append((item.text, False))
            self._acts += f"{item.text}\n"
            if item.text.lstrip()[:4].upper() in _OWN:
                self._own.append((item.text, item.task))
        elif item.kind == "error" and self._calls:
            self._calls[-1] = (self._calls[-1][0], True)
        elif item.kind == "result":
            head, _, body = item.text.partition("\n")
            papers = _lines(head)
            if item.by == "open" or (item.by != "search" and papers and papers[0][2] is None and body.strip()):
                if papers and body.strip():
                    if self.papers.get(papers[0][0], (papers[0][1], body)) != (papers[0][1], body):
                        self.memo.clear()
                    self.papers[papers[0][0]] = (papers[0][1], body)
                    self._titles.setdefault(papers[0][1], papers[0][0])
            else:
                for id_, title, _ in _lines(item.text):
                    self.hits.setdefault(id_, title)

    @property
    def is_judge(self) -> bool:
        """Whether this turn is about what was said."""
        return self.view.purpose in JUDGING

    def part(self) -> str:
        """The sub-task that was given last; empty for who works on the whole question."""
        return self._part

    def whole(self) -> str:
        """All that the user, the lead or the operator asked; a lead's question lists the parts too."""
        return "\n".join(self._asked)

    def titled(self, title: str) -> str | None:
        """The text of the first opened paper with this title."""
        paper = self.papers.get(self._titles.get(title, ""))
        if paper is not None and paper[0] == title:
            return paper[1]
        return next((text for name, text in self.papers.values() if name == title), None) if paper is not None else None

    def turned(self, items: Sequence[T]) -> list[T]:
        """The same in another order for each agent, so that those who work on the same question begin in different places."""
        name = self.view.agent.rpartition(".")[2]
        at = 2 * (int(name) - 1) % len(items) if name.isdecimal() and items else 0
        return [*items[at:], *items[:at]]

    def answers(self) -> list[tuple[str, str]]:
        """What others returned or said and what this agent answered itself, with the sub-task that it is about."""
        return self._others + self._own

    def results(self, tool: str) -> list[str]:
        """What a tool answered, in order."""
        return [s.text for s in self.view.seen if s.kind == "result" and s.by == tool]

    def was_asked(self, tool: str, what: str) -> bool:
        """Whether this was asked already and need not be asked again; a call that failed is tried once more."""
        if what not in self._acts:
            return False
        head = f"TOOL {tool}"
        calls = [is_error for text, is_error in self._calls if text.startswith(head) and _names(text, what, len(head))]
        return len(calls) >= _ASKED_MOST or (bool(calls) and not calls[-1])

    def ask(self, tool: str, what: str) -> Act | None:
        """The call, where the tool is offered and was not asked this already."""
        return None if self.was_asked(tool, what) else use(self.view, tool, what)

    def board(self) -> Act | None:
        """Look at the shared notes once, where there are any."""
        return self.ask("notes", "")

    def judged(self) -> str | None:
        """What a critic has to judge: what was returned or said last; None for who is no critic."""
        texts = [c.text for c in self.view.choices if c.text]
        if self.view.purpose != "judge" or not (self.view.role == "critic" or any(t.startswith("ACCEPT") for t in texts)):
            return None
        answers = [s.text for s in self.view.seen if s.kind in ("return", "message")]
        return answers[-1] if answers else ""


_held: OrderedDict[tuple[str, str], SortedView] = OrderedDict()


def sorted_view(view: View) -> SortedView:
    """The view, sorted; where the agent's last one is its beginning, only what came since is read."""
    key = (view.agent, view.role)
    held = _held.pop(key, None)
    if held is None or not held.grown(view):
        held = SortedView(view)
    _held[key] = held
    while len(_held) > _KEPT:
        _held.popitem(last=False)
    return held


def most_frequent(items: Iterable[H]) -> H | None:
    """What was said most often; of equals the first."""
    counts = Counter(items)
    return max(counts, key=counts.__getitem__) if counts else None


def slip(draw: Draw, skill: float, name: str, ways: Sequence[Callable[[], T]], right: T) -> T:
    """The right value, or with chance 1 - skill one of several wrong ones."""
    if draw(name) < skill or not ways:
        return right
    return ways[min(int(draw(f"{name}: how") * len(ways)), len(ways) - 1)]()


# -- saying it with the actions that are offered -----------------------------------------------------------------------


OTHERS = ("message", "return", "note", "result", "brief", "operator")
_SHOWN = 4  # how many problems a critic names


def _act(choice: Choice, text: str) -> Act:
    return Act(choice.verb, choice.target, " ".join(text.split()) if choice.text is None else choice.text)


def _offers(view: View, verb: str, target: str | None = None) -> list[Choice]:
    return [c for c in view.choices if c.verb == verb and target in (None, c.target)]


def use(view: View, tool: str, text: str) -> Act | None:
    """A call of a tool, where it is offered."""
    offers = [c for c in _offers(view, "tool", tool) if c.text is None]
    return Act("tool", tool, text) if offers else None


def is_final(view: View) -> bool:
    """Whether what is said now is the team's answer, and not a part for others."""
    return not _offers(view, "return") and not (view.purpose == "debate" and _offers(view, "message"))


def _unsaid(view: View) -> list[Choice]:
    """Peers that have not been told anything since this agent last heard something."""
    since: list[ViewItem] = []
    for item in view.seen:
        since = [*since, item] if item.kind in ("own", "error") else []
    words = " ".join(item.text for item in since)
    return [c for c in _offers(view, "message") if not c.target or f"{c.target}:" not in words]


def answer(view: View, text: str) -> Act:
    """Say an answer: to peers in a debate, as a return or the team's answer otherwise."""
    offers = _unsaid(view) if view.purpose == "debate" else []
    for verb in ("return", "stop", "message"):
        offers += _offers(view, verb)
    offers += view.choices
    free = [c for c in offers if c.text is None] or offers
    return _act(free[0], text) if free else Act("noop")


def judged(view: View, problems: Sequence[str], is_slip: bool) -> Act:
    """A critic's word: ACCEPT, or REJECT with the problems; a slip turns it round."""
    shown = list(problems)[:_SHOWN]
    if is_slip:
        shown = [] if shown else ["something in it looks wrong"]
    text = "REJECT " + "; ".join(shown) if shown else "ACCEPT"
    fixed = [c for c in view.choices if c.text is not None and c.text.upper().startswith(text[:6])]
    is_open = any(c.text is None and c.verb in ("return", "stop", "message") for c in view.choices)
    return _act(fixed[0], text) if fixed and not is_open else answer(view, text)


def subtask(view: View) -> str:
    """The text of the sub-task that was given last; empty for an agent that works on the whole question."""
    texts = [item.text for item in view.seen if item.kind == "subtask"]
    return texts[-1] if texts else ""


def read_others(view: View, read: Callable[[str], T | None], kinds: Iterable[str] = OTHERS) -> list[tuple[str, T]]:
    """What a reader finds in the texts that the agent has seen of others, oldest first, each with who said it."""
    wanted = set(kinds)
    readings = [(item.by, read(item.text)) for item in view.seen if item.kind in wanted]
    return [(by, value) for by, value in readings if value]


# -- answers that are sets of rows -------------------------------------------------------------------------------------


Row = tuple[str | int, ...]
"""A row of an answer; its first `width` cells are its key."""
RULES = ("union", "vote", "first")
NONE = "none"


class Reading(Protocol):
    """What a reader knows from its papers."""

    def next(self) -> Act | None:
        """The next call, or None when everything is read that can be."""

    def rows(self, draw: Draw, skill: float) -> list[Row]:
        """The rows to return, each wrong with chance 1 - skill."""

    @property
    def has_read(self) -> bool:
        """Whether there was anything to find rows in."""


def rows_text(rows: Collection[Row]) -> str:
    """Rows as the answer formats want them, in order, each once."""
    return "; ".join("|".join(map(str, row)) for row in sorted(set(rows), key=lambda row: [str(cell) for cell in row])) or NONE


def merged(rule: str, lists: Sequence[Sequence[Row]], width: int) -> list[Row]:
    """Union: every row, one per key. Vote: rows that at least half of the lists have. First: the first list that has any.

    Where lists differ in other cells, those that most say; of equals the first.
    """
    if rule not in RULES:
        raise NotFound(f"no rule named {rule!r}", fix=did_you_mean(rule, RULES))
    if rule == "first":
        return list(next((rows for rows in lists if rows), []))
    every: dict[Row, list[Row]] = {}
    for row in (row for rows in lists for row in rows):
        every.setdefault(row[:width], []).append(row)
    if rule == "vote":
        had = Counter(key for rows in lists for key in {row[:width] for row in rows})
        every = {key: rows for key, rows in every.items() if 2 * had[key] >= sum(map(bool, lists))}
    return [top for rows in every.values() if (top := most_frequent(rows)) is not None]


def scored(rows: Sequence[Row], right: Sequence[Row], width: int) -> Score:
    """F1 of the keys, times the share of right cells in the rows whose key is right.

    It is 1 exactly for the right rows, each once, and falls with every row that is missing, is too much, or has a wrong cell.
    """
    truth = {row[:width]: row[width:] for row in right}
    matched = [(row[width:], truth[row[:width]]) for row in rows if row[:width] in truth]
    hits = len({row[:width] for row in rows if row[:width] in truth})
    cells = sum(a == b for mine, true in matched for a, b in zip(mine, true, strict=True))
    total = sum(len(true) for _, true in matched)
    parts = {
        "precision": hits / len(rows) if rows else 0.0,
        "recall": hits / len(truth) if truth else 1.0,
        "f1": 2 * hits / (len(rows) + len(truth)) if rows or truth else 1.0,
        "cells": cells / total if total else float(not truth),
    }
    value = parts["f1"] * parts["cells"]
    return Score(value, value == 1.0, parts)


def play(
    view: View, draw: Draw, skill: float, read: Callable[[str], list[Row]], start: Callable[[SortedView], Reading], width: int
) -> Act:
    """What a reader does next: judge what others found, read on, or answer with its rows."""
    held = sorted_view(view)
    others = [(their, task) for text, task in held.answers() if (their := read(text))]
    checked = held.judged()
    if held.is_judge and checked is None and others:
        lists = [rows for rows, _ in others]
        rule = slip(draw, skill, "judge", [lambda: "first"], "vote" if _are_alike(lists, width) else "union")
        return answer(view, rows_text(merged(rule, lists, width)))
    reading = start(held)
    act = held.board() or reading.next()
    if act is not None:
        return act
    mine = reading.rows(draw, 1.0 if checked is not None else skill)
    if checked is not None:
        problems = _problems(mine, read(checked), width) if reading.has_read else []
        return judged(view, problems, draw("judge") >= skill)
    if not reading.has_read and others:
        mine = merged("union", [rows for rows, _ in others], width)
    return answer(view, rows_text(mine))


def _are_alike(lists: Sequence[Sequence[Row]], width: int) -> bool:
    """Whether these answer one question and not different parts of it: a row is in three of four of them on average."""
    keys = [{row[:width] for row in rows} for rows in lists]
    return 4 * sum(map(len, keys)) > 3 * len(lists) * len(set().union(*keys))


def _problems(mine: Sequence[Row], rows: Sequence[Row], width: int) -> list[str]:
    """What is wrong with some rows, for a critic who has read the papers."""
    lacks = sorted({"|".join(map(str, row[:width])) for row in mine} - {"|".join(map(str, row[:width])) for row in rows})
    wrong = sorted({"|".join(map(str, row[:width])) for row in rows if row not in mine})
    return [f"{key} is missing" for key in lacks] + [f"{key} is wrong" for key in wrong]
