"""Rewards of published methods: the worked numbers of their formulas, what they read of a trace, and where code and paper part."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from counterpoint import registry
from counterpoint.errors import InputError
from counterpoint.reward.rewards import matpo, wideseek
from counterpoint.reward.rewards.agent_qmix import priced
from counterpoint.reward.rewards.maporl import bonus, own_now_team_later
from counterpoint.trace import Event, Trace
from counterpoint.trace.example import rollouts


def near(x: object) -> object:
    return pytest.approx(x, abs=1e-6)


def paid(name: str, trace: Trace, **options: object) -> dict[str, float]:
    return {signal.unit_id: signal.value for signal in registry.get("reward", name)(trace, **options)}


def test_matpo_halves_the_format_and_gives_no_worker_nothing() -> None:
    cases = [(1.0, 1.0, [1.0, 0.0]), (0.0, 1.0, [1.0]), (1.0, 1.0, []), (0.0, 0.0, [])]
    assert [matpo.mixed(*case) for case in cases] == near([0.975, 0.1, 0.95, 0.0])
    assert matpo.mixed(0.5, 0.25, [1.0, 0.0], w_outcome=2.0, w_format=4.0) == near(1.0 + 0.5 * (1.0 + 2.0))
    said = [
        Event(id="a", t=0, type="orchestrator_decision", agent="lead", role="orchestrator", reward={"format": 1.0}),
        Event(id="b", t=1, type="message", agent="w", reward={"format": 0.0}),
        Event(id="c", t=2, type="message", agent="w", reward={"format": 1.0}),
    ]
    trace = Trace(trace_id="t", task_id="q", events=said, rewards={"team": 1.0})
    assert paid("matpo", trace) == {"": near(0.9 + 0.05 + 0.025)}
    silent = replace(trace, events=[replace(said[0], reward=None), *said[1:]])  # nothing says which format the lead kept
    assert paid("matpo", replace(trace, rewards={})) == paid("matpo", silent) == {}


def test_wideseek() -> None:
    assert wideseek.mixed(0.5, is_opened=True, longest=4000) == near(0.6)
    assert wideseek.mixed(0.5, is_opened=False, longest=9e9) == near(0.5 + 0.1 - 0.1)
    assert wideseek.mixed(0.5, is_opened=False, longest=3000) == near(0.6)
    assert wideseek.mixed(0.0, is_opened=True, longest=6000, w_format=1.0, w_access=2.0, w_length=4.0) == near(-1.0)
    right, _, wrong, *_ = rollouts()  # rewards 1 and 0; the tool answered in the first and failed in the third
    assert wideseek.longest_turn(right) == 8  # the lead's turns 1 and 2: a draft of 6 tokens and a decision of 2
    assert (paid("wideseek", right), paid("wideseek", wrong)) == ({"": near(1.15)}, {"": near(0.1)})
    assert paid("wideseek", right, tools=["open"]) == {"": near(1.1)}
    assert paid("wideseek", right, valid=lambda trace: False) == {"": 0.0}
    assert paid("wideseek", replace(right, rewards={})) == {}


def test_agent_qmix() -> None:
    assert priced(1.0, 4000, w_outcome=1.5) == near(1.46)
    assert priced(1.0, 40_000) == near(0.9)
    assert priced(0.5, 5_000, most=20_000, w_tokens=0.4) == near(0.4)
    first = rollouts()[0]
    assert first.costs["tokens"] == 125
    assert paid("agent_qmix", first, most=250) == {"": near(1.0 - 0.1 * 0.5)}
    assert paid("agent_qmix", replace(first, rewards={})) == {}
    with pytest.raises(InputError, match="most is 0"):
        paid("agent_qmix", first, most=0)


def test_maporl_of_a_trace() -> None:
    first = rollouts()[0]  # turn 1: 1, 1, 0; turn 2: 1, 1, 1
    assert paid("maporl", first, gamma=0.5) == near(
        {"w1#1": 1.0, "w2#1": 1.0, "w3#1": 0.5 / 1.5, "w1#2": 1.0, "w2#2": 1.0, "w3#2": 1.0}
    )
    less = replace(first, events=[e for e in first.events if (e.agent, e.turn) != ("w2", 2)], edges=[])
    assert set(paid("maporl", less)) == {"w1#1", "w3#1", "w1#2", "w3#2"}  # w2 was not scored in both turns
    assert paid("maporl", first, alpha=[1, 2, 4, 8])["w3#2"] == near(2.0)  # wrong to right, the others were right: 1 + a0


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_scores_that_are_no_numbers_are_named(value: float) -> None:
    with pytest.raises(InputError, match="a score is not a number"):
        own_now_team_later([[value]])
    with pytest.raises(InputError, match="a correctness is not a number"):
        bonus([[value, 1], [1, 1]], ALPHA)


def test_maporl_own_now_team_later() -> None:
    reward = own_now_team_later([[0.2, 0.8], [0.6, 0.8], [1.0, 0.9]], gamma=0.3)
    assert reward[:, 0] == near([0.356475, 0.680769, 1.0])
    # by hand: agent 1, turn 0: (0.8 + 0.3 * 0.7 + 0.09 * 0.95) / 1.39
    assert reward[0, 1] == near((0.8 + 0.21 + 0.0855) / 1.39)


@given(st.lists(st.lists(st.floats(0, 1), min_size=3, max_size=3), min_size=1, max_size=6), st.floats(0, 1))
def test_maporl_stays_between_the_lowest_and_the_highest_score(scores: list[list[float]], gamma: float) -> None:
    reward = own_now_team_later(scores, gamma=gamma)
    assert reward.min() >= np.min(scores) - 1e-12
    assert reward.max() <= np.max(scores) + 1e-12


def test_maporl_bonus_in_both_signs() -> None:
    alpha = [1.0, 2.0, 0.5, 0.25]
    assert bonus([[0, 1], [1, 1], [1, 1]], alpha)[1, 0] == 1.0
    quirk = [[0, 0], [1, 0], [1, 1]]
    assert bonus(quirk, alpha, as_released=True)[1, 0] == 1.75
    assert bonus(quirk, alpha)[1, 0] == 2.25  # the paper's meaning: paid for repairing the other
    spoiled = [[1, 1], [0, 1], [0, 0]]  # agent 0 falls while the other is right, then the other falls too
    assert bonus(spoiled, alpha, as_released=True)[1, 0] == -2.0 + 0.25
    assert not bonus(quirk, alpha)[0].any()
    with pytest.raises(InputError, match="four constants"):
        bonus(quirk, [1.0])
    with pytest.raises(InputError, match="two agents"):
        bonus([[1], [0]], alpha)


def test_maporl_by_hand_at_the_edges() -> None:
    assert own_now_team_later([[0.2, 0.4]]).tolist() == [[0.2, 0.4]]
    assert own_now_team_later([[0.0, 0.0], [1.0, 0.0]]) == pytest.approx(np.array([[0.15 / 1.3] * 2, [1.0, 0.0]]))
    for wrong in ([1.0], [[]]):
        with pytest.raises(InputError, match="turns by agents"):
            own_now_team_later(wrong)  # type: ignore[arg-type]


ALPHA = [1.0, 2.0, 4.0, 8.0]


@pytest.mark.parametrize(
    ("rows", "turn", "paid"),
    [
        ([[0, 1], [1, 1]], 1, [1.0, 0.0]),  # wrong to right, the other was right
        ([[0, 0], [1, 0]], 1, [2.0, 0.0]),  # wrong to right, the other was wrong
        ([[1, 0], [0, 0]], 1, [-1.0, 0.0]),  # right to wrong, the other was wrong
        ([[1, 1], [0, 1]], 1, [-2.0, 0.0]),  # right to wrong, the other was right
        ([[1, 0], [1, 0], [1, 1]], 1, [8.0, 0.0]),  # the other becomes right, self right
        ([[0, 0], [0, 0], [0, 1]], 1, [4.0, 0.0]),  # the other becomes right, self wrong
        ([[1, 1], [1, 1], [1, 0]], 1, [-4.0, 0.0]),  # the other becomes wrong, self right
        ([[0, 1], [0, 1], [0, 0]], 1, [-8.0, 0.0]),  # the other becomes wrong, self wrong
        ([[0, 1], [1, 0], [1, 1]], 0, [0.0, 0.0]),  # nothing at turn 0
        ([[0.5, 0.5], [0.6, 0.5]], 1, [2.0, 0.0]),  # half is not right
    ],
)
def test_maporls_incentives_one_by_one(rows: list[list[float]], turn: int, paid: list[float]) -> None:
    assert bonus(rows, ALPHA)[turn].tolist() == paid
    released = bonus(rows, ALPHA, as_released=True)[turn]
    assert released.tolist() == ([-x for x in paid] if abs(paid[0]) > 2 else paid)


def test_of_three_agents_the_majority_of_the_others_counts() -> None:
    assert bonus([[0, 1, 0], [1, 1, 0]], ALPHA)[1].tolist() == [2.0, 0.0, 0.0]  # one of two is no majority
    assert bonus([[0, 1, 1], [1, 1, 1]], ALPHA)[1].tolist() == [1.0, 0.0, 0.0]
