"""Staleness: two factors apart, the gate on the step, and inclusion shares against the credit room's weights."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.credits.off_policy import inclusion_weights
from counterpoint.errors import InputError, NotIdentified
from counterpoint.lab.train.staleness import Inclusion, correct


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
    assert (found.launches, found.arrivals) == (4, 3)


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


# -- at the edges


def test_each_factor_is_cut_at_its_own_cap() -> None:
    # mismatch 4 and staleness 3, then 1 and 1
    found = correct(np.log([0.6, 0.5]), np.log([0.2, 0.5]), np.log([0.05, 0.5]))
    assert found.mismatch_N == pytest.approx([4.0, 1.0])
    assert found.weight_N == pytest.approx([2.0 * 1.0, 1.0])
    wider = correct(np.log([0.6, 0.5]), np.log([0.2, 0.5]), np.log([0.05, 0.5]), mismatch_cap=5.0, staleness_cap=2.5)
    assert wider.weight_N == pytest.approx([4.0 * 2.5, 1.0])
    # the effective sample is that of the untruncated product, 12 and 1: 13^2 / 145 of 2
    assert found.ess_share == wider.ess_share == pytest.approx(169 / 145 / 2)


def test_weights_enter_the_effective_sample_only() -> None:
    zero = np.zeros(4)
    plain, weighted = correct(zero, zero, zero), correct(zero, zero, zero, weights=[3.0, 1.0, 0.0, 0.0])
    assert weighted.ess_share == pytest.approx(16 / 10 / 4)
    assert weighted.step == pytest.approx((16 / 10 / 4) ** 0.5)
    assert np.array_equal(weighted.weight_N, plain.weight_N)


def test_the_least_share_is_the_callers_to_say() -> None:
    zero = np.zeros(4)
    assert correct(zero, zero, zero, weights=[1, 1, 0, 0], least=0.5).step == pytest.approx(0.5**0.5)
    assert correct(zero, zero, zero, weights=[1, 1, 0, 0], least=0.51).step == 0


def test_fates_are_counted_over_all_arms() -> None:
    found = Inclusion()
    assert (found.launches, found.arrivals) == (0, 0)
    found.add([(1.0, 0, True), (1.0, 0, False), (2.0, 0, True), (2.0, 1, True)])
    assert (found.launches, found.arrivals) == (4, 3)
    assert (found.clip, found.prior) == (10.0, 1.0)


def test_a_cell_without_a_prior_and_without_launches_has_its_arms_share() -> None:
    found = Inclusion(prior=0.0)
    found.add([(1.0, 0, True), (1.0, 0, False)])
    assert found.share(1.0, 5) == 0.5
    assert found.share(1.0, 0) == 0.5
    found.add([(1.0, 1, True), (1.0, 1, True)])
    assert (found.share(1.0, 1), found.share(1.0, 0)) == (1.0, 0.5)
    assert Inclusion(prior=3.0).share(1.0, 1) == 1.0


def test_weights_are_one_over_the_share_and_at_most_the_clip() -> None:
    found = Inclusion(clip=3.0, prior=0.0)
    found.add([(1.0, 0, True), (1.0, 0, False), (1.0, 1, True)] + [(1.0, 2, k == 0) for k in range(4)])
    assert found.weights([1.0, 1.0, 1.0], [0, 1, 2]) == pytest.approx([2.0, 1.0, 3.0])
    assert found.weights([], []).shape == (0,)
    assert Inclusion(clip=1.0).weights([7.0], [0]) == [1.0]


def test_the_arm_that_never_came_is_named_first_of_all_in_order() -> None:
    found = Inclusion()
    found.add([(4.0, 0, False)] * 3 + [(2.0, 0, False)] * 3 + [(1.0, 0, False), (1.0, 0, True)] * 3)
    with pytest.raises(NotIdentified, match="none of 3 launches of arm 2 "):
        found.refuse(enough=3)
    with pytest.raises(NotIdentified, match="arm 4 "):
        found.refuse(enough=3, besides=[2.0])
    found.refuse(enough=4)


def test_what_is_refused_at_its_limit() -> None:
    for wrong in ({"clip": 0.99}, {"prior": -0.01}):
        with pytest.raises(InputError, match="clip is"):
            Inclusion(**wrong)
    for wrong in ({"mismatch_cap": 0.0}, {"staleness_cap": -1.0}):
        with pytest.raises(InputError, match="caps are"):
            correct([0.0], [0.0], [0.0], **wrong)
    for columns in (([], [], []), ([[0.0]], [[0.0]], [[0.0]]), ([0.0], [0.0], [0.0, 0.0])):
        with pytest.raises(InputError, match="one entry per decision"):
            correct(*columns)
    with pytest.raises(InputError, match="one entry per rollout"):
        Inclusion().weights([[1.0]], [[1]])
