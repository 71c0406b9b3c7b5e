"""What importers share, piece by piece: reports, sessions, files, beginnings of files, chats, values, prices, order in time."""

from __future__ import annotations

import gzip
import io
from typing import Any

import pytest
import zstandard

from counterpoint.errors import InputError
from counterpoint.formats._importing import files as files_module
from counterpoint.formats._importing import head, labelled
from counterpoint.formats._importing.chat import Call, Heard, Message, arguments_text, message_of, messages_of
from counterpoint.formats._importing.documents import documents
from counterpoint.formats._importing.draft import Draft
from counterpoint.formats._importing.files import HEAD, File, bounded
from counterpoint.formats._importing.group_talk import Turn, put_down
from counterpoint.formats._importing.importer import Importer, Session
from counterpoint.formats._importing.order import ordered
from counterpoint.formats._importing.report import Report
from counterpoint.formats._importing.usage import PRICES, Price, Prices, Usage
from counterpoint.formats._importing.values import (
    as_dict,
    as_list,
    compact,
    count,
    decode,
    duration,
    number,
    seconds,
    string,
    text_of,
)
from told import told

# -- reports


def filled(n: int) -> Report:
    report = Report()
    report.records = n
    for k in range(n):
        report.broke(f"f{k}", k, "w" * 300)
        report.loose("u" * 300 + str(k))
        report.linked("stated")
    report.linked("guessed", exact=False)
    report.unknown["odd"] += 2
    report.mended["skew"] += 3
    report.lacks["time"] += 4
    return report


def test_a_report_counts_all_and_shows_the_first_twenty() -> None:
    said = filled(25).as_dict()
    assert said == {
        "records": 25, "broken": 25, "unknown": {"odd": 2}, "mended": {"skew": 3}, "lacks": {"time": 4},
        "broken_first": [{"file": f"f{k}", "line": k, "what": "w" * 200} for k in range(20)],
        "links": {"exact": {"stated": 25}, "inferred": {"guessed": 1}, "unlinked": 25}, "unlinked_first": ["u" * 200] * 20,
    }  # fmt: skip
    assert Report().as_dict() == {}


def test_reports_add_up_and_come_back() -> None:
    one, other = filled(3), filled(19)
    one.add(other)
    said = one.as_dict()
    assert (said["records"], said["broken"], said["links"]["unlinked"]) == (22, 22, 22)
    assert [b["file"] for b in said["broken_first"]] == ["f0", "f1", "f2", *(f"f{k}" for k in range(17))]
    assert len(said["unlinked_first"]) == 20
    assert said["links"]["exact"] == {"stated": 22}
    assert said["links"]["inferred"] == {"guessed": 2}
    assert (said["unknown"], said["mended"], said["lacks"]) == ({"odd": 4}, {"skew": 6}, {"time": 8})
    again = Report.of(said)
    assert again.as_dict() == said
    again.add(Report.of({}))
    assert again.as_dict() == said
    assert Report.of({}).as_dict() == {}


# -- sessions and files


def test_every_broken_record_is_named_and_the_rest_is_read() -> None:
    data = b'{"a": 1}\n\n  \nnot json\n[1]\n{"b": 2}\n{"torn'
    session = Session("s", [])
    found = list(session.records(File.of(data, "log")))
    assert found == [(1, {"a": 1}), (6, {"b": 2})]
    assert session.report.as_dict() == {
        "records": 2, "broken": 3,
        "broken_first": [
            {"file": "log", "line": 4, "what": "is not JSON"},
            {"file": "log", "line": 5, "what": "a record that is not an object"},
            {"file": "log", "line": 7, "what": "is not JSON (torn last line: the session may still be running)"},
        ],
    }  # fmt: skip


