"""OTLP bodies: taken apart without loss, protobuf read as protobuf's own library reads it, garbage refused."""

from __future__ import annotations

import base64
import json
import random
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse

from counterpoint.app.receiver import otlp
from counterpoint.errors import InputError
from counterpoint.formats.otel import protobuf as wire

TRACE, OTHER, SPAN = "0af7651916cd43dd8448eb211c80319c", "11111111111111111111111111111111", "b7ad6b7169203331"


def spans(*found: dict[str, Any], resource: dict[str, Any] | None = None) -> bytes:
    scope = {"scope": {"name": "s"}, "spans": list(found)}
    return json.dumps({"resourceSpans": [{"resource": resource or {}, "scopeSpans": [scope]}]}).encode()


def logs(*found: dict[str, Any], resource: dict[str, Any] | None = None) -> bytes:
    return json.dumps({"resourceLogs": [{"resource": resource or {}, "scopeLogs": [{"logRecords": list(found)}]}]}).encode()


def attribute(key: str, value: str) -> dict[str, Any]:
    return {"key": key, "value": {"stringValue": value}}


# -- JSON ------------------------------------------------------------------------------------------------------------------


def test_spans_are_parted_by_trace_under_their_resource_and_scope() -> None:
    resource = {"attributes": [attribute("service.name", "crew")]}
    body = spans(
        {"traceId": TRACE, "spanId": SPAN, "name": "a", "unknownField": [1, {"x": 2.50}]},
        {"traceId": OTHER, "spanId": SPAN, "name": "b"},
        {"traceId": TRACE.upper(), "spanId": "b7ad6b7169203332", "name": "c"},
        resource=resource,
    )
    taken = otlp.of_json(body, "traces")
    assert taken.counts == {f"trace-{TRACE}": 2, f"trace-{OTHER}": 1}
    assert taken.rejected == 0
    group = json.loads(taken.lines[f"trace-{TRACE}"])["resourceSpans"][0]
    assert group["resource"] == resource
    assert group["scopeSpans"][0]["scope"] == {"name": "s"}
    assert group["scopeSpans"][0]["spans"][0] == {"traceId": TRACE, "spanId": SPAN, "name": "a", "unknownField": [1, {"x": 2.5}]}
    assert b"2.5" in taken.lines[f"trace-{TRACE}"]


