"""Two writers, a sweeper and a compaction, stepped through every order of their file operations at a bounded depth.

Whatever the order, and whoever is killed in it: an acknowledged trace is in the log, its part is on disk, and nobody meets an error.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from counterpoint.errors import InputError
from counterpoint.store import Store, compaction, disk, log
from counterpoint.store.head import Head
from counterpoint.store.lake import Lake
from counterpoint.store.log import Commit, Log, Part, Row, Span, State
from counterpoint.store.parts import is_whole, part_path
from counterpoint.testing import synthetic_trace
from interleave_help import Stepper, orders, patched

# More on request: the numbers in docs/lab/benchmarks.md are from such runs.
MORE = int(os.environ.get("COUNTERPOINT_DELAYS", "0"))
_NOWHERE = Span(0, 0, 0)
Works = dict[str, Callable[[], None]]
Scene = Callable[["Folder"], Works]


@pytest.fixture
def quick_folder(tmp_path: Path) -> Iterator[Path]:
    """In memory where there is such a place: thousands of folders are made and removed here, and none of them is to last."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as made:
        yield Path(made)


class Folder:
    """A store's folders with a log of their own for each worker, and what was acknowledged. Parts are empty files here."""

    def __init__(self, path: Path) -> None:
        self.path, self.acknowledged = path, set[str]()
        self._logs: list[Log] = []
        for name in ("log", "lake"):
            (path / name).mkdir(parents=True)
        Head.create(path / "head")

    def log(self) -> Log:
        self._logs.append(Log(self.path / "log", self.path / "head"))
        return self._logs[-1]

    def close(self) -> None:
        for made in self._logs:
            made.close()

    def _part(self, name: str) -> Part:
        part = Part(name=f"day=1/shard=0/{name}", day="1", traces=1, events=0, bytes=0, sums={"traces": [(0, 0)]})
        path = part_path(self.path / "lake", part.name, "traces")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        return part

    def writer(self, *names: str) -> Callable[[], None]:
        """Writes a part, then commits it if it is still there, as `Writer` does; then the trace is acknowledged."""
        mine, again = self.log(), itertools.count()

        def work() -> None:
            for name in names:
                while True:
                    part = self._part(f"{name}-{next(again)}")
                    row = Row(id=name, task="t", events=_NOWHERE, edges=_NOWHERE, head=0, agents=1, digest=name, added=0.0, part=part.name)

                    def change(state: State, part: Part = part, row: Row = row) -> Commit | None:
                        return Commit(at=0.0, parts=[part], rows=[row]) if is_whole(self.path / "lake", part) else None

                    if mine.commit(change) is not None:
                        break
                self.acknowledged.add(name)

        return work

    def sweeper(self, times: int) -> Callable[[], None]:
        mine = self.log()

        def work() -> None:
            for _ in range(times):
                mine.commit(lambda state: Commit(at=0.0, drop=["nothing"]))
                mine.checkpoint()

        return work

    def compaction(self) -> Callable[[], None]:
        """Deletes what the log does not name, however young."""
        mine = self.log()
        lake = Lake(self.path / "lake", dict)  # type: ignore[arg-type]  # no part is read
        return lambda: (compaction.compact(mine, lake, grace_s=-2.0), None)[1]

    def lost(self) -> set[str]:
        """Acknowledged traces that a new reader does not find, or whose part is gone."""
        state = self.log().refresh()
        there = {r.id for r in state.rows.values() if part_path(self.path / "lake", r.part, "traces").exists()}
        return self.acknowledged - there


