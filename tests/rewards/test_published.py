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
from counterpoint.rewards.paying import pay
from counterpoint.rewards.terms import mae, matpo, paramanager, sage, wideseek
from counterpoint.rewards.terms.agent_qmix import priced
from counterpoint.rewards.terms.comas import pair_rewards
from counterpoint.rewards.terms.maporl import bonus, own_now_team_later
from counterpoint.rewards.terms.marsrl import verifier_reward
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
    with pytest.raises(InputError, match="a score is NaN or infinite"):
        own_now_team_later([[value]])
    with pytest.raises(InputError, match="a correctness is NaN or infinite"):
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


def said(agent: str, k: int, kind: str = "message", **fields: object) -> Event:
    return Event(**{"id": f"e{k}", "t": k, "type": kind, "agent": agent, **fields})  # type: ignore[arg-type]


def told(*events: Event, **fields: object) -> Trace:
    return Trace(trace_id="t", task_id="q", events=list(events), **fields)  # type: ignore[arg-type]


def test_matpo_by_tools_that_failed() -> None:
    right, _, wrong, *_ = rollouts()  # the tool of w1 answered in the first, and failed in the third; the lead has no tool
    assert (paid("matpo", right, format="tools"), paid("matpo", wrong, format="tools")) == ({"": near(1.0)}, {"": near(0.05)})
    blamed = replace(right, events=[replace(e, reward={"R5": -1.0}) if e.type == "tool_result" else e for e in right.events])
    assert paid("matpo", blamed, format="tools") == {"": near(0.95)}


def test_paramanager() -> None:
    assert paramanager.mixed(1, 1, 0.5, 0.8) == near(1.33)
    asked = [said("lead", 0, role="orchestrator", to="a", tokens_out=10), said("lead", 1, role="orchestrator", to="b", tokens_out=10)]
    answers = [said("a", 2, "return", ok=True), said("b", 3, "return", ok=False)]
    call = [said("lead", 4, "tool_call", role="orchestrator", tool="search", ok=True), said("lead", 5, role="orchestrator", to="a")]
    trace = told(*asked, *answers, *call, rewards={"team": 1.0})
    assert paramanager.protocol_of(trace) == near(2 / 3)
    assert paramanager.diversity_of(trace) == near(1 - (0.25 + 0.0625 + 0.0625))  # a twice, b and the tool once
    assert paid("paramanager", trace, most=100) == {"": near(1 + 0.2 * 2 / 3 + 0.1 * 0.625 + 0.1 * 0.8)}
    assert paid("paramanager", replace(trace, rewards={})) == {}


def test_marsrl_pays_true_verdicts() -> None:
    cases = [(True, True), (True, False), (False, False), (False, True)]  # is it right, does the verifier say so
    assert [verifier_reward(*case) for case in cases] == [1.0, 0.0, 1.0, 0.0]
    trace = told(said("s", 0, reward={"R2": 1.0}), said("v", 1, reward={"R6": -1.0}), said("c", 2, reward={"R2": 0.0}), said("o", 3))
    signals = registry.get("reward", "marsrl")(trace)
    assert [(s.unit_id, s.channel, s.value) for s in signals] == [("e0", "R3_answer", 1.0), ("e1", "R3_verdict", 0.0), ("e2", "R3_answer", 0.0)]


def test_comas_shares_a_score_and_fines_what_cannot_be_read() -> None:
    assert [pair_rewards(s) for s in (3, 2, 1, None)] == [(1.0, 0.0, 0.0), (0.5, 0.5, 0.0), (0.0, 1.0, 0.0), (None, None, -1.0)]
    steps = [("solver", None), ("evaluator", None), ("scorer", 3.0), ("evaluator", None), ("scorer", 1.0), ("scorer", None)]
    events = [said(role, k, role=role, reward=None if score is None else {"score": score}) for k, (role, score) in enumerate(steps)]
    assert paid("comas", told(*events)) == {"e0": 0.5, "e1": 0.0, "e2": 0.0, "e3": 1.0, "e4": 0.0, "e5": -1.0}
    with pytest.raises(InputError, match="a score is 4"):
        pair_rewards(4)


def test_mae_and_sage_pay_roles() -> None:
    assert [mae.proposer_reward(q, 0.4, 1.0) for q in (0.8, 0.6)] == near([0.8, 1.6 / 3])
    assert mae.solver_reward(0.9, 1.0) == near(0.95)
    events = [said("p", 0, role="proposer", reward={"quality": 0.8}), said("s", 1, role="solver", reward={"R2": 0.4, "format": 0.0})]
    judge = said("j", 2, role="judge", reward={"format": 0.5})
    assert paid("mae", told(*events, judge)) == near({"proposer": 0.8, "solver": 0.2, "judge": 0.5})
    assert paid("mae", told(events[0], judge)) == {"judge": 0.5}  # nobody tried: how hard it was is not known
    assert paid("mae", told(replace(events[0], reward={"format": 0.0}), judge))["proposer"] == 0.0
    form = dict.fromkeys(("challenger", "planner", "solver", "critic"), 1.0)
    assert sage.role_rewards(0.8, 0.6, 0.5, form) == near({"challenger": 2.3 / 3, "planner": 0.55, "solver": 0.75, "critic": 1.0})
    assert set(sage.role_rewards(0.8, 0.4, 0.5, form)) == {"critic", "challenger"}  # a rejected plan teaches nobody who followed it
    assert set(sage.role_rewards(0.4, 0.6, 0.5, form)) == {"critic"}


def test_a_panel_accepts_only_together() -> None:
    method, checks = {"a": 1, "b": 1, "c": 0, "d": 1}, {"a": 1, "b": 0, "c": 1, "d": 1}
    judges = [lambda t: bool(method[t.trace_id]), lambda t: checks[t.trace_id]]
    traces = [replace(told(), trace_id=name) for name in method]
    assert [paid("judge_panel", t, judges=judges)[""] for t in traces] == [1.0, 0.0, 0.0, 1.0]
    right, _, wrong, *_ = rollouts()
    assert (paid("judge_panel", right), paid("judge_panel", wrong)) == ({"": 1.0}, {"": 0.0})
    assert paid("judge_panel", wrong, judges=["finished"]) == {"": 1.0}
    many = [replace(right, trace_id=f"t{i}") for i in range(2000)]
    assert 0.75 < np.mean([paid("judge_panel", t, judges=["outcome"], error=0.2)[""] for t in many]) < 0.85
    with pytest.raises(InputError, match=r"no judge 'outcom'.*did you mean 'outcome'"):
        paid("judge_panel", right, judges=["outcom"])


def test_turns_and_events_are_paid_beside_the_team_and_an_outcome_may_be_a_share() -> None:
    first = rollouts()[0]
    both = pay({"team_outcome": {"share": True}, "marsrl": {"weight": 2.0}}, [first], tasks=np.zeros(1), reader="marsrl", best=4.0)
    assert (both.traces[0].rewards["team"], both.signals is not None) == (0.25, True)
    assert both.signals is not None
    by_event = dict(zip(both.signals.unit_ids, both.signals.values.tolist(), strict=True))
    scored = {e.id: 2.0 * e.reward["R2"] for e in first.events if e.reward and "R2" in e.reward}
    assert (by_event, set(both.signals.channels)) == (scored, {"R3_answer"})
    with pytest.raises(InputError, match="the best outcome is 0"):
        pay({"team_outcome": {"share": True}}, [first], tasks=np.zeros(1), reader="marsrl", best=0.0)
