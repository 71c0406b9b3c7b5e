"""Lines at their edges: what a close may say, where sums begin, which line is named, and which road a record takes."""

from __future__ import annotations

import zlib
from typing import Any

import msgspec
import pytest

from counterpoint.errors import InputError, InvalidTrace
from counterpoint.trace import Edge, Event, Trace
from counterpoint.trace import line_records as writing
from counterpoint.trace.line_records import VERSION, Close, Content, Ending, Finish, Header, Open, encode_records, open_line
from counterpoint.trace.lines import LineReader, decode_lines, encode_lines, header_line, is_lines, sum_line

HEADER = header_line("t1", "demo")


def ev(name: str, **fields: Any) -> Event:
    return Event(**{"id": name, "t": 0, "type": "message", "agent": "a"} | fields)


def lines(*records: Any) -> bytes:
    data, refused = encode_records(list(records))
    assert refused == []
    return data


def read(*records: Any) -> Trace:
    return decode_lines(HEADER + lines(*records))


# -- the form ----------------------------------------------------------------------------------------------------


def test_the_lines_themselves() -> None:
    """The form is read by others and by older versions: byte for byte."""
    assert VERSION == 1
    assert HEADER == b'{"counterpoint":1,"trace_id":"t1","task_id":"demo"}\n'
    full = header_line("t", "d", "sys", "swarm", {"a": 1})
    assert full == b'{"counterpoint":1,"trace_id":"t","task_id":"d","system":"sys","topology":"swarm","meta":{"a":1}}\n'
    event = b'{"id":"e","t":0,"type":"message","agent":"a"'
    assert lines(ev("e")) == b'{"event":' + event + b"}}\n"
    assert lines(ev("e"), ev("e")) == (b'{"event":' + event + b"}}\n") * 2
    assert lines(Open(ev("e"))) == open_line(ev("e"))[0] == b'{"open":' + event + b"}}\n"
    assert lines(ev("e", extra={"x": None})) == b'{"event":' + event + b',"x":null}}\n'
    assert lines(ev("e", extra={"dur": "long"})) == b'{"event":' + event + b'},"extra":{"dur":"long"}}\n'
    assert lines(Open(ev("e", extra={}))) == open_line(ev("e", extra={}))[0] == b'{"open":' + event + b'},"extra":{}}\n'
    assert lines(Close("e", {"dur": 1})) == b'{"close":"e","fields":{"dur":1}}\n'
    assert lines(Close("e")) == b'{"close":"e","fields":{}}\n'
    assert lines(Edge("a", "b", "causal")) == b'{"edge":{"src":"a","dst":"b","type":"causal"}}\n'
    assert lines(Content("r", "x")) == b'{"content":"r","text":"x"}\n'
    assert lines(Finish.of()) == b'{"finish":{}}\n'
    assert lines(Finish.of({"team": 1}, {"tokens": 2}, {}, {"a": 3})) == (
        b'{"finish":{"rewards":{"team":1},"costs":{"tokens":2},"metrics":{},"meta":{"a":3}}}\n'
    )
    assert sum_line(12) == b'{"sum":12}\n'
    assert lines() == b""


@pytest.mark.parametrize(
    ("head", "found"),
    [
        (b'{"counterpoint":1', True),
        (b' \n{ "counterpoint" : 7', True),
        (b'{"counterpoint":"1"', False),
        (b'{"counterpoints":1', False),
        (b'x{"counterpoint":1', False),
        (b"", False),
    ],
)
def test_lines_are_known_by_their_first_bytes(head: bytes, found: bool) -> None:
    assert is_lines(head) is found


def test_the_order_of_a_file_is_the_order_of_its_lines() -> None:
    trace = read(ev("b"), Edge("b", "a", "causal"), Content("r", "1"), ev("a"), Edge("a", "b", "spawn"), Content("r", "2"), Finish.of())
    assert [e.id for e in trace.events] == ["b", "a"]
    assert [e.type for e in trace.edges] == ["causal", "spawn"]
    assert trace.contents == {"r": "2"}
    assert trace.meta == {}


