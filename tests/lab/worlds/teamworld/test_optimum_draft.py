"""The optimum of a draft: against sums over the hidden time of rot, by hand, and by playing the rule."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoint.lab.worlds.teamworld import optimum
from counterpoint.lab.worlds.teamworld.config import Config
from counterpoint.lab.worlds.teamworld.optimum import draft
from lab.worlds.teamworld.other_rules import ruled

SHORT = ruled(draft_items=1, draft_calls=5, draft_hazard=0.2, draft_loss=0.4, price=(0.01, 0.1))


def _chance(config: Config, history: tuple[tuple[float, int], ...]) -> float:
    """P(outcomes | calls), history of (gain chance, step), summed over the number of calls that find the draft sound."""
    h, total = config.draft_hazard, 0.0
    for sound in range(1, len(history) + 1):
        p = (1 - h) ** (sound - 1) * (h if sound < len(history) else 1.0)
        for i, (a, step) in enumerate(history):
            p *= {1: a, 0: 1 - a, -1: 0.0}[step] if i < sound else {1: 0.0, 0: 1 - config.draft_loss, -1: config.draft_loss}[step]
        total += p
    return total


def _recursion(config: Config, terms: list[tuple[float, float]], history: tuple[tuple[float, int], ...] = ()) -> float:
    """Value to go times P(history); any of the terms at any call."""
    here = _chance(config, history) if history else 1.0
    best = 0.0
    if len(history) < config.draft_calls and here > 0:
        for a, price in terms:
            total = -price * here
            for step in (1, 0, -1):
                ahead = (*history, (a, step))
                total += config.draft_weight * step * _chance(config, ahead) + _recursion(config, terms, ahead)
            best = max(best, total)
    return best


def test_equals_recursion_over_hidden_paths() -> None:
    for b, extra in ((2, 0.0), (1, 0.05), (0, 0.1)):
        terms = [(SHORT.draft_gain[f] * SHORT.brief_factor[b], SHORT.price[f] + 0.0012 * b + extra) for f in (0, 1)]
        expected = max(_recursion(SHORT, [term]) for term in terms)
        assert draft.value(SHORT, b, extra) == pytest.approx(expected, abs=1e-12)


def test_bound_covers_mixed_families_tightly() -> None:
    for extra in (0.0, 0.05, 0.15):
        terms = [(SHORT.draft_gain[f], SHORT.price[f] + 0.0024 + extra) for f in (0, 1)]
        mixed = _recursion(SHORT, terms)
        assert mixed - 1e-12 <= draft.bound(SHORT, optimum.workers(SHORT, 2), extra) <= mixed + 1e-5


def test_two_calls_by_hand() -> None:
    """a = 0.5, h = 0.2, l = 0.4, no price: the first call yields 0.5 and the draft is then sound with 0.8 after a gain, and after a
    zero too (a zero of a sound draft says nothing). The second yields 0.8·0.5 − 0.2·0.4 = 0.32 in both cases: 0.82 in all."""
    config = ruled(draft_items=1, draft_calls=2, draft_hazard=0.2, draft_loss=0.4, price=(9.0, 0.0), brief_price=0.0)
    assert draft.value(config, 2) == pytest.approx(0.82, abs=1e-12)
    assert draft.value(config, 2, 0.32) == pytest.approx(0.18, abs=1e-12)  # the second call is then worth nothing
    assert draft.rule(config, 2, 0.33).patience[:, 1].tolist() == [1, 0]  # one zero, or a gain


def test_the_rule_earns_its_value_when_played() -> None:
    """20,000 drafts played by the patience table alone."""
    config, extra = Config(draft_items=1), 0.0875
    rule, rng, size = draft.rule(config, 2, extra), np.random.default_rng(3), 20_000
    a, price = config.draft_gain[rule.family], config.price[rule.family] + 2 * config.brief_price + extra
    sound, on = np.ones(size, dtype=bool), np.ones(size, dtype=bool)
    level, zeros, gained, points = (np.zeros(size, dtype=int) for _ in range(4))
    paid = np.zeros(size)
    for t in range(config.draft_calls):
        on &= zeros < rule.patience[gained, t]
        u = rng.random(size)
        step = np.where(sound, u < a, -(u < config.draft_loss).astype(int)) * on
        sound &= ~(on & (rng.random(size) < config.draft_hazard))
        level, paid = level + step, paid + price * on
        on, gained = on & (step >= 0), gained | (step > 0)
        zeros = np.where(step > 0, 0, zeros + 1)
    points = level - paid
    assert abs(points.mean() - rule.value) < 4 * points.std() / size**0.5


def test_patience_is_a_threshold_and_own_work_is_cheaper() -> None:
    config = Config(draft_items=1, orchestrator_works=True)
    rule = draft.rule(config, 2, 0.1)
    assert np.all(np.diff(rule.go.astype(int), axis=2) <= 0)
    assert draft.value(config, 2, 0.1, own=True) > rule.value


@settings(max_examples=25, deadline=None)
@given(st.floats(0, 0.5), st.floats(0, 0.5), st.floats(0, 1), st.floats(0, 1), st.integers(1, 12))
def test_falls_convexly_in_the_price_and_rises_in_calls(x: float, y: float, hazard: float, loss: float, calls: int) -> None:
    config, longer = (ruled(draft_items=1, draft_hazard=hazard, draft_loss=loss, draft_calls=n) for n in (calls, calls + 1))
    low, high = sorted((x, y))
    ends = draft.value(config, 2, low), draft.value(config, 2, high)
    assert ends[0] >= ends[1] >= 0
    assert draft.value(config, 2, (low + high) / 2) <= sum(ends) / 2 + 1e-12
    assert draft.value(longer, 2, low) >= ends[0] - 1e-12
    assert draft.bound(config, optimum.workers(config, 2), low) >= ends[0] - 1e-12
