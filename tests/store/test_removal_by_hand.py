"""What a removal is known again by, case by case."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from counterpoint.errors import InputError, NotFound
from counterpoint.store import Store
from counterpoint.store.handles import handle
from counterpoint.store.removal import removed_at
from counterpoint.testing import synthetic_trace
from counterpoint.trace import Event, Trace


def made(name: str, *events: str) -> Trace:
    found = [Event(id=id_, t=float(k), type="message", agent="a") for k, id_ in enumerate(events)]
    return replace(synthetic_trace(2, 4, trace_id=name), events=found, edges=[])


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "s")


def test_most_of_the_events_are_more_than_half_of_them(store: Store) -> None:
    store.add(made("t", *"abcd"), source="x:1")
    store.remove("t")
    for has in (lambda t: store.removals.has(t, "x:2"), lambda t: store.removals.has_sent(t, "x:1")):
        assert [has(made("t", *kept, *"nopqr")) for kept in ("a", "ab", "abc", "bcd", "abcd")] == [False, False, True, True, True]


def test_sixteen_events_are_remembered_the_first(store: Store) -> None:
    names = [f"e{k:02}" for k in range(40)]
    store.add(made("t", *names), source="x:1")
    store.remove("t")
    (gone,) = store._log.refresh().removed.values()
    assert len(gone.events) == 16
    assert store.removals.has(made("t", *names[:16]), "x:2")
    assert not store.removals.has(made("t", *names[16:]), "x:2")


def test_who_sends_is_known_by_sender_id_and_events_together(store: Store) -> None:
    has = store.removals.has_sent
    assert not has(made("t", "a"), "node:")
    store.add(made("t", *"abc"), source="node:")
    store.remove("t")
    assert has(made("t", *"abcd"), "node:")
    assert not has(made("t", *"abcd"), "other:"), "another sender's"
    assert not has(made("v", *"abcd"), "node:"), "another run of the same sender"
    assert not has(made("t", *"xyz"), "node:"), "another run under the old id"
    store.add(made("t", *"abc"), source="somebody")
    assert not has(made("t", *"abcd"), "node:"), "it is there again"


def test_one_that_cannot_be_read_is_removed_and_known_by_its_names_alone(store: Store) -> None:
    store.add(made("t", *"abc"), source="node:")
    for path in store.path.glob("lake/*/*/*.events.parquet"):
        path.write_bytes(bytes(path.stat().st_size))
    with Store(store.path) as other:
        other.remove("t")
        has = other.removals.has_sent
        assert [has(made(*one), "node:") for one in (("t", "x"), ("u", "x"))] == [True, False]
        assert not has(made("t", "x"), "other:")
        assert [other.removals.has(made("t", "x"), source) for source in ("node:", None, "other:")] == [True, True, False]


def test_one_that_is_there_again_is_not_removed_for_its_own_source(store: Store) -> None:
    has = store.removals.has
    store.add(made("t", *"abc"), source="x:1")
    store.remove("t")
    store.add(made("t", *"xyz"), source="x:2")
    assert not store.removals.has_id("t")
    assert not has(made("t", *"abc"))
    assert not has(made("t", *"abc"), "x:2")
    assert has(made("t", *"abc"), "x:1"), "the removed run is still known by where it came from"
    store.remove("t")
    store.add(made("t", *"xyz"))
    assert not has(made("t", *"abc"), "x:1"), "who added it names no source"


def test_an_open_run_that_is_removed_is_known_by_its_id(store: Store) -> None:
    with store.record("t", task_id="d") as run:
        run.event(Event(id="e", t=0.0, type="message", agent="a"))
    store.remove("t")
    assert store.removals.has_id("t")
    assert store.removals.has(made("t", "z"))
    assert not store.removals.has(made("t", "z"), "x:1")


def test_when_it_was_removed_last(store: Store) -> None:
    assert removed_at(store._log.refresh(), "t") is None
    times = []
    for _ in range(2):
        store.add(made("t", "a"))
        store.remove("t")
        state = store._log.refresh()
        times.append(max(gone.at for gone in state.removed.values()))
        assert removed_at(state, "t") == times[-1]
    assert times[0] < times[1]
    assert removed_at(store._log.refresh(), "u") is None


def test_what_is_not_to_be_remembered_is_not(store: Store) -> None:
    store.add(made("t", "a"), source="x:1")
    store.remove("t", remember=False)
    assert len(store.removals) == 0
    assert not store.removals.has(made("t", "a"), "x:1")


def test_a_restored_one_is_let_in_and_the_others_are_not(store: Store) -> None:
    names = ["12345678-a", "12345678-b", "87654321-c", "short"]
    for name in names:
        store.add(made(name, "a"), source=f"x:{name}")
        store.remove(name)
    restore = store.removals.restore
    with pytest.raises(InputError, match="2 removed traces have ids that begin with '12345678'"):
        restore(["12345678"])
    with pytest.raises(NotFound, match="no trace '8765432' was removed"):
        restore(["8765432"])  # too few letters
    with pytest.raises(NotFound, match="no trace 'shor' was removed"):
        restore(["short", "shor"])
    assert len(store.removals) == 4, "nothing is restored when one is unknown"
    assert restore(["12345678-a"]) == 1
    assert restore(["87654321"]) == 1
    assert restore([handle("short")]) == 1
    assert [store.removals.has_id(name) for name in names] == [False, True, False, False]
    assert restore() == 1
    assert restore() == 0
    with pytest.raises(NotFound, match="nothing is remembered"):
        restore(["short"])