def test_what_head_and_finish_say() -> None:
    head = header_line("t", "d", "sys", "swarm", {"a": 1, "b": 1})
    trace = decode_lines(head + lines(Finish.of({"team": 1}, {"tokens": 2}, {"m": 3}, {"b": 2})))
    assert (trace.trace_id, trace.task_id, trace.system, trace.topology) == ("t", "d", "sys", "swarm")
    assert (trace.rewards, trace.costs, trace.metrics, trace.meta) == ({"team": 1}, {"tokens": 2}, {"m": 3}, {"a": 1, "b": 2})
    assert decode_lines(HEADER).meta == {"unfinished": True}


def test_blank_lines_say_nothing_and_are_counted() -> None:
    assert len(decode_lines(HEADER + b"\n  \t\n" + lines(ev("e"))).events) == 1
    with pytest.raises(InvalidTrace, match="line 4: is not a record"):
        decode_lines(HEADER + b"\n \n{}\n")


# -- closing -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("event", "fields", "closed"),
    [
        (ev("e"), {"dur": 2, "ok": True}, ev("e", dur=2, ok=True)),
        (ev("e", dur=1, tool="x"), {"dur": 2}, ev("e", dur=2, tool="x")),
        (ev("e"), {"from": "z"}, ev("e", from_="z")),
        (ev("e"), {"colour": "red"}, ev("e", extra={"colour": "red"})),
        (ev("e"), {"dur": "long"}, ev("e", extra={"dur": "long"})),
        (ev("e"), {"dur": -1}, ev("e", dur=-1)),
        (ev("e"), {"t": 5}, Event(id="e", t=5, type="message", agent="a")),
        (ev("e", extra={"x": 1, "y": 1}), {"y": 2, "dur": 3}, ev("e", dur=3, extra={"x": 1, "y": 2})),
        (ev("e", extra={"dur": "long"}), {"ok": True}, ev("e", ok=True, extra={"dur": "long"})),
        (ev("e", extra={}), {"ok": True}, ev("e", ok=True, extra={})),
        (ev("e"), {}, ev("e")),
    ],
)
def test_what_is_known_at_the_end_joins_the_event(event: Event, fields: dict[str, Any], closed: Event) -> None:
    trace = read(Open(event), ev("other"), Close("e", fields))
    assert trace.events == [closed, ev("other")]
    assert "open_events" not in trace.meta


def test_a_close_that_breaks_the_survey_is_named() -> None:
    with pytest.raises(InvalidTrace, match=r"line 3: .*Invalid enum value 'shout'"):
        read(Open(ev("e")), Close("e", {"type": "shout"}))


def test_an_event_closes_once_and_may_be_open_among_others() -> None:
    with pytest.raises(InvalidTrace, match="line 4: closes 'e', which is not open"):
        read(Open(ev("e")), Close("e"), Close("e"))
    trace = read(Open(ev("a")), Open(ev("b")), Open(ev("c")), Close("b", {"dur": 1}))
    assert trace.meta == {"unfinished": True, "open_events": ["a", "c"]}
    assert [e.dur for e in trace.events] == [None, 1, None]
    assert read(Open(ev("a")), Finish.of()).meta == {"open_events": ["a"]}


def test_an_opened_event_may_have_fields_of_its_own() -> None:
    line = b'{"open":{"id":"e","t":1,"type":"message","agent":"a","colour":"red"},"extra":{"dur":"long"}}\n'
    [event] = decode_lines(HEADER + line).events
    assert event.extra == {"colour": "red", "dur": "long"}
    assert decode_lines(HEADER + line).meta["open_events"] == ["e"]


