"""Hot replay: a mapped copy of the columns, for sampling."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from counterpoint.errors import InputError, NotFound
from counterpoint.store import DecisionRef, Store
from counterpoint.testing import SHAPES, synthetic_trace
from counterpoint.trace import Trace


def _traces() -> list[Trace]:
    return [synthetic_trace(3, 10 + i, SHAPES[i % len(SHAPES)], seed=i, trace_id=f"t{i}") for i in range(8)]


def _store(folder: Path) -> Store:
    store = Store(folder)
    store.add_many(_traces()[:5])
    store.add_many(_traces()[5:])
    return store


def test_the_hot_file_says_what_the_lake_says(tmp_path: Path) -> None:
    store = _store(tmp_path)
    ids = ["t7", "t0", "t3"]
    hot, cold = store.hot().batch(ids), store.batch(ids)
    assert hot.offsets.tolist() == cold.offsets.tolist()
    for name in ("t", "dur", "tokens_in", "trusted", "ok", "logp"):
        assert np.array_equal(hot.column(name).astype(float), cold.column(name).astype(float), equal_nan=True), name
    for name in ("type", "agent", "role", "to", "decision"):
        a, b = hot.codes(name), cold.codes(name)
        words = [None if c < 0 else a.categories[c] for c in a.codes]
        assert words == [None if c < 0 else b.categories[c] for c in b.codes], name


def test_a_part_of_a_batch_in_another_order(tmp_path: Path) -> None:
    store = _store(tmp_path)
    batch = store.hot().batch(["t7", "t0", "t3"], columns=["t", "agent"])
    part = batch.select([2, 0])
    assert (part.ids, part.columns, len(part)) == (["t3", "t7"], ["t", "agent"], 2)
    assert part.column("agent").tolist() == [e.agent for name in ("t3", "t7") for e in store.get(name).events]
    for wrong in ([], [3], [-1]):
        with pytest.raises(InputError, match=r"must be in 0\.\.2, and at least one"):
            batch.select(wrong)


def test_sampling_draws_traces_by_id(tmp_path: Path) -> None:
    hot = _store(tmp_path).hot()
    batch = hot.sample(4, np.random.default_rng(0), columns=["t", "tokens_in"])
    assert len(set(batch.ids)) == 4
    assert batch.columns == ["t", "tokens_in"]
    by_id = {t.trace_id: t for t in _traces()}
    assert batch.column("t").tolist() == [e.t for name in batch.ids for e in by_id[name].events]
    assert batch.reward().tolist() == [by_id[name].rewards["team"] for name in batch.ids]


def test_decisions_are_named_by_trace_and_event_number(tmp_path: Path) -> None:
    store = _store(tmp_path)
    every = {(t.trace_id, i) for t in _traces() for i, e in enumerate(t.events) if e.decision is not None}
    drawn = store.hot().decisions(len(every), np.random.default_rng(1))
    assert set(drawn) == every
    assert isinstance(drawn[0], DecisionRef)
    assert store.get(drawn[0].trace_id).events[drawn[0].event].decision is not None
    with pytest.raises(InputError, match="cannot draw"):
        store.hot().decisions(len(every) + 1, np.random.default_rng(1))


def test_it_follows_the_store_and_can_be_thrown_away(tmp_path: Path) -> None:
    store = _store(tmp_path)
    assert len(store.hot()) == 8
    assert store.hot() is store.hot()
    store.remove("t0")
    assert "t0" not in store.hot().ids
    assert len(list((tmp_path / "hot").iterdir())) == 2
    for file in (tmp_path / "hot").iterdir():
        file.write_bytes(b"damaged")
    with pytest.raises(InputError, match="rebuild=True"):
        Store(tmp_path).hot()
    assert len(Store(tmp_path).hot(rebuild=True)) == 7


def test_wrong_questions(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no finished trace"):
        Store(tmp_path / "empty").hot()
    hot = _store(tmp_path / "full").hot()
    with pytest.raises(NotFound, match="no trace 'x'"):
        hot.batch(["x"])
    with pytest.raises(InputError, match="no column 'content_ref'"):
        hot.batch(["t1"], columns=["content_ref"])
    with pytest.raises(InputError, match="cannot draw 9 traces from 8"):
        hot.sample(9, np.random.default_rng(0))
