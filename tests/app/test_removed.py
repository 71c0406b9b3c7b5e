"""What was removed stays out of later imports, wherever its logs lie now, until it is restored."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from counterpoint.app.load_save import save
from counterpoint.store import Store
from counterpoint.store.handles import handle
from counterpoint.store.repair import repair
from counterpoint.testing import synthetic_trace
from counterpoint.trace import Trace
from logs import SAMPLES

Run = Callable[..., tuple[int, str, str]]


def _import(run: Run, *args: object) -> dict[str, Any]:
    code, out, err = run("import", *map(str, args), "--json")
    assert code == 0, err
    said: dict[str, Any] = json.loads(out.splitlines()[-1])
    return said


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COUNTERPOINT_STORE", str(tmp_path / "traces"))
    return tmp_path / "traces"


@pytest.mark.parametrize(("jobs", "is_purged"), [(1, False), (2, True)])
def test_every_source_stays_out_and_comes_back_when_it_is_restored(folder: Path, run: Run, jobs: int, is_purged: bool) -> None:
    """From another folder, with other times, in one process or several."""
    first = _import(run, SAMPLES, "--workers", 1)
    with Store(folder) as store:
        ids = set(store.ids())
    assert first["removed"] == 0
    assert first["traces"] == len(ids) > 10
    assert run("store", "rm", "finished", "--yes", *(["--purge"] if is_purged else []))[0] == 0
    moved = folder.parent / "elsewhere" / "logs"
    shutil.copytree(SAMPLES, moved, copy_function=shutil.copyfile)
    for place in (SAMPLES, moved, moved):
        again = _import(run, place, "--workers", jobs)
        assert (again["traces"], again["removed"]) == (0, len(ids))
        assert Store(folder).ids() == []
    code, out, _ = run("import", SAMPLES)
    assert code == 0
    assert f"removed  {len(ids)} traces skipped that `store rm` removed (`store rm --restore [ID]` lets them back in)" in out
    assert run("store", "rm", "--restore")[0] == 2, "all of them needs a confirmation"
    assert run("store", "rm", "--restore", "--yes")[1].startswith(f"{len(ids)} restored")
    back = _import(run, moved, "--workers", jobs)
    assert (back["traces"], back["removed"]) == (len(ids), 0)
    assert set(Store(folder).ids()) == ids


def _logs() -> list[Path]:
    return [path for path in sorted(SAMPLES.rglob("*.jsonl")) if len(path.read_bytes().splitlines()) >= 6]


@pytest.mark.parametrize("log", _logs(), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_log_that_grew_since_stays_out(folder: Path, run: Run, log: Path) -> None:
    """Also when it was moved meanwhile, where the source gives its runs ids."""
    short, whole = (folder.parent / place / log.relative_to(SAMPLES) for place in ("logs", "moved"))
    lines = log.read_bytes().splitlines(keepends=True)
    for path, kept in ((short, lines[: 2 * len(lines) // 3]), (whole, lines)):
        path.parent.mkdir(parents=True)
        path.write_bytes(b"".join(kept))
    code, _, _ = run("import", str(short))
    if code:
        pytest.skip("a part of it is no session")
    with Store(folder) as store:
        before = {name: store.get(name) for name in store.ids()}
    assert run("store", "rm", *before, "--yes", "--purge")[0] == 0
    short.write_bytes(log.read_bytes())
    assert run("import", str(short))[0] == 0
    left = set(Store(folder).ids())
    assert not left & before.keys()
    if all(trace.meta["import"].get("run") is None for trace in before.values()):
        assert run("import", str(whole))[0] == 0
        assert set(Store(folder).ids()) == left


def test_a_removed_trace_is_restored_by_its_id_a_beginning_or_its_handle(folder: Path, run: Run) -> None:
    names = [f"{k}0000000-made-by-somebody-{k}" for k in "abc"]
    with Store(folder) as store:
        store.add_many([synthetic_trace(2, 4, trace_id=name) for name in names])
    assert run("store", "rm", *names, "--yes", "--purge")[1] == "3 removed and erased\n"
    assert not [p for p in folder.rglob("*") if p.is_file() and b"somebody" in p.read_bytes()], "only hashes are remembered"
    code, _, err = run("store", "rm", "--restore", "never-was-there")
    assert (code, "the store remembers 3 removals, none by this name" in err) == (3, True)
    assert len(Store(folder).removals) == 3
    for left, name in enumerate((names[0], names[1][:8], handle(names[2]))):
        assert run("store", "rm", "--restore", name)[1].startswith("1 restored")
        assert len(Store(folder).removals) == 2 - left
    assert run("store", "rm", "--restore", names[0])[0] == 3
    assert run("store", "rm", "--restore", "--purge", names[0])[0] == 2
    assert run("store", "rm")[0] == 2


def test_an_exported_copy_of_it_stays_out_and_who_adds_it_is_not_held_up(folder: Path, run: Run) -> None:
    made = synthetic_trace(2, 4, trace_id="t1")
    save(made, folder.parent / "kept.jsonl")
    with Store(folder) as store:
        store.add(made)
    run("store", "rm", "t1", "--yes")
    said = _import(run, folder.parent / "kept.jsonl")
    assert (said["traces"], said["removed"]) == (0, 1)
    with Store(folder) as store:
        assert store.ids() == []
        assert store.removals.has_id("t1")
        assert store.add(made) == "added"
        assert not store.removals.has_id("t1")
    assert _import(run, folder.parent / "kept.jsonl")["removed"] == 0
    with Store(folder) as store, store.record("t2", task_id="d") as going:
        going.event(made.events[0])
        going.finish()
        store.remove("t2")
        assert store.record("t2", task_id="d").trace_id == "t2"


def test_another_run_of_the_same_id_is_let_in(tmp_path: Path) -> None:
    """A removal is of a run, not of a name: where most remembered events are not in it, it is another one."""

    def made(name: str, *events: str) -> Trace:
        trace = synthetic_trace(2, 9, trace_id=name)
        named = [replace(event, id=id_) for event, id_ in zip(trace.events, events, strict=False)]
        return replace(trace, events=named, edges=[])

    with Store(tmp_path) as store:
        store.add(made("t1", "a", "b", "c"), source="x:t1:1")
        store.remove("t1")
        has = store.removals.has
        assert has(made("t1", "a", "b", "c"), "x:t1:1")
        assert has(made("t1-other", "z"), "x:t1:1"), "the same source, under another id"
        assert has(made("t1", "0", "a", "b", "c", "d"), "x:t1:2"), "its beginning came late"
        assert not has(made("t1", "0", "a", "b", "c", "d"), "x:t1:2", is_id_its_own=False)
        assert not has(made("t1", "a", "y", "z"), "x:t1:2")
        assert not has(made("t2", "a", "b", "c"), "x:t2:1")
        assert has(made("t1", "y"))


def test_a_repair_that_lost_the_log_leaves_out_what_a_checkpoint_remembers(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        for name in ("t1", "t2"):
            store.add(synthetic_trace(2, 4, trace_id=name))
        store.remove("t1")
        store._log.checkpoint()
    for commit in tmp_path.glob("log/*.json"):
        commit.unlink()
    (tmp_path / "head").unlink()
    repair(tmp_path)
    with Store(tmp_path) as store:
        assert store.ids() == ["t2"]
        assert store.removals.has_id("t1")
