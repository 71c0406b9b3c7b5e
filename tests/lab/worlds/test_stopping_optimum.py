"""The exact numbers of the stopping worlds, against enumeration of every path of tiny instances and against the sampler."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoint.lab.worlds.stopping.config import Config, PoissonSearch, Saturation, Votes, WideSearch
from counterpoint.lab.worlds.stopping.optimum import gamma_nodes, mean_payoffs, prophet, solve, state_of

Path = tuple[float, tuple[int, ...], tuple[float, ...]]
"""Chance, what is seen at checkpoints 1..H, payoffs at checkpoints 0..H."""
_MOST = 12


def _items(config: Config, n: int) -> float:
    """P(number of items = n), from the textbook formulas."""
    if isinstance(config, PoissonSearch):
        return math.exp(-config.mean) * config.mean**n / math.factorial(n)
    assert isinstance(config, WideSearch)
    a, p = config.shape, config.rate / (1 + config.rate)
    return math.exp(math.lgamma(a + n) - math.lgamma(a)) / math.factorial(n) * p**a * (1 - p) ** n


def _search_paths(config: PoissonSearch | WideSearch) -> Iterator[Path]:
    """Items one by one: each is found in round t with chance find·(1 − find)^(t−1), or never."""
    h, q = config.horizon, 1 - config.find
    rounds = [config.find * q**t for t in range(h)]
    for finds in itertools.product(range(_MOST), repeat=h):
        k, chance = sum(finds), 0.0
        for missed in range(3 * _MOST):
            ways = math.factorial(k + missed) / math.prod(map(math.factorial, finds)) / math.factorial(missed)
            chance += _items(config, k + missed) * ways * q ** (h * missed)
        chance *= math.prod(p**n for p, n in zip(rounds, finds, strict=True))
        found = tuple(itertools.accumulate(finds))
        yield chance, found, (0.0, *(f - config.price * (t + 1) for t, f in enumerate(found)))


def _vote_paths(config: Votes) -> Iterator[Path]:
    for r, weight in zip(config.reliabilities, config.weights, strict=True):
        for votes in itertools.product((1, -1), repeat=config.horizon):
            margin = tuple(itertools.accumulate(votes))
            chance = weight * math.prod(r if v > 0 else 1 - r for v in votes)
            yield chance, tuple(map(abs, margin)), (0.0, *(float(m > 0) - config.price * (t + 1) for t, m in enumerate(margin)))


def _saturation_paths(config: Saturation) -> Iterator[Path]:
    h = config.horizon
    for end in range(h + 1):  # rounds of the improving phase
        phase = (1 - config.hazard) ** end * (config.hazard if end < h else 1)
        for hits in itertools.product((0, 1), repeat=h):
            p = [config.gain] * end + [config.loss] * (h - end)
            chance = phase * math.prod(x if hit else 1 - x for x, hit in zip(p, hits, strict=True))
            level = tuple(itertools.accumulate(hit if t < end else -hit for t, hit in enumerate(hits)))
            yield chance, level, (0.0, *(v - config.price * (t + 1) for t, v in enumerate(level)))


def _brute(config: Config) -> tuple[float, float, float]:
    """Optimum over rules that see the whole history, best cap and prophet, from every path."""
    make = {PoissonSearch: _search_paths, WideSearch: _search_paths, Votes: _vote_paths, Saturation: _saturation_paths}
    paths = list(make[type(config)](config))  # type: ignore[operator]
    assert math.fsum(p for p, _, _ in paths) == pytest.approx(1, abs=1e-7)

    def best(at: list[Path], t: int) -> float:
        stop = math.fsum(p * y[t] for p, _, y in at)
        if t == config.horizon:
            return stop
        seen: dict[int, list[Path]] = {}
        for path in at:
            seen.setdefault(path[1][t], []).append(path)
        return max(stop, math.fsum(best(some, t + 1) for some in seen.values()))

    fixed = max(math.fsum(p * y[t] for p, _, y in paths) for t in range(config.horizon + 1))
    return best(paths, 0), fixed, math.fsum(p * max(y) for p, _, y in paths)


@pytest.mark.parametrize(
    "config",
    [
        PoissonSearch(mean=1.5, find=0.3, price=0.35, horizon=3),
        PoissonSearch(mean=1.0, find=0.6, price=0.1, horizon=2),
        WideSearch(shape=0.8, rate=2.5, find=0.3, price=0.08, horizon=3),
        WideSearch(shape=2.0, rate=4.0, find=0.5, price=0.13, horizon=3),
        Votes(horizon=7, price=0.012),
        Votes(horizon=6, price=0.03, reliabilities=(0.9, 0.3), weights=(0.5, 0.5)),
        Votes(horizon=5, price=0.05, reliabilities=(1.0,), weights=(1.0,)),
        Saturation(horizon=8),
        Saturation(horizon=6, gain=0.7, hazard=0.3, loss=0.5, price=0.2),
        Saturation(horizon=5, gain=0.5, hazard=0.5, loss=0.0, price=0.03),
    ],
    ids=repr,
)
def test_every_path_of_a_tiny_world_agrees(config: Config) -> None:
    value, cap, hindsight = _brute(config)
    solved = solve(config)
    assert solved.value == pytest.approx(value, abs=2e-7)
    assert solved.cap == pytest.approx(cap, abs=2e-7)
    assert solved.prophet == pytest.approx(hindsight, abs=2e-7)


def test_one_vote_by_hand() -> None:
    # E[reliability] = 0.35·0.95 + 0.3·0.75 + 0.2·0.6 + 0.15·0.5 = 0.7525; one vote is worth it, and hindsight takes it when right.
    solved = solve(Votes(horizon=1))
    assert solved.value == pytest.approx(0.7525 - 0.012)
    assert solved.cap_round == 1
    assert solved.prophet == pytest.approx(0.7525 * (1 - 0.012))


def test_one_revision_by_hand() -> None:
    # 0.92·0.5 − 0.08·0.35 − 0.12 = 0.312; hindsight takes 1 − 0.12 with chance 0.46.
    solved = solve(Saturation(horizon=1))
    assert solved.value == pytest.approx(0.312)
    assert solved.prophet == pytest.approx(0.46 * 0.88)


def test_the_poisson_cap_by_hand() -> None:
    # A round is worth its price while 20·0.12·0.88^t > 0.9, that is for t = 0..7; so stop at 8.
    solved = solve(PoissonSearch())
    assert solved.cap_round == 8
    assert solved.value == pytest.approx(20 * (1 - 0.88**8) - 0.9 * 8)
    assert solved.value == pytest.approx(solved.cap, abs=1e-9)
    assert solved.mean_round == 8


def test_the_numbers_of_the_research_notes() -> None:
    s1, s1b = solve(WideSearch()), solve(WideSearch(shape=0.6, rate=0.04))
    assert s1.value == pytest.approx(6.875, abs=5e-4)
    ceilings = [s.ceiling for s in (s1, s1b, solve(Votes()), solve(Saturation()))]
    assert ceilings == pytest.approx([0.45, 0.68, 0.16, 0.59], abs=0.01)


@pytest.mark.parametrize("shape", [0.1, 0.6, 2.0, 5.9, 6.0, 50.0])
@pytest.mark.parametrize("rate", [0.01, 0.04, 0.1, 3.0])
def test_averages_over_the_prior_by_hand(shape: float, rate: float) -> None:
    # E[exp(−uγ)] = (rate/(rate + u))^shape; E[γ exp(−uγ)] = shape/(rate + u) times that.
    points, weights = gamma_nodes(shape, rate, 1.0)
    for u in (0.0, 0.3, 1.0):
        transform = (rate / (rate + u)) ** shape
        assert weights @ np.exp(-u * points) == pytest.approx(transform, abs=1e-10)
        assert weights @ (points * np.exp(-u * points)) == pytest.approx(shape / (rate + u) * transform, rel=1e-9, abs=1e-9)


def test_the_prophet_of_one_round_by_hand() -> None:
    # All items are found at once: E[max(0, N − 1)] = E[N] − 1 + P(N = 0), with P(N = 0) = (rate/(1 + rate))^shape.
    for shape, rate in ((4.0, 0.05), (0.6, 0.01), (30.0, 0.5)):
        config = WideSearch(shape=shape, rate=rate, find=1.0, price=1.0, horizon=1)
        assert prophet(config) == pytest.approx(shape / rate - 1 + (rate / (1 + rate)) ** shape, abs=1e-9)


def test_after_a_loss_the_optimal_rule_stops() -> None:
    config = Saturation()
    lost = np.array([[5.0, 2.0, -1.0, 1.0, 1.0]])
    assert solve(config).stop[:, state_of(config, lost)].all()


def test_more_finds_are_a_reason_to_go_on() -> None:
    stop = solve(WideSearch()).stop
    assert (np.diff(stop[6, :60].astype(int)) <= 0).all()
    assert stop[6, 0]
    assert not stop[6, 40]


_rounds = {"horizon": st.integers(1, 10)}
_chance = st.floats(0, 1)
CONFIGS = st.one_of(
    st.builds(PoissonSearch, mean=st.floats(0, 40), find=_chance, price=st.floats(0, 4), **_rounds),
    st.builds(WideSearch, shape=st.floats(0.1, 5), rate=st.floats(0.05, 3), find=_chance, price=st.floats(0, 4), **_rounds),
    st.builds(
        lambda a, b, w, price, horizon: Votes((a, b), (w, 1 - w), price, horizon),
        _chance,
        _chance,
        _chance,
        st.floats(0, 0.3),
        st.integers(1, 12),
    ),
    st.builds(Saturation, gain=_chance, hazard=_chance, loss=_chance, price=st.floats(0, 1), **_rounds),
)


@settings(max_examples=60, deadline=None)
@given(CONFIGS)
def test_cap_optimum_and_prophet_are_in_order(config: Config) -> None:
    solved = solve(config)
    assert 0 <= solved.cap <= solved.value + 1e-9
    assert solved.value <= solved.prophet + 1e-9
    assert -1e-6 <= solved.ceiling <= 1 + 1e-6 or solved.prophet - solved.cap < 1e-6


@settings(max_examples=60, deadline=None)
@given(CONFIGS, st.floats(0.01, 2))
def test_a_higher_price_never_lengthens_the_mean_stop(config: Config, more: float) -> None:
    dearer = solve(replace(config, price=config.price + more))
    assert dearer.mean_round <= solve(config).mean_round + 1e-9
    assert dearer.value <= solve(config).value + 1e-9


@settings(max_examples=25, deadline=None)
@given(CONFIGS)
def test_a_longer_horizon_never_hurts(config: Config) -> None:
    longer = solve(replace(config, horizon=config.horizon + 3))
    assert longer.value >= solve(config).value - 1e-9
    assert longer.prophet >= solve(config).prophet - 1e-9
    assert mean_payoffs(replace(config, horizon=config.horizon + 3))[: config.horizon + 1] == pytest.approx(mean_payoffs(config))


@pytest.mark.parametrize(
    "config", [WideSearch(horizon=200), WideSearch(horizon=10, price=2.173), Votes(horizon=200), Saturation(horizon=200)]
)
def test_other_horizons_and_prices_are_solved(config: Config) -> None:
    assert 0 <= solve(config).cap <= solve(config).value <= solve(config).prophet
