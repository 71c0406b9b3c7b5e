"""Labelled sets of runs: which keys a file begins with, and the runs in it, whether it is a document, a list or lines.

Always true: `first_keys` takes time in proportion to the head, whatever is in it, and never raises; an entry of a list or a line
that is no object is counted and left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from counterpoint.errors import InputError
from counterpoint.formats.importer import Session
from counterpoint.formats.importing.files import File
from counterpoint.formats.importing.values import decode

# A string that the head cuts off counts as ended there: it would otherwise be tried again from each quote inside it.
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\(?:.|\Z))*+(?:"|\Z)|[{}\[\]:]', re.S)


def first_keys(head: bytes) -> set[str]:
    """The keys of the first object in a file that begins so, as far as the head shows them; a list around it may be there."""
    keys: set[str] = set()
    head = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if head[:1] not in (b"{", b"["):
        return keys
    top = 2 if head[:1] == b"[" else 1
    depth, word = 0, b""
    for found in _TOKEN.finditer(head):
        token = found[0]
        if token in (b"{", b"["):
            depth += 1
        elif token in (b"}", b"]"):
            depth -= 1
            if depth < top:
                break
        elif token == b":" and depth == top:
            keys.add(word[1:-1].decode("utf-8", "replace"))
        word = token
    return keys


def entries(session: Session, file: File) -> Iterator[tuple[int, dict[str, Any]]]:
    """The runs in a file, each with its number from 1: the object it is, those of the list it is, or one per line."""
    if _is_lines(file):
        yield from session.records(file)
        return
    found = session.document(file)
    if isinstance(found, dict):
        yield 1, found
    elif isinstance(found, list):
        for number, entry in enumerate(found, 1):
            if isinstance(entry, dict):
                yield number, entry
            else:
                session.report.broke(file.name, number, "an entry that is not an object")


def _is_lines(file: File) -> bool:
    """By name, or because the first line is a whole object and something follows it."""
    if ".jsonl" in file.name:
        return True
    first, _, rest = file.head().lstrip(b"\xef\xbb\xbf \t\r\n").partition(b"\n")
    if not rest.strip():
        return False
    try:
        return isinstance(decode(first), dict)
    except InputError:
        return False
