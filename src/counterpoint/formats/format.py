"""What a format is: bytes in, traces out, and back.

Always true: a format opens no file and changes no trace; the same trace gives the same bytes; what is not in the bytes is
said in `lost`. Bytes that are not of the format raise `InputError`, never anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

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
    read_tables: Callable[[Mapping[str, Data]], Iterator[Trace]] | None = None
    """The traces in the named files of a folder."""
    write_tables: Callable[[Sequence[Trace]], dict[str, Table]] | None = None
    """Any number of traces as the named files of a folder."""
    columns: Mapping[str, tuple[str, ...]]
    """What it holds: the columns of each table, or the parts of its one file."""
    keeps: tuple[str, ...] = ()
    """Which of `contents` and `meta` it carries."""
    lost: str
    """What is lost in translation, as a sentence for people."""
