"""Replay: a ring of whole traces, sampling that order cannot change, strata, weights and scales by hand, exact files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoint.errors import InputError, NotFound
from counterpoint.train.replay import Replay, Sample, loss_weights, role_scale

TYPES = ("spawn", "delegate", "stop", "noop")


def rows(trace: int, length: int) -> tuple[str, dict[str, np.ndarray], list[str]]:
    rng = np.random.default_rng([7, trace])
    columns = {"x": rng.random((length, 3), np.float32), "at": 1000 * trace + np.arange(length), "ok": rng.random(length) < 0.5}
    return f"t{trace}", columns, [TYPES[min(3, int(k))] for k in rng.exponential(0.8, length)]


def filled(order: list[int], lengths: list[int], capacity: int = 1000, seed: int = 3) -> Replay:
    out = Replay(capacity, seed=seed)
    for t in order:
        out.add(*rows(t, lengths[t]))
    return out


def same(a: Sample, b: Sample) -> bool:
    columns = all(a.columns[n].tobytes() == b.columns[n].tobytes() for n in a.columns) and list(a.columns) == list(b.columns)
    return columns and all(np.array_equal(x, y) for x, y in zip(a[1:], b[1:], strict=True))


@given(st.lists(st.integers(1, 30), min_size=1, max_size=8), st.randoms(), st.integers(1, 60), st.integers(0, 3))
@settings(max_examples=50, deadline=None)
def test_the_order_of_traces_changes_nothing(lengths: list[int], random: object, n: int, draw: int) -> None:
    straight = list(range(len(lengths)))
    mixed = straight.copy()
    random.shuffle(mixed)  # type: ignore[attr-defined]
    a, b = filled(straight, lengths).sample(n, draw=draw), filled(mixed, lengths).sample(n, draw=draw)
    assert same(a, b)
    assert len(a.row_N) == min(n, sum(lengths))
    assert len(set(zip(a.trace_N.tolist(), a.row_N.tolist(), strict=True))) == len(a.row_N), "without replacement"


def test_rows_are_those_that_were_added() -> None:
    found = filled([0, 1, 2], [20, 5, 9]).sample(25)
    for i, (trace, row) in enumerate(zip(found.trace_N, found.row_N, strict=True)):
        number = int(trace[1:])
        _, columns, types = rows(number, [20, 5, 9][number])
        assert found.columns["at"][i] == 1000 * number + row
        assert found.columns["x"][i].tobytes() == columns["x"][row].tobytes()
        assert found.type_N[i] == types[row]


def test_draws_differ_and_every_row_is_as_likely() -> None:
    buffer = Replay(50, seed=1)
    for t, length in ((0, 10), (1, 30)):
        buffer.add(f"t{t}", {"i": np.arange(length)}, ["spawn"] * length)
    seen = np.zeros((2, 30))
    for draw in range(600):
        found = buffer.sample(8, draw=draw)
        for trace, row in zip(found.trace_N, found.row_N, strict=True):
            seen[int(trace[1:]), row] += 1
    rate = seen[seen > 0] / 600
    assert len(rate) == 40
    assert abs(rate - 0.2).max() < 6 * np.sqrt(0.2 * 0.8 / 600)


def test_the_oldest_traces_leave_whole_and_prefixes_stay() -> None:
    buffer = filled([0, 1, 2, 3], [6, 5, 4, 7], capacity=16)  # 22 rows in 16 places: the first leaves
    assert buffer.traces == ("t1", "t2", "t3")
    assert len(buffer) == 16
    for number, length in ((1, 5), (2, 4), (3, 7)):
        assert buffer.prefix(f"t{number}", length - 1)["at"].tolist() == [1000 * number + i for i in range(length - 1)]
        assert len(buffer.prefix(f"t{number}", 0)["at"]) == 0
    assert {t: c["at"].tolist() for t, c, _ in buffer}["t3"] == [3000 + i for i in range(7)]
    with pytest.raises(NotFound, match="t0"):
        buffer.prefix("t0", 0)
    with pytest.raises(InputError, match="0 to 4"):
        buffer.prefix("t1", 5)


def test_strata_keep_shares_and_never_lose_a_rare_type() -> None:
    buffer = Replay(2000)
    types = ["delegate"] * 900 + ["spawn"] * 90 + ["stop"] * 9 + ["despawn"]
    buffer.add("one", {"i": np.arange(1000)}, types)
    assert buffer.counts == {"delegate": 900, "despawn": 1, "spawn": 90, "stop": 9}
    for draw in range(20):
        kinds = buffer.sample(100, draw=draw).type_N.tolist()
        assert {k: kinds.count(k) for k in set(kinds)} == {"delegate": 89, "spawn": 9, "stop": 1, "despawn": 1}
    few = buffer.sample(3).type_N.tolist()
    assert sorted(few) == ["despawn", "spawn", "stop"]
    floor = buffer.sample(100, least=9).type_N.tolist()
    assert {k: floor.count(k) for k in set(floor)} == {"delegate": 81, "spawn": 9, "stop": 9, "despawn": 1}


def test_loss_weights_are_means_of_means() -> None:
    assert loss_weights(["a", "a", "a", "b"]).tolist() == pytest.approx([1 / 6, 1 / 6, 1 / 6, 1 / 2])
    long, short = np.full(4000, "delegate"), np.full(400, "stop")
    w = loss_weights(np.concatenate([long, short]))
    assert w[:4000].sum() == pytest.approx(w[4000:].sum()) == pytest.approx(0.5)


def test_the_scale_is_shrunk_to_the_pooled_one() -> None:
    # role a: 1, 3 (s^2 = 1, n = 2); role b: 0, 6 (s^2 = 9, n = 2); pooled (2 + 18) / 4 = 5
    found = role_scale([1, 3, 0, 6], ["a", "a", "b", "b"], n0=2)
    assert found.tolist() == pytest.approx([np.sqrt((2 + 10) / 4)] * 2 + [np.sqrt((18 + 10) / 4)] * 2)
    assert role_scale([1, 3, 0, 6], ["a", "a", "b", "b"], n0=0).tolist() == pytest.approx([1, 1, 3, 3])
    # by sub-decision too: every group is one row without spread, the pooled scale is 0 and the floor holds
    assert role_scale([1, 3], ["a", "a"], ["spawn", "stop"]).tolist() == [1e-8, 1e-8]


def test_files_are_exact(tmp_path: Path) -> None:
    buffer = filled([0, 1, 2, 3], [6, 5, 4, 7], capacity=16)
    buffer.save(tmp_path / "a.npz")
    again = Replay.load(tmp_path / "a.npz")
    again.save(tmp_path / "b.npz")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    for one in (buffer, again):
        one.add(*rows(9, 8))
    assert buffer.traces == again.traces
    assert same(buffer.sample(12, draw=5), again.sample(12, draw=5))
    Replay(4).save(tmp_path / "empty.npz")
    assert len(Replay.load(tmp_path / "empty.npz")) == 0


def test_bad_input(tmp_path: Path) -> None:
    buffer = filled([0], [6], capacity=10)
    with pytest.raises(InputError, match="trace t0: is held already"):
        buffer.add(*rows(0, 6))
    with pytest.raises(InputError, match="11 rows, and the buffer holds 10"):
        buffer.add(*rows(1, 11))
    with pytest.raises(InputError, match="differ in at, ok"):
        buffer.add("t", {"x": np.zeros((1, 3))}, ["stop"])
    with pytest.raises(InputError, match="'x' has shape"):
        buffer.add("t", {**rows(2, 2)[1], "x": np.zeros((3, 3))}, ["stop", "stop"])
    with pytest.raises(InputError, match="as in the first trace"):
        buffer.add("t", {**rows(2, 2)[1], "x": np.zeros((2, 4))}, ["stop", "stop"])
    with pytest.raises(InputError, match="objects"):
        buffer.add("t", {"x": np.array([None])}, ["stop"])
    assert buffer.traces == ("t0",)
    with pytest.raises(InputError, match="empty"):
        Replay(3).sample(1)
    with pytest.raises(InputError):
        Replay(0)
    (tmp_path / "no.npz").write_bytes(b"PK not a buffer")
    with pytest.raises(InputError, match="no saved replay buffer"):
        Replay.load(tmp_path / "no.npz")
    with pytest.raises(NotFound, match="no such file"):
        Replay.load(tmp_path / "missing.npz")
