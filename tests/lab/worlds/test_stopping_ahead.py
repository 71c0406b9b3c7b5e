"""One round ahead: draws follow the law of what was observed, expected scores and losses agree with play."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from counterpoint import registry
from counterpoint.errors import InputError

WORLDS = [registry.get("world", name) for name in ("s0", "s1", "s1b", "s2", "s3")]
each_world = pytest.mark.parametrize("world", WORLDS, ids=[w.name for w in WORLDS])


@each_world
@pytest.mark.parametrize("t", [0, 3, 9])
def test_draws_follow_what_happens_after_the_same_features(world: Any, t: int) -> None:
    paths = world.paths(range(12_000))
    now, then = paths.features[:, t], paths.features[:, t + 1]
    drawn = world.ahead(t, now, 4, seed=1)
    assert drawn.shape == (12_000, 4, 5)
    group = now[:, 1] <= np.median(now[:, 1])
    for rows in (group, ~group):
        if rows.sum() < 500:
            continue
        error = then[rows].std(axis=0) / np.sqrt(rows.sum())
        assert (np.abs(drawn[rows].mean(axis=(0, 1)) - then[rows].mean(axis=0)) < 4.5 * error + 1e-9).all()


def test_the_next_round_of_s1_by_hand() -> None:
    # before any round: finds are negative binomial, shape 2, odds 0.12/0.1, so P(0) = (1/2.2)^2 = 0.2066 and the mean is 2.4
    s1 = registry.get("world", "s1")
    drawn = s1.ahead(0, np.zeros((1, 5)), 20_000, seed=0)[0]
    assert (drawn[:, 1] == 0).mean() == pytest.approx(0.2066, abs=1e-3)
    assert drawn[:, 1].mean() == pytest.approx(2.4, abs=0.01)
    assert (drawn[:, 0] == 1).all()
    assert (drawn[drawn[:, 1] == 0][:, 3] == 1).all()


def test_hidden_parts_are_not_looked_at() -> None:
    # two episodes that look the same so far have the same draws, whatever their hidden reliability is
    s2 = registry.get("world", "s2")
    x = np.tile([4.0, 2.0, 1.0, 0.0, 0.0], (2, 1))
    a, b = s2.ahead(4, x, 64, seed=3)
    assert abs(a[:, 1].mean() - b[:, 1].mean()) < 0.05
    assert (s2.ahead(4, x, 64, seed=3) == s2.ahead(4, x, 64, seed=3)).all()


@each_world
def test_expected_scores_and_exact_losses_agree_with_play(world: Any) -> None:
    paths = world.paths(range(8000))
    seen = world.observed_scores(paths.features)
    error = (paths.payoffs - seen).std(axis=0) / np.sqrt(8000)
    assert (np.abs((paths.payoffs - seen).mean(axis=0)) <= 4.5 * error + 1e-9).all()
    for policy in ("optimum", "cap:6", "patience:3"):
        runs = world.run(policy, range(8000))
        lost = world.regret(paths.features, runs.columns["rounds"].astype(int))
        assert (lost >= -1e-9).all()
        error = runs.values.std() / np.sqrt(8000)
        assert abs(world.solution().value - lost.mean() - runs.values.mean()) < 4.5 * error + 0.02
        if policy == "optimum":
            assert lost.max() < 1e-9


def test_bad_input() -> None:
    s3 = registry.get("world", "s3")
    with pytest.raises(InputError, match="no round after checkpoint 40"):
        s3.ahead(40, np.zeros((1, 5)), 1, 0)
    with pytest.raises(InputError, match="draws"):
        s3.ahead(0, np.zeros((1, 5)), 0, 0)
    with pytest.raises(InputError, match="five features"):
        s3.ahead(0, np.zeros((1, 4)), 1, 0)
