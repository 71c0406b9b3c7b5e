"""Files as the recorded edits leave them: every line with the agent that wrote it.

Always true: a file that was written whole is known whole, and edits are made in it as they were asked for. Of a file that was
there before only what edits name is known, in fragments: the text that an edit replaces joins the fragments which it overlaps, so
that what replaces an agent's lines takes them away from it. A line that an edit leaves as it was keeps its author (by a diff of
lines); a line that is changed is written by who changed it. Blank lines count for nobody. Lines kept are at most lines written.
"""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from difflib import SequenceMatcher

from counterpoint.audits.work.edits import Edit

NOBODY = -1
"""Who wrote what was there before, or is not known."""
_LONG = 3_000
"""Changed lines from which a diff takes the quick way."""
_TELLING, _LONGEST = 8, 4_000
"""Characters that two texts must share to be taken for the same place of a file, and how many are looked at."""


class Fragment:
    """Lines of a file that stand together, and who wrote each."""

    def __init__(self, lines: list[str], owners: list[int]) -> None:
        self.lines, self.owners = lines, owners
        self.text = "\n".join(lines)

    def rewrite(self, text: str, who: int) -> int:
        """The fragment with another text; how many lines that are not blank are new."""
        lines = text.split("\n")
        self.owners = _line_authors(self.lines, self.owners, lines, who)
        fresh = sum(owner == _FRESH and bool(line.strip()) for owner, line in zip(self.owners, lines, strict=True))
        self.owners = [who if owner == _FRESH else owner for owner in self.owners]
        self.lines, self.text = lines, text
        return fresh


_FRESH = -2


def _line_authors(before: list[str], owners: list[int], after: list[str], who: int) -> list[int]:
    """The author of each line afterwards; `_FRESH` for one that was not there before."""
    head = 0
    while head < min(len(before), len(after)) and before[head] == after[head]:
        head += 1
    tail = 0
    while tail < min(len(before), len(after)) - head and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    old, new = before[head : len(before) - tail], after[head : len(after) - tail]
    middle = [_FRESH] * len(new)
    if old and new:
        matcher = SequenceMatcher(None, old, new, autojunk=len(old) + len(new) > _LONG)
        for a, b, size in matcher.get_matching_blocks():
            middle[b : b + size] = owners[head + a : head + a + size]
    return [*owners[:head], *middle, *owners[len(before) - tail :]]


class File:
    """One file."""

    def __init__(self) -> None:
        self.fragments: list[Fragment] = []
        self.is_whole = False
        """Nothing is in it but the fragment."""

    def write(self, text: str, who: int) -> int:
        """The whole content anew."""
        lines = text.split("\n")
        fragments = sorted(self.fragments, key=lambda f: _place(f, lines))
        whole = Fragment([x for f in fragments for x in f.lines], [o for f in fragments for o in f.owners])
        written = whole.rewrite(text, who)
        self.fragments, self.is_whole = [whole], True
        return written

    def append(self, text: str, who: int) -> int:
        """Lines at the end."""
        if self.is_whole and self.fragments:
            last = self.fragments[0]
            gap = "" if not last.text or last.text.endswith("\n") else "\n"
            return last.rewrite(f"{last.text}{gap}{text}", who)
        return self.insert(text, who, None)

    def insert(self, text: str, who: int, line: int | None) -> int:
        """Lines after a line; somewhere where that is not known."""
        if self.is_whole and self.fragments and line is not None:
            before = self.fragments[0].lines
            return self.fragments[0].rewrite("\n".join([*before[:line], *text.split("\n"), *before[line:]]), who)
        fresh = Fragment([], [])
        self.fragments.append(fresh)
        return fresh.rewrite(text, who)

    def replace(self, edit: Edit, who: int) -> int | None:
        """An old text by a new one; None where the file is known and does not hold the old text."""
        written = 0
        for fragment in list(self.fragments):
            text = fragment.text
            at = _find(text, edit.old, is_lines=edit.is_lines)
            if at < 0:
                continue
            if edit.every:
                fresh = text.replace(edit.old, edit.new)
            else:
                fresh = text[:at] + edit.new + text[at + len(edit.old) :]
            written += fragment.rewrite(fresh, who)
            if not edit.every:
                return written
        if edit.every and written:
            return written
        if self.is_whole:
            return None
        joined = self._joined(edit.old)
        text = joined.text
        at = max(_find(text, edit.old, is_lines=edit.is_lines), 0)
        return joined.rewrite(text[:at] + edit.new + text[at + len(edit.old) :], who)

    def _joined(self, old: str) -> Fragment:
        """The text as a part of the file, together with the fragments that it overlaps."""
        before = after = ""
        placed: list[tuple[Fragment, int]] = []
        for fragment in self.fragments:
            text = fragment.text
            within = old.find(text) if _is_telling(text) else -1
            if within >= 0:
                placed.append((fragment, within))
            elif not before and (size := _overlap(text, old)):
                before = text[: len(text) - size]
                placed.append((fragment, -len(before)))
            elif not after and (size := _overlap(old, text)):
                after = text[size:]
                placed.append((fragment, len(old) - size))
        whole = f"{before}{old}{after}"
        lines = whole.split("\n")
        owners = [NOBODY] * len(lines)
        for fragment, at in placed:
            self.fragments.remove(fragment)
            first = whole.count("\n", 0, at + len(before))
            for k, owner in enumerate(fragment.owners):
                owners[first + k] = owners[first + k] if owner == NOBODY else owner
        joined = Fragment(lines, owners)
        self.fragments.append(joined)
        return joined


