"""Our generated schema: a valid one, saying the same as the survey's about the survey's fields."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from counterpoint.trace import decode, encode, vocabulary
from counterpoint.trace.records import OUR_FIELDS
from counterpoint.trace.schema import json_schema
from survey import EDGE_TYPES, EVENT_TYPES, REFERENCE, SCHEMA, TOPOLOGIES, WHY_SKIPPED, documents, validator


def test_the_vocabulary_is_the_surveys() -> None:
    assert list(vocabulary.EVENT_TYPES) == EVENT_TYPES
    assert list(vocabulary.EDGE_TYPES) == EDGE_TYPES
    assert list(vocabulary.TOPOLOGIES) == TOPOLOGIES


def test_it_is_a_schema_and_describes_every_field() -> None:
    schema = json_schema()
    Draft202012Validator.check_schema(schema)
    event = schema["$defs"]["Event"]["properties"]
    assert all(field["description"] for field in event.values())
    assert {"from", "to", *OUR_FIELDS} <= event.keys()
    assert "extra" not in event


def _without_ours(doc: dict[str, Any]) -> dict[str, Any]:
    return doc | {"events": [{k: v for k, v in e.items() if k not in OUR_FIELDS} for e in doc["events"]]}


@settings(max_examples=60, deadline=None)
@given(documents(), st.data())
def test_it_agrees_with_the_surveys_on_the_surveys_fields(doc: dict[str, Any], data: st.DataObject) -> None:
    doc = _without_ours(doc)
    ours = Draft202012Validator(json_schema())
    assert ours.is_valid(doc)
    place = data.draw(st.sampled_from([doc, doc["events"][0], doc["costs"], *doc["edges"][:1]]))
    place.pop(data.draw(st.sampled_from(sorted(place))))
    assert ours.is_valid(doc) == validator.is_valid(doc)


@pytest.mark.shared
@pytest.mark.skipif(not REFERENCE.exists(), reason=WHY_SKIPPED)
def test_our_writing_of_the_schema_says_the_same_as_the_reference() -> None:
    reference = json.loads((REFERENCE / "trace_schema.json").read_text())
    event, edge = reference["$defs"]["event"], reference["$defs"]["edge"]
    reference["properties"]["events"]["items"], reference["properties"]["edges"]["items"] = event, edge

    def facts(node: Any) -> Any:
        if isinstance(node, dict):
            kept = {k: facts(v) for k, v in node.items() if k not in {"$schema", "$id", "$defs", "title", "description"}}
            return {k: sorted(v) if k in {"enum", "required"} else v for k, v in kept.items() if (k, v) != ("additionalProperties", True)}
        return node

    assert facts(reference) == facts(SCHEMA)


@pytest.mark.shared
@pytest.mark.skipif(not REFERENCE.exists(), reason=WHY_SKIPPED)
def test_the_reference_example_round_trips() -> None:
    text = (REFERENCE / "example_trace.json").read_text()
    written = encode(decode(text.encode()))
    assert json.loads(written) == json.loads(text)
    Draft202012Validator(json.loads((REFERENCE / "trace_schema.json").read_text())).validate(json.loads(written))
