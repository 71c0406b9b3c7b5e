"""Records to lines: whatever road a record takes, its line reads back as it was, in its place, or the record is named."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoint import Edge, Event
from counterpoint.trace.line_records import Close, Content, Open, encode_records, open_line
from counterpoint.trace.lines import LineReader, header_line

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
EXTRA = st.none() | st.dictionaries(st.sampled_from(["odd", "null", "tool", "extra", "\n"]), JSON, max_size=3)


def _event(name: str, extra: Any, text: str = "x") -> Event:
    return Event(id=name, t=1, type="tool_call", agent="a", error=text, extra=extra)


def _read(data: bytes) -> LineReader:
    reader = LineReader()
    reader.feed(header_line("t", "d") + data)
    return reader


@settings(max_examples=60)
@given(st.lists(st.tuples(EXTRA, st.sampled_from(["null", "a\nb", "é", '{"event":null}']), st.booleans()), max_size=6))
def test_a_mixed_batch_reads_back_in_order(rows: list[tuple[Any, str, bool]]) -> None:
    records: list[Any] = []
    for i, (extra, text, opens) in enumerate(rows):
        event = _event(f"e{i}", extra, text)
        records.append(open_line(event)[0] if opens else event)
        records += [Content(f"ref{i}", text), Edge("e0", f"e{i}", "causal")]
        records += [Close(f"e{i}", {"dur": i, "seen": text})] if opens else []
    data, refused = encode_records(records)
    reader = _read(data)
    assert refused == []
    assert [e.id for e in reader.events] == [f"e{i}" for i in range(len(rows))]
    assert [e.dst for e in reader.edges] == [e.id for e in reader.events]
    assert list(reader.contents.values()) == [text for _, text, _ in rows]
    for event, (extra, text, opens) in zip(reader.events, rows, strict=True):
        assert event.error == text
        if not opens:
            assert event.extra == extra


@given(EXTRA)
def test_an_opened_event_is_the_event(extra: Any) -> None:
    line, why = open_line(_event("e1", extra))
    assert why == ""
    assert _read(line).events == [_event("e1", extra)]


def test_one_bad_record_refuses_itself_alone() -> None:
    nan, lone = float("nan"), "\ud800"
    bad = [_event("b1", {"x": nan}), _event("b2", {"x": (1,)}), _event("b3", None, lone), Open(_event("b4", {"x": nan}))]
    bad += [Edge("e1", "e2", "friend"), Close("e9", {"x": nan}), Content("r", lone), Event(id="b5", t=nan, type="spawn", agent="a")]  # type: ignore[arg-type]
    good = [_event("e1", None), _event("e2", {"x": "null"}), Edge("e1", "e2", "causal"), Content("r2", "null")]
    data, refused = encode_records([*good[:2], *bad, *good[2:]])
    assert [r.record for r in refused] == bad
    reader = _read(data)
    assert reader.events == good[:2]
    assert (reader.edges, reader.contents) == ([good[2]], {"r2": "null"})
    assert open_line(bad[0])[1] != ""
