"""Asynchronous rollouts in real processes: faster than waiting, same bytes in order, no bias once weighted.

Always true: twelve worker processes, and every launch, wait, arrival, drop and version is real; what is simulated is the
inside of a rollout: returns are drawn from a known distribution, and the wait for model calls is `time.sleep`. One launch in
five is a straggler; wide and hard launches take longer and gain more from spawning. A launch is a group of 256
rollouts. Launches run evenly through difficulties and arms in shuffled blocks, so the true effect is exactly 0.21.

Held to: the spawn effect from those that came within the limit, weighted by inclusion, within 2 % of the truth at limits 0, 1,
2 and 4; unweighted, it is off by more than 10 % at limit 1; with the weights that a loop sees batch by batch, from a cold
start, within 10 %; consumption by launch order gives the same weights to the byte as one process that never waits; and the
rate of consumed rollouts is at least 1.5 times the synchronous one, with the same twelve workers and an update of 5 ms.

    E[R | a, u] = 0.3 + 0.2 u + a (0.02 + 0.38 u)                     a: spawn or not, u: difficulty in {0, 1/3, 2/3, 1}
    seconds = pace (1 + 0.5 u) (1 + a (0.5 + u)) LogNormal(0, 0.8), times 4 for one in five

See docs/lab/research/staleness.md; a million simulated launches are the claim `straggler`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from counterpoint.credits.off_policy import inclusion_effect
from counterpoint.display import tracked
from counterpoint.errors import InputError
from counterpoint.lab.bench.claim import ClaimRow, at_least, at_most
from counterpoint.lab.train.feed import Deadline, Ordered
from counterpoint.lab.train.runner import Job, Runner
from counterpoint.lab.train.runners.here import Here
from counterpoint.lab.train.runners.processes import Processes

LEVELS = 4
EFFECT = 0.02 + 0.38 / 2
"""Mean effect of spawning over the difficulties."""
_GROUP, _NOISE, _TAIL, _TIMES = 256, 0.1, 0.2, 4.0

Launch = tuple[int, int, int, float]
"""Seed, arm, level, pace in seconds."""


def rollouts(payload: Launch, weights: Any) -> float:
    """Waits, and gives the mean return of the group, times the scale of the weights where there is one."""
    seed, arm, level, pace_s = payload
    rng = np.random.default_rng(seed)
    u = level / (LEVELS - 1)
    slow = _TIMES if rng.random() < _TAIL else 1.0
    time.sleep(pace_s * slow * (1 + 0.5 * u) * (1 + arm * (0.5 + u)) * float(rng.lognormal(0.0, 0.8)))
    mean = float(np.mean(0.3 + 0.2 * u + arm * (0.02 + 0.38 * u) + _NOISE * rng.standard_normal(_GROUP)))
    return mean if weights is None else mean * float(weights["scale"])


_WORK = "counterpoint.lab.bench.claims.async_:rollouts"
_WORKERS, _LIMITS, _LAUNCHES, _PACE_S = 12, (0, 1, 2, 4), 800, 0.004
_UPDATES, _UPDATE_S = 25, 0.005


def _job(rng: np.random.Generator, cell: int, version: int, pace_s: float, scale: float = 1.0) -> Job:
    arm, level = cell % 2, cell // 2
    payload = (int(rng.integers(2**40)), arm, level, pace_s)
    return Job(work=_WORK, payload=payload, version=version, weights={"scale": scale}, arm=float(arm), cell=level)


def _cells(rng: np.random.Generator, n: int) -> list[int]:
    """Arms and difficulties evenly, in shuffled blocks."""
    kinds = 2 * LEVELS
    return np.concatenate([rng.permutation(kinds) for _ in range(n // kinds + 2)]).tolist()


def _emptied(pool: Processes) -> Processes:
    """After what was launched ahead has come back: the next measurement starts with idle workers."""
    while pool.collect():
        pass
    return pool


class _Effects(NamedTuple):
    weighted: float
    """By inclusion, over all launches whose fate is known."""
    as_seen: float
    """By the weights that the loop was given, batch by batch."""
    naive: float
    kept: float


def _effects(pool: Processes, seed: int, limit: int) -> _Effects:
    """The effect of spawning from one run of the deadline consumer."""
    rng = np.random.default_rng([seed, limit, 17])
    cells = _cells(rng, _LAUNCHES + _WORKERS)
    feed = Deadline(_emptied(pool), batch=5, staleness=limit, window=_WORKERS)
    launched: list[int] = []
    got: dict[int, tuple[float, float]] = {}
    version = 0
    while feed.launched < _LAUNCHES:
        before = feed.launched
        feed.fill(lambda i, v=version: _job(rng, cells[i], v, _PACE_S))  # type: ignore[misc]
        launched += [version] * (feed.launched - before)
        taken = feed.take(version)
        got |= {d.number - (feed.first or 0): (d.result, w) for d, w in zip(taken.done, taken.weight_N.tolist(), strict=True)}
        version += 1
    known = [i for i, v in enumerate(launched) if v < version - limit]
    kept = np.array([i in got for i in known])
    returns, weight = np.array([got.get(i, (0.0, 0.0)) for i in known]).T
    arm, level = np.array([cells[i] % 2 for i in known]), np.array([cells[i] // 2 for i in known])
    mean = inclusion_effect(returns, level, arm, kept)
    by = lambda w, a: float(np.average(returns[arm == a], weights=w[arm == a]))  # noqa: E731
    return _Effects(mean[1] - mean[0], by(weight, 1) - by(weight, 0), by(kept, 1) - by(kept, 0), float(kept.mean()))


def _learnt(runner: Runner, seed: int, staleness: int, *, pace_s: float, update_s: float) -> tuple[bytes, float]:
    """The weights after every update, by launch order, and consumed rollouts per second."""
    rng = np.random.default_rng([seed, staleness, 18])
    cells = _cells(rng, _WORKERS * (_UPDATES + staleness + 1))
    feed, scale, out = Ordered(runner, batch=_WORKERS, staleness=staleness), 1.0, b""
    begin = time.perf_counter()
    for version in range(_UPDATES):
        feed.fill(lambda i, v=version, w=scale: _job(rng, cells[i], v, pace_s, w))  # type: ignore[misc]
        scale += 0.1 * float(np.mean([d.result for d in feed.take(version).done]))
        time.sleep(update_s)
        out += np.float64(scale).tobytes()
    return out, _WORKERS * _UPDATES / (time.perf_counter() - begin)


def _by_deadline(pool: Processes, seed: int, staleness: int) -> float:
    """Consumed rollouts per second when nobody is waited for; those that were dropped do not count."""
    rng = np.random.default_rng([seed, staleness, 19])
    cells = _cells(rng, 10 * _WORKERS * _UPDATES)
    feed, consumed, begin = Deadline(_emptied(pool), batch=_WORKERS, staleness=staleness), 0, time.perf_counter()
    for version in range(_UPDATES):
        feed.fill(lambda i, v=version: _job(rng, cells[i], v, _PACE_S))  # type: ignore[misc]
        consumed += len(feed.take(version).done)
        time.sleep(_UPDATE_S)
    return consumed / (time.perf_counter() - begin)


def _measured(pool: Processes, seed: int) -> dict[str, float]:
    out: dict[str, float] = {}
    for limit in _LIMITS:
        found = _effects(pool, seed, limit)
        out |= {f"weighted {limit}": abs(found.weighted / EFFECT - 1), f"kept {limit}": found.kept}
        out |= {f"naive {limit}": abs(found.naive / EFFECT - 1), f"as seen {limit}": abs(found.as_seen / EFFECT - 1)}
    waits = {"pace_s": _PACE_S, "update_s": _UPDATE_S}
    _, together = _learnt(_emptied(pool), seed, 0, **waits)
    there, apart = _learnt(_emptied(pool), seed, 2, **waits)
    here, _ = _learnt(Here(), seed, 2, pace_s=0.0, update_s=0.0)
    out |= {"ordered": apart / together, "deadline": _by_deadline(pool, seed, 2) / together, "same": float(there == here)}
    return out


def async_(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """About ten seconds per seed."""
    if seeds < 1:
        raise InputError(f"seeds is at least 1, not {seeds}")
    with Processes(_WORKERS) as pool:
        for _ in range(4 * _WORKERS):  # processes import before the clock runs
            pool.submit(_job(np.random.default_rng(0), 0, 0, 0.0))
        _emptied(pool)
        all_ = [_measured(pool, s) for s in tracked(range(seed, seed + seeds), "seeds")]
    told = {name: [one[name] for one in all_] for name in all_[0]}
    for limit in _LIMITS:
        yield at_most(f"weighted spawn effect, relative error, limit {limit}", told[f"weighted {limit}"], 0.02)
    yield at_least("naive spawn effect, relative error, limit 1", told["naive 1"], 0.1)
    yield at_most("weighted batch by batch, relative error, limit 1", told["as seen 1"], 0.1)
    yield at_most("share of launches kept, limit 0", told["kept 0"], 0.9)
    yield at_least("by launch order, the same bytes as one process", told["same"], 1)
    yield at_least("rollouts/s over synchronous, by launch order", told["ordered"], 1.5)
    yield at_least("rollouts/s over synchronous, by deadline", told["deadline"], 1.5)
