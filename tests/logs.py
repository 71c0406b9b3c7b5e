"""For tests of importers: samples in memory as sessions, the developers' real logs where they are, and what must always hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from counterpoint import registry
from counterpoint.formats.importer import Importer, Session
from counterpoint.formats.importing.files import File
from counterpoint.trace import Trace
from counterpoint.trace.check import problems

SAMPLES = Path(__file__).parents[1] / "examples" / "logs"
REAL = Path(__file__).parents[2] / "shared" / "data" / "logs"


def importer(name: str) -> Importer:
    found = registry.get("format", name)
    assert isinstance(found, Importer)
    return found


def files_of(folder: Path) -> list[File]:
    """Every file of a folder, named from its root."""
    paths = sorted(p for p in folder.rglob("*") if p.is_file()) if folder.is_dir() else [folder]
    root = folder if folder.is_dir() else folder.parent
    return [File(p.relative_to(root).as_posix(), p.stat().st_size, lambda p=p: p.open("rb")) for p in paths]


def sessions(name: str, files: Mapping[str, bytes] | Iterable[File]) -> list[Session]:
    """The sessions that an importer sees in some files (by name, or as files): only those it knows, grouped."""
    found = importer(name)
    if isinstance(files, Mapping):
        files = [File.of(data, key) for key, data in files.items()]
    mine = [f for f in files if found.sidecar(f.name) or (f.size and found.sniff(f.head()))]
    return list(found.group(mine))


def imported(name: str, files: Mapping[str, bytes] | Iterable[File]) -> list[Trace]:
    """All traces in some files, each of them sound."""
    traces = [trace for session in sessions(name, files) for trace in importer(name).read_session(session)]
    for trace in traces:
        assert_sound(trace)
    return traces


def assert_sound(trace: Trace) -> None:
    """`check` has no error to report, and every content reference has its text."""
    found = [str(p) for p in problems(trace) if p.severity == "error"]
    assert found == [], f"{trace.trace_id}: {found[:3]}"
    assert {e.content_ref for e in trace.events if e.content_ref} <= set(trace.contents)


def kinds(trace: Trace) -> Counter[str]:
    """How many events of each kind."""
    return Counter(e.type for e in trace.events)


def tokens(trace: Trace) -> dict[str, tuple[int, int]]:
    """Agent to tokens in and out, for agents that have any."""
    out: dict[str, tuple[int, int]] = {}
    for e in trace.events:
        if e.tokens_in is not None or e.tokens_out is not None:
            a, b = out.get(e.agent, (0, 0))
            out[e.agent] = a + (e.tokens_in or 0), b + (e.tokens_out or 0)
    return out


def real(*parts: str) -> Path:
    """A folder of the developers' real logs; the test is skipped where they are absent."""
    path = REAL.joinpath(*parts)
    if not path.exists():
        pytest.skip("the developers' reference logs are not on this machine")
    return path
