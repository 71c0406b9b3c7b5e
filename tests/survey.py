"""The survey's JSON Schema in our own writing, and random documents that pass it.

The schema states the same facts as the survey's file; `test_schema.py` holds the two against each other where the
reference copy is at hand.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from counterpoint.trace.records import OUR_FIELDS

REFERENCE = Path(__file__).parents[2] / "shared" / "data" / "survey"
WHY_SKIPPED = "the developers' reference data is not on this machine"

_TEXT: dict[str, Any] = {"type": "string"}
_NAME: dict[str, Any] = {"type": "string", "minLength": 1}
_POSITIVE: dict[str, Any] = {"type": "number", "minimum": 0}
EVENT_TYPES = ["orchestrator_decision", "spawn", "despawn", "message", "tool_call", "tool_result", "return", "aggregate", "human_intervention", "safety_event"]
EDGE_TYPES = ["temporal", "causal", "spawn", "message", "tool_dependency", "return", "aggregate", "safety_flow"]
TOPOLOGIES = ["centralized", "planner_executor_critic", "debate", "swarm", "hierarchical", "harness", "mixed", "unknown"]

SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "additionalProperties": False,
    "required": ["trace_id", "task_id", "events", "edges", "rewards", "costs"],
    "properties": {
        "trace_id": _NAME,
        "task_id": _NAME,
        "system": _TEXT,
        "topology": {"type": "string", "enum": TOPOLOGIES},
        "rewards": {"type": "object", "additionalProperties": {"type": "number"}},
        "metrics": {"type": "object", "additionalProperties": {"type": "number"}},
        "costs": {
            "type": "object",
            "required": ["tokens", "wall_clock_s"],
            "additionalProperties": {"type": "number"},
            "properties": dict.fromkeys(("tokens", "wall_clock_s", "tool_calls", "messages"), _POSITIVE),
        },
        "events": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["id", "t", "type", "agent"],
                "properties": {
                    "id": _NAME,
                    "t": _POSITIVE,
                    "type": {"type": "string", "enum": EVENT_TYPES},
                    "agent": _NAME,
                    **dict.fromkeys(("role", "from", "to", "tool", "content_ref"), _TEXT),
                    "trusted": {"type": "boolean"},
                },
            },
        },
        "edges": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["src", "dst", "type"],
                "additionalProperties": False,
                "properties": {"src": _NAME, "dst": _NAME, "type": {"type": "string", "enum": EDGE_TYPES}},
            },
        },
    },
}

validator = Draft202012Validator(SCHEMA)

# Numbers of every size: integers beyond 64 bits, subnormals, and the largest doubles.
numbers = (
    st.integers(-(10**40), 10**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([0, -0.0, 5e-324, 1.7976931348623157e308, 2**53 + 1, 2**63, 2**64])
)
positive = st.integers(0, 10**40) | st.floats(0, allow_nan=False, allow_infinity=False) | st.sampled_from([0, 5e-324, 2**53 + 1])
names = st.text(min_size=1, max_size=8)
anything = st.recursive(
    st.none() | st.booleans() | numbers | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
_survey_fields = {
    **{name: st.text(max_size=8) for name in ("role", "from", "to", "tool", "content_ref")},
    "trusted": st.booleans(),
}
# Fields that bear one of our names may hold anything at all; so may fields that nobody knows.
_other_names = st.sampled_from([*OUR_FIELDS, "extra", "from_", "meta", "null", ""]) | names.filter(
    lambda n: n not in {"id", "t", "type", "agent", *_survey_fields}
)


@st.composite
def events(draw: st.DrawFn, ids: st.SearchStrategy[str] = names) -> dict[str, Any]:
    """One event of a document that passes the survey's schema."""
    event: dict[str, Any] = {"id": draw(ids), "t": draw(positive), "type": draw(st.sampled_from(EVENT_TYPES)), "agent": draw(names)}
    event |= draw(st.fixed_dictionaries({}, optional=_survey_fields))
    return event | draw(st.dictionaries(_other_names, anything, max_size=4))


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """A document that passes the survey's schema; not always a sensible trace."""
    listed = draw(st.lists(events(), min_size=1, max_size=5))
    ends = st.sampled_from([e["id"] for e in listed]) | names
    edge = st.fixed_dictionaries({"src": ends, "dst": ends, "type": st.sampled_from(EDGE_TYPES)})
    channels = st.dictionaries(names, numbers, max_size=3)
    costs = draw(st.fixed_dictionaries({"tokens": positive, "wall_clock_s": positive}, optional={"messages": positive}))
    document: dict[str, Any] = {
        "trace_id": draw(names),
        "task_id": draw(names),
        "events": listed,
        "edges": draw(st.lists(edge, max_size=5)),
        "rewards": draw(channels),
        "costs": draw(channels.filter(lambda c: not c.keys() & {"tool_calls", "messages"})) | costs,
    }
    optional = {"system": st.text(max_size=5), "topology": st.sampled_from(TOPOLOGIES), "metrics": channels}
    return document | draw(st.fixed_dictionaries({}, optional=optional))
