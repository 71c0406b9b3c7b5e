"""Answers that are sets of rows: merged by a rule, scored against the right set, and played by a reader of papers.

Always true: a row is a tuple whose first `width` cells are its key; the score is 1 exactly for the right rows, each once, and
falls with every row that lacks, is too much, or has a wrong cell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from counterpoint.envs.task import Act, Draw, Score, View
from counterpoint.envs.text._acting import answer, judged
from counterpoint.envs.text._worker import Desk, most_said, slip
from counterpoint.errors import NotFound, did_you_mean

Row = tuple[str | int, ...]
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


def written(rows: Collection[Row]) -> str:
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
    return [found for rows in every.values() if (found := most_said(rows)) is not None]


def scored(given: Sequence[Row], right: Sequence[Row], width: int) -> Score:
    """F1 of the keys, times the share of right cells in the rows whose key is right."""
    truth = {row[:width]: row[width:] for row in right}
    matched = [(row[width:], truth[row[:width]]) for row in given if row[:width] in truth]
    hits = len({row[:width] for row in given if row[:width] in truth})
    cells = sum(a == b for mine, true in matched for a, b in zip(mine, true, strict=True))
    total = sum(len(true) for _, true in matched)
    parts = {
        "precision": hits / len(given) if given else 0.0,
        "recall": hits / len(truth) if truth else 1.0,
        "f1": 2 * hits / (len(given) + len(truth)) if given or truth else 1.0,
        "cells": cells / total if total else float(not truth),
    }
    value = parts["f1"] * parts["cells"]
    return Score(value, value == 1.0, parts)


def play(
    view: View, draw: Draw, skill: float, read: Callable[[str], list[Row]], start: Callable[[Desk], Reading], width: int
) -> Act:
    """What a reader does next: judge what others found, read on, or answer with its rows."""
    desk = Desk(view)
    others = [(found, task) for text, task in desk.answers() if (found := read(text))]
    checked = desk.judged()
    if desk.is_judge and checked is None and others:
        lists = [rows for rows, _ in others]
        rule = slip(draw, skill, "judge", [lambda: "first"], "vote" if _are_alike(lists, width) else "union")
        return answer(view, written(merged(rule, lists, width)))
    reading = start(desk)
    act = desk.board() or reading.next()
    if act is not None:
        return act
    mine = reading.rows(draw, 1.0 if checked is not None else skill)
    if checked is not None:
        problems = _problems(mine, read(checked), width) if reading.has_read else []
        return judged(view, problems, draw("judge") >= skill)
    if not reading.has_read and others:
        mine = merged("union", [rows for rows, _ in others], width)
    return answer(view, written(mine))


def _are_alike(lists: Sequence[Sequence[Row]], width: int) -> bool:
    """Whether these answer one question and not different parts of it: a row is in three of four of them on average."""
    keys = [{row[:width] for row in rows} for rows in lists]
    return 4 * sum(map(len, keys)) > 3 * len(lists) * len(set().union(*keys))


def _problems(mine: Sequence[Row], given: Sequence[Row], width: int) -> list[str]:
    """What a critic who has read the papers holds against some rows."""
    lacks = sorted({"|".join(map(str, row[:width])) for row in mine} - {"|".join(map(str, row[:width])) for row in given})
    wrong = sorted({"|".join(map(str, row[:width])) for row in given if row not in mine})
    return [f"{key} is missing" for key in lacks] + [f"{key} is wrong" for key in wrong]
