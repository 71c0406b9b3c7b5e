"""The manifest: numbered commits, checkpoints, and what damage does to them."""

from __future__ import annotations

from pathlib import Path

import pytest

from counterpoint.errors import InputError
from counterpoint.store import Store
from counterpoint.store.log import Commit, Log
from counterpoint.testing import synthetic_trace


def _store(folder: Path, commits: int) -> Store:
    store = Store(folder)
    for i in range(commits):
        store.add(synthetic_trace(2, 3, trace_id=f"t{i}"))
    return store


def test_two_writers_never_share_a_number(tmp_path: Path) -> None:
    Store(tmp_path).close()
    one, two = (Log(tmp_path / "log", tmp_path / "head") for _ in range(2))
    one.refresh()
    two.refresh()
    for i in range(10):
        (one if i % 2 else two).commit(lambda state: Commit(at=0.0, drop=["x"]))
    assert one.refresh().number == two.refresh().number == 10
    assert len(list(tmp_path.glob("log/*.json"))) == 10


def test_opening_reads_a_checkpoint_and_old_commits_are_swept(tmp_path: Path) -> None:
    store = _store(tmp_path, 70)
    assert list(tmp_path.glob("log/*.checkpoint"))
    assert len(list(tmp_path.glob("log/*.json"))) < 60
    assert Store(tmp_path).ids() == store.ids()


def test_a_reader_that_fell_behind_a_sweep_catches_up(tmp_path: Path) -> None:
    reader = _store(tmp_path, 1)
    _store(tmp_path, 70)
    assert not (tmp_path / "log" / "000000000002.json").exists()
    assert len(reader) == 70


def test_a_damaged_checkpoint_falls_back_to_the_one_before(tmp_path: Path) -> None:
    ids = _store(tmp_path, 70).ids()
    newest = sorted(tmp_path.glob("log/*.checkpoint"))[-1]
    newest.write_bytes(b"garbage")
    assert Store(tmp_path).ids() == ids


def test_a_damaged_commit_is_named_and_left_alone(tmp_path: Path) -> None:
    _store(tmp_path, 3)
    path = tmp_path / "log" / "000000000002.json"
    path.write_bytes(b'{"at": 1, "rows": 7}')
    with pytest.raises(InputError, match=r"000000000002\.json: the store's log is damaged") as caught:
        Store(tmp_path)
    assert caught.value.exit_code == 2
    assert path.read_bytes() == b'{"at": 1, "rows": 7}'


def test_a_missing_commit_is_named(tmp_path: Path) -> None:
    _store(tmp_path, 3)
    (tmp_path / "log" / "000000000002.json").unlink()
    with pytest.raises(InputError, match=r"000000000002\.json: a commit of the store's log is missing"):
        Store(tmp_path)