@pytest.mark.parametrize(
    "line",
    [
        b'{"event":{"id":"e","t":1,"type":"message","agent":"a","x":1},"edge":{}}',
        b'{"open":{"id":"e","t":1,"type":"message","agent":"a","x":1},"close":"e"}',
        b'{"event":{"id":"e","t":1,"type":"shout","agent":"a","x":1}}',
        b'{"event":{"id":"","t":1,"type":"message","agent":"a"}}',
        b'{"content":"r"}',
        b'{"text":"r"}',
        b'{"sum":"x"}',
        b'{"finish":{"reward":{}}}',
        b"[1]",
    ],
)
def test_what_is_no_record_is_named_with_its_line(line: bytes) -> None:
    with pytest.raises(InvalidTrace, match=r"^line 3: "):
        decode_lines(HEADER + lines(ev("x")) + line + b"\n")


# -- sums --------------------------------------------------------------------------------------------------------


def test_a_sum_seals_what_came_since_the_last() -> None:
    first, second, tail = lines(ev("a")), lines(ev("b")), lines(ev("c"))
    sealed = HEADER + first + sum_line(zlib.crc32(HEADER + first))
    data = sealed + second + sum_line(zlib.crc32(second)) + tail
    for pieces in ([data], [HEADER, data[len(HEADER) :]], [sealed, data[len(sealed) :]], [sealed + second, data[len(sealed + second) :]]):
        reader = LineReader()
        for piece in pieces:
            assert reader.feed(piece) == len(piece)
        assert [e.id for e in reader.events] == ["a", "b", "c"]
        assert reader.crc == zlib.crc32(tail)
        assert reader.line == 6
    with pytest.raises(InvalidTrace, match="line 5: a byte before it has changed"):
        decode_lines(sealed + second + sum_line(zlib.crc32(first + second)))


def test_where_the_line_being_read_begins() -> None:
    reader = LineReader(where="j")
    with pytest.raises(InvalidTrace, match=r"^j: line 3: "):
        reader.feed(HEADER + lines(ev("a")) + b"{}\n" + lines(ev("b")))
    assert reader.at == len(HEADER + lines(ev("a")))


def test_a_torn_tail_is_not_read() -> None:
    reader = LineReader()
    assert reader.feed(HEADER + b'{"event":{') == len(HEADER)
    assert (reader.line, reader.crc) == (1, zlib.crc32(HEADER))
    assert reader.feed(b"") == 0


# -- headers -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"", "line 0: there is no header"),
        (b"{]", "line 1: not JSON: "),
        (b'{"trace_id":"t"}', "line 1: is not a header"),
        (b'{"counterpoint":1.0,"trace_id":"t","task_id":"d"}', "line 1: is not a header"),
        (b'{"counterpoint":1,"trace_id":"t"}', "line 1: Object missing required field `task_id`"),
        (b'{"counterpoint":1,"trace_id":"t","task_id":"d","x":1}', "line 1: Object contains unknown field `x`"),
    ],
)
def test_a_wrong_header_is_named(line: bytes, said: str) -> None:
    with pytest.raises(InvalidTrace) as caught:
        decode_lines(line)
    assert str(caught.value).startswith(said)


def test_a_newer_form_names_both_versions_and_the_file() -> None:
    with pytest.raises(InputError, match=r"format 2; this one reads up to 1") as caught:
        decode_lines(b'{"counterpoint":2}', where="x.jsonl")
    assert caught.value.where == "x.jsonl"


def test_the_trace_so_far_is_a_copy() -> None:
    reader = LineReader()
    reader.feed(HEADER + lines(ev("a"), Content("r", "x")))
    before = reader.trace()
    reader.feed(lines(ev("b"), Edge("a", "b", "causal"), Content("s", "y"), Finish.of()))
    assert (len(before.events), len(before.edges), list(before.contents)) == (1, 0, ["r"])
    after = reader.trace()
    assert (len(after.events), len(after.edges), list(after.contents), after.meta) == (2, 1, ["r", "s"], {})


