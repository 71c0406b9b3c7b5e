"""The schema check place by place: each violation with its code, its place and its words; and bytes that are no JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from counterpoint.trace.problem import Findings
from counterpoint.trace.schema_check import SURVEY_EVENT_FIELDS, costs_are_valid, is_number, not_json, problems

EVENT = {"id": "a", "t": 0, "type": "message", "agent": "x"}
EDGE = {"src": "a", "dst": "b", "type": "causal"}
WHOLE: dict[str, Any] = {
    "trace_id": "t", "task_id": "q", "events": [EVENT], "edges": [EDGE], "rewards": {}, "costs": {"tokens": 0, "wall_clock_s": 0},
}  # fmt: skip
SEE = "`counterpoint store schema` prints what is allowed"


def told(doc: Any) -> list[tuple[str, str, str]]:
    return [(p.code, p.where, p.what) for p in problems(json.dumps(doc).encode()).errors]


def without(doc: dict[str, Any], *names: str) -> dict[str, Any]:
    return {k: v for k, v in doc.items() if k not in names}


def test_a_whole_document_breaks_nothing() -> None:
    full = {"system": "", "topology": "swarm", "metrics": {"a": -1}, "rewards": {"team": -0.5}}
    event = EVENT | {"role": "", "from": "", "to": "", "tool": "", "content_ref": "", "trusted": False, "dur": "long"}
    assert told(WHOLE | full | {"events": [event]}) == []
    assert told(WHOLE | {"edges": []}) == []
    assert problems(b" \n\r\t" + json.dumps(WHOLE).encode()).error_count == 0


@pytest.mark.parametrize("name", ["trace_id", "task_id", "events", "edges", "rewards", "costs"])
def test_each_required_field_is_missed(name: str) -> None:
    assert told(without(WHOLE, name)) == [("required", "$", f"required field {name!r} is missing")]


def test_what_is_missing_gets_a_hint_by_what_is_there() -> None:
    assert problems(b"{}").errors[0].hint == "this is JSON of another kind; `counterpoint store schema` prints what a trace holds"
    assert problems(b'{"messages": []}').errors[0].hint.startswith("this is JSON of another kind")
    assert problems(b'{"events": []}').errors[0].hint == SEE


E, D = "events[0]", "edges[0]"


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"surplus": 1}, ("unknown-field", "$.surplus", "unknown top-level field 'surplus'")),
        ({"trace_id": ""}, ("empty-string", "$.trace_id", "must not be empty")),
        ({"task_id": 3}, ("type", "$.task_id", "must be a string, not a number")),
        ({"task_id": ""}, ("empty-string", "$.task_id", "must not be empty")),
        ({"system": None}, ("type", "$.system", "must be a string, not null")),
        ({"topology": "ring"}, ("enum", "$.topology", "unknown value 'ring'")),
        ({"topology": True}, ("type", "$.topology", "must be a string, not a boolean")),
        ({"rewards": []}, ("type", "$.rewards", "must be an object of numbers, not an array")),
        ({"rewards": {"team": "1"}}, ("type", "$.rewards.team", "must be a number, not a string")),
        ({"metrics": {"a": True}}, ("type", "$.metrics.a", "must be a number, not a boolean")),
        ({"metrics": 4.5}, ("type", "$.metrics", "must be an object of numbers, not a number")),
        ({"costs": {"tokens": -1, "wall_clock_s": 0}}, ("minimum", "$.costs.tokens", "must not be negative, is -1")),
        ({"costs": {"tokens": 0, "wall_clock_s": 0, "messages": -2}}, ("minimum", "$.costs.messages", "must not be negative, is -2")),
        ({"costs": {"tokens": 0}}, ("required", "$.costs", "required cost 'wall_clock_s' is missing")),
        ({"costs": {"wall_clock_s": 0}}, ("required", "$.costs", "required cost 'tokens' is missing")),
        ({"events": {}}, ("type", "$.events", "must be an array, not an object")),
        ({"events": []}, ("no-events", "$.events", "a trace has at least one event")),
        ({"events": ["x"]}, ("type", E, "must be an object, not a string")),
        ({"edges": None}, ("type", "$.edges", "must be an array, not null")),
        ({"edges": [EDGE, []]}, ("type", "edges[1]", "must be an object, not an array")),
        ({"events": [without(EVENT, "id")]}, ("required", E, "required field 'id' is missing")),
        ({"events": [without(EVENT, "t")]}, ("required", E, "required field 't' is missing")),
        ({"events": [without(EVENT, "type")]}, ("required", E, "required field 'type' is missing")),
        ({"events": [without(EVENT, "agent")]}, ("required", E, "required field 'agent' is missing")),
        ({"events": [EVENT | {"id": ""}]}, ("empty-string", f"{E}.id", "must not be empty")),
        ({"events": [EVENT | {"agent": 7}]}, ("type", f"{E}.agent", "must be a string, not a number")),
        ({"events": [EVENT | {"t": -0.5}]}, ("minimum", f"{E}.t", "must not be negative, is -0.5")),
        ({"events": [EVENT | {"t": False}]}, ("type", f"{E}.t", "must be a number, not a boolean")),
        ({"events": [EVENT, EVENT | {"type": "mesage"}]}, ("enum", "events[1].type", "unknown value 'mesage'")),
        ({"events": [EVENT | {"role": 1}]}, ("type", f"{E}.role", "must be a string, not a number")),
        ({"events": [EVENT | {"content_ref": {}}]}, ("type", f"{E}.content_ref", "must be a string, not an object")),
        ({"events": [EVENT | {"trusted": 1}]}, ("type", f"{E}.trusted", "must be true or false, not a number")),
        ({"events": [EVENT | {"trusted": None}]}, ("type", f"{E}.trusted", "must be true or false, not null")),
        ({"edges": [without(EDGE, "src")]}, ("required", D, "required field 'src' is missing")),
        ({"edges": [without(EDGE, "dst")]}, ("required", D, "required field 'dst' is missing")),
        ({"edges": [without(EDGE, "type")]}, ("required", D, "required field 'type' is missing")),
        ({"edges": [EDGE | {"src": ""}]}, ("empty-string", f"{D}.src", "must not be empty")),
        ({"edges": [EDGE | {"dst": 1}]}, ("type", f"{D}.dst", "must be a string, not a number")),
        ({"edges": [EDGE | {"type": "friend"}]}, ("enum", f"{D}.type", "unknown value 'friend'")),
        ({"edges": [EDGE | {"weight": 1}]}, ("unknown-field", f"{D}.weight", "an edge has no field 'weight'")),
    ],
)
def test_each_violation_is_named_where_it_is(change: dict[str, Any], found: tuple[str, str, str]) -> None:
    assert told(WHOLE | change) == [found]


def test_costs_of_other_names_may_be_negative() -> None:
    assert told(WHOLE | {"costs": {"tokens": 0, "wall_clock_s": 0, "rebate": -3}}) == []


@pytest.mark.parametrize(
    ("costs", "is_valid"),
    [
        ({"tokens": 0, "wall_clock_s": 0}, True),
        ({"tokens": 0}, False),
        ({"wall_clock_s": 0}, False),
        ({"tokens": -1, "wall_clock_s": 0}, False),
        ({"tokens": 0, "wall_clock_s": -0.1}, False),
        ({"tokens": 0, "wall_clock_s": 0, "tool_calls": -1}, False),
        ({"tokens": 0, "wall_clock_s": 0, "rebate": -1}, True),
    ],
)
def test_costs_are_valid_by_the_same_rule(costs: dict[str, float], is_valid: bool) -> None:
    assert costs_are_valid(costs) is is_valid
    assert (told(WHOLE | {"costs": costs}) == []) is is_valid


@pytest.mark.parametrize(("value", "found"), [(1, True), (1.5, True), (True, False), ("1", False), (None, False)])
def test_a_boolean_is_no_number(value: Any, found: bool) -> None:
    assert is_number(value) is found


def test_the_fields_that_the_survey_types() -> None:
    assert {"id", "t", "type", "agent", "role", "from", "to", "tool", "content_ref", "trusted"} == SURVEY_EVENT_FIELDS


@pytest.mark.parametrize(("text", "name"), [("[]", "an array"), ('"x"', "a string"), ("true", "a boolean"), ("null", "null"), ("3", "a number")])
def test_a_document_of_another_shape_is_called_what_it_is(text: str, name: str) -> None:
    assert [(p.code, p.where, p.what) for p in problems(text.encode()).errors] == [("shape", "$", f"the document is {name}, not an object")]


def test_a_limit_is_passed_on() -> None:
    data = json.dumps(WHOLE | {"events": [{}] * 20}).encode()
    assert (problems(data, 3).error_count, len(problems(data, 3).errors)) == (80, 3)
    assert len(problems(data).errors) == 50
    assert len(problems(data, None).errors) == 80


# -- bytes that are no JSON --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "code", "where", "what"),
    [
        (b"\xfe\xff\x00{", "encoding", "byte 0", "the file is not UTF-8: it looks like UTF-16"),
        (b"{\x00}\x00", "encoding", "byte 0", "the file is not UTF-8: it looks like UTF-16"),
        (b'{"a":\n "\xe9"}', "encoding", "line 2, column 3", "byte 0xe9 is not UTF-8"),
        (b'{"t": [1, -Infinity]}', "non-finite", "byte 11", "-Infinity is not a JSON number"),
        (b'{"a": 1e5, "t": 2.5E+400}', "non-finite", "byte 16", "a number is beyond what a double holds"),
        (b'{"a": 1} x', "json", "byte 9", "there is more after the end of the JSON object"),
        (b'{"a": 1\n', "truncated", "line 2, column 1", "the JSON ends before it is complete"),
        (b'{"a"\n: x}', "json", "line 2, column 3", "not JSON: invalid character"),
        (b'{"a" 1}', "json", "byte 5", "not JSON: expected ':'"),
    ],
)
def test_what_is_wrong_with_bytes_and_where(data: bytes, code: str, where: str, what: str) -> None:
    assert [(p.code, p.where, p.what) for p in problems(data).errors] == [(code, where, what)]


def test_a_short_text_with_a_zero_is_no_utf_16() -> None:
    for data in (b"{\x00}", b"{\x00}}", b"{a}\x00"):
        assert problems(data).errors[0].code == "json"


def test_half_a_surrogate_pair_is_told_from_a_file_that_was_cut() -> None:
    [half] = problems(b'{"a": "\\ud83d"}').errors
    [cut] = problems(b'{"a": "x').errors
    assert half.code == "truncated" or "surrogate" in half.what
    assert "truncated" in cut.hint
    if half.code == "truncated":
        assert "surrogate pair" in half.hint


def test_a_number_that_is_too_large_is_found_among_those_that_are_not() -> None:
    [one] = problems(b'{"a": 1e300,\n "b": -7e400, "c": 1e999}').errors
    assert (one.code, one.where) == ("non-finite", "line 2, column 7")


def test_an_error_without_a_place_stands_at_the_beginning() -> None:
    found = Findings()
    not_json(b"{}", ValueError("odd"), found)
    not_json(b"1" * 400, ValueError("Number out of range"), found)
    assert [(p.code, p.where, p.what) for p in found.errors] == [
        ("json", "byte 0", "not JSON: odd"),
        ("non-finite", "byte 0", "a number is beyond what a double holds"),
    ]
