"""Inspect logs: the sample, its other ways of being written, bombs, and the real logs against a count of their own."""

from __future__ import annotations

import io
import json
import struct
import zipfile
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import zstandard

import logs
from counterpoint.formats.importing.files import File
from counterpoint.formats.inspect import eval_log as _inspect_zip
from counterpoint.formats.inspect.eval_log import score_number, usage_of
from counterpoint.trace import Trace, encode

SAMPLE = logs.SAMPLES / "inspect"
DEFLATE, ZSTD, STORED = 8, 93, 0


def document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((SAMPLE / "harbour.json").read_text())
    return found


def packed(entries: dict[str, tuple[bytes, int]], *, stated: int | None = None) -> bytes:
    """A zip, with each entry by its own method; `stated` is a size to lie about."""
    out, central = b"", b""
    for name, (data, method) in entries.items():
        deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
        body = {
            STORED: lambda d: d,
            DEFLATE: lambda d, z=deflate: z.compress(d) + z.flush(),
            ZSTD: zstandard.ZstdCompressor(level=19, write_content_size=False).compress,
        }[method](data)
        size = len(data) if stated is None else stated
        common = struct.pack("<5H3L2H", 20, 0, method, 0, 33, zlib.crc32(data), len(body), size, len(name.encode()), 0)
        central += b"PK\x01\x02" + struct.pack("<H", 20) + common + struct.pack("<3H2L", 0, 0, 0, 0, len(out)) + name.encode()
        out += b"PK\x03\x04" + common + name.encode() + body
    end = struct.pack("<4H2LH", 0, 0, len(entries), len(entries), len(central), len(out), 0)
    return out + central + b"PK\x05\x06" + end


def raw(value: Any) -> bytes:
    return json.dumps(value).encode()


def as_eval(log: dict[str, Any], method: int = DEFLATE, *, header: bool = True) -> bytes:
    start = {"version": 2, "eval": log["eval"], "plan": log["plan"]}
    entries = {"_journal/start.json": (raw(start), method)}
    for sample in log["samples"]:
        entries[f"samples/{sample['id']}_epoch_{sample['epoch']}.json"] = raw(sample), method
    if header:
        entries["header.json"] = raw({k: v for k, v in log.items() if k != "samples"}), method
    return packed(entries)


def as_chunked(log: dict[str, Any], size: int = 7) -> bytes:
    """As the converter of 2026 writes it: sequences in pieces, attachments by number."""
    entries: dict[str, tuple[bytes, int]] = {"_journal/start.json": (raw({"version": 3, "eval": log["eval"]}), ZSTD)}
    for sample in log["samples"]:
        prefix = f"samples/{sample['id']}_epoch_{sample['epoch']}"
        texts = list(sample["attachments"].values())
        shell: Any = {
            k: v for k, v in sample.items() if k not in ("events", "events_data", "attachments", "messages", "metadata")
        }
        sequences = {
            "events": sample["events"],
            "messages": sample.get("events_data", {}).get("messages", []),
            "attachments": texts,
        }
        entries[f"{prefix}/sample.json"] = raw({**shell, "message_refs": [[0, 2]]}), ZSTD
        if sample["metadata"]:
            entries[f"{prefix}/metadata.json"] = raw(sample["metadata"]), ZSTD
        for kind, items in sequences.items():
            for at in range(0, len(items), size):
                text = json.dumps(items[at : at + size])
                for number, key in enumerate(sample["attachments"]):
                    text = text.replace(f"attachment://{key}", f"attachment://{number}")
                entries[f"{prefix}/{kind}/{at}.json"] = text.encode(), ZSTD
        entries[f"{prefix}/events/stats.json"] = b"{}", ZSTD
    entries["header.json"] = raw({k: v for k, v in log.items() if k != "samples"}), ZSTD
    return packed(entries)


def read(data: bytes, name: str = "log.eval") -> list[Trace]:
    return logs.imported("inspect", {name: data})


@pytest.fixture(scope="module")
def tides() -> Trace:
    return read((SAMPLE / "harbour.json").read_bytes())[0]


