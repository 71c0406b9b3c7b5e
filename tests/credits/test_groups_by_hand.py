"""Group statistics where it is easily missed: what eps does, groups of two, lone rows, gaps in the numbers, ends of ranges."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from counterpoint.credits.groups import (
    CONVENTIONS,
    Convention,
    convention_of,
    ema_advantages,
    group_advantages,
    group_codes,
    group_stats,
    inflation_factor,
    leave_one_out,
    soft_rank,
    whiten,
)
from counterpoint.errors import InputError, NotIdentified

ROOT = 2**0.5
ADDED = 1 / (ROOT + 1)  # half the spread, 1e-6, over std + 1e-6, std = sqrt(2) * 1e-6
# the upper of two rows 0 and 2e-6, the upper of two rows 0 and 1e-6, and a row of 3 that is alone
SMALL: dict[str, tuple[float, float, float | str]] = {
    "grpo": (ADDED, 0.5 / (ROOT / 2 + 1), "refused"),
    "verl": (ADDED, 0.5 / (ROOT / 2 + 1), 3 / (1 + 1e-6)),
    "dr_mas": (ADDED, 0.5 / (ROOT / 2 + 1), 3 / (1 + 1e-6)),
    "skyrl": (ADDED, 0.5 / (ROOT / 2 + 1), 3 / (1 + 1e-6)),
    "rlinf": (ADDED, 0.5 / (ROOT / 2 + 1), 3 / (1 + 1e-6)),
    "rllm": (1 / 2, 0.5 / 1.5, 3 / (1 + 1e-6)),
    "trl": (1 / (ROOT + 100), 0.5 / (ROOT / 2 + 100), 0.0),
    "openrlhf": (1 / (ROOT + 1e-3), 0.5 / (ROOT / 2 + 1e-3), "error"),
    "marti": (1 / (ROOT + 1e-3), 0.5 / (ROOT / 2 + 1e-3), "error"),
    "c3_magrpo": (1 / 10001**0.5, 0.5 / 10000.25**0.5, "error"),
    "torchrl": (1 / ROOT, 0.5, "error"),
    "m_grpo": (1.0, 1.0, "refused"),
    "collm_maac": (1.0, 0.5, 0.0),
    "reinforce_pp": (1 / 10002**0.5, 0.5 / 10000.5**0.5, "refused"),
    "dr_grpo": (1e-6, 0.5e-6, 0.0),
    "prime_rl": (1e-6, 0.5e-6, 0.0),
    "comlrl": (1e-6, 0.5e-6, 0.0),
    "comlrl_max": (0.0, 0.0, 0.0),
    "rloo": (2e-6, 1e-6, "refused"),
    "reinforce": (2e-6, 1e-6, 3.0),
}


@pytest.mark.parametrize("name", CONVENTIONS)
def test_a_spread_as_small_as_eps_shows_where_eps_stands(name: str) -> None:
    wide, narrow, alone = SMALL[name]
    pairs = group_advantages([0.0, 2e-6, 1e-6, 0.0], [0, 0, 1, 1], name)
    assert pairs[1:3] == pytest.approx([wide, narrow], rel=1e-9, abs=0)
    lower = {"comlrl_max": [-2e-6, -1e-6], "reinforce": [0.0, 0.0]}.get(name, [-wide, -narrow])
    assert pairs[[0, 3]] == pytest.approx(lower, rel=1e-9, abs=0)
    if alone == "error":
        with pytest.raises(NotIdentified, match="2 groups of one"):
            group_advantages([3.0, 4.0, 1.0, 1.0], [0, 5, 2, 2], name)
        return
    (lone,) = group_advantages([3.0], [0], name)
    assert np.isnan(lone) if alone == "refused" else lone == pytest.approx(alone, rel=1e-12, abs=0)


def test_every_convention_is_in_the_table() -> None:
    assert set(SMALL) == set(CONVENTIONS)


def test_a_convention_without_a_word_is_verls_formula_that_refuses_one() -> None:
    how = Convention()
    assert (how.baseline, how.scale, how.ddof, how.eps, how.eps_at) == ("mean", "std", 1, 1e-6, "add")
    assert (how.singleton, how.count) == ("refuse", "rows")
    assert group_advantages([0.0, 2e-6], [0, 0])[1] == pytest.approx(ADDED)
    assert convention_of("rloo", ddof=None, eps=0.25, singleton=None) == Convention("leave_one_out", "none", 1, 0.25)
    assert convention_of(how, count="episodes", singleton="zero") == Convention(singleton="zero", count="episodes")
    assert Convention(eps=0.0).eps == 0


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"baseline": "median"}, "baseline is one of mean, leave_one_out, max, none, not 'median'"),
        ({"scale": "mad"}, "scale is one of std, batch, none"),
        ({"eps_at": "out"}, "eps_at is one of add, inside, clamp"),
        ({"singleton": "drop"}, "singleton is one of zero, keep, refuse, error"),
        ({"count": "tokens"}, "count is one of rows, episodes"),
        ({"ddof": -1}, "ddof is one of 0, 1"),
        ({"eps": -1e-9}, "eps is at least 0"),
        ({"eps": float("nan")}, "eps is at least 0"),
    ],
)
def test_a_word_that_no_convention_knows(change: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError, match=text):
        Convention(**change)


def test_a_lone_row_that_is_kept_is_scaled_as_if_the_std_were_one() -> None:
    keep = {"singleton": "keep"}
    assert group_advantages([3.0], [0], Convention(eps=0.5, **keep)) == pytest.approx([2.0])
    assert group_advantages([3.0], [0], Convention(eps=0.44, eps_at="inside", **keep)) == pytest.approx([2.5])
    assert group_advantages([3.0], [0], Convention(eps=2.0, eps_at="clamp", **keep)) == pytest.approx([1.5])
    assert group_advantages([3.0], [0], Convention(eps=0.5, eps_at="clamp", **keep)) == pytest.approx([3.0])
    assert group_advantages([3.0], [0], Convention(eps=0.5, scale="none", **keep)) == pytest.approx([3.0])
    # beside others: they are none of its business, nor it of theirs
    both = group_advantages([3.0, 1.0, 0.0], [4, 2, 2], Convention(eps=0.5, **keep))
    assert both == pytest.approx([2.0, 0.5 / (0.5**0.5 + 0.5), -0.5 / (0.5**0.5 + 0.5)])


def test_without_a_baseline_a_lone_row_is_a_row_like_any_other() -> None:
    raw = Convention(baseline="none", scale="batch", eps=0.0, singleton="error")
    assert group_advantages([2.0, 0.0, 4.0], [0, 1, 1], raw) == pytest.approx([1.0, 0.0, 2.0])
    assert group_advantages([5.0, 5.0], [0, 0], Convention(baseline="none", eps=0.0)).tolist() == [0.0, 0.0]


def test_the_batch_scale_of_one_row_is_no_scale_and_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert group_advantages([2.0], [0], Convention(scale="batch", singleton="keep", eps=1.0)) == pytest.approx([1.0])
        assert group_advantages([2.0], [0], Convention(baseline="none", scale="batch")).tolist() == [0.0]


def test_leave_one_out_scales_by_the_size_of_its_own_group() -> None:
    x, g = [1.0, 0.0, 6.0, 3.0, 0.0], [0, 0, 1, 1, 1]
    # against the mean of the others: 1 - 0, 0 - 1, 6 - 1.5, 3 - 3, 0 - 4.5
    assert group_advantages(x, g, "rloo") == pytest.approx([1, -1, 4.5, 0, -4.5])
    assert leave_one_out(x, g) == pytest.approx([0, 1, 1.5, 3, 4.5])


def test_the_inputs_are_left_as_they_were() -> None:
    x = np.array([1.0, 2.0, 4.0])
    for name in CONVENTIONS:
        group_advantages(x, [0, 0, 0], name)
    whiten(x)
    assert x.tolist() == [1.0, 2.0, 4.0]


def test_numbers_of_groups_may_have_gaps_and_be_huge_or_negative() -> None:
    with np.errstate(all="raise"):
        stats = group_stats([1.0, 3.0, 5.0], [0, 2, 2])
    assert stats.size.tolist() == [1, 0, 2]
    assert stats.mean[[0, 2]].tolist() == [1.0, 4.0]
    assert np.isnan(stats.std[:2]).all()
    assert stats.std[2] == pytest.approx(ROOT)  # ddof 1 unless told
    assert group_stats([3.0, 5.0], [0, 0], ddof=0).std[0] == 1.0
    for numbers in ([10**12, 10**12, 10**15, 10**15], [-1, -1, -2, -2], [3, 3, 0, 0]):
        assert group_advantages([1.0, 0.0, 4.0, 2.0], numbers, "dr_grpo") == pytest.approx([0.5, -0.5, 1, -1])
    assert group_advantages([1.0, 0.0], np.array([7, 7], np.uint8), "dr_grpo") == pytest.approx([0.5, -0.5])


@pytest.mark.parametrize(
    ("values", "groups"),
    [([[1.0, 2.0]], [0]), ([1.0, 2.0], [[0, 0]]), ([1.0, 2.0], ["a", "b"]), ([1.0, np.inf], [0, 0]), ([1.0], [True])],
)
def test_rows_of_a_wrong_shape_are_refused(values: Any, groups: Any) -> None:
    with pytest.raises(InputError):
        group_advantages(values, groups)


def test_episodes_are_told_apart_within_their_group() -> None:
    # group 0: episode 5 has rows 2 and 4 (mean 3), episode 6 has 1; group 1: episode 5 has 10, episode 6 has 0 and 0
    how = convention_of("dr_grpo", count="episodes")
    x, g, e = [2.0, 4.0, 1.0, 10.0, 0.0, 0.0], [0, 0, 0, 1, 1, 1], [5, 5, 6, 5, 6, 6]
    assert group_advantages(x, g, how, episodes=e) == pytest.approx([0, 2, -1, 5, -5, -5])
    # the std is over episodes too: 3 and 1, then 10 and 0
    scaled = group_advantages(x, g, Convention(eps=0.0, count="episodes"), episodes=e)
    assert scaled == pytest.approx([0, 2 / ROOT, -1 / ROOT, 5 / 50**0.5, -5 / 50**0.5, -5 / 50**0.5])
    # a group that one episode fills is a group of one, however many rows it has
    alone = group_advantages([1.0, 2.0, 5.0, 7.0], [0, 0, 1, 1], Convention(count="episodes"), episodes=[1, 1, 2, 3])
    assert np.isnan(alone).tolist() == [True, True, False, False]
    assert group_advantages(x, g, "dr_grpo", episodes=e) == pytest.approx(group_advantages(x, g, "dr_grpo"))


def test_codes_number_keys_by_first_appearance() -> None:
    codes, names = group_codes(["b", ("a", 1), "b", None])
    assert codes.tolist() == [0, 1, 0, 2]
    assert names == ["b", ("a", 1), None]
    assert group_codes([])[0].dtype == np.int64


def test_a_running_mean_at_the_ends_of_its_decay() -> None:
    values, groups = [4.0, 8.0, 6.0], [0, 0, 1]
    frozen, held = ema_advantages(values, groups, decay=1.0, start=2.0)
    assert (frozen.tolist(), held.tolist()) == ([2.0, 6.0, 4.0], [2.0, 2.0, 2.0])
    last, held = ema_advantages(values, groups, decay=0.0)
    assert (last.tolist(), held.tolist()) == ([4.0, 4.0, 6.0], [4.0, 8.0, 6.0])
    half, held = ema_advantages(values, groups, decay=0.5, start=1.0)
    assert (half.tolist(), held.tolist()) == ([3.0, 5.5, 5.0], [2.5, 5.25, 3.5])
    for decay in (-0.1, 1.1, float("nan")):
        with pytest.raises(InputError, match="decay is between 0 and 1"):
            ema_advantages([1.0], [0], decay=decay)


def test_whitening_by_hand() -> None:
    assert whiten([0.0, 2e-4]) == pytest.approx([-1 / 3**0.5, 1 / 3**0.5])  # var 2e-8, eps 1e-8 inside the root
    # only the rows in `over` are counted, all are moved: mean 2, std 1
    assert whiten([1.0, 3.0, 7.0], over=[1, 1, 0], ddof=0, eps=1.0, eps_at="add") == pytest.approx([-0.5, 0.5, 2.5])
    with pytest.raises(NotIdentified, match="0 rows have no spread; at least 1 rows"):
        whiten([1.0], over=[False], ddof=0)
    with pytest.raises(NotIdentified, match="1 rows have no spread; at least 2 rows"):
        whiten([1.0, 2.0], over=[True, False])


def test_soft_ranks_of_three_groups_and_of_one_row() -> None:
    far = [0.0, 1e6, 5.0, 7.0, 9.0, 1.0]
    with warnings.catch_warnings(), np.errstate(over="raise"):
        warnings.simplefilter("error")
        shares, scores = soft_rank(far, [0, 0, 3, 3, 3, 7], tau=1e-3)
    assert shares == pytest.approx([1 / 4, 3 / 4, 1 / 6, 1 / 2, 5 / 6, 1 / 2])
    assert scores == pytest.approx([-0.67448975, 0.67448975, -0.96742157, 0, 0.96742157, 0])
    near, _ = soft_rank([0.0, 0.1], [0, 0])  # tau is 0.1: sigmoid(1) = 0.7310586
    assert near == pytest.approx([(0.5 + 0.26894142) / 2, (0.5 + 0.73105858) / 2])
    assert [len(x) for x in soft_rank([], np.zeros(0, int))] == [0, 0]


def test_inflation_by_hand() -> None:
    assert inflation_factor(3.0, 2.0, 1.0, 4.0) == pytest.approx((4 + 4) / 16)
    with pytest.raises(InputError, match="sigma is above 0"):
        inflation_factor(1.0, 1.0, 1.0, -1.0)
