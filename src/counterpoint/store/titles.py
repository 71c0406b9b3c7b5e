"""Titles in lists: of the traces of a project that would be called alike, each but the first is called by what is its own.

That is the part of what was asked in which it differs from those before it; where it asked the same, what differs in its id (a
sample, an epoch, an injection), its models, the moment at which it began, and at last its id.

Always true: what a trace is called depends on those alone that were added before it, so that a trace that comes in renames no
other; within a project no two finished traces are called the same; what was asked alone, or first, is called by its title.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from counterpoint.display import local_moment
from counterpoint.store.summary import Summary
from counterpoint.trace.naming import TITLE_LENGTH, is_opaque, short_model

_ROOM = 40
"""How much of a title and of what tells it apart there is at least."""
_MACHINE = re.compile(r"(?=.*\d)[A-Za-z0-9]{18,}(?:-[A-Za-z0-9]{18,})*")
_SPLIT = re.compile(r"[/|]")


def told_apart(rows: Sequence[Summary]) -> list[Summary]:
    """The same rows, in order of when they were added, no two finished ones of a project with one title."""
    same: dict[tuple[str | None, str], list[int]] = {}
    for i, row in enumerate(rows):
        if row.title is not None and not row.is_open:
            same.setdefault((row.project, row.title), []).append(i)
    out = list(rows)
    taken = {(project, title) for project, title in same}
    for (project, title), numbers in same.items():
        if len(numbers) > 1:
            _tell(out, project, title, numbers, taken)
    return out


def _tell(rows: list[Summary], project: str | None, title: str, numbers: list[int], taken: set[tuple[str | None, str]]) -> None:
    """Give all but the first of some rows another title."""
    met: set[int] = set()
    first = rows[numbers[0]]
    _new_words(first.further, met)
    for i in numbers[1:]:
        row = rows[i]
        name = next(name for name in _names(row, first, title, _new_words(row.further, met)) if (project, name) not in taken)
        taken.add((project, name))
        rows[i] = replace(row, title=name)


def _new_words(text: str | None, met: set[int]) -> str:
    """The words of a text from where no text before it went the same way; empty where one did to the end."""
    words, so_far, begin = (text or "").split(), 0, None
    for k, word in enumerate(words):
        so_far = hash((so_far, word))
        if begin is None and so_far not in met:
            begin = k
        met.add(so_far)
    return "" if begin is None else " ".join(words[begin:])


def _names(row: Summary, first: Summary, title: str, words: str) -> Iterator[str]:
    """What a trace may be called, the best first; the last is its own."""
    if words:
        yield _joined(title, " … ", words)
    asked = _after(row.further, first.further)
    if asked:
        title = f"{_cut(title, _ROOM // 2)} … {_cut(asked, _ROOM)}"
    parts, others = (_SPLIT.split(one.id) for one in (row, first))
    others += [""] * len(parts)
    own = [part for part, other in zip(parts, others, strict=False) if part != other and part and not _is_machine_s(part)]
    if len(parts) > 1 and own:
        yield _joined(title, " · ", ("no. " if own[0].isdecimal() else "") + "/".join(own))
    if row.models != first.models and row.models:
        yield _joined(title, " · ", ", ".join(map(short_model, row.models)))
    if row.started is not None:
        yield _joined(title, " · ", local_moment(row.started))
    yield _joined(title, " · ", row.id[:_ROOM])
    yield f"{title} · {row.id}"


def _after(text: str | None, other: str | None) -> str:
    """The words of a text from where it goes another way than one before it; empty where it says no other."""
    words, others = (text or "").split(), (other or "").split()
    begin = next((k for k, (word, there) in enumerate(zip(words, others, strict=False)) if word != there), len(others))
    return " ".join(words[begin:])


def _is_machine_s(part: str) -> bool:
    return is_opaque(part) or _MACHINE.fullmatch(part) is not None


def _joined(title: str, between: str, words: str) -> str:
    """A title and what tells it apart, as much of either as there is room for."""
    room = TITLE_LENGTH - len(between)
    head = _cut(title, max(room - len(words), room - _ROOM))
    return f"{head}{between}{_cut(words, room - len(head))}"


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1].rstrip(" ,;:…") + "…"