@pytest.fixture(scope="module")
def named() -> Trace:
    return read((SAMPLE / "harbour.json").read_bytes())[1]


def edges(trace: Trace) -> set[tuple[str, str, str]]:
    return {(e.src, e.dst, e.type) for e in trace.edges}


# -- the sample ----------------------------------------------------------------------------------------------------------


def test_events_and_agents(tides: Trace) -> None:
    assert logs.kinds(tides) == {
        "spawn": 4, "message": 6, "human_intervention": 2, "orchestrator_decision": 2, "tool_call": 3, "tool_result": 3,
        "return": 4, "safety_event": 1,
    }  # fmt: skip
    spawned = {e.to: (e.agent, e.role) for e in tides.events if e.type == "spawn"}
    assert spawned == {
        "sp-lead": ("main", "lead"),
        "sp-surveyor": ("sp-lead", "surveyor"),
        "sp-writer": ("sp-lead", "writer"),
        "sp-tool3": ("sp-lead", "web_search"),
    }
    assert {e.agent: e.to for e in tides.events if e.type == "return"} == {
        "sp-surveyor": "sp-lead", "sp-writer": "sp-lead", "sp-tool3": "sp-lead", "sp-lead": "main",
    }  # fmt: skip
    assert (tides.trace_id, tides.task_id, tides.topology) == ("ev-harbour/tides/1", "harbour/tides", "hierarchical")


def test_links_say_what_was_stated_and_what_concluded(tides: Trace) -> None:
    links = tides.meta["import"]["links"]
    assert links["exact"] == {"agent_span_id": 1, "the span it lies in": 2}
    assert list(links["inferred"].values()) == [1]
    assert tides.meta["import"]["unknown"] == {"from_the_future": 1}


def test_tokens_by_either_convention_of_the_cache(tides: Trace) -> None:
    assert logs.tokens(tides) == {
        "sp-lead": (200 + 210 + 320, 75),
        "sp-surveyor": (60 + 90, 22),
        "sp-writer": (150, 30),
        "sp-tool3": (30, 5),
        "sp-score": (40, 4),
    }


def test_what_was_heard_and_what_came_of_it(tides: Trace) -> None:
    found = edges(tides)
    assert {
        ("call-survey", "call-table", "spawn"),
        ("ev-15", "ev-24", "return"),
        ("call-table", "ev-12", "tool_dependency"),
    } <= found
    # the tide table holds an injection: it is not trusted, and shows on what the surveyor said next
    assert ("ev-12", "ev-15", "safety_flow") in found
    by = {e.id: e for e in tides.events}
    assert (by["ev-12"].trusted, by["ev-12"].source) == (False, "tool")
    # the writer was handed the conversation: it read the question and the answers, and made none of them
    assert {("m-ask", "ev-28", "message"), ("ev-15", "ev-28", "causal"), ("ev-21", "ev-28", "safety_flow")} <= found
    assert [e.id for e in tides.events if e.agent == "sp-writer"] == ["ev-28"]
    # the helper worked inside the tool
    assert {("call-web", "sp-tool3/spawn", "causal"), ("ev-22", "ev-21", "return")} <= found
    assert tides.text(by["call-survey"]) == "When is high tide at Port Example?"
    assert tides.text(by["ev-15"]) == "High tide is at 06:12 and 18:40."


def test_people_guards_and_the_scaffold(tides: Trace) -> None:
    said = {tides.text(e): e.agent for e in tides.events if e.type == "human_intervention"}
    assert said == {"Write two sentences about the tides at Port Example.": "user", "Make it shorter, please.": "user"}
    nudge = next(e for e in tides.events if e.id == "m-nudge")
    assert (nudge.type, nudge.source) == ("message", "system")
    (refused,) = [e for e in tides.events if e.type == "safety_event"]
    assert (refused.agent, refused.to, refused.ok, refused.tool) == ("approver:policy", "sp-lead", True, "bash")
    assert ("call-shell", refused.id, "causal") in edges(tides)
    failed = [(e.type, e.error) for e in tides.events if e.ok is False and e.tool == "bash"]
    assert len(failed) == 1, failed


