"""Lines: a header, then one record per line; the journal's form, and the only one that keeps everything.

Always true: reading what was written gives an equal trace, texts and `meta` included.
"""

from __future__ import annotations

from collections.abc import Iterator

from counterpoint.formats.format import Data, Format
from counterpoint.trace import Trace, lines
from counterpoint.trace.records import FIELDS, wire_name


def _read(data: Data) -> Iterator[Trace]:
    yield lines.decode_lines(bytes(data))


jsonl = Format(
    suffixes=(".jsonl",),
    sniff=lines.is_lines,
    read=_read,
    write=lines.encode_lines,
    fields={
        "header": ("counterpoint", "trace_id", "task_id", "system", "topology", "meta"),
        "event": (*(wire_name(f) for f in FIELDS), "and every other field of an event"),
        "edge": ("src", "dst", "type"),
        "content": ("content", "text"),
        "finish": ("rewards", "costs", "metrics"),
    },
    keeps=("contents", "meta"),
    lost="nothing",
)