# -- refusals ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"events": [ev("good"), ev("bad", dur=float("nan"))]}, "event 'bad' cannot be written: "),
        ({"edges": [Edge("good", "good", "friend")]}, "a record of kind edge cannot be written: "),  # type: ignore[arg-type]
        ({"contents": {"r": "\ud800"}}, "a record of kind content cannot be written: "),
        ({"rewards": {"team": float("nan")}}, "a record of kind finish cannot be written: "),
    ],
)
def test_a_trace_that_no_lines_can_carry_is_refused(fields: dict[str, Any], said: str) -> None:
    trace = Trace(**{"trace_id": "t", "task_id": "d", "events": [ev("good")]} | fields)
    with pytest.raises(InvalidTrace) as caught:
        encode_lines(trace)
    assert caught.value.what.startswith(said)
    assert caught.value.where == "trace 't'"


def test_a_header_that_would_not_read_back_says_why() -> None:
    with pytest.raises(InvalidTrace, match=r"trace 't': the header cannot be written: it holds something that JSON cannot carry"):
        header_line("t", "d", meta={"x": (1, 2)})
    with pytest.raises(InvalidTrace, match="Invalid enum value 'ring'"):
        header_line("t", "d", topology="ring")


WHY = "it holds something that JSON cannot carry, such as NaN, a tuple or a key that is not a string"


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (ev("e", extra={"x": (1,)}), WHY),
        (ev("e", extra={"dur": float("nan")}), WHY),
        (Open(ev("e", extra={"x": (1,)})), WHY),
        (Open(ev("e", extra={3: 1})), WHY),
        (Close("e", {"x": float("nan")}), WHY),
        (ev("e", tokens_in="many"), WHY),
        (ev("e", type="shout"), "Invalid enum value 'shout' - at `$.type`"),
        (Edge("a", "b", "friend"), "Invalid enum value 'friend' - at `$.type`"),  # type: ignore[arg-type]
    ],
)
def test_why_a_record_is_refused(record: Any, why: str) -> None:
    data, [refusal] = encode_records([ev("a"), record, Edge("a", "a", "causal")])
    assert (refusal.record, refusal.why) == (record, why)
    assert data == lines(ev("a"), Edge("a", "a", "causal"))
    if isinstance(record, Open):
        assert open_line(record.open) == (b"", why)


def test_lines_that_are_written_already_stay_as_they_are() -> None:
    line = open_line(ev("e"))[0]
    assert encode_records([line, ev("f"), b"anything\n"]) == (line + lines(ev("f")) + b"anything\n", [])


def test_a_null_that_was_one_is_no_reason_to_refuse() -> None:
    records = [Close("e", {"x": None}), Content("r", "null"), ev("e", error="null"), Finish.of(meta={"x": None}), ev("f", extra={"x": None})]
    data, refused = encode_records(records)
    assert refused == []
    assert data.count(b"\n") == 5
    assert msgspec.json.decode(data.split(b"\n")[0]) == {"close": "e", "fields": {"x": None}}


def test_the_quick_road_gives_up_the_whole_batch_and_the_slow_one_only_what_is_wrong() -> None:
    out = [b"", b""]
    assert writing._quickly({}, out, is_typed=True) == []
    assert writing._quickly({0: {"edge": Edge("a", "b", "friend")}, 1: {"edge": Edge("a", "b", "causal")}}, out, is_typed=True) == [0, 1]  # type: ignore[arg-type]
    assert writing._quickly({0: Content("r", "null"), 1: Content("r", "x")}, out, is_typed=False) == [0]
    assert out == [b'{"content":"r","text":"null"}\n', b'{"content":"r","text":"x"}\n']


def test_records_of_lines_are_frozen_and_hold_what_they_are_given() -> None:
    for record in (Open(ev("e")), Close("e"), Content("r", "x"), Finish.of(), Ending(), Header(counterpoint=1, trace_id="t", task_id="d")):
        with pytest.raises(AttributeError):
            setattr(record, record.__struct_fields__[0], None)
    assert Close("e").fields == {}
    assert (Ending().rewards, Ending().costs, Ending().metrics, Ending().meta) == ({}, {}, None, {})