def test_a_record_beyond_the_limit_is_counted_and_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_module, "MAX_LINE", 10)
    long = b'"' + b"x" * 25 + b'"\n'
    file = File.of(b'{"a": 1}\n' + long + b'{"a":   3}\n{"b": 22}', "log")
    assert list(file.lines()) == [(1, b'{"a": 1}\n'), (2, None), (3, None), (4, b'{"b": 22}')]
    session = Session("s", [])
    assert [n for n, _ in session.records(file)] == [1, 4]
    assert [b["what"] for b in session.report.broken] == ["a record beyond the size limit"] * 2


def test_documents_are_counted_or_broken() -> None:
    session = Session("s", [])
    assert session.document(File.of(b"[1]", "good")) == [1]
    assert session.document(File.of(b"{", "bad")) is None
    assert session.report.records == 1
    assert session.report.broken[0]["file"] == "bad"
    assert session.report.broken[0]["line"] is None
    assert session.report.broken[0]["what"].startswith("is not JSON")


@pytest.mark.parametrize("pack", [lambda d: d, gzip.compress, lambda d: zstandard.ZstdCompressor().compress(d)])
def test_files_are_unpacked_by_what_they_hold(pack: Any) -> None:
    data = b'{"a": 1}\n{"b": 2}\n'
    file = File.of(pack(data), "x/y/log.a.jsonl")
    assert file.size == len(pack(data))
    assert file.stem == "log"
    assert file.head() == data
    assert file.head(5) == data[:5]
    assert file.data() == data
    assert file.data(limit=len(data)) == data
    assert [n for n, _ in file.lines()] == [1, 2]
    with pytest.raises(InputError, match="is larger than 0 MB"):
        file.data(limit=len(data) - 1)


def test_two_packed_frames_are_one_file() -> None:
    packed = zstandard.ZstdCompressor().compress(b"one\n") + zstandard.ZstdCompressor().compress(b"two\n")
    assert File.of(packed).data() == b"one\ntwo\n"


def test_what_cannot_be_unpacked_says_where() -> None:
    packed = gzip.compress(b"".join(b"%d\n" % k for k in range(9000)))[:-900]
    file = File.of(packed, "half")
    with pytest.raises(InputError, match=r"half:\d+: cannot be unpacked to its end"):
        list(file.lines())
    with pytest.raises(InputError, match="half: cannot be unpacked"):
        file.data()
    session = Session("s", [])
    assert list(session.records(File.of(gzip.compress(b'{"a": 1}\n')[:-4], "torn"))) == [(1, {"a": 1})] or session.report.broken
    assert File.of(b"\x1f\x8b broken").head() == b""


def test_an_error_of_the_disk_stays_one() -> None:
    def fails() -> Any:
        raise OSError(5, "Input/output error")

    file = File("x", 1, fails)
    for read in (lambda: list(file.lines()), file.data):
        with pytest.raises(OSError, match="Input/output"):
            read()
    assert file.head() == b""


def test_a_bounded_stream_gives_its_limit_and_no_more() -> None:
    assert bounded(io.BytesIO(b"12345"), "x", 5).read() == b"12345"
    with pytest.raises(InputError, match="x: unpacks to more than the limit"):
        bounded(io.BytesIO(b"123456"), "x", 5).read()
    inner = io.BytesIO(b"1")
    bounded(inner, "x").close()
    assert inner.closed


def test_an_importer_reads_bytes_alone_and_says_why_there_is_nothing() -> None:
    def read(session: Session) -> Any:
        for file in session.files:
            for _, record in session.records(file):
                draft = session.draft(str(record["id"]), "task", system="test")
                draft.event("message", "a", text="hello")
                yield from draft.traces()

    made = Importer(system="test", suffixes=(".x",), sniff=lambda b: True, read_session=read, columns={}, lost="nothing")
    assert made.read is not None
    assert [t.trace_id for t in made.read(b'{"id": 1}\n{"id": 2}\n')] == ["1", "2"]
    with pytest.raises(InputError, match=r"holds no session of test.*is not JSON"):
        list(made.read(b"x\n"))
    with pytest.raises(InputError, match="holds no session of test"):
        list(made.read(b""))
    assert [s.key for s in made.group([File.of(b"", "a"), File.of(b"", "b")])] == ["a", "b"]
    assert made.sidecar("a") is False
    assert made.rank == 0