def test_scores_and_labels(tides: Trace, named: Trace) -> None:
    assert tides.rewards == {"model_graded": 1.0, "team": 1.0}
    assert tides.meta["scores"]["model_graded"]["explanation"] == "GRADE: C"
    assert tides.meta["sample"] == {"id": "tides", "epoch": 1, "target": "tides", "metadata": {"difficulty": 2}}
    assert [e.id for e in tides.events if e.reward == {"intermediate": 0.5}] == ["ev-32"]
    assert named.rewards == {"match": 0.0, "style/tone": 0.25, "style/length": 0.5}


def test_an_older_log_with_nested_events_and_without_ids(named: Trace) -> None:
    assert logs.kinds(named) == {
        "human_intervention": 1, "orchestrator_decision": 2, "spawn": 2, "return": 1, "safety_event": 1,
    }  # fmt: skip
    failed, made = (e for e in named.events if e.type == "spawn")
    assert (failed.to, failed.ok, failed.error) == (None, False, "the pilot is not on duty")
    assert (made.to, made.role, named.text(made)) == ("tool:call_2", "clerk", "Which harbour?")
    assert logs.tokens(named) == {"main": (28, 9), "tool:call_2": (4, 2)}
    assert ("model-6", "model-8", "return") in edges(named)


def test_a_log_of_a_run_that_goes_on_and_answers_from_the_cache() -> None:
    traces = logs.imported("inspect", logs.files_of(SAMPLE / "boats-running.eval"))
    assert [t.trace_id for t in traces] == ["ev-boats/1/1", "ev-boats/1/2"]
    assert {t.meta["eval"]["status"] for t in traces} == {"running"}
    assert [logs.tokens(t) for t in traces] == [{"main": (5, 4)}] * 2
    assert logs.kinds(traces[0]) == {"human_intervention": 1, "orchestrator_decision": 2, "tool_call": 1, "tool_result": 1}


# -- other ways to write it ----------------------------------------------------------------------------------------------


def same(found: list[Trace], wanted: list[Trace]) -> None:
    assert [encode(t) for t in found] == [encode(t) for t in wanted]
    assert [t.contents for t in found] == [t.contents for t in wanted]


@pytest.mark.parametrize("method", [DEFLATE, ZSTD, STORED])
def test_an_archive_says_the_same_as_the_document(method: int) -> None:
    log = document()
    same(read(as_eval(log, method)), read(raw(log), "log.json"))


def test_chunked_samples_say_the_same() -> None:
    log = document()
    same(read(as_chunked(log)), read(raw(log), "log.json"))
    same(read(as_chunked(log, size=1)), read(raw(log), "log.json"))


def test_inline_prompts_say_the_same_as_references() -> None:
    log = document()
    wanted = read(raw(log), "log.json")
    pool = log["samples"][0].pop("events_data")["messages"]
    for event in log["samples"][0]["events"]:
        for start, end in event.pop("input_refs", ()):
            event["input"] += pool[start:end]
    same(read(raw(log), "log.json"), wanted)


def test_spaces_and_another_order_of_keys_are_no_matter() -> None:
    log = document()
    turned = json.dumps(dict(reversed(list(log.items()))), indent=2).encode()
    small = json.dumps({"eval": log["eval"], "version": 2, "samples": log["samples"]}, indent=1).encode()
    assert logs.importer("inspect").sniff(small[:65536]) is True
    same(list(logs.importer("inspect").read(turned)), read(raw(log), "log.json"))  # type: ignore[misc]


def test_a_growing_log_keeps_its_ids() -> None:
    log = document()
    whole = read(raw(log), "log.json")[0]
    log["samples"] = log["samples"][:1]
    log["samples"][0]["events"] = log["samples"][0]["events"][:24]
    part = read(as_eval(log, header=False))[0]
    assert part.trace_id == whole.trace_id
    assert len(part.events) > 8
    assert {e.id for e in part.events} <= {e.id for e in whole.events}
    assert part.meta["import"]["lacks"]["tokens that the sample counts and no model event states"] > 0


