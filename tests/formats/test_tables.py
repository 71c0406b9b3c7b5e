"""Parquet and CSV as their readers meet them."""

from __future__ import annotations

import csv
import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from counterpoint import registry
from counterpoint.errors import InputError
from counterpoint.testing import odd_trace, synthetic_trace
from counterpoint.trace import Event, Trace


def _files(name: str, *traces: Trace) -> dict[str, bytes]:
    return {n: t.data for n, t in registry.get("format", name).write_tables(traces).items()}


def _csv(data: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(data.decode("utf-8"), newline="")))


def test_parquet_columns_do_not_depend_on_the_data() -> None:
    schemas = []
    for trace in (odd_trace(), synthetic_trace(3, 9), Trace(trace_id="t", task_id="t", events=[])):
        files = _files("parquet", trace)
        schemas.append({name: pq.read_schema(pa.BufferReader(data)) for name, data in files.items()})
    assert schemas[0] == schemas[1] == schemas[2]
    events = schemas[0]["events.parquet"]
    assert events.field("t").type == pa.float64()
    assert events.field("tokens_in").type == pa.int64()
    assert events.field("options").type == pa.string()
    assert "from" in events.names


def test_parquet_has_one_row_group_per_trace() -> None:
    files = _files("parquet", *(synthetic_trace(3, 9, seed=s) for s in range(4)))
    assert pq.ParquetFile(pa.BufferReader(files["events.parquet"])).num_row_groups == 4


def test_parquet_numbers_are_plain_numbers() -> None:
    trace = Trace(trace_id="t", task_id="t", events=[Event(id="a", t=3, type="message", agent="x", tokens_in=1 << 70, dur=0.5)])
    row = pq.read_table(pa.BufferReader(_files("parquet", trace)["events.parquet"])).to_pylist()[0]
    assert (row["t"], row["dur"], row["tokens_in"]) == (3.0, 0.5, None)
    assert row["exact"] == '{"tokens_in":1180591620717411303424}'


@pytest.mark.parametrize("missing", ["events.parquet", "edges.parquet", "traces.parquet"])
def test_parquet_needs_its_three_files(missing: str) -> None:
    files = _files("parquet", odd_trace())
    del files[missing]
    with pytest.raises(InputError, match="missing"):
        list(registry.get("format", "parquet").read_tables(files))


def test_parquet_files_of_two_exports_do_not_mix() -> None:
    one, other = _files("parquet", odd_trace()), _files("parquet", synthetic_trace(3, 9))
    with pytest.raises(InputError, match="together"):
        list(registry.get("format", "parquet").read_tables(one | {"traces.parquet": other["traces.parquet"]}))
    with pytest.raises(InputError, match="columns"):
        list(registry.get("format", "parquet").read_tables(one | {"edges.parquet": one["traces.parquet"]}))
    with pytest.raises(InputError, match="whole"):
        list(registry.get("format", "parquet").read_tables(one | {"edges.parquet": one["edges.parquet"][:-9]}))


def test_csv_rows_are_the_events() -> None:
    trace = synthetic_trace(3, 9)
    header, *rows = _csv(_files("csv", trace)["events.csv"])
    assert header[:5] == ["trace_id", "id", "t", "type", "agent"]
    assert len(rows) == len(trace.events)
    first = dict(zip(header, rows[0], strict=True))
    assert float(first["t"]) == trace.events[0].t
    assert first["options"] == '["delegate","spawn","noop"]'
    assert {dict(zip(header, r, strict=True))["ok"] for r in rows} <= {"true", "false", ""}


def test_csv_quotes_what_needs_it_and_keeps_other_scripts() -> None:
    data = _files("csv", odd_trace())["events.csv"]
    assert data.count(b"\r\n") == 5
    assert not data.startswith(b"\xef\xbb\xbf")
    rows = _csv(data)
    assert rows[2][1] == 'b,"\n'
    assert rows[2][4] == "Ω agent"


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@cmd", "\tx", "=cmd|' /C calc'!A0"])
def test_csv_defuses_formulas_but_not_numbers(text: str) -> None:
    trace = Trace(trace_id="t", task_id="t", events=[Event(id="a", t=0, type="message", agent=text, logp=-1.5)])
    header, row = _csv(_files("csv", trace)["events.csv"])
    cells = dict(zip(header, row, strict=True))
    assert cells["agent"] == "'" + text
    assert cells["logp"] == "-1.5"


def test_csv_edges_and_traces() -> None:
    files = _files("csv", odd_trace(), synthetic_trace(3, 9))
    assert _csv(files["edges.csv"])[1] == ["odd/1 é", "'=a", 'b,"\n', "causal"]
    assert [row[0] for row in _csv(files["traces.csv"])] == ["trace_id", "odd/1 é", "synthetic-centralized-3x9-0"]