# -- how files begin


def test_the_keys_of_the_first_object() -> None:
    text = b' \n{"a": {"deep": 1, "x": [{"y": 2}]}, "b\\"c": [1], "d" : "a:b", "a": 9} {"later": 1}'
    assert head.first_keys(text) == {
        "a": b'{"deep": 1, "x": [{"y": 2}]}, "b\\"c": [1], "d" : "a:b", "a": 9} {"later": 1}'[:64],
        'b\\"c': b'[1], "d" : "a:b", "a": 9} {"later": 1}', "d": b'"a:b", "a": 9} {"later": 1}',
    }  # fmt: skip
    assert head.first_keys(b'\xef\xbb\xbf[ {"k":1}, {"l":2}]') == {"k": b'1}, {"l":2}]'}
    assert head.first_keys(b'"k": 1') == {}
    assert head.first_keys(b"") == {}
    assert labelled.first_keys(text) == {"a", 'b\\"c', "d"}
    assert labelled.first_keys(b'\xef\xbb\xbf[ {"k":1}, {"l":2}]') == {"k"}
    assert labelled.first_keys(b'"k": 1') == set()
    assert labelled.first_keys(b'{"a": 1, "b": {"c": "cut') == {"a", "b"}
    assert labelled.first_keys(b'[[{"too": "deep"}]]') == set()


@pytest.mark.parametrize(
    ("data", "name", "found"),
    [
        (b'{"a": 1}\n{"a": 2}\n', "x.json", [(1, {"a": 1}), (2, {"a": 2})]),
        (b'{"a": 1}\n', "x.jsonl", [(1, {"a": 1})]),
        (b'{"a":\n 1}\n', "x.json", [(1, {"a": 1})]),
        (b'{"a": 1}\n\n', "x.json", [(1, {"a": 1})]),
        (b'[{"a": 1}, 7, {"a": 3}]', "x.json", [(1, {"a": 1}), (3, {"a": 3})]),
        (b'[1]\n{"a": 2}\n', "x.json", []),
        (b"7", "x.json", []),
    ],
)
def test_the_runs_of_a_labelled_set(data: bytes, name: str, found: list[Any]) -> None:
    assert list(labelled.entries(Session("s", []), File.of(data, name))) == found


def test_an_entry_that_is_no_object_is_counted() -> None:
    session = Session("s", [])
    list(labelled.entries(session, File.of(b'[{"a": 1}, 7]', "x")))
    assert session.report.broken == [{"file": "x", "line": 2, "what": "an entry that is not an object"}]


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b'{"a": 1}\n{"a": 2}\n', [{"a": 1}, {"a": 2}]),
        (b'{"a": 1}', [{"a": 1}]),
        (b'{"a": 1}\n\n', [{"a": 1}]),
        (b'{\n"a": 1\n}', [{"a": 1}]),
        (b'\xef\xbb\xbf [1,\n2]', [[1, 2]]),
        (b'{"a": 1}\nbroken\n{"a": 3}', [{"a": 1}, {"a": 3}]),
        (b'{broken}\n{"a": 3}', [{"a": 3}]),
        (b"[broken", []),
    ],
)
def test_a_file_is_one_document_or_one_per_line(data: bytes, found: list[Any]) -> None:
    assert list(documents(Session("s", []), File.of(data))) == found


def test_the_head_is_64_kilobytes() -> None:
    assert len(File.of(b"x" * 100_000).head()) == HEAD == 65_536


