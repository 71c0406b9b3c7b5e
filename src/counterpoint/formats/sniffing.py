"""Which format a file is in: by its content, then by its name.

Always true: content outweighs the name; a file that begins like JSON and is nothing else we know is taken for the survey's
format, so that its reader can say what is wrong with it.
"""

from __future__ import annotations

from counterpoint import registry
from counterpoint.errors import InputError
from counterpoint.formats.format import Format

# Our own two forms first: they are by far the most common, and nothing else needs to be imported for them.
_FIRST = ("jsonl", "survey")
_OURS = 1000


def _formats() -> list[tuple[str, Format]]:
    names = registry.ids("format")
    ordered = [*(n for n in _FIRST if n in names), *(n for n in names if n not in _FIRST)]
    known = [(name, registry.get("format", name)) for name in ordered]
    return sorted(known, key=lambda row: -getattr(row[1], "rank", _OURS))  # a dialect before the form it is a dialect of


def detect(head: bytes, name: str = "") -> str:
    """The id of the format of a file that begins with `head` and is called `name`; `InputError` when it is none we know."""
    for id_ in _FIRST:
        if registry.get("format", id_).sniff(head):
            return id_
    known = _formats()
    for id_, format_ in known:
        if format_.sniff(head):
            return id_
    # A foreign log is known by its content alone: half of them are called .json.
    ours = [(id_, format_) for id_, format_ in known if not hasattr(format_, "rank")]
    endings = [(suffix, id_) for id_, format_ in ours for suffix in format_.suffixes if name.lower().endswith(suffix)]
    if endings:
        return max(endings, key=lambda pair: len(pair[0]))[1]
    if head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"["):
        return "survey"
    raise InputError(
        "is empty" if not head else "is not a trace in any format we know",
        where=name or None,
        fix="known formats: " + ", ".join(id_ for id_, _ in known),
    )
