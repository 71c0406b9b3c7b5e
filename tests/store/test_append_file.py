"""A file that only grows: whatever fails on the way, it ends where it ended before."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from counterpoint.store import disk
from counterpoint.store.append_file import AppendFile


@pytest.fixture
def file(tmp_path: Path) -> Iterator[AppendFile]:
    file = AppendFile.open(tmp_path / "f", flags=os.O_CREAT)
    yield file
    file.close()


def fails(error: BaseException) -> Callable[..., Any]:
    def fail(*_: Any) -> None:
        raise error

    return fail


def half(fd: int, data: bytes) -> None:
    os.write(fd, data[: len(data) // 2])
    raise OSError(28, "full")


def test_what_is_appended_is_there_behind_what_was_there(file: AppendFile) -> None:
    file.append(b"one\n")
    file.append(b"two\n", durably=False)
    assert (file.read(), file.read(4), file.size) == (b"one\ntwo\n", b"two\n", 8)
    os.pwrite(file.fd, b"torn", 8)
    file.append(b"3\n")
    assert file.read()[:10] == b"one\ntwo\n3\n"
    file.cut(4)
    assert (file.read(), file.size) == (b"one\n", 4)


@pytest.mark.parametrize(
    ("name", "failing"),
    [("write_all", half), ("write_all", fails(KeyboardInterrupt())), ("sync_file", fails(OSError(5, "broken")))],
)
def test_a_failed_append_leaves_nothing(file: AppendFile, monkeypatch: pytest.MonkeyPatch, name: str, failing: Callable[..., Any]) -> None:
    file.append(b"one\n")
    with monkeypatch.context() as patch:
        patch.setattr(disk, name, failing)
        with pytest.raises((OSError, KeyboardInterrupt)):
            file.append(b"twotwo\n")
    assert (file.read(), file.size) == (b"one\n", 4)
    with pytest.raises(OSError, match="no tally"):
        file.append(b"two\n", acknowledge=fails(OSError("no tally")))
    assert (file.read(), file.size) == (b"one\n", 4)
    seen: list[bytes] = []
    file.append(b"two\n", acknowledge=lambda: seen.append(file.read()))
    assert seen == [file.read()] == [b"one\ntwo\n"]


def test_where_a_half_cannot_be_taken_back_the_next_append_does_it(file: AppendFile, monkeypatch: pytest.MonkeyPatch) -> None:
    file.append(b"one\n")
    with monkeypatch.context() as patch:
        patch.setattr(disk, "write_all", half)
        patch.setattr(os, "ftruncate", fails(OSError(5, "broken")))
        with pytest.raises(OSError, match="full"):
            file.append(b"a long line\n")
    assert file.read() != b"one\n"
    file.append(b"2\n")
    assert file.read() == b"one\n2\n"


def test_a_file_whose_place_another_took(tmp_path: Path, file: AppendFile) -> None:
    (tmp_path / "other").touch()
    assert [file.is_at(tmp_path / name) for name in ("f", "other", "gone")] == [True, False, False]
    file.close()
    assert not file.is_open
