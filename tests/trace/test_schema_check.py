"""Our checker against a standard validator, mutant by mutant; and what bytes that are no JSON are called."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoint.trace import wire
from counterpoint.trace.schema_check import problems
from survey import anything, documents, validator


@settings(max_examples=100, deadline=None)
@given(documents(), st.data())
def test_we_refuse_exactly_what_a_standard_validator_refuses(doc: dict[str, Any], data: st.DataObject) -> None:
    """Break a valid document somewhere (or not), and compare verdicts."""
    places = [doc, doc["events"][0], doc["costs"], doc["rewards"], *doc["edges"][:1]]
    place = data.draw(st.sampled_from(places))
    key = data.draw(st.sampled_from([*sorted(place), "surplus"]))
    if data.draw(st.booleans()):
        place[key] = data.draw(anything)
    else:
        place.pop(key, None)
    text = json.dumps(doc).encode()
    is_valid = validator.is_valid(doc)
    assert (problems(text).error_count == 0) == is_valid
    if is_valid:
        wire.decode(text)


def test_a_thousand_errors_are_counted_and_fifty_shown() -> None:
    doc = {"trace_id": "t", "task_id": "q", "edges": [], "rewards": {}, "costs": {"tokens": 0, "wall_clock_s": 0}}
    found = problems(json.dumps(doc | {"events": [{"id": "a", "t": -1, "type": "x", "agent": "b"}] * 1000}).encode())
    assert found.error_count == 2000
    assert len(found.errors) == 50
    assert found.by_code("error") == {"enum": 1000, "minimum": 1000}


GOOD = b'{"trace_id": "t", "events": [1, 2'


@pytest.mark.parametrize(
    ("data", "code", "where", "says"),
    [
        (b"", "empty", "byte 0", "empty"),
        (b" \n\t ", "empty", "byte 0", "empty"),
        (b"\xff\xfe{\x00}\x00", "encoding", "byte 0", "UTF-16"),
        ('{"a": "é"}'.encode("latin-1"), "encoding", "byte 7", "0xe9"),
        (GOOD, "truncated", f"byte {len(GOOD)}", "ends before"),
        (b'{"t": NaN}', "non-finite", "byte 6", "NaN"),
        (b'{"t": Infinity}', "non-finite", "byte 6", "Infinity"),
        (b'{"t":\n  -Infinity}', "non-finite", "line 2", "-Infinity"),
        (b'{"t": 1e999}', "non-finite", "byte 6", "double"),
        (b"not json", "json", "byte", "not JSON"),
        (b'{"a": 1}\n{"a": 2}\n', "json", "line 2, column 1", "more after the end"),
        (b"[1, 2]", "shape", "$", "an array"),
        (b'"text"', "shape", "$", "a string"),
        (b"{}", "required", "$", "trace_id"),
        (b"[" * 100_000, "nesting", "$", "nested"),
    ],
)
def test_what_is_not_a_trace_is_named(data: bytes, code: str, where: str, says: str) -> None:
    found = problems(data)
    first = found.errors[0]
    assert first.code == code
    assert where in first.where
    assert says in first.what
    assert first.hint


def test_a_value_nearly_right_gets_a_suggestion() -> None:
    doc = {"trace_id": "t", "task_id": "q", "edges": [], "rewards": {}, "costs": {"tokens": 0, "wall_clock_s": 0}}
    found = problems(json.dumps(doc | {"events": [{"id": "a", "t": 1, "type": "tool_cal", "agent": "b"}]}).encode())
    assert found.errors[0].hint == "did you mean 'tool_call'?"