# -- values


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (b"[NaN]", None), (b"\xef\xbb\xbf[1]", [1]), (b"\x00[1]\x00\n", [1]), (b'"\\ud800"', "\ud800"), (memoryview(b"[2]"), [2]),
        ("\ufeff[3]", [3]), (b'"\xff"', "\ufffd"),
    ],
)  # fmt: skip
def test_json_of_any_care(value: Any, wanted: Any) -> None:
    found = decode(value)
    assert str(found) == "[nan]" if wanted is None else found == wanted


def test_what_is_not_json_says_why() -> None:
    with pytest.raises(InputError, match="is not JSON") as caught:
        decode(b"nothing" * 100)
    assert caught.value.why
    with pytest.raises(InputError, match="nested too deeply"):
        decode(b"[" * 100_000)
    with pytest.raises(InputError, match="nested too deeply"):
        decode(b"\x00" + b"[" * 100_000)


def test_values_of_other_kinds_are_none() -> None:
    assert (as_dict([1]), as_dict({"a": 1}), as_list({"a": 1}), as_list([1])) == ({}, {"a": 1}, [], [1])
    assert (string(""), string("a"), string(7)) == (None, "a", None)
    assert [number(v) for v in ("1.5", "x", True, 2, float("nan"), float("inf"), 10**400, None, [1])] == [
        1.5, None, None, 2.0, None, None, None, None, None,
    ]  # fmt: skip
    assert [count(v) for v in (3, 0, -1, 2**63 - 1, 2**63, "7", 2.0, 2.5, True, "x", -0.0, float(2**63))] == [
        3, 0, None, 2**63 - 1, None, 7, 2, None, None, None, 0, None,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (1e17, 1e8), (1e14, 1e8), (1e11, 1e8), (99_999_999_999.0, 99_999_999_999.0), (0, 0.0), (-1, None), ("12345678", 12345678.0),
        ("123456789", 123456789.0), ("1.5", 1.5), ("  2024-01-01T00:00:00 nonsense", 1704067200.0), ("x2024", None), (None, None),
        ("2024-01-01 00:00:07", 1704067207.0),
    ],
)  # fmt: skip
def test_moments(value: Any, wanted: float | None) -> None:
    found = seconds(value)
    assert found == (None if wanted is None else pytest.approx(wanted, abs=1e-3))


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("P1DT2H3M4.5S", 86400 + 7200 + 180 + 4.5), ("PT1M48.75S", 108.75), ("PT2H", 7200.0), ("2.5", 2.5), (3, 3.0), (-1, None), (0, 0.0),
        ("soon", None), (None, None), ("P2D", 172800.0),
    ],
)  # fmt: skip
def test_lengths_of_time(value: Any, wanted: float | None) -> None:
    assert duration(value) == wanted


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("a", "a"), (None, ""), (7, "7"), ({}, ""), ({"text": "a", "content": "b"}, "a"), ({"content": [{"text": "a"}, "", "b"]}, "a\nb"),
        ({"value": "v", "output": "o"}, "v"), ({"output": "o"}, "o"), ({"odd": 1}, '{"odd":1}'), (["a", None, ["b"]], "a\nb"),
        ({"text": ""}, ""),
    ],
)  # fmt: skip
def test_the_text_of_a_content(value: Any, wanted: str) -> None:
    assert text_of(value) == wanted


def test_values_as_text() -> None:
    assert compact("a b") == "a b"
    assert compact({"a": [1, "é"]}) == '{"a":[1,"é"]}'
    assert compact({"a": "\ud800"}) == '{"a":"\\ud800"}'
    assert compact({"a": {1, 2}.__class__}).startswith('{"a":"<class')


# -- tokens and prices