def test_a_sample_kept_without_its_events_is_its_conversation() -> None:
    log = document()
    log["samples"][0]["events"] = []
    trace = read(raw(log), "log.json")[0]
    assert logs.kinds(trace) == {"message": 1, "human_intervention": 1, "orchestrator_decision": 3, "tool_call": 4}
    assert "events: only the final conversation was kept" in trace.meta["import"]["lacks"]


def test_the_last_sample_of_a_name_counts() -> None:
    sample = document()["samples"][1]
    newer = {**sample, "scores": {"match": {"value": "C"}}}
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("_journal/start.json", raw({"eval": document()["eval"]}))
        archive.writestr("samples/name_epoch_1.json", raw(sample))
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("samples/name_epoch_1.json", raw(newer))
    (trace,) = read(stream.getvalue())
    assert trace.rewards == {"match": 1.0, "team": 1.0}


# -- what is broken ------------------------------------------------------------------------------------------------------


def test_an_archive_that_is_cut_off_is_read_as_far_as_it_goes() -> None:
    data = as_eval(document(), header=False)
    (session,) = logs.sessions("inspect", {"log.eval": data[: data.index(b"PK\x01\x02") + 20]})
    traces = list(logs.importer("inspect").read_session(session))
    assert [t.trace_id for t in traces] == ["ev-harbour/tides/1", "ev-harbour/name/1"]
    cut = data.index(b"samples/name_epoch_1") + 100
    (session,) = logs.sessions("inspect", {"log.eval": data[:cut]})
    traces = list(logs.importer("inspect").read_session(session))
    assert [t.trace_id for t in traces] == ["ev-harbour/tides/1"]
    assert "no directory" in session.report.broken[0]["what"]


def test_a_streamed_archive_without_sizes_and_directory_is_read() -> None:
    stream = _Unseekable()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:  # type: ignore[arg-type]
        archive.writestr("_journal/start.json", raw({"eval": document()["eval"]}))
        for sample in document()["samples"]:
            archive.writestr(f"samples/{sample['id']}_epoch_1.json", raw(sample))
    data = stream.getvalue()
    assert len(read(data)) == len(read(data[: data.rindex(b"PK\x05\x06")])) == 2


class _Unseekable(io.BytesIO):
    def seekable(self) -> bool:
        return False

    def seek(self, *_: Any) -> int:
        raise io.UnsupportedOperation

    def tell(self) -> int:
        raise io.UnsupportedOperation


def test_a_broken_sample_is_counted_and_the_rest_goes_on() -> None:
    entries = {
        "_journal/start.json": (raw({"eval": document()["eval"]}), DEFLATE),
        "samples/a_epoch_1.json": (b'{"id": ', ZSTD),
        "samples/b_epoch_1.json": (raw([1, 2]), DEFLATE),
        "samples/c_epoch_1.json": (
            raw({**document()["samples"][1], "events": [None, 3, {"event": "model"}, {"event": 7}]}),
            DEFLATE,
        ),
        "samples/name_epoch_1.json": (raw(document()["samples"][1]), DEFLATE),
    }
    (session,) = logs.sessions("inspect", {"log.eval": packed(entries)})
    traces = list(logs.importer("inspect").read_session(session))
    assert [len(t.events) for t in traces] == [1, 7]
    assert session.report.broken_count == 1
    assert session.report.broken[0]["file"] == "log.eval/samples/a_epoch_1.json"


