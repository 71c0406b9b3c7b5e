"""Reward arithmetic of published methods: the formula sheet's worked numbers, bad input, and where code and paper part."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from counterpoint.errors import InputError
from counterpoint.reward import published as pub
from counterpoint.reward import published_steps as steps


def near(x: object) -> object:
    return pytest.approx(x, abs=1e-6)


def test_matpo_halves_the_format_and_gives_no_worker_nothing() -> None:
    cases = [(1, 1, [1, 0]), (0, 1, [1]), (1, 1, []), (0, 0, [0, 0])]
    assert [pub.matpo(*case) for case in cases] == near([0.975, 0.1, 0.95, 0.0])


def test_m_grpo_paper_and_release() -> None:
    assert pub.m_grpo_main(True, 1) == near(1.0)
    assert pub.m_grpo_main(False, 1) == 0.0
    assert pub.m_grpo_sub(True, 1, 0.6) == near(0.8)
    released = [pub.m_grpo_sub(bool(f), m, as_released=True) for f, m in zip([0, 1, 1, 1], [1.0, 0.0, 0.1, 1.0], strict=True)]
    assert released == near([0.0, 0.1, 0.1, 1.0])
    with pytest.raises(InputError, match="expert"):
        pub.m_grpo_sub(True, 1)


def test_wideseek() -> None:
    reward = {"format_ok": True, "accessed": True, "max_turn_tokens": 4000}
    assert pub.wideseek(0.5, **reward) == near(0.6)  # type: ignore[arg-type]
    assert pub.wideseek(0.5, **{**reward, "format_ok": False}) == 0.0  # type: ignore[arg-type]
    assert pub.wideseek(0.5, **reward, hit_limit=True) == 0.0  # type: ignore[arg-type]
    assert pub.wideseek(0.5, format_ok=True, accessed=False, max_turn_tokens=9e9) == near(0.5 + 0.1 - 0.1)
    assert pub.wideseek(0.5, format_ok=True, accessed=False, max_turn_tokens=3000) == near(0.6)


def test_agent_qmix_himpo_paramanager() -> None:
    assert pub.agent_qmix(1.0, 4000, w_acc=1.5) == near(1.46)
    assert pub.agent_qmix(1.0, 40_000) == near(0.9)
    assert pub.himpo(1, [0.5, 1.0]) == near(1.375)
    assert pub.himpo(1, [1, 0, 1]) == near(1.333333)
    assert pub.himpo(1, []) == 1
    assert pub.paramanager(1, 1, 0.5, 0.8) == near(1.33)


def test_sharp() -> None:
    without = {"planner": 0.0, "worker1": 0.2, "worker2": 0.6}
    assert pub.sharp(1.0, without, {"worker1": 1.0, "worker2": 0.5}) == near({"planner": 1.5, "worker1": 1.5, "worker2": 1.25})


def test_marsrl_pays_verdicts_that_are_true() -> None:
    cases = [(True, True, None), (True, False, True), (False, False, True), (False, True, None)]
    assert [pub.marsrl(*case) for case in cases] == [
        {"solver": 1, "verifier": 1},
        {"solver": 1, "verifier": 0, "corrector": 1},
        {"solver": 0, "verifier": 1, "corrector": 1},
        {"solver": 0, "verifier": 0},
    ]


def test_mae() -> None:
    assert [pub.mae_proposer(q, 0.4, 1) for q in (0.8, 0.6)] == near([0.8, 0.533333])
    assert pub.mae_proposer(0.8, 0.4, 1, parsed=False) == 0.0
    assert pub.mae_solver(0.9, 1.0) == near(0.95)
    assert pub.mae_judge(0.5) == 0.5


def test_comas_says_nothing_where_the_paper_says_nothing() -> None:
    found = [pub.comas(s) for s in (3, 2, 1, "bad", True, math.nan)]
    assert found[0] == {"solution": 1.0, "evaluation": 0.0, "scorer": 0.0}
    assert found[1] == {"solution": 0.5, "evaluation": 0.5, "scorer": 0.0}
    assert found[2] == {"solution": 0.0, "evaluation": 1.0, "scorer": 0.0}
    assert found[3:] == [{"scorer": -1.0}] * 3


def test_debate_gate_and_hera() -> None:
    assert pub.debate_gate([[1, 1, 0, 1], [1, 0, 1, 1]]) == [1, 0, 0, 1]
    with pytest.raises(InputError, match="one verdict per answer"):
        pub.debate_gate([[1, 0], [1]])
    assert pub.hera_rank([0.8, 0.8, 0.0], [900, 500, 200]) == ([1, 0, 2], True, False)
    assert pub.hera_rank([0.0, 0.0], [1, 2]) == ([0, 1], False, True)
    assert pub.hera_utility(6, 4) == near(0.666667)
    assert pub.hera_utility(0, 0) is None


def test_a_score_that_is_no_number_is_refused() -> None:
    for call in (
        lambda: pub.matpo(math.nan, 1, []),
        lambda: pub.himpo(1, [math.inf]),
        lambda: pub.sharp(1.0, {"a": math.nan}, {}),
        lambda: steps.maporl([[math.nan]]),
        lambda: steps.malt([[[math.nan]]]),
        lambda: steps.fold_reward(1, [math.nan]),
    ):
        with pytest.raises(InputError):
            call()


def test_maporl_own_now_team_later() -> None:
    reward = steps.maporl([[0.2, 0.8], [0.6, 0.8], [1.0, 0.9]], gamma=0.3)
    assert reward[:, 0] == near([0.356475, 0.680769, 1.0])
    # by hand: agent 1, turn 0: (0.8 + 0.3 * 0.7 + 0.09 * 0.95) / 1.39
    assert reward[0, 1] == near((0.8 + 0.21 + 0.0855) / 1.39)


@given(st.lists(st.lists(st.floats(0, 1), min_size=3, max_size=3), min_size=1, max_size=6), st.floats(0, 1))
def test_maporl_stays_between_the_lowest_and_the_highest_score(scores: list[list[float]], gamma: float) -> None:
    reward = steps.maporl(scores, gamma=gamma)
    assert reward.min() >= np.min(scores) - 1e-12
    assert reward.max() <= np.max(scores) + 1e-12


def test_maporl_bonus_in_both_signs() -> None:
    alpha = [1.0, 2.0, 0.5, 0.25]
    assert steps.maporl_bonus([[0, 1], [1, 1], [1, 1]], alpha)[1, 0] == 1.0
    quirk = [[0, 0], [1, 0], [1, 1]]
    assert steps.maporl_bonus(quirk, alpha, as_released=True)[1, 0] == 1.75
    assert steps.maporl_bonus(quirk, alpha)[1, 0] == 2.25  # the paper's meaning: paid for repairing the other
    spoiled = [[1, 1], [0, 1], [0, 0]]  # agent 0 falls while the other is right, then the other falls too
    assert steps.maporl_bonus(spoiled, alpha, as_released=True)[1, 0] == -2.0 + 0.25
    assert not steps.maporl_bonus(quirk, alpha)[0].any()
    with pytest.raises(InputError, match="four constants"):
        steps.maporl_bonus(quirk, [1.0])
    with pytest.raises(InputError, match="two agents"):
        steps.maporl_bonus([[1], [0]], alpha)


def test_puppeteer_paper_and_release() -> None:
    paper = steps.puppeteer(1.0, [1, 1, 1], budget=4)
    assert paper.cost_T == near([0.223144, 0.405465, 0.559616])
    assert paper.return_T == near([0.862797, 0.894052, 0.944038])
    released = steps.puppeteer_released(1.0, ["default", "web_search", "terminator"], [20000, 50000], max_steps=4)
    assert released.cost_T == near([0.026303, 0.048543, 0.067807])
    assert released.reward_T == near([-0.005261, -0.036407, 1.0424])
    assert released.return_T == near([0.980352, 0.995569, 1.0424])
    assert steps.puppeteer_released(0.0, ["terminator"], [], max_steps=4).reward_T[0] < 0
    with pytest.raises(InputError, match="terminator"):
        steps.puppeteer_released(1.0, ["a"], [1.0], max_steps=4)


def test_malt_tree() -> None:
    tree = steps.malt([[[1, 0], [1, 1]], [[0, 0], [1, 0]]])
    assert tree.verifier_GV.tolist() == [[0.5, 1.0], [0.0, 0.5]]
    assert tree.generator_G.tolist() == [0.75, 0.25]
    assert tree.verifier_right_GV.tolist() == [[False, True], [False, False]]
    assert tree.generator_right_G.tolist() == [True, False]
    assert tree.refiner_pairs == [(0, 0, 0, 1), (1, 1, 0, 1)]
    assert tree.verifier_pairs == [(0, 1, 0)]
    assert tree.generator_pairs == [(0, 1)]


def test_fold_penalties_clip_and_the_release() -> None:
    assert steps.fold_reward(1.0, [0, -1, -0.2]).tolist() == near([1.0, 0.0, 0.8])
    assert steps.fold_reward(0.0, [0, -0.2]).tolist() == [0.0, 0.0]
    crowded = steps.fold_process(on_main=True, context_share=0.6)
    assert crowded == -1.0
    assert steps.fold_process(on_main=True, creates_branch=True, context_share=0.6) == 0.0
    assert steps.fold_process(on_main=False, in_scope=False) == near(-0.2)
    assert steps.fold_process(on_main=False, in_scope=None) == 0.0
    # int8: 0.2, -0.2, -1 become 0, 0, -1
    assert steps.fold_process(on_main=False, in_scope=True, as_released=True) == 0.0
    assert steps.fold_process(on_main=False, in_scope=False, as_released=True) == 0.0
    assert steps.fold_process(on_main=False, tool_failed=True, as_released=True) == -1.0
    assert steps.fold_process(on_main=True, never_branched=True) == 0.0
    assert steps.fold_process(on_main=True, never_branched=True, as_released=True) == -1.0
    assert steps.fold_flat(1.0, False) == near(0.8)


def test_mars2_shaping_and_its_release_which_shapes_nothing() -> None:
    parent, reward = [-1, -1, 0, 0, 1], [0.2, 0.6, 0.8, 0.4, 1.0]
    assert steps.mars2_shaping(parent, reward) == near([0.0, 0.8, 1.1, 0.4, 1.1])
    assert steps.mars2_shaping(parent, reward, as_released=True).tolist() == reward
    assert steps.mars2_shaping([-1], [0.3]).tolist() == [0.3]
    with pytest.raises(InputError, match="parents before"):
        steps.mars2_shaping([1, -1], [0, 0])