def test_tokens_of_every_vendor() -> None:
    assert Usage.anthropic(
        {"input_tokens": 3, "cache_read_input_tokens": 10, "cache_creation_input_tokens": 4, "output_tokens": 2}
    ) == Usage(3, 10, 4, 2)
    assert Usage.anthropic({"output_tokens": 2}) == Usage(0, 0, 0, 2)
    assert Usage.anthropic({"input_tokens": 2}) == Usage(2, 0, 0, 0)
    assert Usage.anthropic({"cache_read_input_tokens": 9}) is None
    assert Usage.anthropic("x") is None
    assert Usage.whole(20, 5, cached=6, written=4, reasoning=3) == Usage(10, 6, 4, 5, 3)
    assert Usage.whole(20, None, cached=18, written=4) == Usage(0, 18, 2, 0, 0)
    assert Usage.whole(None, 5, cached=3) == Usage(0, 0, 0, 5, 0)
    assert Usage.whole(None, None, cached=3) is None
    assert Usage(1, 2, 3, 4, 5).plus(Usage(10, 20, 30, 40, 50)) == Usage(11, 22, 33, 44, 55)
    assert Usage(1, 2, 3, 4).input == 6
    assert (bool(Usage()), bool(Usage(reasoning=1)), bool(Usage(output=1))) == (False, True, True)


def test_a_call_costs_each_kind_of_token_at_its_price() -> None:
    prices = Prices({"m": Price(2.0, 8.0, 0.5, 3.0)})
    assert prices.cost("m", Usage(1_000_000, 2_000_000, 3_000_000, 4_000_000)) == 2 + 1 + 9 + 32
    assert prices.cost("other", Usage(1)) is None
    assert prices.cost(None, Usage(1)) is None


def test_names_of_models() -> None:
    prices = Prices({"m": Price(1, 1, 1, 1), "m-2": Price(2, 2, 2, 2)})
    wanted = {"m": 1, "M": 1, "m-1": 1, "m-2": 2, "m-2-x": 2, "m@eu": 1, "m:0": 1, "m.1": None, "mm": None, "models/m": 1,
              "a-b/us.anthropic.m-2": 2, "global.m": 1, "eu.m": 1, "openai.m": 1, "apac.m": 1, "xx.m": None}  # fmt: skip
    found = {name: prices.of(name) for name in wanted}
    assert {name: p.input if p else None for name, p in found.items()} == wanted
    assert prices.of("m") is found["m"]


def test_a_price_file_may_leave_the_cache_out() -> None:
    found = Prices.with_file({"LLAMA": {"input": 2, "output": 0, "cache_read": 0}}, where="p.toml").of("llama")
    assert found == Price(2, 0, 0, 2)
    own = Prices.with_file({"gpt-5": {"input": 7, "output": 7, "cache_write": 1}}, where="p.toml")
    assert own.of("gpt-5") == Price(7, 7, 7, 1)
    assert own.of("gpt-5-mini") == PRICES.of("gpt-5-mini")
    assert PRICES.of("gpt-5") == Price(1.25, 10, 0.125, 1.25)
    with pytest.raises(InputError, match="the price of 'm' has no input and output") as caught:
        Prices.with_file({"m": {"input": 1, "output": 1, "cache_read": -1}}, where="p.toml")
    assert str(caught.value).startswith("p.toml: ")


# -- order in time


def test_events_in_order_stay_as_they_are() -> None:
    assert ordered([0.0, 1.0, 1.0], [(0, 1), (1, 2)]) == ([0, 1, 2], [0.0, 1.0, 1.0], set())
    assert ordered([], []) == ([], [], set())


def test_an_effect_is_moved_to_its_cause_and_pulls_what_follows() -> None:
    # 2 (t 5) causes 0 (t 1), which causes 1 (t 2); 3 (t 3) stands free
    assert ordered([1.0, 2.0, 5.0, 3.0], [(2, 0), (0, 1)]) == ([3, 2, 0, 1], [5.0, 5.0, 5.0, 3.0], set())
    assert ordered([2.0, 1.0], []) == ([1, 0], [2.0, 1.0], set())


