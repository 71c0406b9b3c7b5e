"""The tally beside a journal, case by case: what it says, when it is believed, and when a run without a journal is lost."""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import pytest

from counterpoint.errors import InvalidTrace
from counterpoint.store import disk
from counterpoint.store import tally as module
from counterpoint.store.tally import (
    Tally,
    TallyFile,
    is_short,
    lost_run,
    lost_runs,
    read_tally,
    sweep_tallies,
    tally_or_fault,
    tally_path,
)

DATA = b"one line\nanother\n"


def of(data: bytes = DATA, name: str = "t1") -> Tally:
    return Tally(len(data), zlib.crc32(data), name)


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    (tmp_path / "journal").mkdir()
    return tmp_path / "journal" / "t1-x.jsonl"


def put(journal: Path, said: Tally) -> Path:
    tally_path(journal).write_bytes(said.encoded())
    return tally_path(journal)


@pytest.mark.parametrize("said", [Tally(0, 0, ""), of(), Tally(10**15 - 1, 2**32 - 1, 'ü"\n')])
def test_what_is_written_is_read_and_no_changed_bit_is(said: Tally) -> None:
    data = said.encoded()
    assert Tally.decoded(data) == said
    assert len(data) == len(said._replace(size=7, crc=7).encoded()), "so that one can be written over another"
    for k in range(8 * len(data)):
        changed = bytearray(data)
        changed[k // 8] ^= 1 << k % 8
        assert Tally.decoded(bytes(changed)) is None
    for part in (data[:k] for k in range(len(data))):
        assert Tally.decoded(part) is None
    assert Tally.decoded(data + b"\n") is None


def test_a_journal_holds_what_begins_with_the_acknowledged_bytes() -> None:
    assert all(of().holds(data) for data in (DATA, DATA + b"torn"))
    assert not any(of().holds(data) for data in (DATA[:-1], b"", b"x" + DATA[1:]))
    assert of(b"").holds(b"anything")
    assert (of(b"").is_over, of(b"x").is_over) == (True, False)


def test_none_a_damaged_one_and_one_that_is_being_written(journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (read_tally(journal), tally_or_fault(journal)) == (None, (None, None))
    path = put(journal, of())
    assert (read_tally(journal), tally_or_fault(journal)) == (of(), (of(), None))
    path.write_bytes(of().encoded()[:40])
    with pytest.raises(InvalidTrace, match="the tally of the journal has changed"):
        read_tally(journal)
    none, error = tally_or_fault(journal)
    assert none is None
    assert str(path) in str(error)
    assert f"counterpoint store repair --store {journal.parent.parent} recovers" in str(error)
    monkeypatch.setattr(module.time, "sleep", lambda seconds: path.write_bytes(of().encoded()))
    assert read_tally(journal) == of(), "its writer was in the middle of it"


def test_a_journal_is_short_when_it_has_less_than_was_acknowledged(journal: Path) -> None:
    assert not is_short(journal, 0)
    path = put(journal, of())
    assert [is_short(journal, len(DATA) + k) for k in (-1, 0, 1)] == [True, False, False]
    path.write_bytes(b"damaged")
    assert not is_short(journal, 0)


def test_a_run_is_lost_when_it_was_acknowledged_and_is_nowhere(journal: Path) -> None:
    folder = journal.parent

    def lost(*sealed: str) -> list[Path]:
        found = [path for path, _ in lost_runs(folder, set(sealed))]
        assert found == ([journal] if lost_run(journal, set(sealed)) is not None else [])
        return found

    assert lost() == []
    path = put(journal, of())
    assert lost() == [journal]
    assert f"the journal of trace 't1' is missing: {len(DATA)} bytes" in str(lost_run(journal, ()))
    assert lost("t2") == [journal]
    assert lost("t1") == []
    journal.write_bytes(b"")
    assert lost() == []
    path.write_bytes(b"damaged")
    assert lost() == []
    journal.unlink()
    assert lost("t1") == [journal], "nobody knows whose it was"
    put(journal, of(b""))
    assert lost() == [], "it was stored or dropped"
    assert list(lost_runs(folder / "not there", ())) == []


@pytest.mark.parametrize(
    ("said", "sealed", "has_journal", "is_kept"),
    [
        (of(), "t1", False, False),
        (of(), "t2", False, True),
        (of(), "t1", True, True),
        (of(b""), "t2", False, False),
        (of(b""), "t2", True, True),
        (None, "t1", False, True),
    ],
)
def test_only_tallies_of_runs_that_are_over_are_swept(
    journal: Path, said: Tally | None, sealed: str, has_journal: bool, is_kept: bool
) -> None:
    tally_path(journal).write_bytes(b"damaged" if said is None else said.encoded())
    if has_journal:
        journal.write_bytes(DATA)
    last = journal.with_name("z.jsonl")
    put(last, of(b"", "z"))
    sweep_tallies(journal.parent, {sealed})
    assert tally_path(journal).exists() == is_kept
    assert not tally_path(last).exists(), "a damaged one does not hold up the others"


def test_a_number_counts_when_it_is_on_disk_and_the_old_one_stands_when_it_cannot_be(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = TallyFile.take(journal, of(b""))
    assert read_tally(journal) == of(b""), "made where there was none"
    seen = []
    monkeypatch.setattr(disk, "sync_file", lambda fd: seen.append(read_tally(journal)))
    file.write(len(DATA), zlib.crc32(DATA))
    assert seen == [file.tally] == [of()], "synced after it was written"

    def full(fd: int) -> None:
        raise OSError("full")

    monkeypatch.setattr(disk, "sync_file", full)
    with pytest.raises(OSError, match="full"):
        file.write(99, 9)
    assert file.tally == read_tally(journal) == of()
    again = TallyFile.take(journal, of())
    assert read_tally(journal) == of(), "one that is there stays"
    again.release()
    again.release()
    seen.clear()
    monkeypatch.setattr(disk, "sync_file", lambda fd: seen.append(read_tally(journal)))
    file.end(durably=False)
    assert seen == []
    assert read_tally(journal) == of(b"")
    file.end(durably=True)
    assert seen == [of(b"")]
    file.release()


def test_only_ones_own_file_is_removed(journal: Path) -> None:
    file = TallyFile.take(journal, of())
    other = journal.with_name("other")
    TallyFile.draft(other, of(b"new"))
    os.replace(other, tally_path(journal))
    file.remove(journal)
    assert read_tally(journal) == of(b"new")
    mine = TallyFile.take(journal, of(b"new"))
    mine.remove(journal)
    assert read_tally(journal) is None
    mine.remove(journal)
    for one in (mine, file):
        one.release()
