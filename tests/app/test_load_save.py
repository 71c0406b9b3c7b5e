"""`load` and `save`: whole or not at all, by path or by id."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

import counterpoint
from counterpoint.errors import InputError, InvalidTrace, NotFound
from counterpoint.files import put
from counterpoint.testing import synthetic_trace


def test_a_survey_file_round_trips(tmp_path: Path) -> None:
    trace = synthetic_trace(3, 19, "debate", 4)
    path = counterpoint.save(trace, tmp_path / "a.trace.json")
    assert counterpoint.load(path) == trace
    assert counterpoint.load(str(path)) == trace


def test_lines_keep_contents_and_meta(tmp_path: Path) -> None:
    trace = synthetic_trace(3, 19, "debate", 4, contents=True)
    path = counterpoint.save(trace, tmp_path / "a.jsonl")
    assert counterpoint.load(path) == trace
    assert counterpoint.load(path).contents


def test_a_large_file_is_mapped_and_reads_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = synthetic_trace(30, 200, "swarm", 4)
    path = counterpoint.save(trace, tmp_path / "a.trace.json")
    monkeypatch.setattr("counterpoint.app.load_save._MAP_ABOVE", 10)
    assert counterpoint.load(path) == trace
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(InvalidTrace, match="ends before"):
        counterpoint.load(path)


def test_an_id_comes_from_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = synthetic_trace(3, 19, "debate", 4, trace_id="run-7")
    with counterpoint.Store(tmp_path / "s") as store:
        store.add(trace)
    assert counterpoint.load("run-7", store=tmp_path / "s") == trace
    monkeypatch.setenv("COUNTERPOINT_STORE", str(tmp_path / "s"))
    assert counterpoint.load("run") == trace
    with pytest.raises(NotFound):
        counterpoint.load("walk")


def test_no_store_and_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COUNTERPOINT_STORE", raising=False)
    with pytest.raises(NotFound, match="counterpoint import"):
        counterpoint.load("anything")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file_and_no_other(step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "a.trace.json"
    target.write_bytes(b"old")

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(target))

    monkeypatch.setattr(os, step, full)
    with pytest.raises(OSError, match="No space"):
        counterpoint.save(synthetic_trace(3, 19, "debate", 4), target)
    assert target.read_bytes() == b"old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.trace.json"]


def test_what_is_no_plain_file_is_not_replaced(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="directory"):
        put([(tmp_path, b"x")])
    with pytest.raises(InputError, match="not a plain file"):
        put([(Path("/dev/null"), b"x")])
    (tmp_path / "there").write_bytes(b"old")
    with pytest.raises(InputError, match="--overwrite"):
        put([(tmp_path / "there", b"new")], overwrite=False)
    assert (tmp_path / "there").read_bytes() == b"old"


def test_a_new_file_has_the_usual_mode(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        put([(tmp_path / "f", b"x")])
    finally:
        os.umask(old)
    assert (tmp_path / "f").stat().st_mode & 0o777 == 0o640
