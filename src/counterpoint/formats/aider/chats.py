"""Aider's chat history: Markdown, in which the mark at the beginning of a line says who speaks.

Aider ends each line of a person (`#### `) and of its own notes (`> `) with two spaces; a heading or a quotation in an answer has
none. In a file that lost them, the marks alone count.

Always true: a chat keeps its name when it grows.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import groupby

from counterpoint.formats.aider.notes import Notes
from counterpoint.formats.draft import one_line
from counterpoint.formats.importer import Session, run_of
from counterpoint.formats.importing.dialogue import MAIN, Dialogue, Entry, play
from counterpoint.formats.importing.values import seconds
from counterpoint.trace import Trace
from counterpoint.trace.keys import BEGAN, TITLE

_BEGIN = re.compile(r"^# aider chat started at (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)[ \t]*$", re.M)
_THOUGHT = re.compile(r"<(thinking-content-\w+|think)>(.*?)</\1>", re.S)
_COMMAND = re.compile(r"^(?:/[a-z][\w-]*|!)\s*")
_PERSON, _NOTE, _MODEL, _BLANK = "person", "note", "model", "blank"


def chats_of(session: Session, text: str) -> Iterator[Trace]:
    """The traces of the chats in a history."""
    text = text.replace("\r\n", "\n")
    parts = _BEGIN.split(text)
    is_marked = re.search(r"^(?:>|####) .*  $", text, re.M) is not None
    met: Counter[str] = Counter()
    for began, body in zip(parts[1::2], parts[2::2], strict=True):
        session.report.records += 1
        entries, notes = _entries(body, is_marked)
        if not any(entry.role == "assistant" or entry.text for entry in entries):
            continue
        first = next((entry.text for entry in entries if entry.role == "user"), "")
        name = f"aider-{began.replace(' ', 'T')}-{run_of(began, first)[:6]}"
        met[name] += 1
        yield from _trace(session, name if met[name] == 1 else f"{name}-{met[name]}", began, entries, notes)


def _trace(session: Session, name: str, began: str, entries: list[Entry], notes: Notes) -> Iterator[Trace]:
    draft = session.draft(name, name, system="aider")
    draft.meta[BEGAN] = seconds(f"{began}Z".replace(" ", "T"))
    if notes.rounded:
        draft.report.lacks["exact tokens: they are stated in hundreds or thousands"] += notes.rounded
    asked = next((e.text for e in entries if e.role == "user" and e.by is None and not _COMMAND.match(e.text)), None)
    if asked:
        draft.meta[TITLE] = one_line(asked)
    play(draft, [Dialogue(entries=entries)])
    draft.lane(MAIN).stops()
    if notes.version:
        draft.meta["version"] = notes.version
    if notes.others:
        draft.meta["left_out"] = {"notes": notes.others}
    yield from draft.traces()


def _kind(line: str, is_marked: bool) -> str:
    if not line.strip():
        return _BLANK
    if not is_marked or line.endswith("  "):
        if line.startswith("####") and line[4:5] in ("", " "):
            return _PERSON
        if line.startswith(">") and line[1:2] in ("", " "):
            return _NOTE
    return _MODEL


def _blocks(body: str, is_marked: bool) -> Iterator[tuple[str, list[str]]]:
    """Who speaks, and the lines; a blank line ends a person's words, and none of an answer's."""
    answer: list[str] = []
    for kind, lines in groupby(body.split("\n"), lambda line: _kind(line, is_marked)):
        if kind in (_MODEL, _BLANK):
            answer += lines
            continue
        if any(line.strip() for line in answer):
            yield _MODEL, answer
        answer = []
        yield kind, [line[4 if kind == _PERSON else 1 :].strip() for line in lines]
    if any(line.strip() for line in answer):
        yield _MODEL, answer


def _entries(body: str, is_marked: bool) -> tuple[list[Entry], Notes]:
    entries: list[Entry] = []
    notes = Notes(entries)
    for kind, lines in _blocks(body, is_marked):
        text = "\n".join(lines).strip()
        if kind == _NOTE:
            notes.read(lines)
        elif kind == _MODEL:
            thoughts = "\n".join(match[2].strip() for match in _THOUGHT.finditer(text)).strip()
            notes.answered(_THOUGHT.sub("", text).strip(), thoughts)
        else:
            last = entries[-1] if entries else None
            if last is not None and last.role == "user" and _COMMAND.sub("", last.text) == text:
                entries.pop()  # `/ask words` is written again as the words alone
            entries.append(Entry("user", text, f"m{len(entries)}"))
            notes.step = None
    return entries, notes
