"""A chat that Cursor's editor exported as Markdown: who said what.

Always true: a file is one only where its second line says that Cursor exported it.
"""

from __future__ import annotations

import re

from counterpoint.formats.cursor.transcript import words_of
from counterpoint.formats.importing.dialogue import Entry

_HEAD = re.compile(r"\A\ufeff?\s*(?:# [^\n]*\n)*# ([^\n]*)\n_Exported on [^\n]* from Cursor \([^)\n]+\)_[ \t]*\n")
_TURN = re.compile(r"(?:\A|\n)---\n\n\*\*(User|Cursor)\*\*\n\n")


def is_markdown(head: bytes) -> bool:
    """Whether a text is such an export."""
    return _HEAD.match(_plain(head[:4096].decode("utf-8", "replace"))) is not None


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n")


def markdown_chat(text: str) -> tuple[list[Entry], str | None]:
    """The entries of a chat, and its title."""
    text = _plain(text)
    head = _HEAD.match(text)
    parts = _TURN.split(text[head.end() if head else 0 :])
    turns = zip(parts[1::2], parts[2::2], strict=False)
    entries: list[Entry] = []
    for k, (who, raw) in enumerate(turns):
        words = raw.strip().removesuffix("---").strip()
        entries.append(Entry("user", words_of(words), f"m{k}") if who == "User" else Entry("assistant", words, f"m{k}"))
    return entries, head[1].strip() or None if head else None
