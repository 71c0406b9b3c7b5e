"""The survey's JSON: one file per trace, valid under its schema.

What is lost: `meta`, and the texts behind content references.

Always true: what is written passes the survey's JSON Schema, or `InvalidTrace` says why it cannot; what is read comes back
field for field.
"""

from __future__ import annotations

from collections.abc import Iterator

from counterpoint.formats.format import Data, Format
from counterpoint.trace import Trace, wire
from counterpoint.trace.records import FIELDS, wire_name

# No file of the schema has such a key at its top; rows of chats (see sft.py) begin with it.
_CHAT = b'"agent":'
_NAMES = (b'"trace_id"', b'"task_id"', b'"events"')


def _sniff(head: bytes) -> bool:
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text[:1] != b"{" or b'"traceEvents"' in head or not any(name in head for name in _NAMES):
        return False
    return not _is_lines(text) and not text[1:].lstrip().startswith(_CHAT)


def _is_lines(text: bytes) -> bool:
    return text[1:].lstrip().startswith(b'"counterpoint"')


def _read(data: Data) -> Iterator[Trace]:
    yield wire.decode(data)


def _write(trace: Trace) -> bytes:
    data = wire.encode(trace)
    # A trace built in memory may hold anything; reading it back is the one check that has the schema's own opinion.
    wire.decode(data, where=f"trace {trace.trace_id!r}")
    return data


survey = Format(
    suffixes=(".trace.json", ".json"),
    sniff=_sniff,
    read=_read,
    write=_write,
    fields={
        "trace": ("trace_id", "task_id", "system", "topology", "rewards", "costs", "metrics"),
        "events": (*(wire_name(f) for f in FIELDS), "and every other field of an event"),
        "edges": ("src", "dst", "type"),
    },
    lost="texts behind content references, meta",
)