@contextmanager
def _merging_nothing() -> Iterator[None]:
    """Empty parts cannot be merged: compaction only deletes. Strays are old at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction, "_merge", lambda *args: False)
        patch.setattr(compaction, "STRAY_AGE_S", -1.0)
        yield


class Explorer:
    """Runs one scene in many orders, each in a folder of its own."""

    def __init__(self, base: Path, scene: Scene) -> None:
        self._base, self._scene, self._count = base, scene, itertools.count()
        self.stepper = Stepper()
        self.lost: list[Any] = []

    def run(self, order: list[str], **options: Any) -> list[Any]:
        folder = Folder(self._base / str(next(self._count)))
        steps = self.stepper.run(self._scene(folder), order, **options)
        lost = folder.lost()
        if lost:
            self.lost.append((lost, [s.chosen for s in steps]))
        folder.close()
        shutil.rmtree(folder.path)
        return steps


def _all_four(folder: Folder) -> Works:
    return {
        "one": folder.writer("a"),
        "sweeper": folder.sweeper(1),
        "two": folder.writer("b"),
        "compaction": folder.compaction(),
    }


def _writer_and_sweeper(folder: Folder) -> Works:
    return {"one": folder.writer("a"), "sweeper": folder.sweeper(2)}


def _writer_and_compaction(folder: Folder) -> Works:
    return {"one": folder.writer("a", "b"), "compaction": folder.compaction()}


@pytest.mark.parametrize(("scene", "delays"), [(_all_four, 2), (_writer_and_sweeper, 3), (_writer_and_compaction, 2)])
def test_no_order_loses_an_acknowledged_trace(quick_folder: Path, scene: Scene, delays: int) -> None:
    with _merging_nothing():
        explorer = Explorer(quick_folder, scene)
        with patched(explorer.stepper):
            count = orders(explorer.run, delays + MORE)
    assert explorer.lost == []
    assert count > 100
    print(f"{count:,} orders with up to {delays + MORE} delays")


def test_no_death_at_any_step_loses_an_acknowledged_trace(quick_folder: Path) -> None:
    """Each worker is killed before each of its steps, with the others going on from there."""
    with _merging_nothing():
        explorer = Explorer(quick_folder, _all_four)
        with patched(explorer.stepper):
            steps = explorer.run([])
            deaths = 0
            for name in sorted({s.chosen for s in steps}):
                for place in range(1, sum(s.chosen == name for s in steps)):
                    for first in ("one", "sweeper", "compaction"):
                        explorer.run([first], kill=(name, place))
                        deaths += 1
    assert explorer.lost == []
    assert deaths > 100


def test_without_the_lock_the_same_orders_lose_traces(quick_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the lock is for, and that these tests can fail: with it taken away, a number below a checkpoint is taken."""
    monkeypatch.setattr(Head, "lock", lambda self, shared=False: nullcontext())

    def retrying(self: Log, change: Callable[[State], Commit | None]) -> Commit | None:
        while True:  # as the log did before it had a lock: who loses a number reads what won, and takes the next
            commit = change(self.refresh())
            path = self.commit_path(self.state.number + 1)
            if commit is None or disk.create(path, disk.with_sum(log.msgspec.json.encode(commit), path.name)):
                return commit

    monkeypatch.setattr(Log, "commit", retrying)
    with _merging_nothing():
        explorer = Explorer(quick_folder, _writer_and_sweeper)

        def run(order: list[str]) -> list[Any]:
            try:
                return explorer.run(order)
            except (InputError, AssertionError) as error:
                explorer.lost.append(error)
                return []

        with patched(explorer.stepper):
            orders(run, 1)
    assert any(isinstance(found, tuple) for found in explorer.lost)


@pytest.mark.parametrize("first", ["adds", "merges"])
def test_real_stores_in_every_order_of_one_delay(quick_folder: Path, first: str) -> None:
    """The same with real traces: `add`, `finish`, `compact` and a checkpoint, each with a store of its own."""
    made = quick_folder / "made"
    with Store(made) as store:
        for i in range(3):
            store.add(synthetic_trace(2, 3, trace_id=f"old{i}"))
        run = store.record("t2", task_id="demo")
        run.event(synthetic_trace(2, 3).events[0])
        run.release()
    stepper, count = Stepper(), itertools.count()

    def play(order: list[str]) -> list[Any]:
        path = quick_folder / str(next(count))
        shutil.copytree(made, path)
        stores = [Store(path, flush_ms=60_000) for _ in range(4)]
        resumed = stores[1].resume("t2")
        works = {
            "adds": lambda: (stores[0].add(synthetic_trace(2, 3, trace_id="t1")), None)[1],
            "finishes": lambda: (resumed.finish(), None)[1],
            "merges": lambda: (stores[2].compact(grace_s=-2.0), None)[1],
            "sweeps": lambda: [stores[3]._log.checkpoint() for _ in range(2)] and None,
        }
        steps = stepper.run({first: works.pop(first), **works}, order)
        for one in stores:
            one.close()
        with Store(path) as store:
            assert sorted(store.ids()) == ["old0", "old1", "old2", "t1", "t2"]
            assert [len(store.get(name).events) for name in store.ids()]
            assert store.open_ids() == []
        shutil.rmtree(path)
        return steps

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compaction, "STRAY_AGE_S", -1.0)
        with patched(stepper):
            assert orders(play, 1 + MORE) > 10
