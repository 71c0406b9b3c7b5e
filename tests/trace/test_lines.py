"""Traces as lines: what is written reads back, and what is wrong is named by its line."""

from __future__ import annotations

import zlib

import pytest

from counterpoint.errors import InputError, InvalidTrace
from counterpoint.testing import odd_trace, synthetic_trace
from counterpoint.trace import Edge, Event, Trace
from counterpoint.trace.line_records import Close, Content, Finish, Open, encode_records
from counterpoint.trace.lines import LineReader, decode_lines, encode_lines, header_line, is_lines, sum_line

HEADER = header_line("t1", "demo", topology="swarm")


def _event(name: str, **fields: object) -> Event:
    return Event(id=name, t=0, type="message", agent="a", **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("trace", [odd_trace(), synthetic_trace(5, 20, contents=True)], ids=["odd", "synthetic"])
def test_a_trace_comes_back(trace: Trace) -> None:
    again = decode_lines(encode_lines(trace))
    assert again == trace
    assert [type(e.t) for e in again.events] == [type(e.t) for e in trace.events]


@pytest.mark.parametrize("extra", [{}, {"dur": "long"}, {"dur": 3}, {"extra": 1}, {"x": {"y": [None, 1, 1.0]}}, {"id": "other"}])
def test_extra_comes_back_even_where_it_shares_a_name_with_a_field(extra: dict[str, object]) -> None:
    trace = Trace(trace_id="t", task_id="d", events=[_event("e", extra=extra)])
    assert decode_lines(encode_lines(trace)) == trace


def test_no_metrics_and_empty_metrics_differ() -> None:
    for metrics in (None, {}, {"a": 1}):
        trace = Trace(trace_id="t", task_id="d", events=[_event("e")], metrics=metrics)
        assert decode_lines(encode_lines(trace)).metrics == metrics


def test_foreign_fields_of_an_event_are_kept() -> None:
    line = b'{"event":{"id":"e","t":1,"type":"message","agent":"a","colour":"red","dur":"long"}}\n'
    assert decode_lines(HEADER + line).events[0].extra == {"colour": "red", "dur": "long"}


def test_an_event_that_opens_and_closes_is_one_event_at_its_first_place() -> None:
    records = [Open(_event("call")), _event("other"), Close("call", {"dur": 1.5, "ok": True}), Finish.of({"team": 1})]
    trace = decode_lines(HEADER + encode_records(records)[0])
    assert [e.id for e in trace.events] == ["call", "other"]
    assert (trace.events[0].dur, trace.events[0].ok) == (1.5, True)
    assert trace.meta == {}


def test_what_never_closed_and_never_finished_says_so() -> None:
    trace = decode_lines(HEADER + encode_records([Open(_event("call"))])[0])
    assert trace.meta == {"unfinished": True, "open_events": ["call"]}


def test_an_unfinished_trace_survives_being_written_as_one() -> None:
    trace = decode_lines(HEADER + encode_records([Open(_event("call"))])[0])
    assert decode_lines(encode_lines(trace)) == trace


def test_every_prefix_of_a_file_is_whole_lines_and_a_tail() -> None:
    data = encode_lines(odd_trace())
    ends = [i + 1 for i, byte in enumerate(data) if byte == 10]
    for cut in range(len(data) + 1):
        reader = LineReader()
        assert reader.feed(data[:cut]) == max((e for e in ends if e <= cut), default=0)


def test_lines_may_come_in_pieces() -> None:
    data = encode_lines(odd_trace())
    data = data + sum_line(zlib.crc32(data))
    reader, at = LineReader(), 0
    for cut in range(0, len(data) + 7, 7):
        at += reader.feed(data[at:cut])
    reader.feed(data[at:])
    assert reader.trace() == odd_trace()


def test_a_changed_byte_before_a_sum_is_found() -> None:
    lines, _ = encode_records([_event("e1", tool="grep"), _event("e2")])
    whole = HEADER + lines + sum_line(zlib.crc32(HEADER + lines))
    assert len(decode_lines(whole).events) == 2
    with pytest.raises(InvalidTrace, match="line 4: a byte before it has changed"):
        decode_lines(whole.replace(b"grep", b"grip"))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"event":{"id":"e"}}', "line 2: Object missing required field `t`"),
        (b'{"evnt":{}}', "line 2: Object contains unknown field `evnt`"),
        (b'{"event":', "line 2: Input data was truncated"),
        (b"{}", "line 2: is not a record"),
        (b'{"close":"e9"}', "line 2: closes 'e9', which is not open"),
        (b'{"edge":{"src":"a","dst":"b","type":"friend"}}', "line 2: Invalid enum value 'friend'"),
        (b"\x00\x00", "line 2: not JSON"),
        (b'{"finish":{}}\n{"finish":{}}', "line 3: there is a record after the finish"),
    ],
)
def test_a_wrong_line_is_named(line: bytes, said: str) -> None:
    with pytest.raises(InvalidTrace) as caught:
        decode_lines(HEADER + line + b"\n", where="x.jsonl")
    assert f"x.jsonl: {said}" in str(caught.value)


@pytest.mark.parametrize("data", [b"", b"[]\n", b'{"event":{}}\n', b"words\n", b'{"counterpoint":"1"}\n'])
def test_a_file_without_a_header_is_no_trace(data: bytes) -> None:
    with pytest.raises(InvalidTrace):
        decode_lines(data)


def test_a_newer_form_is_refused() -> None:
    with pytest.raises(InputError, match="newer Counterpoint"):
        decode_lines(b'{"counterpoint":2,"trace_id":"t","task_id":"d"}\n')


def test_the_last_line_may_lack_its_line_break() -> None:
    assert len(decode_lines(HEADER + b'{"event":{"id":"e","t":1,"type":"message","agent":"a"}}').events) == 1


@pytest.mark.parametrize(
    "record",
    [
        _event("e", dur=float("nan")),
        _event("e", extra={"x": float("inf")}),
        _event("e", tool="\ud800"),
        Event(id="e", t="soon", type="message", agent="a"),  # type: ignore[arg-type]
        Edge("a", "b", "friend"),  # type: ignore[arg-type]
        Close("e", {"dur": float("nan")}),
        Content("ref", "\udfff"),
        Finish.of({"team": float("nan")}),
    ],
)
def test_a_record_that_would_not_read_back_is_refused_and_the_rest_written(record: object) -> None:
    lines, refused = encode_records([_event("before"), record, _event("after")])  # type: ignore[list-item]
    assert [r.record for r in refused] == [record]
    assert [e.id for e in decode_lines(HEADER + lines).events] == ["before", "after"]


def test_a_header_must_read_back_too() -> None:
    for wrong in ({"trace_id": ""}, {"topology": "ring"}, {"meta": {"x": float("nan")}}):
        with pytest.raises(InvalidTrace):
            header_line(**({"trace_id": "t", "task_id": "d"} | wrong))  # type: ignore[arg-type]


def test_lines_are_known_by_their_beginning() -> None:
    assert is_lines(HEADER)
    assert not is_lines(b'{"trace_id":"t"}')
