"""Who is told of every recording: what it notes is in the trace, everything is kept, and what it raises stays with us."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

import counterpoint as cpt
import counterpoint.recorder.witness as witness


class Told:
    def __init__(self, fault: Exception | None = None) -> None:
        self.fault = fault
        self.begun: list[str] = []
        self.ended: list[tuple[str, int, Future[cpt.Trace | None]]] = []

    def begin(self, trace_id: str) -> Mapping[str, Any]:
        self.begun.append(trace_id)
        if self.fault is not None:
            raise self.fault
        return {"test": "this one"}

    def end(self, trace_id: str, events: int, sealed: Future[cpt.Trace | None]) -> None:
        self.ended.append((trace_id, events, sealed))
        if self.fault is not None:
            raise self.fault


@pytest.fixture
def told() -> Iterator[Told]:
    one = Told()
    witness.add(one)
    yield one
    witness.remove(one)
    assert not witness.is_there()


def test_it_is_told_of_beginning_and_end_and_all_is_kept(tmp_path: Path, told: Told) -> None:
    rec = cpt.record(tmp_path, task="t", sample=0.0)
    for _ in range(2):  # entered again, it is another trace
        with rec:
            rec.message(None, "ben", "hello")
    with cpt.record(tmp_path, task="nothing"):
        pass
    assert told.begun == [one[0] for one in told.ended]
    assert [events for _, events, _ in told.ended] == [1, 1, 0]
    traces = [sealed.result() for *_, sealed in told.ended]
    assert traces[2] is None
    assert [trace.meta["test"] for trace in traces[:2] if trace is not None] == ["this one"] * 2
    with cpt.Store(tmp_path) as store:
        assert {row.id for row in store.rows()} == set(told.begun[:2])


def test_without_one_a_sample_is_a_sample(tmp_path: Path) -> None:
    with cpt.record(tmp_path, task="t", sample=0.0) as rec:
        rec.message(None, "ben", "hello")
    assert rec.trace is None


def test_what_it_raises_does_not_reach_the_program(tmp_path: Path, told: Told, capsys: pytest.CaptureFixture[str]) -> None:
    told.fault = ValueError("a bug")
    for _ in range(2):
        with cpt.record(tmp_path, task="t") as rec:
            rec.message(None, "ben", "hello")
        assert rec.trace is not None
        assert "test" not in rec.trace.meta
    assert capsys.readouterr().err.count("Told missed a recording: ValueError: a bug") == 1
