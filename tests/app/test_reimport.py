"""Files that `export` wrote, given to `import` and `check`: each comes back, packed or not, and none takes the place of more."""

from __future__ import annotations

import gzip
import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

import counterpoint as cpt
from counterpoint.app.cli import main
from counterpoint.store import Store
from counterpoint.testing import synthetic_trace
from counterpoint.trace import Trace
from counterpoint.trace.lines import encode_lines

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A command in an empty folder: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)

    def call(*args: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as end:
            main(list(args))
        out, err = capsys.readouterr()
        return int(end.value.code or 0), out, err

    return call


def made(name: str = "run") -> Trace:
    return replace(synthetic_trace(3, 19, contents=True), trace_id=name, meta={"title": "a run"})


def stored(folder: str = "traces") -> dict[str, Trace]:
    with Store(folder, create=False) as store:
        return {name: store.get(name) for name in store.ids()}


@pytest.mark.parametrize("form", ["jsonl", "otlp"])
def test_what_export_wrote_whole_is_imported_equal_and_passes_the_check(run: Run, form: str) -> None:
    cpt.save(made(), "run.jsonl")
    assert run("export", "run.jsonl", "--to", form, "-o", f"out.{form}.json", "--mask", "off")[0] == 0
    code, out, err = run("store", "check", f"out.{form}.json")
    assert code == 0, out + err
    assert f"ok  ({form};" in out
    code, out, err = run("import", f"out.{form}.json")
    assert code == 0, err
    assert stored() == {"run": made()}


def test_otlp_of_two_traces_or_damaged_is_named_by_the_check(run: Run) -> None:
    for name in ("one", "two"):
        cpt.save(made(name), f"{name}.otlp.json", to="otlp")
    groups = [json.loads(Path(f"{name}.otlp.json").read_bytes())["resourceSpans"] for name in ("one", "two")]
    Path("both.otlp.json").write_text(json.dumps({"resourceSpans": groups[0] + groups[1]}, separators=(",", ":")))
    code, out, _ = run("store", "check", "both.otlp.json")
    assert code == 4
    assert "holds 2 traces" in out
    assert run("import", "both.otlp.json")[0] == 0
    assert sorted(stored()) == ["one", "two"]
    Path("torn.otlp.json").write_bytes(Path("one.otlp.json").read_bytes()[:900])
    assert run("store", "check", "torn.otlp.json")[0] in (2, 4)


def test_packed_files_and_members_of_archives_are_read_and_a_packed_store_is_no_export(run: Run) -> None:
    lines = {name: encode_lines(made(name)) for name in ("packed", "tarred", "marked", "plain")}
    Path("packed.jsonl.gz").write_bytes(gzip.compress(lines["packed"]))
    Path("marked.jsonl").write_bytes(b"\xef\xbb\xbf" + lines["marked"])
    Path("plain.txt").write_bytes(lines["plain"])
    Path("tarred.jsonl").write_bytes(lines["tarred"])
    Path("counterpoint.json").write_text('{"counterpoint_store":2}')
    with tarfile.open("some.tar.gz", "w:gz") as archive:
        archive.add("tarred.jsonl")
        archive.add("counterpoint.json", "old/counterpoint.json")
        archive.add("marked.jsonl", "old/journal/running.jsonl")
    os.remove("counterpoint.json")
    os.remove("tarred.jsonl")
    for file in ("packed.jsonl.gz", "marked.jsonl", "plain.txt", "some.tar.gz"):
        code, out, err = run("import", file)
        assert (code, out.split()[:2]) == (0, ["counterpoint", "1"]), out + err
    assert stored() == {name: made(name) for name in lines}


@pytest.mark.parametrize("form", ["survey", "jsonl"])
def test_a_copy_that_holds_less_does_not_take_the_place_of_the_whole(run: Run, form: str) -> None:
    whole = made()
    assert isinstance(whole.contents, dict)
    text = next(iter(whole.contents))
    whole.contents[text] = "ask ann@corp.io"  # masked on export, so that jsonl holds another text
    with Store("traces") as store:
        store.add(whole)
    assert run("export", "run", "--to", form, "-o", f"less.{form}.json")[0] == 0
    code, out, err = run("import", f"less.{form}.json")
    assert code == 0, err
    assert "1 kept" in out
    assert stored()["run"].contents[text] == "ask ann@corp.io"
    assert stored()["run"].meta["title"] == "a run"


def test_a_copy_that_holds_as_much_or_goes_further_updates(run: Run) -> None:
    whole = made()
    with Store("traces") as store:
        last = whole.events[-1].id
        store.add(replace(whole, events=whole.events[:-1], edges=[e for e in whole.edges if last not in (e.src, e.dst)]))
    cpt.save(whole, "run.jsonl")
    assert "1 updated" in run("import", "run.jsonl")[1]
    assert run("notes", "add", "run", "--label", "good")[0] == 0  # what people said here is not in the file, and no reason to keep
    scored = replace(whole, rewards={"team": 0.25})
    cpt.save(scored, "run.jsonl")
    assert "1 updated" in run("import", "run.jsonl")[1]
    assert "1 unchanged" in run("import", "run.jsonl")[1]
    with Store("traces") as store:
        assert store.get("run").rewards == scored.rewards
        assert [said.label for said in store.annotations("run")] == ["good"]


def test_the_limit_counts_exports_too(run: Run) -> None:
    for k, name in enumerate(("old", "new", "newest")):
        cpt.save(made(name), f"{name}.jsonl")
        os.utime(f"{name}.jsonl", (1000 + k, 1000 + k))
    assert run("import", "old.jsonl", "newest.jsonl", "new.jsonl", "--newest", "2")[0] == 0
    assert sorted(stored()) == ["new", "newest"]
