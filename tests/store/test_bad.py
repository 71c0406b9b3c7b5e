"""Bad places and bad disks: one clear error each, and the store is as it was."""

from __future__ import annotations

import os
import resource
import shutil
import signal
from pathlib import Path

import pytest
from msgspec.structs import replace

from counterpoint.errors import CounterpointError, InputError, NotFound
from counterpoint.store import Store, disk
from counterpoint.testing import synthetic_trace
from counterpoint.trace import Event
from fresh_help import in_fresh_process


def _snapshot(folder: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def _made(folder: Path) -> Store:
    store = Store(folder)
    store.add(synthetic_trace(3, 10, trace_id="t1"))
    return store


# -- places ------------------------------------------------------------------------------------------------------


def test_a_store_of_a_newer_version_is_refused_and_untouched(tmp_path: Path) -> None:
    _made(tmp_path).close()
    (tmp_path / "counterpoint.json").write_text('{"counterpoint_store":3}')
    before = _snapshot(tmp_path)
    with pytest.raises(InputError, match=r"written by a newer Counterpoint.*install a newer version") as caught:
        Store(tmp_path)
    assert caught.value.exit_code == 2
    assert _snapshot(tmp_path) == before


@pytest.mark.parametrize("mark", ['{"counterpoint_store":0}', '{"counterpoint_store":-2}', '{"counterpoint_store":2.5}', '{"x":2}', "2", ""])
def test_a_mark_that_names_no_form_is_refused_and_untouched(tmp_path: Path, mark: str) -> None:
    _made(tmp_path).close()
    (tmp_path / "counterpoint.json").write_text(mark)
    before = _snapshot(tmp_path)
    with pytest.raises(InputError, match="the store's version file") as caught:
        Store(tmp_path)
    assert caught.value.exit_code == 2
    assert _snapshot(tmp_path) == before


def test_a_store_without_its_mark_is_not_taken_for_an_empty_folder(tmp_path: Path) -> None:
    _made(tmp_path).close()
    (tmp_path / "counterpoint.json").unlink()
    with pytest.raises(InputError, match=r"the store's version file is missing.*store repair"):
        Store(tmp_path)


def test_a_folder_that_is_no_store_is_refused_and_untouched(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(InputError, match="this folder is not a store") as caught:
        Store(tmp_path)
    assert caught.value.exit_code == 2
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]


def test_a_file_is_no_store(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    for path in (tmp_path / "x", tmp_path / "x" / "y"):
        with pytest.raises(InputError, match="is a file"):
            Store(path)


def test_a_store_that_is_not_there_is_not_made_unasked(tmp_path: Path) -> None:
    for options in ({"create": False}, {"read_only": True}):
        with pytest.raises(NotFound, match="there is no store here") as caught:
            Store(tmp_path / "x", **options)
        assert caught.value.exit_code == 3
    assert list(tmp_path.iterdir()) == []


def test_a_store_whose_making_was_interrupted_is_made(tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    (tmp_path / ".tmp-1").write_text("{")
    assert Store(tmp_path).ids() == []


def test_a_damaged_mark_is_named(tmp_path: Path) -> None:
    _made(tmp_path).close()
    (tmp_path / "counterpoint.json").write_text("{")
    with pytest.raises(InputError, match=r"counterpoint\.json: the store's version file is damaged"):
        Store(tmp_path)


def as_nobody(folder: str) -> None:
    import pyarrow.compute  # noqa: F401 - everything is imported that another user might not be allowed to read

    Store(folder).sql("select count(*) from traces")
    os.setgid(65534)
    os.setuid(65534)
    store = Store(folder)  # reading needs no more than reading
    assert len(store.get("t1").events) > 0
    assert store.sql("select count(*) from traces").rows == [(1,)]
    for write in (lambda: store.add(synthetic_trace(2, 3)), lambda: store.record("x", task_id="d")):
        with pytest.raises(InputError, match="permission denied") as caught:
            write()
        assert caught.value.exit_code == 2
    with pytest.raises(InputError, match="permission denied"):
        Store(Path(folder) / "inner")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to become another user")
def test_no_permission_is_said(tmp_path: Path) -> None:
    folder = Path("/tmp") / f"counterpoint-denied-{os.getpid()}"
    try:
        _made(folder).close()
        for path in folder.rglob("*"):
            path.chmod(0o755 if path.is_dir() else 0o644)
        before = _snapshot(folder)
        in_fresh_process(as_nobody, folder)
        assert _snapshot(folder) == before
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# -- damage ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["events", "edges", "traces", "contents"])
def test_damaged_parquet_is_named_and_never_read_as_something_else(tmp_path: Path, kind: str) -> None:
    store = Store(tmp_path)
    trace = replace(synthetic_trace(3, 30, trace_id="t1", contents=True), meta={"k": list(range(50))})
    store.add(trace)
    store.add(synthetic_trace(3, 30, trace_id="t2"))
    store.close()
    part = next(tmp_path.glob("lake/*/*/*.contents.parquet"))
    path = part.with_name(part.name.replace("contents", kind))
    whole = path.read_bytes()
    for at in range(4, len(whole), max(1, len(whole) // 150)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        with Store(tmp_path, create=False) as again, pytest.raises(InputError, match="a file of the lake is damaged"):
            again.get("t1")
    path.write_bytes(whole[: len(whole) // 2])
    with Store(tmp_path, create=False) as again:
        for ask in (lambda: again.batch(["t1", "t2"]), lambda: again.sql(f"select * from {kind}")):
            if kind != "contents":
                with pytest.raises(InputError, match=r"damaged|failed"):
                    ask()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    _made(tmp_path).close()
    next(tmp_path.glob("lake/*/*/*.events.parquet")).unlink()
    with Store(tmp_path) as store:
        for ask in (lambda: store.get("t1"), lambda: store.sql("select * from events"), store.hot):
            with pytest.raises(InputError, match="a file of the lake is missing"):
                ask()


# -- a full disk -------------------------------------------------------------------------------------------------


def _limit(size: int) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def add_too_much(folder: str) -> None:
    _limit(3000)
    opened = Store(folder)
    with pytest.raises(CounterpointError, match="no space left") as caught:
        opened.add(synthetic_trace(20, 400, trace_id="big"))
    assert caught.value.exit_code == 1
    assert opened.ids() == ["t1"]


def test_a_file_that_cannot_grow_fails_the_addition_and_leaves_the_store(tmp_path: Path) -> None:
    store = _made(tmp_path)
    expected = store.get("t1")
    store.close()
    before = _snapshot(tmp_path)
    in_fresh_process(add_too_much, tmp_path)
    assert _snapshot(tmp_path) == before
    with Store(tmp_path) as again:
        assert again.get("t1") == expected
        assert again.add(synthetic_trace(20, 400, trace_id="big")) == "added"


def record_too_much(folder: str, acks: str) -> None:
    _limit(4000)
    with pytest.raises(CounterpointError, match="no space left"), Store(folder).record("t1", task_id="d") as run:  # noqa: PT012
        for i in range(1000):
            run.event(Event(id=f"e{i}", t=i, type="message", agent="a"))
            run.sync()
            Path(acks).write_text(str(i + 1))


def test_a_run_on_a_full_disk_loses_nothing_that_it_acknowledged(tmp_path: Path) -> None:
    Store(tmp_path).close()
    acks = tmp_path.with_name("acks")
    in_fresh_process(record_too_much, tmp_path, acks)
    acknowledged = int(acks.read_text())
    assert acknowledged > 10
    with Store(tmp_path) as store:
        assert len(store.get("t1").events) >= acknowledged
        with store.resume("t1") as run:
            run.finish()
        assert store.ids() == ["t1"]


@pytest.mark.parametrize("call", ["link", "fsync"])
def test_a_disk_that_fails_at_the_commit_leaves_no_half_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    store = _made(tmp_path)
    before = _snapshot(tmp_path)
    real = getattr(os, call)

    def failing(*args: object, **options: object) -> object:
        if call == "fsync" and not os.readlink(f"/proc/self/fd/{args[0]}").rsplit("/", 1)[-1].startswith(disk.TEMPORARY):
            return real(*args, **options)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, failing)
        with pytest.raises(CounterpointError, match="no space left"):
            store.add(synthetic_trace(3, 10, trace_id="t2"))
    assert _snapshot(tmp_path) == before
    assert store.add(synthetic_trace(3, 10, trace_id="t2")) == "added"
    assert Store(tmp_path).ids() == ["t1", "t2"]


def test_sealing_that_failed_can_be_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    with store.record("t1", task_id="d") as run:
        run.event(Event(id="e1", t=0, type="message", agent="a"))
        with monkeypatch.context() as patch:
            patch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
            with pytest.raises(CounterpointError, match="no space left"):
                run.finish(rewards={"team": 1})
        assert run.finish().rewards == {"team": 1}
    assert store.get("t1").rewards == {"team": 1}
    assert store.open_ids() == []
