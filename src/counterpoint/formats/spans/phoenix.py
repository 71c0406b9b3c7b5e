"""Phoenix's own export of a span: its kind and its status as names beside the attributes, ids in `context`, or all as columns.

`/v1/projects/.../spans`, `px` and `get_spans_dataframe` write such records; the kind often stands nowhere else.

Always true: what a span's attributes say of its kind stands; a `span_kind` that is none of OpenInference's (OpenTelemetry's
`INTERNAL`, another vendor's `tool`) says nothing.
"""

from __future__ import annotations

import re
from typing import Any

from counterpoint.errors import InputError
from counterpoint.formats.importing.values import as_dict, decode

KIND = "openinference.span.kind"
STATED = "phoenix.span_kind"
"""Marks attributes whose kind was stated beside them."""
KINDS = ("LLM", "AGENT", "TOOL", "CHAIN", "RETRIEVER", "RERANKER", "EMBEDDING", "GUARDRAIL", "EVALUATOR", "PROMPT")
_CONTEXT, _ATTRIBUTES = "context.", "attributes."
_SHOWN = re.compile(rb'"span_kind"\s*:\s*"(?:' + "|".join((*KINDS, "UNKNOWN")).encode() + rb')"')
_IDS = re.compile(rb'"(?:context\.)?(?:span_id|spanId)"\s*:')


def shows_phoenix(head: bytes) -> bool:
    """Whether a file that begins so holds spans with a kind of OpenInference's beside their attributes."""
    return _SHOWN.search(head) is not None and _IDS.search(head) is not None


def settled_record(record: dict[str, Any]) -> dict[str, Any]:
    """A span's record as tracers write it: columns nested again, the kind among the attributes, the status in one place."""
    if "context.span_id" in record:
        record = _nested(record)
    if not ("context" in record or "span_id" in record or "spanId" in record):
        return record
    if "status" not in record and "status_code" in record:
        record = {**record, "status": {"code": record["status_code"], "message": record.get("status_message") or None}}
    kind = record.get("span_kind")
    if not isinstance(kind, str):
        return record
    attributes = _opened(record.get("attributes"))
    if kind in KINDS and KIND not in attributes and not _inner_kind(attributes):
        attributes = {**attributes, KIND: kind, STATED: kind}
    return {**record, "attributes": attributes}


def _opened(attributes: Any) -> dict[str, Any]:
    """The attributes, also where they are JSON text or a list of key and value."""
    if isinstance(attributes, str):
        try:
            attributes = decode(attributes)
        except InputError:
            return {}
    if isinstance(attributes, list):
        pairs = (as_dict(item) for item in attributes)
        return {str(pair["key"]): pair.get("value") for pair in pairs if "key" in pair}
    return as_dict(attributes)


def _inner_kind(attributes: dict[str, Any]) -> Any:
    return as_dict(as_dict(attributes.get("openinference")).get("span")).get("kind")


def _nested(row: dict[str, Any]) -> dict[str, Any]:
    """The record that a table's row is; a column without a value is one that the span did not set."""
    record: dict[str, Any] = {"context": {}, "attributes": {}}
    for column, value in row.items():
        if column.startswith(_CONTEXT):
            record["context"][column.removeprefix(_CONTEXT)] = value
        elif column.startswith(_ATTRIBUTES):
            record["attributes"].update({column.removeprefix(_ATTRIBUTES): value} if value is not None else {})
        else:
            record[column] = value
    return record
