"""`counterpoint export` as a user meets it."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from counterpoint import registry
from counterpoint.app.cli import main
from counterpoint.store import Store
from counterpoint.testing import odd_trace, synthetic_trace
from counterpoint.trace import Event, Trace, content_ref, decode, encode
from counterpoint.trace.lines import decode_lines, encode_lines

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `counterpoint export ...` in an empty folder: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COUNTERPOINT_STORE", raising=False)

    def call(*args: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as end:
            main(["export", *args])
        out, err = capsys.readouterr()
        return int(end.value.code or 0), out, err

    return call


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    """A trace with texts and meta, in run.jsonl."""
    made = replace(synthetic_trace(3, 19, contents=True), meta={"by": "test"})
    (tmp_path / "run.jsonl").write_bytes(encode_lines(made))
    return made


def test_survey_is_the_default_and_says_what_stayed(run: Run, trace: Trace) -> None:
    code, out, err = run("run.jsonl", "-o", "out.json")
    data = Path("out.json").read_bytes()
    assert (code, err) == (0, "")
    assert decode(data) == replace(trace, contents={}, meta={})
    first, left, hidden, lost = out.splitlines()
    assert first == f"out.json  58 events  {len(data):,} bytes  sha256 {hashlib.sha256(data).hexdigest()}"
    assert left == f"left out  {len(trace.contents)} content texts · 1 meta entry"
    assert hidden == "masked    nothing: no secret of a known form"
    assert lost == "lost      texts behind content references, meta"


def test_a_trace_in_the_store_by_the_beginning_of_its_id(run: Run, trace: Trace) -> None:
    with Store("kept") as store:
        store.add(replace(trace, trace_id="a1b2c3"))
    assert run("a1b", "--store", "kept", "--to", "jsonl", "-o", "out.jsonl")[0] == 0
    assert decode_lines(Path("out.jsonl").read_bytes()).events == trace.events


def test_lines_keep_everything(run: Run, trace: Trace) -> None:
    code, out, _ = run("run.jsonl", "--to", "jsonl", "-o", "out.jsonl")
    assert code == 0
    assert decode_lines(Path("out.jsonl").read_bytes()) == trace
    assert "left out  nothing" in out


def test_json_says_the_same(run: Run, trace: Trace) -> None:
    code, out, _ = run("run.jsonl", "--to", "perfetto", "-o", "t.json", "--json")
    said = json.loads(out)
    data = Path("t.json").read_bytes()
    assert code == 0
    assert said["schema"] == 1
    assert (said["to"], said["traces"], said["dry_run"]) == ("perfetto", [trace.trace_id], False)
    assert said["files"] == [
        {"path": "t.json", "rows": 58, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    ]
    assert said["left_out"] == {"contents": len(trace.contents), "meta": 1}
    assert json.loads(data)["traceEvents"]


@pytest.fixture
def telling(tmp_path: Path) -> Trace:
    """A trace with secrets in a text, an error, an extra field and its meta, in telling.jsonl."""
    text = "mail a@x.io or b@x.io, password=hunter2"
    event = Event(id="a@x.io", t=0, type="message", agent="a@x.io", content_ref=content_ref(text), error="no /home/alice/x")
    made = Trace(
        trace_id="telling",
        task_id="t",
        events=[replace(event, extra={"note": "a@x.io"})],
        meta={"cwd": "/home/alice/x"},
        contents={content_ref(text): text},
    )
    (tmp_path / "telling.jsonl").write_bytes(encode_lines(made))
    return made


def test_secrets_are_masked_unless_asked_for(run: Run, telling: Trace) -> None:
    code, out, _ = run("telling.jsonl", "--to", "jsonl", "-o", "out.jsonl")
    assert code == 0
    assert "masked    8 secrets (1 key, 5 e-mails, 2 paths)" in out.splitlines()
    new = decode_lines(Path("out.jsonl").read_bytes())
    (event,) = new.events
    assert new.text(event) == "mail [masked:email:0001] or [masked:email:0002], password=[masked:key:0001]"
    assert (event.id, event.agent, event.error) == (event.agent, "[masked:email:0001]", "no /home/[masked:path:0001]/x")
    assert new.meta == {"cwd": "/home/[masked:path:0001]/x"}
    code, out, _ = run("telling.jsonl", "--to", "jsonl", "-o", "bare.jsonl", "--mask", "off")
    assert "masked    nothing: --mask off" in out.splitlines()
    assert decode_lines(Path("bare.jsonl").read_bytes()) == telling


@pytest.mark.parametrize("how", [("--to", "jsonl", "-o", "out"), ("--to", "html", "-o", "out")])
def test_personal_numbers_are_masked_where_that_is_asked(run: Run, tmp_path: Path, how: tuple[str, ...]) -> None:
    said = "ring +49 30 9018 2045 from 10.20.30.40"
    event = Event(id="e1", t=0, type="message", agent="a", content_ref=content_ref(said), error="10.20.30.40 is away")
    (tmp_path / "told.jsonl").write_bytes(encode_lines(Trace(trace_id="t", task_id="t", events=[event], contents={content_ref(said): said})))
    code, out, _ = run("told.jsonl", *how)
    assert code == 0
    assert "masked    nothing" in out
    code, out, _ = run("told.jsonl", *how, "--mask", "personal", "--overwrite", "--full")
    assert code == 0
    assert "masked    3 secrets (3 personal numbers)" in out
    assert "ip-address" in out
    assert b"9018" not in Path("out").read_bytes()


@pytest.mark.parametrize("target", ["survey", "csv", "parquet"])
def test_errors_and_extra_fields_are_masked_where_texts_stay_behind(run: Run, telling: Trace, target: str) -> None:
    assert run("telling.jsonl", "--to", target, "-o", "out")[0] == 0
    files = [Path("out")] if target == "survey" else list(Path("out").iterdir())
    data = b"".join(file.read_bytes() for file in files)
    assert b"/home/alice" not in data
    assert b"[masked:path:0001]" in data
    assert b"a@x.io" not in data, "ids are masked too"
    assert content_ref(telling.contents[str(telling.events[0].content_ref)]).encode() not in data, "a hash can be guessed at"


def test_json_counts_the_secrets(run: Run, telling: Trace) -> None:
    said = json.loads(run("telling.jsonl", "-o", "a.json", "--json")[1])
    assert said["masked"] == {"email": 5, "key": 1, "path": 2}
    said = json.loads(run("telling.jsonl", "-o", "b.json", "--json", "--mask", "off")[1])
    assert said["masked"] is None


def test_the_report_says_rule_place_and_count(run: Run, telling: Trace) -> None:
    _, out, _ = run("telling.jsonl", "--to", "jsonl", "-o", "a.jsonl", "--full")
    rows = [line.split() for line in out.splitlines()]
    assert ["kind", "rule", "place", "count"] in rows
    assert ["path", "home-folder", "event.error", "1"] in rows
    assert ["email", "email", "event.agent", "1"] in rows
    assert ["key", "named-password", "contents", "1"] in rows
    assert "hunter" not in out
    assert "x.io" not in out
    said = json.loads(run("telling.jsonl", "-o", "a.json", "--json", "--full")[1])
    assert {"kind": "path", "rule": "home-folder", "place": "meta.cwd", "count": 1} in said["report"]
    assert sum(row["count"] for row in said["report"]) == sum(said["masked"].values())
    assert "report" not in json.loads(run("telling.jsonl", "-o", "b.json", "--json")[1])
    assert json.loads(run("telling.jsonl", "-o", "c.json", "--json", "--full", "--mask", "off")[1])["report"] is None
    assert "report    nothing was masked" in run("telling.jsonl", "-o", "d.json", "--full", "--mask", "off")[1]


def test_the_same_export_makes_the_same_bytes_and_one_label_for_all_traces(run: Run, telling: Trace) -> None:
    Path("two.jsonl").write_bytes(encode_lines(replace(telling, trace_id="two", meta={"other": "b@x.io", "first": "a@x.io"})))
    for out in ("one", "again"):
        assert run("telling.jsonl", "two.jsonl", "--to", "jsonl", "-o", out)[0] == 0
    assert {p.name: p.read_bytes() for p in Path("one").iterdir()} == {p.name: p.read_bytes() for p in Path("again").iterdir()}
    first, second = (decode_lines((Path("one") / f"{name}.jsonl").read_bytes()) for name in ("telling", "two"))
    assert first.events[0].id == second.events[0].id == second.meta["first"]


def test_two_traces_with_secrets_add_up(run: Run, telling: Trace) -> None:
    Path("two.jsonl").write_bytes(encode_lines(replace(telling, trace_id="two")))
    _, out, _ = run("telling.jsonl", "two.jsonl", "--to", "jsonl", "-o", "both", "--dry-run")
    assert "masked    16 secrets (2 keys, 10 e-mails, 4 paths)" in out.splitlines()


@pytest.mark.parametrize("target", ["parquet", "csv"])
def test_tables_make_a_folder(run: Run, trace: Trace, target: str) -> None:
    Path("two.trace.json").write_bytes(encode(synthetic_trace(2, 5, "debate")))
    code, out, _ = run("run.jsonl", "two.trace.json", "--to", target, "-o", "new/tables")
    assert code == 0
    assert sorted(os.listdir("new/tables")) == [f"{n}.{target}" for n in ("edges", "events", "traces")]
    assert "2 rows" in out


def test_parquet_comes_back(run: Run, trace: Trace) -> None:
    run("run.jsonl", "--to", "parquet", "-o", "t")
    files = {p.name: p.read_bytes() for p in Path("t").iterdir()}
    assert list(registry.get("format", "parquet").read_tables(files)) == [replace(trace, contents={}, meta={})]


def test_several_traces_make_one_file_each(run: Run, trace: Trace) -> None:
    Path("odd.jsonl").write_bytes(encode_lines(odd_trace()))
    code, _, _ = run("run.jsonl", "odd.jsonl", "-o", "many")
    assert code == 0
    names = sorted(os.listdir("many"))
    assert names[1] == "synthetic-centralized-3x19-0.trace.json"
    assert names[0].startswith("odd_1__-")
    assert decode(Path("many", names[0]).read_bytes()).trace_id == "odd/1 é"


def test_a_folder_takes_one_trace_too(run: Run, trace: Trace) -> None:
    assert run("run.jsonl", "-o", "dir/")[0] == 0
    assert os.listdir("dir") == [f"{trace.trace_id}.trace.json"]
    assert run("run.jsonl", "--to", "perfetto", "-o", "dir")[0] == 0
    assert f"{trace.trace_id}.perfetto.json" in os.listdir("dir")


def test_ids_never_leave_the_folder(run: Run) -> None:
    for i, name in enumerate(["../up", "a/b", "..", ".hidden", "x" * 300, "é", "a b"]):
        Path(f"{i}.jsonl").write_bytes(encode_lines(replace(synthetic_trace(1, 1), trace_id=name)))
    code, _, _ = run(*(f"{i}.jsonl" for i in range(7)), "-o", "deep/many")
    assert code == 0
    assert len(os.listdir("deep/many")) == 7
    assert os.listdir("deep") == ["many"]
    assert not [n for n in os.listdir("deep/many") if n.startswith(".")]


def test_stdout(trace: Trace, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["export", str(tmp_path / "run.jsonl"), "-o", "-"])
    out, err = capfdbinary.readouterr()
    assert end.value.code == 0
    assert decode(out) == replace(trace, contents={}, meta={})
    assert b"left out" in err


def test_dry_run_writes_nothing_and_refuses_the_same(run: Run, trace: Trace) -> None:
    before = sorted(os.listdir())
    code, out, _ = run("run.jsonl", "--to", "csv", "-o", "new", "--dry-run")
    assert code == 0
    assert out.startswith("would write new/events.csv  58 rows")
    assert sorted(os.listdir()) == before
    assert run("run.jsonl", "-o", "run.jsonl", "--dry-run")[0] == 2


def test_what_exists_stays_without_force(run: Run, trace: Trace) -> None:
    Path("out.json").write_text("mine")
    code, _, err = run("run.jsonl", "-o", "out.json")
    assert code == 2
    assert "out.json: exists already" in err
    assert "--overwrite" in err
    assert Path("out.json").read_text() == "mine"
    assert run("run.jsonl", "-o", "out.json", "--overwrite")[0] == 0
    assert decode(Path("out.json").read_bytes()).trace_id == trace.trace_id


def test_one_table_that_exists_stops_all(run: Run, trace: Trace) -> None:
    Path("t").mkdir()
    Path("t/traces.csv").write_text("mine")
    assert run("run.jsonl", "--to", "csv", "-o", "t")[0] == 2
    assert os.listdir("t") == ["traces.csv"]


def test_its_own_file_can_be_replaced(run: Run, trace: Trace) -> None:
    assert run("run.jsonl", "--to", "jsonl", "-o", "run.jsonl", "--overwrite")[0] == 0
    assert decode_lines(Path("run.jsonl").read_bytes()) == trace


@pytest.mark.parametrize(("number", "code", "says"), [(errno.ENOSPC, 1, "no space left"), (errno.EACCES, 2, "permission denied")])
def test_a_failing_disk_leaves_nothing_behind(
    run: Run, trace: Trace, monkeypatch: pytest.MonkeyPatch, number: int, code: int, says: str
) -> None:
    Path("t").mkdir()
    Path("t/events.csv").write_text("old")
    calls: list[int] = []

    def fails(handle: int) -> None:
        calls.append(handle)
        if len(calls) == 2:
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fails)
    found, _, err = run("run.jsonl", "--to", "csv", "-o", "t", "--overwrite")
    assert found == code
    assert says in err
    assert "t/edges.csv" in err
    assert os.listdir("t") == ["events.csv"]
    assert Path("t/events.csv").read_text() == "old"


def test_new_files_have_the_usual_mode(run: Run, trace: Trace) -> None:
    mask = os.umask(0o022)
    try:
        run("run.jsonl", "-o", "out.json")
    finally:
        os.umask(mask)
    assert Path("out.json").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    ("args", "code", "says"),
    [
        (["run.jsonl", "--to", "perfeto", "-o", "x"], 2, "did you mean 'perfetto'?"),
        (["run.jsonl", "--to", "zzz", "-o", "x"], 2, "known: atif, atif-1.7, atif-1.8, csv, "),
        (["run.jsonl"], 2, "-o run.trace.json"),
        (["run.jsonl", "--to", "csv"], 2, "-o csv/"),
        (["-o", "x"], 2, "no trace is named"),
        (["run.jsonl", "--to", "parquet", "-o", "-"], 2, "-o parquet/"),
        (["run.jsonl", "run.jsonl", "-o", "-"], 2, "one trace"),
        (["run.jsonl", "run.jsonl", "-o", "dir"], 2, "same id"),
        (["run.jsonl", "run.jsonl", "--to", "csv", "-o", "dir"], 2, "have the id"),
        (["run.jsonl", "run.jsonl", "-o", "run.jsonl"], 2, "need a folder"),
        (["run.jsonl", "--to", "csv", "-o", "run.jsonl"], 2, "need a folder"),
        (["gone.json", "-o", "x"], 3, "no such file"),
        (["no-such-id", "-o", "x"], 3, "no-such-id"),
        (["not.json", "-o", "x"], 2, "not.json"),
        (["picture.jpg", "-o", "x"], 2, "known formats"),
        ([".", "-o", "x"], 2, "directory"),
        (["time.perfetto.json", "-o", "x"], 2, "written, not read"),
    ],
)
def test_bad_use_says_what_would_work(run: Run, trace: Trace, args: list[str], code: int, says: str) -> None:
    Path("not.json").write_text('{"trace_id": 1}')
    Path("picture.jpg").write_bytes(b"\xff\xd8\xff")
    Path("time.perfetto.json").write_text('{"traceEvents": []}')
    before = sorted(os.listdir())
    found, out, err = run(*args)
    assert found == code, err
    assert says in err
    assert out == ""
    assert sorted(os.listdir()) == before


def test_a_trace_that_breaks_the_schema_is_refused_for_survey_only(
    run: Run, trace: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = Trace(trace_id="bad", task_id="t", events=[Event(id="", t=0, type="message", agent="a")])
    monkeypatch.setattr("counterpoint.app.cli.export.load", lambda ref, store=None: bad)
    code, _, err = run("run.jsonl", "-o", "x.json")
    assert code == 2
    assert "events[0].id" in err
    assert run("run.jsonl", "--to", "csv", "-o", "t")[0] == 0


def test_a_trace_with_other_errors_is_still_exported(run: Run) -> None:
    loop: dict[str, Any] = json.loads(encode(synthetic_trace(1, 1)))
    loop["edges"].append({"src": "e3", "dst": "e1", "type": "causal"})
    Path("loop.json").write_text(json.dumps(loop))
    for target in ("survey", "perfetto"):
        assert run("loop.json", "--to", target, "-o", target)[0] == 0


def test_list_names_every_target_with_columns_and_losses(run: Run) -> None:
    code, out, _ = run("--list")
    assert code == 0
    written = {name: registry.get("format", name) for name in registry.ids("format")}
    for name, format_ in written.items():
        if format_.write is None and format_.write_tables is None:
            assert name in registry.ids("trainer") or f"{name}: " not in out, "a source is read, not written"
            continue
        assert f"{name}: " in out
        assert f"lost: {format_.lost}" in out
    for name in registry.ids("trainer"):
        assert f"{name}: " in out
        assert f"lost: {registry.get('trainer', name).lost}" in out
    assert "events.parquet: trace_id, id, t," in out
    code, out, _ = run("--list", "--json")
    listed = {row["target"]: row for row in map(json.loads, out.splitlines())}
    assert listed["csv"]["folder"] is True
    assert listed["csv"]["reads_back"] is False
    assert listed["survey"]["columns"]["edges"] == ["src", "dst", "type"]


def test_rows_of_several_traces_go_into_the_file_that_is_named(tmp_path: Path, run: Run) -> None:
    with Store(tmp_path / "s") as store:
        for k in range(3):
            store.add(synthetic_trace(2 + k, 6, seed=k))
    code, _, err = run("finished", "--to", "sft", "-o", "sft.jsonl", "--store", "s", "--json")
    assert (code, err) == (0, "")
    assert (tmp_path / "sft.jsonl").is_file()
    run("finished", "--to", "sft", "-o", "apart/", "--store", "s")
    apart = [line for file in sorted((tmp_path / "apart").iterdir()) for line in file.read_bytes().splitlines()]
    assert len(list((tmp_path / "apart").iterdir())) == 3
    assert sorted((tmp_path / "sft.jsonl").read_bytes().splitlines()) == sorted(apart)


@pytest.mark.parametrize(("target", "name"), [("survey", "all.trace.json"), ("perfetto", "all.json"), ("jsonl", "all.jsonl")])
def test_a_file_that_cannot_hold_several_traces_is_not_made_a_folder(tmp_path: Path, run: Run, target: str, name: str) -> None:
    with Store(tmp_path / "s") as store:
        for k in range(2):
            store.add(synthetic_trace(2 + k, 6, seed=k))
    code, _, err = run("finished", "--to", target, "-o", name, "--store", "s")
    assert (code, "holds one trace, not several" in err) == (2, True)
    assert not (tmp_path / name).exists()