@pytest.mark.parametrize("method", [DEFLATE, ZSTD])
@pytest.mark.parametrize("stated", [None, 100])
def test_a_bomb_is_refused_whatever_size_it_states(method: int, stated: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_inspect_zip, "RATIO_FROM", 1 << 20)
    bomb = b"[" + b" " * (48 << 20) + b"]"
    name = "samples/a_epoch_1.json"
    archive = _inspect_zip.Archive(File.of(packed({name: (bomb, method)}, stated=stated), "x.eval"))
    with pytest.raises(ValueError, match="unpacks to more than"):
        archive.read(name)
    entries = {name: (bomb, method), "samples/name_epoch_1.json": (raw(document()["samples"][1]), method)}
    (session,) = logs.sessions("inspect", {"log.eval": packed(entries, stated=stated)})
    assert len(list(logs.importer("inspect").read_session(session))) == 1
    assert session.report.broken_count >= 1


def test_limits_hold_for_the_entry_and_for_the_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    data = packed({f"samples/{k}_epoch_1.json": (bytes(range(256)) * 40, DEFLATE) for k in range(4)})
    monkeypatch.setattr(_inspect_zip, "MAX_ARCHIVE", 25_000)
    archive = _inspect_zip.Archive(File.of(data, "x.eval"))
    archive.read("samples/0_epoch_1.json")
    archive.read("samples/1_epoch_1.json")
    with pytest.raises(ValueError, match="more than the limit"):
        archive.read("samples/2_epoch_1.json")
    monkeypatch.setattr(_inspect_zip, "MAX_ENTRY", 5_000)
    with pytest.raises(ValueError, match="unpacks to more than"):
        _inspect_zip.Archive(File.of(data, "x.eval")).read("samples/0_epoch_1.json")


def test_entries_that_overlap_are_refused() -> None:
    data = bytearray(packed({f"samples/{k}_epoch_1.json": (b"[1,2,3]" * 100, STORED) for k in range(3)}))
    where = data.index(b"PK\x01\x02")
    for _ in range(2):
        second = data.index(b"PK\x01\x02", where + 4)
        data[second + 20 : second + 24] = struct.pack("<L", 2200)
        where = second
    with pytest.raises(ValueError, match="overlap"):
        _inspect_zip.Archive(File.of(bytes(data), "x.eval"))


@pytest.mark.parametrize(
    "head",
    [
        b"PK\x03\x04" + b"\x00" * 60 + b"word/document.xml",
        b'{"eval": 1, "status": "x", "task": 1}',
        b'{"a": {"eval": {"task": 1}}, "status": "ok"}',
        b'{"text": "\\"eval\\": {\\"task\\"", "version": 1}',
        b"[]",
        b"\xff" * 100,
    ],
)
def test_other_files_are_not_taken(head: bytes) -> None:
    assert logs.importer("inspect").sniff(head) is False


# -- small rules ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("usage", "wanted"),
    [
        ({"input_tokens": 10, "output_tokens": 2, "total_tokens": 12}, (10, 2)),
        ({"input_tokens": 10, "output_tokens": 2, "total_tokens": 17, "input_tokens_cache_read": 5}, (15, 2)),
        ({"input_tokens": 10, "output_tokens": 2, "total_tokens": 12, "input_tokens_cache_read": 5}, (10, 2)),
        ({}, None),
        (None, None),
    ],
)
def test_usage(usage: Any, wanted: Any) -> None:
    found = usage_of(usage)[0]
    assert (None if found is None else (found.input, found.output)) == wanted


@pytest.mark.parametrize(
    ("value", "wanted"),
    [("C", 1), ("P", 0.5), ("I", 0), ("N", 0), (True, 1), ("Yes", 1), ("0.3", 0.3), ("x", None), (None, None)],
)
def test_score_values(value: Any, wanted: float | None) -> None:
    assert score_number(value) == wanted


# -- real logs -----------------------------------------------------------------------------------------------------------


