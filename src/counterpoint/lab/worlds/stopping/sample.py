"""What happens in an episode: the increment of every round, drawn by key, and the paths that stop learners train on.

Always true: a draw is a function of (seed, purpose, round or item) alone, so thousands of episodes at once are the same as one by
one, and a fork shares every draw that it does not ask to be fresh. Nothing here knows how the optimum is computed.
No column of `Paths.features` looks ahead: column t is a function of the increments of rounds 1..t.

Inverse distribution functions: the number of items and the round of each find by table, P(found by n) = 1 − (1 − find)^n; coins
by u < chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from counterpoint.guard.stop_paths import FEATURES
from counterpoint.lab.worlds.stopping.config import Config, PoissonSearch, Saturation, Votes, WideSearch
from counterpoint.trace.keyed import purpose, uniform

Segments = Sequence[tuple[int, np.ndarray]]
"""(round, seeds): from after this round on, draws use these seeds; the first begins after round 0. One seed per episode."""

_ITEMS, _FOUND, _FOUND_LATE = purpose("stopping items"), purpose("stopping found"), purpose("stopping found after a redraw")
_RELIABILITY, _VOTE = purpose("stopping reliability"), purpose("stopping vote")
_PHASE, _CHANGE = purpose("stopping phase"), purpose("stopping change")
_NEVER = np.iinfo(np.int64).max // 2


@dataclass(frozen=True, kw_only=True)
class Paths:
    """Episodes under forced continuation: what stopping at each checkpoint would pay, and what was known there."""

    seeds: np.ndarray
    """(E,) the seed of each episode."""
    payoffs: np.ndarray
    """(E, H+1) points for stopping at checkpoint t: Y_t."""
    features: np.ndarray
    """(E, H+1, d) what the orchestrator knows at checkpoint t."""
    names: tuple[str, ...] = FEATURES
    """The d columns of `features`."""


def paths_of(config: Config, seeds: np.ndarray, steps: np.ndarray) -> Paths:
    """The paths of increments (E, H) that were delivered to the orchestrator."""
    episodes, horizon = steps.shape
    cumulated = np.zeros((episodes, horizon + 1), np.int64)
    np.cumsum(steps, axis=1, out=cumulated[:, 1:])
    rounds = np.arange(horizon + 1)
    evidence = config.evidence(cumulated)
    change = np.diff(evidence, axis=1, prepend=0)
    last_rise = np.maximum.accumulate(np.where(change > 0, rounds, 0), axis=1)
    drop = np.maximum.accumulate(evidence, axis=1) - evidence
    columns = np.broadcast_arrays(rounds, evidence, change, rounds - last_rise, drop)
    payoffs = config.quality(cumulated) - config.price * rounds
    return Paths(seeds=seeds, payoffs=payoffs, features=np.stack(columns, axis=-1).astype(float))


def increments(config: Config, segments: Segments) -> np.ndarray:
    """(E, H) what each round brings: finds, a right (1) or wrong (-1) vote, or a change of level."""
    match config:
        case PoissonSearch() | WideSearch():
            return _finds(config, segments)
        case Votes():
            return _votes(config, segments)
        case Saturation():
            return _changes(config, segments)


def _finds(config: PoissonSearch | WideSearch, segments: Segments) -> np.ndarray:
    """Items by inverse table; each item's round is geometric, and without memory where a segment ends."""
    first = segments[0][1]
    log_pmf = _poisson_log_pmf(config) if isinstance(config, PoissonSearch) else _mixture_log_pmf(config)
    cdf = np.cumsum(np.exp(log_pmf))
    counts = np.searchsorted(cdf, uniform(first, _ITEMS) * cdf[-1], side="right")
    episode = np.repeat(np.arange(len(first)), counts)
    item = np.arange(len(episode)) - np.repeat(np.cumsum(counts) - counts, counts)
    ends = [start for start, _ in segments[1:]] + [config.horizon]
    times = np.full(len(episode), _NEVER)
    for (start, seeds), end in zip(segments, ends, strict=True):
        at = _geometric(config.find, uniform(seeds[episode], _FOUND, item), config.horizon)
        if start:  # where its round has passed without a find it is drawn again: geometric waits have no memory
            u = uniform(seeds[episode], _FOUND_LATE, item, start)
            at = np.where(at > start, at, start + _geometric(config.find, u, config.horizon))
        times = np.where((times == _NEVER) & (at <= end), at, times)
    is_early = times <= config.horizon
    cells = episode[is_early] * config.horizon + times[is_early] - 1
    return np.bincount(cells, minlength=len(first) * config.horizon).reshape(len(first), config.horizon)


def _geometric(chance: float, u: np.ndarray, horizon: int) -> np.ndarray:
    """The round of the first success of coins with this chance; `_NEVER` beyond the horizon."""
    cdf = 1 - np.cumprod(np.full(horizon, 1 - chance))
    n = np.searchsorted(cdf, u, side="right")
    return np.where(n < horizon, n + 1, _NEVER)


def _poisson_log_pmf(config: PoissonSearch) -> np.ndarray:
    """log P(n) with P(n+1)/P(n) = mean/(n+1)."""
    n = np.arange(1, config.most_items + 1)
    if config.mean == 0:
        return np.zeros(1)
    return np.concatenate([[0.0], np.cumsum(np.log(config.mean / n))]) - config.mean


def _mixture_log_pmf(config: WideSearch) -> np.ndarray:
    """log P(n) of the negative binomial number of items, with P(n+1)/P(n) = (shape + n)/((n + 1)(1 + rate))."""
    n = np.arange(config.most_items)
    ratios = np.log((config.shape + n) / ((n + 1) * (1 + config.rate)))
    return np.concatenate([[0.0], np.cumsum(ratios)]) + config.shape * np.log(config.rate / (1 + config.rate))


def _seed_of_round(segments: Segments, horizon: int) -> np.ndarray:
    """(E, H) the seed that each round draws with."""
    seeds = np.repeat(segments[0][1][:, None], horizon, axis=1)
    for start, fresh in segments[1:]:
        seeds[:, start:] = fresh[:, None]
    return seeds


def _votes(config: Votes, segments: Segments) -> np.ndarray:
    cdf = np.cumsum(config.weights)
    which = np.searchsorted(cdf, uniform(segments[0][1], _RELIABILITY) * cdf[-1], side="right")
    reliability = np.asarray(config.reliabilities)[which]
    u = uniform(_seed_of_round(segments, config.horizon), _VOTE, np.arange(1, config.horizon + 1))
    return np.where(u < reliability[:, None], 1, -1)


def _changes(config: Saturation, segments: Segments) -> np.ndarray:
    seeds, rounds = _seed_of_round(segments, config.horizon), np.arange(1, config.horizon + 1)
    goes_on = uniform(seeds, _PHASE, rounds) >= config.hazard
    improves = np.logical_and.accumulate(goes_on, axis=1)
    u = uniform(seeds, _CHANGE, rounds)
    return np.where(improves, (u < config.gain).astype(int), -(u < config.loss).astype(int))
