"""CSV: events.csv, edges.csv and traces.csv, for spreadsheets and everything else.

AnswerDraft only: use Parquet to read traces back.

A text that a spreadsheet would run as a formula (it begins with = + - @ or a tab) has an apostrophe put before it, because
tool output cannot be trusted in anybody's spreadsheet.

What is lost: the difference between no text and an empty one, such first characters, texts behind content references, `meta`.

Always true: RFC 4180 in UTF-8 without a byte order mark (comma, CRLF, quotes doubled), one header line, maps and lists as
JSON text.
"""

from __future__ import annotations

import csv as rfc4180
import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from counterpoint.errors import InvalidTrace
from counterpoint.formats._tables import EDGE_COLUMNS, EVENT_COLUMNS, TRACE_COLUMNS, json_cell, refuse_doubles, trace_row
from counterpoint.formats.format import Format, Table
from counterpoint.trace import Trace
from counterpoint.trace.records import FIELDS

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_AS_JSON = frozenset(("options", "reward"))


def _sniff(head: bytes) -> bool:
    line = head.split(b"\r\n", 1)[0].decode("utf-8", "replace")
    return line in (",".join(columns) for columns in (EVENT_COLUMNS, EDGE_COLUMNS, TRACE_COLUMNS))


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and value.startswith(_FORMULA):
        return "'" + value
    return value


def _table(columns: Sequence[str], rows: Iterable[Iterable[Any]]) -> Table:
    # No translation of line ends, and a lone surrogate is an error here rather than in the reader's program.
    text = io.StringIO(newline="")
    writer = rfc4180.writer(text, lineterminator="\r\n")
    writer.writerow(columns)
    count = 0
    for row in rows:
        writer.writerow([_cell(value) for value in row])
        count += 1
    try:
        return Table(text.getvalue().encode(), count)
    except UnicodeEncodeError as error:
        raise InvalidTrace("a text holds half of a surrogate pair, which no UTF-8 file can carry", why=str(error)) from error


def _event_rows(traces: Sequence[Trace]) -> Iterator[list[Any]]:
    for trace in traces:
        for i, event in enumerate(trace.events):
            row: list[Any] = [trace.trace_id]
            for field in FIELDS:
                value = getattr(event, field)
                row.append(json_cell(value, f"events[{i}].{field}") if field in _AS_JSON else value)
            row.append(json_cell(event.extra, f"events[{i}]"))
            yield row


def _write_tables(traces: Sequence[Trace]) -> dict[str, Table]:
    refuse_doubles(traces)
    edges = ((t.trace_id, e.src, e.dst, e.type) for t in traces for e in t.edges)
    return {
        "events.csv": _table(EVENT_COLUMNS, _event_rows(traces)),
        "edges.csv": _table(EDGE_COLUMNS, edges),
        "traces.csv": _table(TRACE_COLUMNS, map(trace_row, traces)),
    }


csv = Format(
    suffixes=(".csv",),
    sniff=_sniff,
    write_tables=_write_tables,
    fields={"events.csv": EVENT_COLUMNS, "edges.csv": EDGE_COLUMNS, "traces.csv": TRACE_COLUMNS},
    lost="empty text becomes absent, formula signs get an apostrophe; texts behind content references, meta",
)
