"""Outcomes that people give: on record with author and time, whoever scores or imports at the same time."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from msgspec.structs import replace

from counterpoint.errors import InputError, NotFound
from counterpoint.store import Store
from counterpoint.store.log import Row, State
from counterpoint.store.writing import _Batch
from counterpoint.trace import Event, Trace
from counterpoint.trace.outcome import Outcome, outcomes, with_outcomes


def run(name: str = "t", **fields: object) -> Trace:
    events = [Event(id="a", t=0, type="message", agent="lead")]
    return Trace(trace_id=name, task_id="q", events=events, **fields)  # type: ignore[arg-type]


def by(who: str, value: float, channel: str = "team", at: float = 1.0) -> Outcome:
    return Outcome(channel=channel, value=value, by=who, at=at)


def test_the_last_one_counts_and_nothing_is_lost() -> None:
    trace = with_outcomes(run(rewards={"team": 0.0}), [by("ann", 1)])
    trace = with_outcomes(trace, [by("bob", 0.5, at=2.0), by("bob", 3, "style", at=2.0)])
    assert trace.rewards == {"team": 0.5, "style": 3}
    assert [(o.by, o.channel, o.value) for o in outcomes(trace)] == [
        ("source", "team", 0.0), ("ann", "team", 1), ("bob", "team", 0.5), ("bob", "style", 3)]  # fmt: skip
    assert with_outcomes(trace, [by("ann", 1)]) == trace  # the same one again is no other one
    for bad in (by("x", float("nan")), by("x", 1, "")):
        with pytest.raises(InputError, match="is not an outcome"):
            with_outcomes(trace, [bad])


def test_an_outcome_survives_a_new_import_and_a_reopening(tmp_path: Path) -> None:
    imported = run(rewards={"team": 0.0}, meta={"import": {"files": 1}})
    with Store(tmp_path / "s") as store:
        store.add(imported, "log.json")
        assert store.score("t", [by("ann", 1)]).rewards == {"team": 1}
        assert store.rows()[0].team_reward == 1
        assert store.add(imported, "log.json") == "unchanged"
        grown = replace(imported, events=[*imported.events, Event(id="b", t=1, type="message", agent="lead")])
        assert store.add(grown, "log.json") == "updated"
        assert store.add(grown, "log.json") == "unchanged"
        with pytest.raises(NotFound):
            store.score("nobody", [by("ann", 1)])
    with Store(tmp_path / "s", read_only=True) as store:
        found = store.get("t")
        assert (len(found.events), found.rewards) == (2, {"team": 1})
        assert [o.by for o in outcomes(found)] == ["source", "ann"]
        with pytest.raises(InputError, match="read-only"):
            store.score("t", [by("ann", 1)])


def test_a_trace_that_is_being_recorded_is_not_scored(tmp_path: Path) -> None:
    with Store(tmp_path / "s") as store:
        with store.record("t", task_id="q") as recorded:
            recorded.event(Event(id="a", t=0, type="message", agent="lead"))
        with pytest.raises(InputError, match="being recorded"):
            store.score("t", [by("ann", 1)])


def test_many_score_at_once(tmp_path: Path) -> None:
    with Store(tmp_path / "s") as store:
        store.add(run())

    def score(who: int) -> None:
        with Store(tmp_path / "s") as own:
            own.score("t", [by(f"p{who}", who, at=float(who))])

    threads = [threading.Thread(target=score, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with Store(tmp_path / "s") as store:
        assert {o.by for o in outcomes(store.get("t"))} == {f"p{k}" for k in range(6)}


def test_somebody_scores_while_the_trace_is_imported_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store(tmp_path / "s") as store, Store(tmp_path / "s") as other:
        store.add_many([run("t"), run("u")])
        decide = _Batch._decide
        calls = []

        def late(self: _Batch, state: State, rows: list[Row], *rest: object) -> list[Row]:
            calls.append([r.id for r in rows])
            return decide(self, state, rows, *rest)  # type: ignore[arg-type]

        monkeypatch.setattr(_Batch, "_decide", late)
        write = store._writer.write

        def first_score(*args: object) -> None:
            if not calls and "scored" not in done:
                done.append("scored")
                other.score("t", [by("ann", 1)])
            write(*args)  # type: ignore[arg-type]

        done: list[str] = []
        monkeypatch.setattr(store._writer, "write", first_score)
        changed = [replace(run(name), task_id="r") for name in ("t", "u")]
        assert store.add_many(changed) == ["updated", "updated"]
        found = store.get("t")
        assert (found.task_id, found.rewards) == ("r", {"team": 1})
        assert store.get("u").task_id == "r"
