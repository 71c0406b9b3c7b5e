"""What was removed stays out when a sender sends it again, or more of it, or the receiver starts again; another run comes in."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from app.test_push import filled, trace
from app.test_serve import agent, chat, eventually, post, serving, trace_id, traces
from counterpoint import Store, Trace
from counterpoint.app.push import Push


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("counterpoint.app.receiver.intake._EVERY_S", 0.1)
    monkeypatch.setattr("counterpoint.app.receiver.intake._TICK_S", 0.02)


def _run(name: str, *more: str) -> bytes:
    """One agent with a call of a model each."""
    return traces(agent(name, "a" * 16), *(chat(name, one * 16, "a" * 16) for one in more))


def test_spans_that_come_after_a_removal_bring_nothing_back_until_it_is_restored(tmp_path: Path) -> None:
    gone = trace_id(1)
    with serving(tmp_path / "s") as live:
        post(live.url, _run(gone, "b"))
        eventually(lambda: gone in live.store)
        live.store.remove(gone)
        for more in "cd":
            post(live.url, _run(gone, more))
            eventually(lambda: live.intake.status().get("removed"))
    assert live.intake.status()["removed"] == 1
    assert [note for note in live.notes if f"counterpoint store rm --restore {gone}" in note] == live.notes, "it is said once"
    with serving(tmp_path / "s") as live:  # it reads its spool again
        eventually(lambda: live.intake.status().get("removed"))
        post(live.url, _run(trace_id(2), "b"))
        eventually(lambda: trace_id(2) in live.store)
        assert gone not in live.store
        assert live.store.removals.restore([gone]) == 1
        post(live.url, _run(gone, "e"))
        eventually(lambda: gone in live.store)
        assert sum(event.tokens_out or 0 for event in live.store.get(gone).events) == 3 * 4, "with all that came meanwhile"


def test_a_removed_trace_that_had_another_name_here_stays_out_too(tmp_path: Path) -> None:
    with serving(tmp_path / "s") as live:
        live.store.add(trace(trace_id(1)), source="a file")
        post(live.url, _run(trace_id(1), "b"))
        eventually(lambda: f"otlp-{trace_id(1)}" in live.store)
        live.store.remove(f"otlp-{trace_id(1)}")
        post(live.url, _run(trace_id(1), "c"))
        eventually(lambda: live.intake.status().get("removed"))
    with Store(tmp_path / "s") as store:
        assert store.ids() == [trace_id(1)]


def test_what_a_collector_removed_is_acknowledged_and_left_out(tmp_path: Path) -> None:
    """A trace of the same machine, or another run under the old id, is not what was removed."""
    filled(tmp_path / "node", ["t0", "t1"])
    with serving(tmp_path / "all") as live, Store(tmp_path / "node") as node:
        Push(node, live.url).send(patience_s=0)
        live.store.remove("t1")
        node.add(trace("t1", 4))  # it grew
        node.add(trace("t2"))
        again = Push(node, live.url)
        assert again.send(patience_s=0).counts == {"removed": 1, "added": 1, "renamed": 0}
        assert again.backlog() == []
        assert sorted(live.store.ids()) == ["t0", "t2"]
        assert live.intake.status()["traces removed"] == 1
        node.remove("t1")
        node.add(_other_events("t1"))
        assert Push(node, live.url).send(patience_s=0).counts == {"added": 1, "renamed": 0}
        assert live.store.get("t1") == node.get("t1")


def test_one_id_of_two_machines_is_removed_for_one_of_them(tmp_path: Path) -> None:
    with serving(tmp_path / "all") as live:
        for who in ("one", "two"):
            with Store(filled(tmp_path / who, ["same"], n=2 if who == "one" else 3)) as node:
                Push(node, live.url).send(patience_s=0)
        second = f"same-{(tmp_path / 'two' / 'push' / 'writer').read_text()}"
        live.store.remove(second)
        for who, what in (("one", "unchanged"), ("two", "removed")):
            for path in (tmp_path / who / "push").glob("*.acknowledged"):
                path.unlink()
            with Store(tmp_path / who) as node:
                assert Push(node, live.url).send(patience_s=0).counts == {what: 1, "renamed": who == "two"}
        live.store.add(trace(second, 3), source="somebody")  # who adds it himself is not held up
        live.store.remove("same")
        with Store(tmp_path / "one") as node:
            node.add(trace("same", 4))
            assert Push(node, live.url).send(patience_s=0).counts == {"removed": 1, "renamed": 0}


def _other_events(name: str) -> Trace:
    made = trace(name)
    return replace(made, events=[replace(event, id=f"new-{event.id}") for event in made.events])
