"""Annotations and collections in a store: nothing acknowledged is lost, whoever writes, dies, or changes a bit."""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path

import pytest
from msgspec.structs import replace

from counterpoint.errors import InputError, NotFound
from counterpoint.store import Store
from counterpoint.store.annotations import HEAD_BYTES, NAME, AnnotationFile, Change, Dataset, salvage_changes
from counterpoint.store.repair import repair
from counterpoint.store.verify import verify
from counterpoint.trace import Event, Trace
from counterpoint.trace.annotation import ANNOTATIONS, Annotation, annotation, annotations_of, labels_of, renamed


def run(name: str = "t") -> Trace:
    return Trace(trace_id=name, task_id="q", events=[Event(id="a", t=0, type="message", agent="lead")])


def said(trace: str = "t", text: str = "hm", **more: object) -> Annotation:
    return annotation(trace, by="ann", at=1.0, text=text, **more)  # type: ignore[arg-type]


def test_a_trace_comes_with_what_is_said_about_it_and_goes_with_it(tmp_path: Path) -> None:
    with Store(tmp_path / "s") as store:
        store.add(run())
        before = store.version("t")
        first, second = said(event="a"), said(name="verdict", label="wrong", text="")
        store.annotate([first, second])
        found = store.get("t")
        assert annotations_of(found) == [first, second]
        assert store.version("t") != before
        assert store.add(found) == "unchanged"  # what is said is no part of the trace's own content
        assert (store.rows()[0].annotations, store.rows()[0].labels) == (2, ("verdict=wrong",))
        answer = store.sql("select event_id, name, label, text from annotations order by name")
        assert answer.rows == [("a", "note", None, "hm"), (None, "verdict", "wrong", None)]
        for bad, error in ((said("nobody"), NotFound), (said(event="zz"), NotFound)):
            with pytest.raises(error):
                store.annotate([bad])
    with Store(tmp_path / "other") as other:
        other.add(found)
        assert other.get("t") == found
        assert other.withdraw(second.id[:5]) == second
        other.add(found)  # a file that still has it does not bring it back
        assert other.annotations() == [first]
        other.add(renamed(found, "u"))
        assert [a.trace_id for a in other.annotations("u")] == ["u", "u"]
        other.add(replace(found, trace_id="fork"))  # what is said about the parent is not said about the fork
        assert other.annotations("fork") == []


def test_what_is_removed_is_forgotten_and_erased(tmp_path: Path) -> None:
    with Store(tmp_path / "s") as store:
        store.add_many([run("t"), run("u")])
        store.annotate([said("t", "secret"), said("u")])
        store.change_datasets(lambda known: [Change(dataset=Dataset(name="both", ids=("t", "u"), by="ann", at=0.0))])
        store.remove("t")
        assert [a.trace_id for a in store.annotations()] == ["u"]
        assert store.datasets()["both"].ids == ("u",)
        store.purge()
        assert b"secret" not in (store.path / NAME).read_bytes()
        assert (store.info().annotations, store.info().datasets) == (1, 1)
        store.add(run("t"))
        assert store.annotations("t") == []


def _write(path: Path, name: str, count: int) -> None:
    with Store(path, create=False) as store:
        for k in range(count):
            store.annotate([said("t", f"{name}-{k}")])


def test_several_writers_lose_nothing(tmp_path: Path) -> None:
    with Store(tmp_path / "s") as store:
        store.add(run())
        context = multiprocessing.get_context("spawn")
        writers = [context.Process(target=_write, args=(store.path, name, 20)) for name in "abc"]
        for writer in writers:
            writer.start()
        for k in range(10):
            store.annotate([said("t", f"me-{k}")])
            store.compact()
        for writer in writers:
            writer.join()
        texts = [str(a.text) for a in store.annotations("t")]
        assert len(texts) == len(set(texts)) == 70
        for name in ("a", "b", "c", "me"):  # and each writer's own order is kept
            own = [int(t.partition("-")[2]) for t in texts if t.startswith(f"{name}-")]
            assert own == sorted(own)
    assert verify(tmp_path / "s").faults == []


