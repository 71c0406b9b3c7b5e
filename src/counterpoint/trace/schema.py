"""Our JSON Schema, generated from the records: the survey's fields and ours, each with its sentence.

Always true: nothing here lists a field, a type or a value by hand; a record that changes changes the schema. A file that
passes it passes the survey's schema too, since it only says more about fields that the survey leaves open.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from typing import Any

import msgspec

from counterpoint.trace.records import Edge, Event, ExtraFields, wire_name
from counterpoint.trace.trace import Trace
from counterpoint.trace.vocabulary import COST_FIELDS
from counterpoint.trace.wire import SurveyFile


def _no_schema(type_: type) -> dict[str, Any]:
    if type_ is ExtraFields:
        return {"type": "object"}
    raise NotImplementedError(type_)


def _sentences(struct: type) -> dict[str, str]:
    """The docstring under each field of a record, which Python itself forgets."""
    body = ast.parse(textwrap.dedent(inspect.getsource(struct))).body[0]
    assert isinstance(body, ast.ClassDef)
    out = {}
    for field, text in zip(body.body, body.body[1:], strict=False):
        is_text = isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and is_text:
            out[wire_name(field.target.id)] = text.value.value  # type: ignore[attr-defined]
    return out


def json_schema() -> dict[str, Any]:
    """The Draft 2020-12 schema of the files that we write."""
    (_,), parts = msgspec.json.schema_components([SurveyFile], schema_hook=_no_schema, ref_template="#/$defs/{name}")
    top, event = parts.pop("SurveyFile"), parts["Event"]
    event["properties"].pop("extra")
    event["additionalProperties"] = True  # the survey leaves events open
    parts["Edge"]["required"] = ["src", "dst", "type"]
    for part, record in ((top, Trace), (event, Event), (parts["Edge"], Edge)):
        sentences = _sentences(record)
        part.pop("title", None)
        part["description"] = (record.__doc__ or "").partition("\n\n")[0].strip()
        for name, field in part["properties"].items():
            field.pop("default", None)
            if any(choice["type"] == "number" for choice in field.get("anyOf", ())):
                field |= next(choice for choice in field.pop("anyOf") if choice["type"] == "number")
            if name in sentences:
                field["description"] = sentences[name]
    costs = top["properties"]["costs"]
    for numbers in (costs, top["properties"]["rewards"], top["properties"]["metrics"], event["properties"]["reward"]):
        numbers["additionalProperties"] = {"type": "number"}
    costs["required"] = ["tokens", "wall_clock_s"]
    costs["properties"] = {name: {"type": "number", "minimum": 0} for name in COST_FIELDS}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Counterpoint orchestration trace",
        **top,
        "$defs": parts,
    }
