"""What no other test would notice: a sync left out, an error swallowed, annotations of the wrong traces."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from counterpoint.errors import InputError, InvalidTrace
from counterpoint.store import Store
from counterpoint.store.lake import Lake
from counterpoint.testing import synthetic_trace
from counterpoint.trace import Edge
from counterpoint.trace.annotation import Annotation, with_annotations


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="open files are listed on Linux only")
@pytest.mark.parametrize("how", ["add", "seal", "compact"])
def test_every_file_of_a_part_is_on_disk_before_the_log_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    with Store(tmp_path) as store:
        if how == "compact":
            for i in range(2):
                store.add(synthetic_trace(2, 4, trace_id=f"t{i}"))
        run = store.record("r", task_id="d") if how == "seal" else None
        old = {path.name for path in tmp_path.glob("lake/**/*.parquet")}
        synced: set[str] = set()
        named: list[tuple[set[str], set[str]]] = []
        sync, link = os.fsync, os.link

        def synced_by(fd: int) -> None:
            sync(fd)
            synced.add(Path(os.readlink(f"/proc/self/fd/{fd}")).name)

        def linked(source: Any, target: Any) -> None:
            link(source, target)
            if Path(target).parent.name == "log":
                named.append(({path.name for path in tmp_path.glob("lake/**/*.parquet")} - old, set(synced)))

        monkeypatch.setattr(os, "fsync", synced_by)
        monkeypatch.setattr(os, "link", linked)
        if run is not None:
            run.event(synthetic_trace(2, 4).events[0])
            run.finish()
        elif how == "add":
            store.add(replace(synthetic_trace(2, 4, trace_id="t9"), contents={"sha256:x": "text"}))
        else:
            store.compact()
    made, on_disk = named[0]
    assert len(made) == {"add": 4, "seal": 3, "compact": 3}[how]
    assert made <= on_disk


@pytest.mark.parametrize("error", [pa.ArrowInvalid("bad page"), OSError(5, "Input/output error")])
def test_a_file_that_cannot_be_decoded_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Its sums may have been compared a while ago, and hold."""

    class Broken:
        def __init__(self, file: Any) -> None:
            self.metadata, self.reader = file.metadata, self

        def read_row_groups(self, *_: Any, **__: Any) -> Any:
            raise error

    with Store(tmp_path) as store:
        store.add(synthetic_trace(2, 4, trace_id="t1"))
        whole = Lake._file
        monkeypatch.setattr(Lake, "_file", lambda self, part, kind: Broken(whole(self, part, kind)))
        for ask in (lambda: store.get("t1"), lambda: store.batch(["t1"], ["agent"]), lambda: store.batch(["t1"])):
            with pytest.raises(InputError, match=r"events\.parquet: a file of the lake is damaged"):
                ask()


def test_annotations_come_in_with_the_traces_that_are_stored_and_no_others(tmp_path: Path) -> None:
    def made(name: str) -> Any:
        said = Annotation(id=f"a-{name}", trace_id=name, text="look", by="me", at=1.0)
        return with_annotations(synthetic_trace(2, 4, trace_id=name), [said])

    wrong = replace(made("wrong"), edges=[Edge("nowhere", "e0", "causal")])
    with Store(tmp_path) as store:
        with pytest.raises(InvalidTrace):
            store.add_many([made("good"), wrong])
        assert store.ids() == ["good"]
        assert [one.id for one in store.annotations()] == ["a-good"]
