"""Staleness: two factors apart, the gate on the step, and inclusion shares against the credit room's weights."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.credit._gae import reward_to_go
from counterpoint.credit._off_policy import inclusion_weights
from counterpoint.errors import InputError, NotIdentified
from counterpoint.train.staleness import Inclusion, correct, stale_vtrace


def test_engine_mismatch_and_staleness_are_two_factors() -> None:
    # sampled at 0.5, the trainer says 0.25 for the same weights, now it is 0.75: factors 1/2 and 3
    found = correct(np.log([0.75]), np.log([0.25]), np.log([0.5]))
    assert found.mismatch_N == pytest.approx([0.5])
    assert found.staleness_N == pytest.approx([3.0])
    assert found.weight_N == pytest.approx([0.5])  # 0.5 * min(3, 1)
    assert correct(np.log([0.75]), np.log([0.25]), np.log([0.5]), staleness_cap=2.0).weight_N == pytest.approx([1.0])


def test_the_step_shrinks_with_the_effective_sample_and_is_skipped_below_a_tenth() -> None:
    zero = np.zeros(4)
    assert correct(zero, zero, zero).step == 1
    # ratios 1, 1, 0, 0 (almost): ESS 2 of 4
    half = correct(np.array([0, 0, -19.0, -19.0]), zero, zero)
    assert half.ess_share == pytest.approx(0.5, abs=1e-6)
    assert half.step == pytest.approx(0.5**0.5, abs=1e-6)
    lone = np.full(20, -19.0)
    lone[0] = 0
    assert correct(lone, np.zeros(20), np.zeros(20)).step == 0
    assert correct(zero, zero, zero, weights=[1, 1, 0, 0]).step == pytest.approx(0.5**0.5)


def test_on_policy_targets_are_plain_returns() -> None:
    rng = np.random.default_rng(0)
    r, v, logp = rng.normal(size=60), rng.normal(size=60), rng.normal(size=60)
    chains = np.arange(60) // 12
    targets, _ = stale_vtrace(correct(logp, logp, logp), r, v, segments=chains, gamma=0.9)
    assert np.abs(targets - reward_to_go(r, segments=chains, gamma=0.9)).max() < 1e-9


launches = st.lists(st.tuples(st.sampled_from([0.0, 4.0]), st.integers(0, 2), st.booleans()), min_size=1, max_size=60)


@given(launches)
def test_without_a_prior_the_weights_are_those_of_credit(rows: list[tuple[float, int, bool]]) -> None:
    arm, cell, kept = (np.array(c) for c in zip(*rows, strict=True))
    found = Inclusion(clip=3.0, prior=0.0)
    found.add(rows)
    try:
        theirs = inclusion_weights(cell, arm, kept, clip=3.0)
    except NotIdentified:
        return
    ours = np.zeros(len(rows))
    ours[kept] = found.weights(arm[kept], cell[kept])
    for a in np.unique(arm):
        assert ours[arm == a] / ours[arm == a].sum() == pytest.approx(theirs[arm == a])


def test_a_prior_pulls_to_the_arm_and_never_seen_cells_have_a_weight() -> None:
    found = Inclusion(prior=1.0)
    assert found.share(1.0, 0) == 1
    found.add([(1.0, 0, True)] * 3 + [(1.0, 1, False)])
    assert found.share(1.0, 0) == pytest.approx((3 + 0.75) / 4)
    assert found.share(1.0, 1) == pytest.approx(0.75 / 2)
    assert found.share(1.0, 9) == pytest.approx(0.75)
    assert (found.launches, found.kept) == (4, 3)


def test_what_never_came_is_refused() -> None:
    found = Inclusion()
    found.add([(2.0, 0, False)] * 19)
    found.refuse()  # too few to say never
    found.add([(2.0, 1, False)])
    with pytest.raises(NotIdentified, match="none of 20 launches of arm 2"):
        found.refuse()
    found.refuse(besides=[2.0])  # one has come just now
    assert found.weights([2.0], [0]) == [10]


def test_bad_input() -> None:
    with pytest.raises(InputError, match="one entry per decision"):
        correct([0.0], [0.0, 0.0], [0.0])
    with pytest.raises(InputError, match="caps"):
        correct([0.0], [0.0], [0.0], staleness_cap=0.0)
    with pytest.raises(NotIdentified, match="log-probability"):
        correct([0.0], [np.nan], [0.0])
    with pytest.raises(InputError, match="clip"):
        Inclusion(clip=0.5)
    with pytest.raises(InputError, match="one entry per rollout"):
        Inclusion().weights([1.0], [1, 2])
