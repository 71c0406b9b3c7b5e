"""A large trace at first sight: what it says agrees with what the whole trace says."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.viewer.served import viewing
from app.viewer.small import unpacked
from counterpoint import Store
from counterpoint.app.viewer.collection import Collection
from counterpoint.app.viewer.first_look import FirstLook
from counterpoint.app.viewer.overview import overview
from counterpoint.testing import synthetic_trace


def test_agents_sums_and_span_are_those_of_the_whole(tmp_path: Path) -> None:
    trace = synthetic_trace(30, 200, trace_id="t")
    with Store(tmp_path / "traces") as store:
        store.add(trace)
        look = FirstLook(store, store.rows()[0])
    first, whole = look.about(), overview(trace)
    assert first.is_partial
    assert not whole.is_partial
    assert (first.events, first.edges, first.start, first.end) == (whole.events, whole.edges, whole.start, whole.end)
    assert first.costs == {name: whole.costs[name] for name in first.costs}
    assert {a.name for a in first.agents} == {a.name for a in whole.agents}
    told = {a.name: a for a in whole.agents}
    for agent in first.agents:
        other = told[agent.name]
        assert (agent.role, agent.depth, agent.events) == (other.role, other.depth, other.events)
        assert agent.tokens_total == pytest.approx(other.tokens_total)
        assert (agent.start, agent.end) == (other.start, other.end)
        assert ("" if agent.parent < 0 else first.agents[agent.parent].name) == ("" if other.parent < 0 else whole.agents[other.parent].name)
    head, _ = unpacked(look.bins())
    assert len(head["lanes"]) == len(first.agents)


def test_the_server_gives_it_until_the_trace_has_been_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("counterpoint.app.viewer.trace_view.LARGE", 100)
    with Store(tmp_path / "traces") as store:
        store.add(synthetic_trace(10, 60, trace_id="large"))
        store.add(synthetic_trace(2, 4, trace_id="small"))
    with viewing(Collection(tmp_path / "traces"), tmp_path) as viewer:
        assert viewer.of("large", "?first=1").json["is_partial"] is True
        assert viewer.of("large", "/bins?first=1").status == 200
        assert viewer.of("small", "?first=1").json.get("is_partial") is False
        assert viewer.of("large").json.get("is_partial") is False
        assert viewer.of("large", "?first=1").json.get("is_partial") is False, "it has been read by now"
