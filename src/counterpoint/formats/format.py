"""What a format is: bytes in, traces out, and back; and which format a file is in.

`detect` goes by a file's content, then by its name. A file that begins like JSON and is nothing else we know is taken for the
survey's format, so that its reader can say what is wrong with it.

Always true: a format opens no file and changes no trace; the same trace gives the same bytes; what is not in the bytes is
said in `lost`. Bytes that are not of the format raise `InputError`, never anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import counterpoint.registry as registry
from counterpoint.errors import InputError
from counterpoint.trace import Trace

Data = bytes | memoryview


class Table(NamedTuple):
    """One file of a format that writes several: its bytes, and how many rows they hold."""

    data: bytes
    rows: int


@dataclass(frozen=True, kw_only=True)
class Format:
    """One way to write a trace down. Either `write` or `write_tables`, or neither for a format that is only read."""

    suffixes: tuple[str, ...]
    """How its files end; the first is what we write."""
    sniff: Callable[[bytes], bool]
    """Whether a file that begins with these bytes (a few thousand) is of this format."""
    read: Callable[[Data], Iterator[Trace]] | None = None
    """The traces in the bytes of a file."""
    write: Callable[[Trace], bytes] | None = None
    """One trace as the bytes of one file."""
    writes_too: Mapping[str, Callable[[Trace], bytes]] = field(default_factory=dict)
    """The versions of it that can be asked for by number (`atif-1.7`), each as `write` is; `write` alone gives the newest."""
    joins: bool = False
    """Whether the bytes of several traces, one after another, are a file of it too: rows, one in a line."""
    read_tables: Callable[[Mapping[str, Data]], Iterator[Trace]] | None = None
    """The traces in the named files of a folder."""
    write_tables: Callable[[Sequence[Trace]], dict[str, Table]] | None = None
    """Any number of traces as the named files of a folder."""
    fields: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Of a format that is written: the names of the fields, by table or by part of its one file."""
    keeps: tuple[str, ...] = ()
    """Which of `contents` and `meta` it carries."""
    lost: str
    """What is lost in translation, as a sentence for people."""


# -- which format a file is in -------------------------------------------------------------------------------------------------


# Our own two forms first: they are by far the most common, and then no other format has to be imported.
_FIRST = ("jsonl", "survey")
_OURS_RANK = 1000


def _by_rank() -> list[tuple[str, Format]]:
    names = registry.ids("format")
    ordered = [*(n for n in _FIRST if n in names), *(n for n in names if n not in _FIRST)]
    known = [(name, registry.get("format", name)) for name in ordered]
    return sorted(known, key=lambda row: -getattr(row[1], "rank", _OURS_RANK))  # a dialect before the form it is a dialect of


def detect(head: bytes, name: str = "") -> str:
    """The id of the format of a file that begins with `head` and is called `name`; `InputError` when it is none we know."""
    for id_ in _FIRST:
        if registry.get("format", id_).sniff(head):
            return id_
    known = _by_rank()
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