def _find(text: str, old: str, *, is_lines: bool) -> int:
    return f"\n{text}\n".find(f"\n{old}\n") if is_lines else text.find(old)


def _place(fragment: Fragment, lines: list[str]) -> int:
    return next((lines.index(line) for line in fragment.lines if line.strip() and line in lines), len(lines))


def _is_telling(text: str) -> bool:
    """Whether a text says enough to be taken for the same place of a file."""
    return len(text.strip()) >= _TELLING and any(c.isalnum() for c in text)


def _overlap(first: str, then: str) -> int:
    """How many characters at the end of the first are those at the beginning of the other; 0 where these say too little."""
    end = first[-_LONGEST:]
    at = end.find(then[:_TELLING]) if len(then) >= _TELLING else -1
    while at >= 0:
        if then.startswith(end[at:]):
            return len(end) - at if _is_telling(end[at:]) else 0
        at = end.find(then[:_TELLING], at + 1)
    return 0


class Files:
    """All files of a session, by path."""

    def __init__(self) -> None:
        self.files: dict[str, File] = {}
        self.written: Counter[int] = Counter()
        """Agent to the lines that it wrote."""
        self.touched: dict[int, set[str]] = {}
        """Agent to the files that it wrote to."""
        self.unplaced = 0
        """Edits whose old text is not in the file as it is known: something else changed the file, or they failed unrecorded."""

    def apply(self, edit: Edit, who: int) -> None:
        """One edit."""
        path = self.path(edit.path)
        if edit.kind == "delete":
            self.files.pop(path, None)
            return
        if edit.kind == "move":
            if path in self.files:
                self.files[self.path(edit.new)] = self.files.pop(path)
            return
        file = self.files.setdefault(path, File())
        written: int | None
        if edit.kind == "write":
            written = file.write(edit.new, who)
        elif edit.kind == "append":
            written = file.append(edit.new, who)
        elif edit.kind == "insert":
            written = file.insert(edit.new, who, edit.line)
        else:
            written = file.replace(edit, who)
        if written is None:
            self.unplaced += 1
            return
        self.written[who] += written
        self.touched.setdefault(who, set()).add(path)

    def path(self, name: str) -> str:
        """A path as this session writes it: one that is relative is the absolute one that ends with it, where there is one."""
        path = posixpath.normpath(name.replace("\\", "/").strip())
        if path.startswith(("/", "~")) or re.match(r"[A-Za-z]:/", path):
            return path
        ends = [known for known in self.files if known.endswith(f"/{path}")]
        return ends[0] if len(ends) == 1 and path not in self.files else path

    def final_lines(self) -> dict[int, dict[str, int]]:
        """Agent to the files that hold lines of its at the end, and how many."""
        out: dict[int, dict[str, int]] = {}
        for path, file in self.files.items():
            for fragment in file.fragments:
                for owner, line in zip(fragment.owners, fragment.lines, strict=True):
                    if owner != NOBODY and line.strip():
                        mine = out.setdefault(owner, {})
                        mine[path] = mine.get(path, 0) + 1
        return out