def test_a_cycle_loses_the_edge_into_its_earliest_event() -> None:
    assert ordered([3.0, 1.0, 2.0], [(0, 1), (1, 2), (2, 0)]) == ([1, 2, 0], [3.0, 1.0, 2.0], {0})
    # two cycles, and one event that waits for both
    found = ordered([1.0, 1.0, 4.0, 3.0, 9.0], [(0, 1), (1, 0), (2, 3), (3, 2), (1, 4), (3, 4)])
    assert found == ([0, 1, 3, 2, 4], [1.0, 1.0, 4.0, 3.0, 9.0], {1, 2})


def test_an_event_waits_for_all_its_causes() -> None:
    assert ordered([0.0, 9.0, 1.0], [(0, 2), (1, 2)]) == ([0, 1, 2], [0.0, 9.0, 9.0], set())


# -- chats


def test_a_message_of_any_dialect() -> None:
    raw = {
        "role": "assistant", "id": "m1", "source": "ada", "name": "n", "tool_call_id": "c9", "error": {"message": "no"},
        "content": [
            "Hi.", {"type": "reasoning", "reasoning": "R"}, {"type": "thinking", "thinking": "T"}, {"type": "redacted_thinking", "summary": "S"},
            {"type": "thinking", "text": "X"}, {"type": "thinking"}, {"type": "text", "text": "There."}, {"text": ""},
        ],
        "reasoning_content": "C", "reasoning": "not this",
        "tool_calls": [
            {"id": "1", "function": {"name": "f", "arguments": "{}"}}, {"id": "2", "name": "g", "arguments": {"a": 1}}, '{"function": "h"}',
            {"tool_name": "i"}, "broken", 7, {"id": "3"},
        ],
    }  # fmt: skip
    found = message_of(raw)
    assert found == Message(
        "assistant", "Hi.\nThere.", "R\nT\nS\nX\nC",
        [Call("1", "f", "{}"), Call("2", "g", {"a": 1}), Call(None, "h", None), Call(None, "i", None)],
        call="c9", tool="n", id="m1", source="ada", error="no",
    )  # fmt: skip
    assert [c.text for c in found.calls] == ["{}", '{"a":1}', "", ""]
    plain = message_of({"role": "tool", "content": "x", "function": "f", "name": "n", "error": "bad", "reasoning": "why"})
    assert plain == Message("tool", "x", "why", tool="f", error="bad")
    assert [message_of(v) for v in ("x", {}, {"role": 7})] == [None, None, None]
    assert messages_of("hello") == [Message("user", "hello")]
    assert messages_of("") == []
    assert messages_of([{"role": "user", "content": "a"}, 7]) == [Message("user", "a")]
    assert messages_of([{"role": "user", "content": "a"}], text=lambda c: f"<{c}>")[0].text == "<a>"
    assert [arguments_text(v) for v in (None, {}, "", 0, [])] == ["", "", "", "0", "[]"]


def test_only_new_messages_of_a_prompt_are_heard() -> None:
    heard = Heard()
    a, b = Message("user", "a"), Message("user", "b")
    assert list(heard.new([a, b, a])) == [a, b, a]
    assert list(heard.new([a, b, a, a])) == [a]
    assert list(heard.new([a, b])) == []
    answer = Message("assistant", "a2", calls=[Call("1", "f", {})])
    heard.said([a, b, a], answer)
    assert list(heard.new([a, b, answer, Message("user", "c")])) == [Message("user", "c")]
    heard.said([answer], answer)  # the same words a second time
    assert list(heard.new([answer, answer])) == []
    assert list(heard.new([answer, answer, answer])) == [answer]


def test_messages_with_ids_go_by_them() -> None:
    heard = Heard()
    one, two = Message("user", "a", id="1"), Message("user", "changed", id="1")
    assert list(heard.new([one, one])) == [one]
    assert list(heard.new([two])) == []
    heard.said([], Message("assistant", "x", id="7"))
    assert list(heard.new([Message("assistant", "y", id="7"), Message("assistant", "y")])) == [Message("assistant", "y")]
    assert list(heard.new([Message("tool", "r", call="1"), Message("tool", "r", call="2")])) != []


