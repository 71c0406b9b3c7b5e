"""Feeds and runners at their limits: windows, versions, ages at equality, fates, what a job is told and how it fails."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from counterpoint.errors import CounterpointError, InputError, NotFound
from counterpoint.lab.train.feed import Deadline, Ordered, RolloutBatch
from counterpoint.lab.train.runner import Done, Job, error_lines, failed, frozen, packed, resolve
from counterpoint.lab.train.runners.here import Here
from lab.train.runner.test_consume import Slow

WORK = "lab.train.runner.runner_works:"


def job(version: int = 0, payload: int = 1, arm: float = 0.0, cell: int = 0) -> Job:
    return Job(work=WORK + "double", payload=payload, version=version, arm=arm, cell=cell)


# -- launching


def test_windows() -> None:
    assert Ordered(Here(), batch=3, staleness=2).window == 9
    assert Ordered(Here(), batch=3).window == 6
    assert Deadline(Slow(), batch=3).window == 6
    assert Deadline(Slow(), batch=3, staleness=0, window=3).window == 3
    for wrong in ({"batch": 0}, {"batch": 1, "staleness": -1}):
        with pytest.raises(InputError, match="a batch of 1 or more, a staleness of 0 or more"):
            Ordered(Here(), **wrong)
    with pytest.raises(InputError, match="a window of 2 cannot hold a batch of 3"):
        Deadline(Slow(), batch=3, window=2)


def test_launches_are_counted_and_the_first_is_remembered() -> None:
    runner = Here()
    runner.submit(job())
    feed = Ordered(runner, batch=2, staleness=1, start=10)
    assert (feed.first, feed.launched, feed.room) == (None, 10, 4)
    seen: list[int] = []
    feed.fill(lambda i: seen.append(i) or job(payload=i))  # type: ignore[func-returns-value]
    assert (seen, feed.first, feed.launched, feed.room) == ([10, 11, 12, 13], 1, 14, 0)
    with pytest.raises(InputError, match="4 rollouts were launched and none of them was taken; take a batch first"):
        feed.launch(job())
    taken = feed.take(0)
    assert [d.result for d in taken.done] == [20, 22]
    assert [j.payload for j in taken.jobs] == [10, 11]
    assert (feed.room, taken.dropped, taken.weight_N.tolist()) == (2, 0, [1, 1])


def test_the_version_of_a_launch_is_known_before_it_is_made() -> None:
    feed = Ordered(Here(), batch=2, staleness=1)
    assert [feed.version_of(i) for i in range(8)] == [0, 0, 0, 0, 1, 1, 2, 2]


def test_fewer_are_taken_only_where_fewer_are_left() -> None:
    feed = Ordered(Here(), batch=3, staleness=1)
    for _ in range(4):
        feed.launch(job())
    assert len(feed.take(0).done) == 3
    assert len(feed.take(1).done) == 1
    with pytest.raises(InputError, match="nothing was launched; fill before take"):
        feed.take(2)


def test_an_age_at_the_limit_is_taken_and_one_more_is_not() -> None:
    for version, fits in ((3, True), (4, False)):
        feed = Ordered(Here(), batch=2, staleness=2)
        feed.launch(job(version=3))
        feed.launch(job(version=1))
        if fits:
            assert feed.take(version).staleness_N.tolist() == [0, 2]
        else:
            with pytest.raises(InputError, match="a rollout of version 1 at version 4, staleness limit 2"):
                feed.take(version)


def test_ages_of_a_batch() -> None:
    done = tuple(Done(number=k, version=v, result=None, took_s=0.0) for k, v in enumerate((5, 3)))
    assert RolloutBatch(6, done, (job(), job()), np.ones(2)).staleness_N.tolist() == [1, 3]


# -- by arrival


def test_a_deadline_takes_what_came_and_waits_for_a_batch() -> None:
    feed = Deadline(Slow(), batch=2, staleness=1, window=4)
    for payload in (1, 5, 2, 1):
        feed.launch(job(payload=payload))
    taken = feed.take(0)
    assert [d.number for d in taken.done] == [0, 3]  # both after one round
    assert feed.room == 2
    taken = feed.take(1)
    assert [d.number for d in taken.done] == [1, 2]  # the third after two rounds, and it waits for the second
    assert taken.staleness_N.tolist() == [1, 1]
    assert feed.room == 4
    assert feed.dropped == 0


def test_what_is_too_old_is_dropped_and_counted_when_it_is() -> None:
    feed = Deadline(Slow(), batch=1, staleness=1, window=4)
    for payload, version in ((9, 0), (1, 1), (1, 2)):
        feed.launch(job(payload=payload, version=version, arm=float(version)))
    taken = feed.take(2)
    # version 0 is too old at once; version 1 is in time, and so is 2
    assert [d.version for d in taken.done] == [1, 2]
    assert (taken.dropped, feed.dropped) == (1, 1)
    assert (feed.inclusion.launches, feed.inclusion.arrivals) == (2, 1)  # the fates of versions 0 and 1 are settled, not that of 2
    feed.launch(job(version=2, payload=1))
    assert feed.take(3).dropped == 0
    assert feed.inclusion.launches == 4


def test_what_came_and_was_not_taken_in_time_is_dropped_with_its_version() -> None:
    feed = Deadline(Slow(), batch=1, staleness=0, window=3)
    feed.launch(job(payload=7, version=0))
    feed.launch(job(payload=1, version=0))
    taken = feed.take(0)
    assert [d.number for d in taken.done] == [1]
    assert taken.dropped == 1  # the slow one can never be in time for version 1
    assert feed.room == 3
    assert feed.take(1).done == ()


def test_weights_are_those_of_the_arms_and_cells_taken() -> None:
    feed = Deadline(Slow(), batch=1, staleness=0, window=2, clip=3.0, prior=0.0)
    feed.inclusion.add([(1.0, 7, True), (1.0, 7, False), (1.0, 8, True)] + [(2.0, 7, k == 0) for k in range(9)])
    feed.launch(job(payload=0, arm=1.0, cell=7))
    feed.launch(job(payload=0, arm=2.0, cell=7))
    taken = feed.take(0)
    assert taken.weight_N == pytest.approx([3 / 2, 3.0])  # 2 of 3 came, this one counted; 2 of 10, clipped
    assert (feed.inclusion.clip, feed.inclusion.prior) == (3.0, 0.0)


# -- jobs


def test_work_by_name() -> None:
    assert resolve(WORK + "double")(3, None) == 6
    for wrong in ("double", ":double", "lab.train.runner.runner_works:"):
        with pytest.raises(InputError, match="names no function"):
            resolve(wrong)
    with pytest.raises(NotFound, match=r"cannot import the work 'no\.module:f': No module named 'no'"):
        resolve("no.module:f")
    with pytest.raises(NotFound, match=r"module 'lab\.train\.runner\.runner_works' has no function 'doubel'.*did you mean 'double'"):
        resolve(WORK + "doubel")
    with pytest.raises(NotFound, match="has no function '__doc__'"):
        resolve(WORK + "__doc__")


def test_what_travels() -> None:
    import pickle

    assert pickle.loads(packed({"a": 1}, "payload", 3, "w")) == {"a": 1}
    with pytest.raises(InputError, match=r"job 3 \(w\): the payload cannot be sent: .*; plain values, bytes or arrays"):
        packed(lambda: 0, "payload", 3, "w")
    weights = {"a": np.zeros(2), "b": 7}
    assert frozen(weights) is weights
    assert not weights["a"].flags.writeable  # type: ignore[union-attr]
    assert frozen(b"x") == b"x"


def test_one_error_for_a_job() -> None:
    error = failed(4, "m:f", "it broke", fix="mend it", trace="line 1\nline 2")
    assert str(error) == "job 4 (m:f): it broke; mend it"
    assert error.__notes__ == ["line 1\nline 2"]
    assert not hasattr(failed(4, "m:f", "it broke"), "__notes__")
    try:
        raise ValueError("a\n  b")
    except ValueError as caught:
        line, trace = error_lines(caught)
    assert line == "ValueError: a b"
    assert trace.startswith("Traceback")
    assert "test_feeds_by_hand" in trace
    assert error_lines(CounterpointError("what", where="here"))[0] == "here: what"


def test_jobs_here_run_in_order_with_weights_of_their_version() -> None:
    weights: dict[str, Any] = {"bias": np.array([100])}
    with Here() as runner:
        payload = [1]
        assert runner.collect() == []
        assert [runner.submit(Job(work=WORK + "double", payload=3, version=v, weights=weights)) for v in (0, 0)] == [0, 1]
        weights["bias"][0] = 500
        assert runner.submit(Job(work=WORK + "double", payload=3, version=0, weights=weights)) == 2
        assert runner.submit(Job(work=WORK + "double", payload=3, version=1, weights=weights)) == 3
        payload.append(2)
        got = [d for _ in range(4) for d in runner.collect()]
        assert [(d.number, d.version, d.result) for d in got] == [(0, 0, 106), (1, 0, 106), (2, 0, 106), (3, 1, 506)]
        assert all(d.took_s >= 0 for d in got)
        runner.submit(job())
    assert runner.collect() == []
    with pytest.raises(InputError, match="the runner is closed; make another"):
        runner.submit(job())


def test_a_payload_is_as_it_was_when_it_was_submitted() -> None:
    runner, payload = Here(), [0, 0.0]
    runner.submit(Job(work=WORK + "late", payload=payload, weights={"scale": np.ones(4)}))
    payload[0] = 9
    assert runner.collect()[0].result[0] == 0
    with pytest.raises(NotFound):
        runner.submit(Job(work=WORK + "none", payload=1))
    runner.submit(Job(work=WORK + "bad", payload=5))
    with pytest.raises(CounterpointError, match=r"job 1 \(lab\.train\.runner\.runner_works:bad\): ValueError: no good: 5") as caught:
        runner.collect()
    assert "Traceback" in caught.value.__notes__[0]
