"""`counterpoint store` and `counterpoint rm`, as a user would run them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from counterpoint.store import Store
from counterpoint.testing import synthetic_trace

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    with Store(tmp_path / "traces") as store:
        store.add_many([synthetic_trace(2, 4, trace_id=f"t{i}") for i in range(3)])
        store.add(synthetic_trace(2, 4, "swarm", trace_id="odd one"))
        store.record("open-1", task_id="demo").release()
    monkeypatch.chdir(tmp_path)
    return tmp_path / "traces"


def test_info_counts_what_is_there(folder: Path, run: Run) -> None:
    code, out, _ = run("store", "info")
    assert code == 0
    assert "4 finished, 1 open, 0 removed" in out
    run("store", "rm", "t1", "--yes")
    code, out, _ = run("store", "info", "--json")
    said = json.loads(out)
    assert (said["traces"], said["open"], said["dead_traces"], said["form"]) == (3, 1, 1, 2)
    assert said["bytes"]["lake"] == sum(p.stat().st_size for p in folder.glob("lake/**/*.parquet"))
    assert sum(day["traces"] for day in said["days"]) == 3
    assert said["events"] == sum(day["events"] for day in said["days"]) > 0
    assert run("store", "info", "--rows", "0")[1] == run("store", "info")[1]  # one day, of at most seven


def test_verify_ends_with_4_and_names_the_file(folder: Path, run: Run) -> None:
    assert run("store", "verify")[0] == 0
    part = sorted(folder.glob("lake/**/*.events.parquet"))[0]
    data = bytearray(part.read_bytes())
    data[40] ^= 1
    part.write_bytes(data)
    code, out, err = run("store", "verify")
    assert code == 4
    assert out.startswith(f"traces/{part.relative_to(folder)}: a file of the lake is damaged")
    assert "concerns" in out
    assert "1 faults" in err
    code, out, _ = run("store", "verify", "--json")
    assert code == 4
    assert [f["file"] for f in json.loads(out)["faults"]] == [f"traces/{part.relative_to(folder)}"]


def test_repair_says_what_is_lost_and_where_it_lies(folder: Path, run: Run) -> None:
    part = next(p for p in folder.glob("lake/**/*.events.parquet") if b"odd one" in p.read_bytes())
    part.write_bytes(part.read_bytes()[:-9])
    code, out, err = run("store", "repair")
    assert code == 4
    assert "0 of 1 traces could be read" in out
    assert "lost: odd one" in out
    assert "traces/set-aside/" in err
    assert next(folder.glob("set-aside/**/*.events.parquet")).stat().st_size > 0
    assert run("store", "verify")[0] == 0
    assert run("store", "repair", "--json")[0] == 0


def test_a_damaged_journal_does_not_hide_the_others(folder: Path, run: Run) -> None:
    (journal,) = folder.glob("journal/*.jsonl")
    journal.write_bytes(journal.read_bytes().replace(b"demo", b"dEmo"))
    code, out, err = run("ls")
    assert code == 0
    assert out.count("\n") == 5
    assert f"damaged, and not listed: {journal.name}" in err
    assert run("store", "rm", "open-1", "--yes")[0] == 0
    assert run("ls")[2] == ""


def test_compact_merges(folder: Path, run: Run) -> None:
    assert "2 parts merged into 1, 0 files deleted" in run("store", "compact")[1]
    assert json.loads(run("store", "compact", "--purge", "--json")[1])["deleted"] == 8 - 2


def test_rm_removes_by_id_and_erases_now(folder: Path, run: Run) -> None:
    code, out, err = run("store", "rm", "t0", "odd one", "--yes")
    assert (code, out) == (0, "2 removed\n")
    assert "`counterpoint store rm ID --purge` does so now" in err
    assert "counterpoint store rm --restore ID" in err
    assert any(b"odd one" in p.read_bytes() for p in folder.rglob("*") if p.is_file())
    code, out, _ = run("store", "rm", "t1", "--yes", "--purge")
    assert (code, out) == (0, "1 removed and erased\n")
    assert not [p for p in folder.rglob("*") if p.is_file() and b"odd one" in p.read_bytes()]
    assert Store(folder).ids() == ["t2"]


def test_rm_by_query_needs_a_field(folder: Path, run: Run) -> None:
    code, _, err = run("store", "rm", "t", "--yes")
    assert code == 2
    assert "3 traces have ids that begin with" in err
    assert run("store", "rm", "odd", "--yes")[0] == 2, "a part of an id is not the id"
    assert run("store", "rm", "tokns:1", "--yes")[0] == 2
    assert run("store", "rm", "tokens>1g", "--yes")[0] == 3
    assert len(Store(folder).ids()) == 4
    code, out, _ = run("store", "rm", "topology:swarm", "--yes", "--json")
    assert json.loads(out)["removed"] == ["odd one"]


def test_rm_asks_first(folder: Path, run: Run) -> None:
    code, _, err = run("store", "rm", "t0")
    assert code == 2
    assert "--yes" in err
    assert "t0" in Store(folder).ids()


def test_rm_leaves_what_is_being_recorded(folder: Path, run: Run) -> None:
    with Store(folder) as store, store.resume("open-1"):
        code, out, err = run("store", "rm", "open-1", "t0", "--yes")
        assert code == 6
        assert out.startswith("1 removed")
        assert "being recorded: open-1" in err
    assert Store(folder).open_ids() == ["open-1"]


def test_no_store_is_an_error(tmp_path: Path, run: Run) -> None:
    for words in (("info",), ("verify",), ("repair",), ("compact",)):
        assert run("store", *words, "--store", tmp_path / "none")[0] == 3, words
    assert run("store", "rm", "x", "--store", tmp_path / "none")[0] == 3
    assert not (tmp_path / "none").exists()