def counted(path: Path) -> dict[str, Any]:
    """A count of our own: plain zipfile and json over the samples."""
    out: dict[str, Any] = {}
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if not name.startswith("samples/"):
                continue
            sample = json.loads(archive.read(name))
            by = Counter(e["event"] for e in sample["events"])
            used = [e["output"].get("usage") or {} for e in sample["events"] if e["event"] == "model"]
            out[f"{sample['id']}/{sample['epoch']}"] = {
                "steps": by["model"],
                "calls": sum(
                    len(c["message"].get("tool_calls") or ())
                    for e in sample["events"]
                    if e["event"] == "model"
                    for c in e["output"]["choices"]
                ),
                "results": by["tool"],
                "heard": sum(m["role"] in ("user", "system") for m in sample["messages"]),
                "spawns": sum(e["event"] == "span_begin" and e["type"] == "agent" for e in sample["events"]),
                "tokens": (sum(u.get("input_tokens", 0) for u in used), sum(u.get("output_tokens", 0) for u in used)),
                "usage": sum(u["total_tokens"] for u in sample["model_usage"].values()),
            }
    return out


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "samples"),
    [
        ("2025-11-07T10-59-47-05-00_websearch-addition-problem_LqPDntDnkk4h2fSqQ8i6CE.eval", 1),
        ("log_message_deduplication.eval", 1),
        ("log_streaming.eval", 4),
    ],
)
def test_real_logs_against_a_count_of_our_own(name: str, samples: int) -> None:
    path = logs.real("inspect", name)
    traces = logs.imported("inspect", logs.files_of(path))
    wanted = counted(path)
    assert len(traces) == len(wanted) == samples
    for trace in traces:
        kinds, spent = logs.kinds(trace), logs.tokens(trace)
        assert wanted["/".join(trace.trace_id.split("/")[-2:])] == {
            "steps": kinds["orchestrator_decision"],
            "calls": kinds["tool_call"],
            "results": kinds["tool_result"],
            "heard": kinds["human_intervention"] + kinds["message"],
            "spawns": kinds["spawn"],
            "tokens": spent.get("main", (0, 0)),
            "usage": trace.costs["tokens"],
        }
        assert trace.agents[-1] == "main" or "main" in trace.agents
        assert "team" in trace.rewards


@pytest.mark.shared
def test_real_logs_that_lose_their_directory_are_still_read() -> None:
    for path in sorted(logs.real("inspect").glob("*.eval")):
        data = path.read_bytes()
        whole, cut = read(data), read(data[: data.rindex(b"PK\x05\x06")])
        assert [encode(t) for t in cut] == [encode(t) for t in whole]


# -- samples and events without their log ------------------------------------------------------------------------------------


def alone() -> dict[str, Any]:
    at = "2026-05-01T10:00:0{}+00:00".format
    answer = {"choices": [{"message": {"role": "assistant", "content": "4"}, "stop_reason": "stop"}], "usage": {"input_tokens": 9, "output_tokens": 1}}
    events = [
        {"event": "sample_init", "timestamp": at(0), "working_start": 0.0, "span_id": "m", "sample": {"id": "sum", "input": "2 + 2?", "target": "4"}},
        {"event": "span_begin", "timestamp": at(1), "working_start": 0.1, "id": "m", "type": "agent", "name": "react", "span_id": "m"},
        {"event": "model", "timestamp": at(2), "completed": at(3), "working_start": 0.2, "span_id": "m", "model": "m",
         "input": [{"role": "user", "content": "2 + 2?"}], "output": answer},
        {"event": "span_end", "timestamp": at(4), "working_start": 0.3, "id": "m", "span_id": "m"},
    ]  # fmt: skip
    return {"id": "sum", "epoch": 1, "input": "2 + 2?", "target": "4", "events": events}


@pytest.mark.parametrize("shape", ["sample", "lines", "list", "object"])
def test_a_sample_or_its_events_alone(shape: str) -> None:
    whole = alone()
    data = {
        "sample": json.dumps(whole, indent=1),
        "lines": "".join(json.dumps(event) + "\n" for event in whole["events"]),
        "list": json.dumps(whole["events"]),
        "object": json.dumps({"events": whole["events"], "attachments": {}}),
    }[shape]
    (trace,) = logs.imported("inspect", {"x.json": data.encode()})
    assert (trace.task_id, trace.tokens, trace.meta["title"]) == ("task/sum", 10, "2 + 2?")
    assert [e.type for e in trace.events if e.agent != "user"][-1] in ("message", "orchestrator_decision", "return")
