"""Consumption: launch order is deterministic whatever the timing; a deadline drops, counts, weights and refuses."""

from __future__ import annotations

import numpy as np
import pytest

from counterpoint.errors import InputError, NotIdentified
from counterpoint.lab.train.feed import Deadline, Ordered
from counterpoint.lab.train.runner import Done, Job, Runner
from counterpoint.lab.train.runners.here import Here
from counterpoint.lab.train.runners.processes import Processes

WORK = "lab.train.runner.runner_works:"


class Slow:
    """A runner on a clock of its own: a job takes the rounds of its payload, one collect is one round."""

    def __init__(self) -> None:
        self.now = self.count = 0
        self.open: dict[int, tuple[int, Job]] = {}

    def submit(self, job: Job) -> int:
        self.open[self.count] = (self.now + job.payload, job)
        self.count += 1
        return self.count - 1

    def collect(self, timeout_s: float | None = None) -> list[Done]:
        while self.open:
            if timeout_s is None:
                self.now += 1
            ended = [n for n, (at, _) in self.open.items() if at <= self.now]
            if ended or timeout_s is not None:
                return [Done(number=n, version=self.open.pop(n)[1].version, result=n, took_s=0.0) for n in ended]
        return []

    def close(self) -> None:
        self.open.clear()


def learn(runner: Runner, pauses_s: np.ndarray, staleness: int) -> tuple[bytes, list[list[int]]]:
    """Ten updates of a toy: weights move by what comes back; the bytes of all weights, and the versions consumed."""
    feed, scale, seen, ages = Ordered(runner, batch=3, staleness=staleness), np.ones(4), b"", []
    for version in range(10):
        weights = {"scale": scale}
        feed.fill(lambda i, v=version, w=weights: Job(work=WORK + "late", payload=(i, float(pauses_s[i])), version=v, weights=w))
        taken = feed.take(version)
        moved = np.mean([np.frombuffer(d.result[1]) for d in taken.done], axis=0)
        scale = scale * (1 + 0.1 * moved)
        seen += scale.tobytes()
        ages.append(taken.staleness_N.tolist())
    return seen, ages


def test_ordered_gives_the_same_bytes_whatever_the_timing() -> None:
    rng = np.random.default_rng(0)
    with Processes(3) as pool:
        for staleness in (0, 2):
            still, ages = learn(Here(), np.zeros(60), staleness)
            for _ in range(2):  # job numbers go on: a feed never sees another's
                noisy, there = learn(pool, rng.exponential(0.01, 60), staleness)
                assert noisy == still
                assert there == ages
                while pool.collect():  # what the feed had launched ahead
                    pass
            assert ages == [[min(v, staleness)] * 3 for v in range(10)]
    assert learn(Here(), np.zeros(60), 0)[0] != learn(Here(), np.zeros(60), 2)[0], "staleness changes what is learnt"


def test_a_run_that_resumes_gives_the_same_bytes() -> None:
    def play(feed: Ordered, scales: dict[int, np.ndarray], versions: range) -> None:
        for version in versions:
            feed.fill(
                lambda i: Job(
                    work=WORK + "late",
                    payload=(i, 0.0),
                    version=feed.version_of(i),
                    weights={"scale": scales[feed.version_of(i)]},
                )
            )
            moved = np.mean([np.frombuffer(d.result[1]) for d in feed.take(version).done], axis=0)
            scales[version + 1] = scales[version] * (1 + 0.1 * moved)

    whole = {0: np.ones(4)}
    play(Ordered(Here(), batch=3, staleness=2), whole, range(10))
    kept = {v: whole[v] for v in (3, 4, 5)}  # a checkpoint at version 5 holds the last three weights
    play(Ordered(Here(), batch=3, staleness=2, start=15), kept, range(5, 10))
    assert kept[10].tobytes() == whole[10].tobytes()


def test_ordered_holds_its_window() -> None:
    feed = Ordered(Here(), batch=2, staleness=1)
    job = Job(work=WORK + "double", payload=1)
    with pytest.raises(InputError, match="fill before take"):
        feed.take(0)
    for _ in range(4):
        feed.launch(job)
    with pytest.raises(InputError, match="take a batch first"):
        feed.launch(job)
    assert [d.number for d in feed.take(0).done] == [0, 1]
    with pytest.raises(InputError, match="version 0 at version 5, staleness limit 1"):
        feed.take(5)


def rounds(feed: Deadline, took: dict[float, int], versions: int) -> None:
    """Arms in turn; an arm takes the rounds it is given."""
    arms = list(took)

    def make(i: int, version: int) -> Job:
        arm = arms[i % len(arms)]
        return Job(work="", payload=took[arm], version=version, arm=arm)

    for version in range(versions):
        feed.fill(lambda i, v=version: make(i, v))
        feed.take(version)


def test_deadline_drops_counts_and_weights() -> None:
    """Arm 1 takes one collect, arm 2 takes two; a batch is complete after the first collect: arm 2 comes one version late."""
    feed = Deadline(Slow(), batch=2, staleness=0, window=4, prior=0.0)
    feed.inclusion.add([(2.0, 0, True)])  # one lucky launch, so that the arm is not refused
    rounds(feed, {1.0: 1, 2.0: 2}, 10)
    assert feed.dropped == 2 * 10  # two launches of arm 2 in every version
    assert feed.inclusion.share(1.0, 0) == 1
    assert feed.inclusion.share(2.0, 0) == pytest.approx(1 / 21)
    assert feed.inclusion.weights([1.0, 2.0], [0, 0]).tolist() == [1, 10]  # 21, clipped


def test_deadline_with_a_longer_limit_drops_nobody() -> None:
    feed = Deadline(Slow(), batch=2, staleness=1)
    rounds(feed, {1.0: 1, 2.0: 2}, 10)
    assert feed.dropped == 0
    assert feed.inclusion.arrivals == feed.inclusion.launches > 0


def test_an_arm_that_never_comes_is_refused() -> None:
    feed = Deadline(Slow(), batch=2, staleness=1, window=8)
    with pytest.raises(NotIdentified, match=r"none of 2. launches of arm 2 came in time.*longer staleness"):
        rounds(feed, {1.0: 1, 2.0: 1000}, 60)


def test_a_deadline_that_everybody_misses_gives_an_empty_batch_and_goes_on() -> None:
    feed = Deadline(Slow(), batch=2, staleness=0, window=2)
    feed.fill(lambda i: Job(work="", payload=3, version=0))
    assert feed.take(1).done == ()
    assert feed.dropped == 2
    assert feed.room == 2


@pytest.mark.parametrize("wrong", [{"batch": 0}, {"batch": 1, "staleness": -1}, {"batch": 3, "staleness": 0, "window": 2}])
def test_impossible_feeds_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(InputError):
        Deadline(Slow(), **wrong)  # type: ignore[arg-type]
