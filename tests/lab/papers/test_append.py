"""Adding to a user's file."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from counterpoint.errors import InputError, NotFound
from counterpoint.lab.papers import load
from counterpoint.lab.papers.records import Paper


def _paper(record: dict[str, Any], **changes: Any) -> Paper:
    return msgspec.convert(record | changes, Paper)


def test_first_and_second_paper(tmp_path: Path, record: dict[str, Any]) -> None:
    path = tmp_path / "mine.jsonl"
    assert load.add(_paper(record), path) == 1
    assert load.add(_paper(record, key="b", title="B", arxiv_id=None), path) == 2
    assert [p.key for p in load.read_papers(path)] == ["novel2026", "b"]
    assert os.listdir(tmp_path) == ["mine.jsonl"]


def test_a_missing_last_newline_is_mended(user_file: Path, record: dict[str, Any]) -> None:
    user_file.write_text(user_file.read_text().rstrip("\n"))
    load.add(_paper(record, key="b", title="B", arxiv_id=None), user_file)
    assert len(load.read_papers(user_file)) == 2


def test_dry_run_writes_nothing(tmp_path: Path, record: dict[str, Any]) -> None:
    load.add(_paper(record), tmp_path / "mine.jsonl", dry_run=True)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"key": "c3"},
        {"key": "b", "title": "B"},
        {"key": "b", "arxiv_id": None},
        {"key": "b", "arxiv_id": None, "title": "Proximal policy optimization: ALGORITHMS"},
    ],
)
def test_duplicates_are_refused_and_the_file_is_untouched(
    user_file: Path, record: dict[str, Any], changes: dict[str, Any]
) -> None:
    before = user_file.read_bytes()
    with pytest.raises(InputError):
        load.add(_paper(record, **changes), user_file)
    assert user_file.read_bytes() == before


def test_a_broken_file_is_not_written_to(user_file: Path, record: dict[str, Any]) -> None:
    user_file.write_text("{bad\n")
    with pytest.raises(InputError, match=":1"):
        load.add(_paper(record), user_file)
    assert user_file.read_text() == "{bad\n"


def test_a_failed_write_leaves_the_old_file_and_no_other(
    user_file: Path, record: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = user_file.read_bytes()

    def fail(*_: object) -> None:
        raise OSError(28, "no space left")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="no space"):
        load.add(_paper(record, key="b", title="B", arxiv_id=None), user_file)
    assert user_file.read_bytes() == before
    assert os.listdir(user_file.parent) == [user_file.name]


def test_link_and_mode_survive(user_file: Path, record: dict[str, Any]) -> None:
    user_file.chmod(0o640)
    link = user_file.with_name("link.jsonl")
    link.symlink_to(user_file)
    load.add(_paper(record, key="b", title="B", arxiv_id=None), link)
    assert link.is_symlink()
    assert user_file.stat().st_mode & 0o777 == 0o640
    assert len(load.read_papers(user_file)) == 2


def test_missing_folder(tmp_path: Path, record: dict[str, Any]) -> None:
    with pytest.raises(NotFound):
        load.add(_paper(record), tmp_path / "none" / "mine.jsonl")


def test_only_a_plain_file_is_replaced(tmp_path: Path, record: dict[str, Any]) -> None:
    pipe, folder = tmp_path / "pipe", tmp_path / "folder"
    os.mkfifo(pipe)
    folder.mkdir()
    for target in (pipe, folder):
        with pytest.raises(InputError, match=r"not a plain file|is a directory"):
            load.add(_paper(record), target)
    assert pipe.is_fifo()


def test_many_writers_lose_nothing(tmp_path: Path, record: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "_PATIENCE_S", 600.0)  # a slow machine may take longer than anybody would wait
    path = tmp_path / "mine.jsonl"
    papers = [_paper(record, key=f"k{n}", title=f"T{n}", arxiv_id=None) for n in range(12)]
    threads = [threading.Thread(target=load.add, args=(p, path)) for p in papers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {p.key for p in load.read_papers(path)} == {p.key for p in papers}
