"""Reading what was written gives the same trace, whatever a valid file may hold."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from msgspec.structs import replace

from counterpoint import registry
from counterpoint.errors import InputError, InvalidTrace
from counterpoint.formats.format import Format
from counterpoint.testing import odd_trace, synthetic_trace
from counterpoint.trace import Event, Trace, decode, encode
from survey import documents, validator


def _format(name: str) -> Format:
    format_: Format = registry.get("format", name)
    return format_


def _again(name: str, trace: Trace) -> Trace:
    format_ = _format(name)
    if format_.write is not None:
        assert format_.read is not None
        (found,) = format_.read(format_.write(trace))
    else:
        assert format_.write_tables is not None
        assert format_.read_tables is not None
        (found,) = format_.read_tables({n: t.data for n, t in format_.write_tables([trace]).items()})
    return found


@pytest.mark.parametrize("name", ["survey", "jsonl", "parquet"])
def test_every_valid_document_comes_back(name: str) -> None:
    @settings(max_examples=80, deadline=None)
    @given(documents())
    def holds(document: dict[str, Any]) -> None:
        trace = decode(json.dumps(document).encode())
        found = _again(name, trace)
        assert found == trace
        assert encode(found) == encode(trace)

    holds()


def test_what_survey_writes_passes_the_schema() -> None:
    for trace in (odd_trace(), synthetic_trace(5, 30, "debate", contents=True)):
        write = _format("survey").write
        assert write is not None
        validator.validate(json.loads(write(trace)))


@pytest.mark.parametrize(
    "event",
    [
        Event(id="", t=0, type="message", agent="a"),
        Event(id="e1", t=-1, type="message", agent="a"),
        Event(id="e1", t=float("nan"), type="message", agent="a"),
        Event(id="e1", t=0, type="shout", agent="a"),  # type: ignore[arg-type]
        Event(id="e1", t=0, type="message", agent="a", role="\ud800"),
    ],
)
def test_survey_refuses_what_its_schema_would(event: Event) -> None:
    write = _format("survey").write
    assert write is not None
    with pytest.raises(InputError):
        write(Trace(trace_id="t", task_id="t", events=[event]))


def test_only_lines_keep_texts_and_meta() -> None:
    trace = odd_trace()
    assert _again("jsonl", trace) == trace
    for name in ("survey", "parquet"):
        assert _again(name, trace) == replace(trace, contents={}, meta={})


@pytest.mark.parametrize("name", ["csv", "parquet"])
def test_tables_refuse_two_traces_of_one_id(name: str) -> None:
    write = _format(name).write_tables
    assert write is not None
    with pytest.raises(InputError, match="have the id"):
        write([odd_trace(), odd_trace()])


@pytest.mark.parametrize("name", ["csv", "parquet"])
def test_tables_of_no_trace_are_empty(name: str) -> None:
    write = _format(name).write_tables
    assert write is not None
    assert {table.rows for table in write([]).values()} == {0}


@pytest.mark.parametrize("name", ["csv", "parquet", "perfetto"])
def test_half_a_surrogate_is_refused(name: str) -> None:
    trace = Trace(trace_id="t", task_id="t", events=[Event(id="e1", t=0, type="message", agent="a", role="\ud800")])
    format_ = _format(name)
    with pytest.raises(InvalidTrace):
        format_.write(trace) if format_.write else format_.write_tables([trace])  # type: ignore[misc]