# -- conversations in one room


ROOM = r"""
  0 task: human_intervention by user role=user from=user content_ref="Count." trusted=true source=user
  1 s0: tool_result by Computer_terminal tool=Computer_terminal content_ref="exitcode: 1 (nobody asked)" trusted=false ok=false source=tool
  2 s1: human_intervention by human role=human from=human content_ref="Start." trusted=true source=user
  3 s2: orchestrator_decision by Lead role=Lead from=Lead to=Ada content_ref="Plan." trusted=true turn=0 decision=delegate source=peer
  4 s3: message by Ada role=Ada from=Ada content_ref="print(1)" trusted=true turn=0 source=peer extra={"aloud": true}
  5 s4:call: tool_call by Ada role=Ada tool=ComputerTerminal
  6 s4: tool_result by Ada role=Ada tool=ComputerTerminal content_ref=" exitcode: 0\n1" trusted=false ok=true source=tool
  7 s5: message by Ada role=Ada from=Ada content_ref=hm trusted=true turn=1 source=peer extra={"aloud": true, "is_aside": true}
  8 s6: message by WebSurfer role=WebSurfer from=WebSurfer content_ref="A page." trusted=false turn=0 source=tool extra={"aloud": true}
  9 s7:call: tool_call by WebSurfer role=WebSurfer tool=Computer_terminal
  10 s7: tool_result by WebSurfer role=WebSurfer tool=Computer_terminal content_ref="no code" trusted=false source=tool
  11 s8: orchestrator_decision by Lead role=Lead from=Lead content_ref="Done." trusted=true turn=1 source=peer
  task -> s2 (message)
  s0 -> s2 (message)
  s0 -> s2 (safety_flow)
  s1 -> s2 (message)
  task -> s3 (message)
  s0 -> s3 (message)
  s0 -> s3 (safety_flow)
  s1 -> s3 (message)
  s2 -> s3 (message)
  s3 -> s4:call (causal)
  s4:call -> s4 (tool_dependency)
  s4 -> s5 (causal)
  s4 -> s5 (safety_flow)
  task -> s6 (message)
  s0 -> s6 (message)
  s0 -> s6 (safety_flow)
  s1 -> s6 (message)
  s2 -> s6 (message)
  s3 -> s6 (message)
  s4 -> s6 (message)
  s4 -> s6 (safety_flow)
  s6 -> s7:call (causal)
  s7:call -> s7 (tool_dependency)
  s3 -> s8 (message)
  s4 -> s8 (message)
  s4 -> s8 (safety_flow)
  s6 -> s8 (message)
  s6 -> s8 (safety_flow)
  s7 -> s8 (message)
  s7 -> s8 (safety_flow)
  s2 -> s8 (causal)
  costs {"messages": 3, "tokens": 0, "tool_calls": 2, "wall_clock_s": 11}
  meta {"import": {"lacks": {"timestamps: t counts events": 1}, "links": {"inferred": {"the terminal answers whoever spoke before it": 2}, "unlinked": 1}, "unlinked_first": ["s0: a terminal's output that nobody asked for"]}}
"""


def test_a_room() -> None:
    draft = Draft("t", "t", system="test")
    turns = [
        Turn("Computer_terminal", "exitcode: 1 (nobody asked)"), Turn("human", "Start."), Turn("Lead", "Plan.", to="Ada", decision="delegate"),
        Turn("Ada", "print(1)"), Turn("ComputerTerminal", " exitcode: 0\n1"), Turn("Ada", "hm", is_aside=True), Turn("WebSurfer", "A page."),
        Turn("Computer_terminal", "no code"), Turn("Lead", "Done."),
    ]  # fmt: skip
    put_down(draft, turns, leader="Lead", task="Count.")
    (trace,) = draft.traces()
    assert [line.strip() for line in told(trace)[1:]] == [line.strip() for line in ROOM.strip().splitlines()]
