"""The spool: durable before it says so, one sync for many, torn lines cut, segments that go."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from counterpoint.app.receiver import spool as module
from counterpoint.app.receiver.spool import Place, Spool
from counterpoint.errors import CounterpointError, TryAgain
from counterpoint.store import disk


def put(spool: Spool, *lines: bytes) -> list[Place]:
    places: list[Place] = []
    spool.append(lines, places.extend).result(timeout=300)
    return places


def left(folder: Path) -> list[bytes]:
    spool = Spool(folder)
    try:
        return [line for line, _ in spool.recovered()]
    finally:
        spool.close()


def test_lines_are_found_again_in_order_and_by_place(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "s")
    places = put(spool, b"one\n", b"two\n") + put(spool, b"three\n")
    assert list(spool.read(reversed(places))) == [b"three\n", b"two\n", b"one\n"]
    assert spool.size() == 14 + 3 * 9
    spool.close()
    assert left(tmp_path / "s") == [b"one\n", b"two\n", b"three\n"]


def test_a_torn_last_line_is_cut_and_what_follows_is_whole(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "s")
    put(spool, b"one\n", b"two\n")
    spool.close()
    [segment] = (tmp_path / "s").glob("*.jsonl")
    whole = segment.read_bytes()
    segment.write_bytes(whole + b'{"resourceSp')
    spool = Spool(tmp_path / "s")
    assert [line for line, _ in spool.recovered()] == [b"one\n", b"two\n"]
    assert segment.read_bytes() == whole
    put(spool, b"three\n")
    spool.close()
    assert left(tmp_path / "s") == [b"one\n", b"two\n", b"three\n"]


def test_those_who_wait_together_share_one_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool(tmp_path / "s")
    put(spool, b"first\n")
    syncs, go, real = [], threading.Event(), disk.sync_file

    def slow(fd: int) -> None:
        syncs.append(fd)
        go.wait(5)
        real(fd)

    monkeypatch.setattr(disk, "sync_file", slow)
    told: list[Sequence[Place]] = []
    waiting = [spool.append([b"a\n"], told.append)]
    while not syncs:
        pass
    waiting += [spool.append([b"b%d\n" % i], told.append) for i in range(50)]
    assert told == []
    go.set()
    for future in waiting:
        future.result(timeout=300)
    assert len(syncs) == 2
    assert len(told) == 51
    spool.close()


def test_a_full_disk_fails_the_request_leaves_no_half_line_and_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool(tmp_path / "s")
    put(spool, b"before\n")

    def full(fd: int, data: bytes) -> None:
        os.write(fd, data[:3])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(disk, "write_all", full)
        with pytest.raises(CounterpointError, match="no space"):
            put(spool, b"during\n")
    put(spool, b"after\n")
    spool.close()
    assert left(tmp_path / "s") == [b"before\n", b"after\n"]


def test_segments_go_when_nobody_needs_a_line_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SEGMENT", 10)
    spool = Spool(tmp_path / "s")
    places = [put(spool, b"line %d....\n" % i)[0] for i in range(4)]
    assert len({p.segment for p in places}) == 4
    assert spool.sparse() == [1, 2, 3]
    spool.forget(places[1:])
    assert [p.name for p in (tmp_path / "s").glob("*.jsonl")] == ["00000001.jsonl"]
    places += put(spool, b"more\n")
    assert list(spool.read([places[0], places[-1]])) == [b"line 0....\n", b"more\n"]
    spool.forget([places[0], places[-1]])
    assert list((tmp_path / "s").glob("*.jsonl")) == []
    assert spool.size() == 0
    spool.close()


def test_one_receiver_has_the_spool_and_a_dead_one_lets_go(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "s")
    with pytest.raises(TryAgain, match="another receiver"):
        Spool(tmp_path / "s")
    spool.close()
    spool.close()
    with pytest.raises(TryAgain, match="shutting down"):
        put(spool, b"late\n")
    assert left(tmp_path / "s") == []


def test_a_flipped_bit_loses_no_line_silently(tmp_path: Path) -> None:
    """Every bit of a spool of two lines: each line comes back as it was, or as one that is no request."""
    lines = [b'{"resourceSpans":[1]}\n', b'{"resourceLogs":[]}\n']
    spool = Spool(tmp_path / "s")
    put(spool, *lines)
    spool.close()
    [segment] = (tmp_path / "s").glob("*.jsonl")
    good = segment.read_bytes()
    for bit in range(8 * len(good)):
        data = bytearray(good)
        data[bit // 8] ^= 1 << bit % 8
        segment.write_bytes(data)
        found = [line for line, _ in _recovered(tmp_path / "s")]
        assert found == lines or any(not line.endswith(b"}\n") for line in found), bit
    segment.write_bytes(good)
    assert left(tmp_path / "s") == lines


def _recovered(folder: Path) -> list[tuple[bytes, Place]]:
    spool = Spool(folder)
    try:
        return list(spool.recovered())
    finally:
        spool.close()


def test_a_line_that_was_changed_while_it_waited_is_an_error_and_an_older_line_is_read(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "s")
    [place] = put(spool, b'{"resourceSpans":[1]}\n')
    [segment] = (tmp_path / "s").glob("*.jsonl")
    good = segment.read_bytes()
    segment.write_bytes(good.replace(b"1", b"3", 1))
    with pytest.raises(CounterpointError, match=r"damaged"):
        list(spool.read([place]))
    spool.close()
    segment.write_bytes(b'{"resourceSpans":[1]}\n')
    assert left(tmp_path / "s") == [b'{"resourceSpans":[1]}\n']