def _write_and_tell(path: Path, pipe: object) -> None:
    with Store(path, create=False) as store:
        for k in range(10_000):
            store.annotate([said("t", str(k))])
            pipe.send(k)  # type: ignore[attr-defined]


def test_what_was_acknowledged_survives_a_killed_writer(tmp_path: Path) -> None:
    with Store(tmp_path / "s") as store:
        store.add(run())
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        writer = context.Process(target=_write_and_tell, args=(store.path, theirs))
        writer.start()
        last = [ours.recv() for _ in range(25)][-1]
        assert writer.pid is not None
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
        while ours.poll():
            last = ours.recv()
        texts = [a.text for a in store.annotations("t")]
        assert texts[: last + 1] == [str(k) for k in range(last + 1)]
        store.annotate([said("t", "after")])
        assert store.annotations("t")[-1].text == "after"


def test_a_file_cut_at_any_byte_is_whole_groups_or_an_error(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    file = AnnotationFile(tmp_path / "s")
    ends = []
    for k in range(3):
        file.append(lambda known, k=k: [Change(annotate=said(text=f"n{k}"))])  # type: ignore[misc]
        ends.append(file.path.stat().st_size)
    data = file.path.read_bytes()
    for cut in range(HEAD_BYTES, len(data)):
        file.path.write_bytes(data[:cut])
        with pytest.raises(InputError, match="damaged"):  # the head knows that there was more
            AnnotationFile(tmp_path / "s").refresh()
        changes, _ = salvage_changes(data[:cut])
        assert len(changes) == sum(end <= cut for end in ends)
    file.path.write_bytes(data + b'{"annotate":{"id"')  # a writer died in the middle of a group
    again = AnnotationFile(tmp_path / "s")
    assert len(again.refresh().annotations) == 3
    again.append(lambda known: [Change(annotate=said(text="n3"))])
    assert len(AnnotationFile(tmp_path / "s").refresh().annotations) == 4


def test_a_changed_bit_is_found_and_the_rest_is_kept(tmp_path: Path) -> None:
    with Store(tmp_path / "s") as store:
        store.add(run())
        for text in ("first", "second", "third"):
            store.annotate([said("t", text)])
    path = tmp_path / "s" / NAME
    path.write_bytes(path.read_bytes().replace(b"second", b"secpnd"))
    with pytest.raises(InputError, match="annotations is damaged"):
        Store(tmp_path / "s", read_only=True).annotations()
    assert [fault.file for fault in verify(tmp_path / "s").faults] == [os.fspath(path)]
    done = repair(tmp_path / "s")
    assert any("annotations" in line for line in done.done)
    assert verify(tmp_path / "s").faults == []
    with Store(tmp_path / "s", read_only=True) as store:
        assert [a.text for a in store.annotations()] == ["first", "third"]
        with pytest.raises(InputError, match="read-only"):
            store.annotate([said()])


def test_only_what_says_something_is_an_annotation() -> None:
    about: dict[str, object] = {"by": "ann", "at": 1.0}
    for bad in ({}, {"label": " "}, {"score": 1.0}, {"name": "x", "score": float("nan")}, {"label": "a\nb"}, {"text": "x" * 100_001}):
        with pytest.raises(InputError):
            annotation("t", **{**about, **bad})  # type: ignore[arg-type]
    with pytest.raises(InputError, match="author"):
        annotation("t", by=" ", at=1.0, text="x")
    given = [said(label="hard"), said(name="verdict", label="wrong"), said(label="hard"), said()]
    assert labels_of(given) == ("hard", "verdict=wrong")
    odd = replace(run(), meta={ANNOTATIONS: [{"id": 1}, "x", {"id": "i", "trace_id": "other", "by": "a", "at": 0}]})
    assert annotations_of(odd) == []
