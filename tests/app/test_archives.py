"""Archives: a tar archive, packed or not, is read as the folder that it was made of, and nothing is written for it."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from counterpoint.app import archives
from counterpoint.app.discover import find, importer, read_logs
from counterpoint.app.import_logs import import_sessions
from counterpoint.trace import Trace

SAMPLES = Path(__file__).parents[2] / "examples" / "logs"
OLD = SAMPLES / "claude_code" / "projects" / "-repo-old" / "0b000000-0000-4000-8000-00000000000b.jsonl"


def as_is(data: bytes) -> bytes:
    return data


def zstd(data: bytes) -> bytes:
    return zstandard.ZstdCompressor().compress(data)


def tarred(folder: Path, *, prefix: str = "./") -> bytes:
    """A folder as `tar c -C folder .` writes it."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as opened:
        for path in sorted(folder.rglob("*"), reverse=True):
            opened.add(path, prefix + path.relative_to(folder).as_posix(), recursive=False)
    return made.getvalue()


def told(traces: list[Trace]) -> list[tuple[str, int, int]]:
    return sorted((t.trace_id, len(t.events), sum((e.tokens_in or 0) + (e.tokens_out or 0) for e in t.events)) for t in traces)


@pytest.mark.parametrize("source", ["claude_code", "codex"])
@pytest.mark.parametrize("pack", [as_is, gzip.compress, zstd, bz2.compress, lzma.compress])
@pytest.mark.parametrize("held", [archives._HELD, 0])
def test_a_tar_archive_holds_what_its_folder_held(
    source: str, pack: Callable[[bytes], bytes], held: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archives, "_HELD", held)
    archives._kept.clear()
    (tmp_path / "logs.tgz").write_bytes(pack(tarred(SAMPLES / source)))
    assert told(list(read_logs(tmp_path / "logs.tgz"))) == told(list(read_logs(SAMPLES / source)))
    assert [p.name for p in tmp_path.rglob("*")] == ["logs.tgz"]


def test_sessions_of_an_archive_stay_apart_and_broken_lines_are_named_by_member(tmp_path: Path) -> None:
    (tmp_path / "logs.tgz").write_bytes(gzip.compress(tarred(SAMPLES / "claude_code")))
    found = find([tmp_path])
    assert (len(found.sessions), {name for name, _ in found.sessions}) == (6, {"claude_code"})
    broken = [row for outcome in import_sessions(found.sessions, None) for row in outcome.report.broken]
    assert {Path(row["file"]).name for row in broken} == {"0a000000-0000-4000-8000-00000000000a.jsonl"}


def test_members_that_are_no_plain_files_are_named_and_a_name_is_only_a_name(tmp_path: Path) -> None:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as opened:
        for name, kind in (("link", tarfile.SYMTYPE), ("pipe", tarfile.FIFOTYPE)):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "/etc/passwd"
            opened.addfile(info)
        for name in ("../../outside.jsonl", "inner.tar"):
            data = OLD.read_bytes() if name != "inner.tar" else tarred(OLD.parent)
            info = tarfile.TarInfo(name)
            info.size = len(data)
            opened.addfile(info, io.BytesIO(data))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "logs.tar").write_bytes(made.getvalue())
    found = find([tmp_path])
    assert {Path(s.name).name: s.why for s in found.skipped} == {
        "link": "is not a plain file",
        "pipe": "is not a plain file",
        "inner.tar": "is an archive inside another: unpack the outer one",
    }
    ((name, session),) = found.sessions
    assert len(list(importer(name).read_session(session))) == 1
    assert [p.name for p in tmp_path.rglob("*")] == ["in", "logs.tar"]


def test_of_a_torn_archive_what_is_there_is_read_and_the_rest_named(tmp_path: Path) -> None:
    made = io.BytesIO(tarred(SAMPLES / "claude_code"))
    with tarfile.open(fileobj=made, mode="a") as opened:
        info = tarfile.TarInfo("noise.bin")
        info.size = 3 << 20
        opened.addfile(info, io.BytesIO(random.Random(0).randbytes(3 << 20)))
    (tmp_path / "logs.tgz").write_bytes(gzip.compress(made.getvalue())[: 2 << 20])
    found = find([tmp_path])
    assert len(found.sessions) == 6
    assert [Path(s.name).name for s in found.skipped if "cannot be read to its end" in s.why] == ["logs.tgz"]
    assert all(outcome.status == "added" for outcome in import_sessions(found.sessions, None))


def test_a_bomb_stays_within_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "MAX_UNPACKED", 1 << 20)
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as opened:
        info = tarfile.TarInfo("bomb.jsonl")
        info.size = 4 << 20
        opened.addfile(info, io.BytesIO(OLD.read_bytes().ljust(4 << 20)))
    (tmp_path / "bomb.tgz").write_bytes(gzip.compress(made.getvalue()))
    found = find([tmp_path])
    assert (found.sessions, [s.why for s in found.skipped]) == ([], ["unpacks to more than the limit"])