def test_a_line_is_one_line_however_the_body_was_laid_out() -> None:
    body = json.dumps(json.loads(spans({"traceId": TRACE, "spanId": SPAN, "name": "two\nlines"})), indent="\t").encode()
    line = otlp.of_json(body, "traces").lines[f"trace-{TRACE}"]
    assert line.count(b"\n") == 1
    assert json.loads(line)["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["name"] == "two\nlines"


@pytest.mark.parametrize(
    "span",
    [
        {"traceId": "zz", "spanId": SPAN},
        {"traceId": "0" * 32, "spanId": SPAN},
        {"traceId": TRACE},
        {"traceId": TRACE, "spanId": 7},
        {"traceId": None, "spanId": SPAN},
        "no object",
    ],
)
def test_a_span_that_cannot_be_placed_is_rejected_alone(span: Any) -> None:
    taken = otlp.of_json(spans(span, {"traceId": TRACE, "spanId": SPAN}), "traces")
    assert (taken.rejected, taken.counts) == (1, {f"trace-{TRACE}": 1})
    assert taken.why
    assert json.loads(otlp.reply(taken, "traces", is_protobuf=False))["partialSuccess"]["rejectedSpans"] == "1"


def test_ids_in_base64_are_the_same_ids() -> None:
    span = {"traceId": base64.b64encode(bytes.fromhex(TRACE)).decode(), "spanId": base64.b64encode(bytes.fromhex(SPAN)).decode()}
    assert list(otlp.of_json(spans(span), "traces").lines) == [f"trace-{TRACE}"]


def test_log_records_belong_to_the_session_they_name_else_to_their_trace() -> None:
    body = logs(
        {"attributes": [attribute("session.id", "s1")], "traceId": TRACE},
        {"attributes": [attribute("conversation.id", "c1")]},
        {"traceId": TRACE, "body": {"stringValue": "plain"}},
        {"body": {"stringValue": "of nobody"}},
        {"attributes": [{"key": "session.id", "value": {"intValue": "5"}}]},
    )
    taken = otlp.of_json(body, "logs")
    assert taken.counts == {"session-s1": 1, "session-c1": 1, f"trace-{TRACE}": 1}
    assert taken.rejected == 2
    by_resource = logs({"body": {"stringValue": "x"}}, resource={"attributes": [attribute("session.id", "r1")]})
    assert list(otlp.of_json(by_resource, "logs").lines) == ["session-r1"]
    assert len(next(iter(otlp.of_json(logs({"attributes": [attribute("session.id", "x" * 9999)]}), "logs").lines))) < 100


def test_traces_that_name_each_other_are_joined_and_a_session_of_claude_code_is_one() -> None:
    linked = {"traceId": TRACE, "spanId": SPAN, "links": [{"traceId": OTHER, "spanId": SPAN}, {"traceId": TRACE, "spanId": SPAN}]}
    envelope = {"traceId": OTHER, "spanId": SPAN, "attributes": [attribute("ag2.network.envelope_id", "e1")]}
    claude = {"traceId": OTHER, "spanId": SPAN, "name": "claude_code.tool", "attributes": [attribute("session.id", "s1")]}
    taken = otlp.of_json(spans(linked, envelope, claude), "traces")
    assert taken.joins == {f"trace-{TRACE}": {f"trace-{OTHER}"}, f"trace-{OTHER}": {"envelope-e1"}}
    assert list(taken.lines) == [f"trace-{TRACE}", f"trace-{OTHER}", "session-s1"]


def test_half_a_surrogate_pair_costs_a_letter_and_not_the_batch() -> None:
    body = spans({"traceId": TRACE, "spanId": SPAN, "name": "cut: \ud83d"})
    assert b"\\ud83d" in body
    line = otlp.of_json(body, "traces").lines[f"trace-{TRACE}"]
    assert json.loads(line)["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["name"] == "cut: ?"


GARBAGE = [
    b"",
    b"{",
    b"[]",
    b"5",
    b"null",
    b"\xff\xfe\x00garbage",
    b'{"a": 1}',
    b'{"resourceSpans": 5}',
    b'{"resourceSpans": [{"scopeSpans": {}}]}',
    b'{"resourceSpans": [{"scopeSpans": [{"spans": [NaN]}]}]}',
    b"[" * 200_000,
    b'{"resourceSpans": [{"scopeSpans": [{"spans": [' + b"[" * 200_000,
    b'{"resourceSpans": [{"resource": ' + b'{"a":' * 100_000,
    b"\x0a\x05abc",
]


@pytest.mark.parametrize("body", GARBAGE, ids=lambda b: repr(b[:24]))
def test_garbage_is_an_input_error_in_either_form(body: bytes) -> None:
    with pytest.raises(InputError):
        otlp.of_json(body, "traces")
    if body:  # no bytes are an empty message
        with pytest.raises(InputError):
            otlp.of_protobuf(body, "traces")


def test_an_empty_request_is_one() -> None:
    assert otlp.of_json(b" {} ", "logs").lines == {}
    assert otlp.of_protobuf(b"", "logs").lines == {}


def test_more_values_than_any_batch_has_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "MAX_VALUES", 1000)
    with pytest.raises(InputError, match="1,000 objects"):
        otlp.of_json(b'{"resourceSpans": [' + b"{}," * 1000 + b"{}]}", "traces")
    with pytest.raises(InputError, match="too many values"):
        otlp.of_protobuf(b"\x0a\x00" * 1001, "traces")


# -- reading again ---------------------------------------------------------------------------------------------------------


def test_a_span_that_came_again_counts_once_and_the_last_word_stands() -> None:
    first = otlp.of_json(
        spans({"traceId": TRACE, "spanId": SPAN, "name": "begun"}, {"traceId": TRACE, "spanId": "a" * 16}), "traces"
    )
    again = otlp.of_json(spans({"traceId": TRACE, "spanId": SPAN, "name": "ended"}), "traces")
    lines = [*first.lines.values(), *first.lines.values(), *again.lines.values()]
    found = [s for line in otlp.once(lines) for s in json.loads(line)["resourceSpans"][0]["scopeSpans"][0]["spans"]]
    assert sorted(s.get("name", "") for s in found) == ["", "ended"]
    taken = otlp.read_again(lines[0])
    assert taken is not None
    assert taken.counts == {f"trace-{TRACE}": 2}


def test_equal_log_records_count_once_and_damaged_lines_not_at_all() -> None:
    record = {"attributes": [attribute("session.id", "s1")], "timeUnixNano": "5"}
    lines = [*otlp.of_json(logs(record, {**record, "timeUnixNano": "6"}), "logs").lines.values()]
    found = list(otlp.once([*lines, b'{"resourceLogs": [{', *lines]))
    assert [len(json.loads(line)["resourceLogs"][0]["scopeLogs"][0]["logRecords"]) for line in found] == [2]
    assert otlp.read_again(b"\x00\x00\n") is None


# -- protobuf --------------------------------------------------------------------------------------------------------------


def _hex(value: Any) -> Any:
    if isinstance(value, list):
        return [_hex(v) for v in value]
    if isinstance(value, dict):
        ids = ("traceId", "spanId", "parentSpanId")
        return {k: base64.b64decode(v).hex() if k in ids else _hex(v) for k, v in value.items()}
    return value


def _fill(message: Any, rng: random.Random, depth: int = 0) -> None:
    """Set some fields of a protobuf message at random."""
    for f in message.DESCRIPTOR.fields:
        if f.name.endswith("strindex") or f.name == "entity_refs" or (depth > 2 and rng.random() < 0.3):
            continue  # of profiles, and a draft of resources: not in traces or logs
        if f.message_type is not None:
            if depth > 7:
                continue
            many = rng.randrange(depth < 3, 3) if f.is_repeated else 1
            for _ in range(many):
                _fill(getattr(message, f.name).add() if f.is_repeated else getattr(message, f.name), rng, depth + 1)
            continue
        values = {
            f.TYPE_STRING: "".join(rng.choices("aé\n\0漢😀", k=rng.randrange(5))),
            f.TYPE_BYTES: rng.randbytes(8),
            f.TYPE_BOOL: rng.random() < 0.5,
            f.TYPE_DOUBLE: rng.choice([1.5, -0.25, 1e300, float("inf"), float("-inf"), float("nan")]),
            f.TYPE_ENUM: rng.randrange(3),
            f.TYPE_INT64: rng.randrange(-(2**63), 2**63),
        }
        value = values.get(f.type, rng.randrange(2**31))
        if f.containing_oneof is None or message.WhichOneof(f.containing_oneof.name) is None:
            setattr(message, f.name, value)


@pytest.mark.parametrize("kind", ["traces", "logs"])
def test_protobuf_reads_as_protobufs_own_library_reads_it(kind: str) -> None:
    made = 0
    for seed in range(20):
        request = ExportTraceServiceRequest() if kind == "traces" else ExportLogsServiceRequest()
        _fill(request, random.Random(seed))
        data = request.SerializeToString()
        expected = _hex(MessageToDict(request, use_integers_for_enums=True))
        found = wire.decode(data, wire.TRACES if kind == "traces" else wire.LOGS, 10**6)
        assert _absent_defaults(found) == _absent_defaults(expected)
        made += len(data)
    assert made > 5000


def _absent_defaults(value: Any) -> Any:
    """Without what either form may leave out: zeros and empty texts of fields that are not part of a choice."""
    if isinstance(value, list):
        return [_absent_defaults(v) for v in value]
    if isinstance(value, dict):
        return {k: _absent_defaults(v) for k, v in value.items() if k.endswith("Value") or v not in ("", 0, "0")}
    return value


def test_torn_and_random_protobuf_raises_nothing_else() -> None:
    request = ExportTraceServiceRequest()
    _fill(request, random.Random(3))
    data, rng = request.SerializeToString(), random.Random(0)
    refused = 0
    for cut in range(0, len(data), max(1, len(data) // 200)):
        changed = bytearray(data[:cut] if rng.random() < 0.5 else data)
        if changed:
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        try:
            otlp.of_protobuf(bytes(changed), "traces")
        except InputError:
            refused += 1
    assert refused > 20
    nested = b""
    for _ in range(100):
        inner = otlp._field(1, nested)
        nested = otlp._field(5, inner)
    span = otlp._field(9, otlp._field(2, nested))
    with pytest.raises(InputError, match="deeply"):
        otlp.of_protobuf(otlp._field(1, otlp._field(2, otlp._field(2, span))), "traces")


def test_answers_in_protobuf_are_what_the_library_expects() -> None:
    taken = otlp.OtlpBatch({}, {}, {}, 300, "three hundred — too many")
    trace = ExportTraceServiceResponse.FromString(otlp.reply(taken, "traces", is_protobuf=True))
    assert (trace.partial_success.rejected_spans, trace.partial_success.error_message) == (300, taken.why)
    log = ExportLogsServiceResponse.FromString(otlp.reply(taken, "logs", is_protobuf=True))
    assert log.partial_success.rejected_log_records == 300
    assert otlp.reply(otlp.OtlpBatch({}, {}, {}, 0, ""), "logs", is_protobuf=True) == b""
    assert otlp.reply(otlp.OtlpBatch({}, {}, {}, 0, ""), "logs", is_protobuf=False) == b"{}"
