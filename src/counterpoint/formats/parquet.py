"""Parquet: events.parquet, edges.parquet and traces.parquet, for DuckDB, Polars, Spark and pandas.

One row group per trace. What is lost: `meta`, and the texts behind content references.

Always true: columns and types do not depend on the data; reading the three files back gives the same traces, number for
number (`ints` and `exact` say what a typed column cannot; see `trace/columns.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from counterpoint.formats._tables import EDGE_COLUMNS, EVENT_COLUMNS, TRACE_COLUMNS
from counterpoint.formats.format import Data, Format, Table
from counterpoint.trace import Trace

# Arrow takes 0.2 s to import, and finding out a file's format must not cost that: hence the two imports inside functions.


def _sniff(head: bytes) -> bool:
    return head[:4] == b"PAR1"


def _write_tables(traces: Sequence[Trace]) -> dict[str, Table]:
    from counterpoint.formats import _arrow

    return _arrow.write(traces)


def _read_tables(files: Mapping[str, Data]) -> Iterator[Trace]:
    from counterpoint.formats import _arrow

    return _arrow.read(files)


parquet = Format(
    suffixes=(".parquet",),
    sniff=_sniff,
    read_tables=_read_tables,
    write_tables=_write_tables,
    fields={"events.parquet": (*EVENT_COLUMNS, "ints", "exact"), "edges.parquet": EDGE_COLUMNS, "traces.parquet": TRACE_COLUMNS},
    lost="texts behind content references, meta",
)
