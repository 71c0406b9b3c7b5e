"""Rewards at their edges: thresholds at equality, defaults by their numbers, which of several channels, and who is refused."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest

from counterpoint import registry
from counterpoint.errors import InputError
from counterpoint.reward import published as pub
from counterpoint.reward import published_steps as steps
from counterpoint.reward.logged import COMBINE, amounts, chosen, combined, gathered, members, results_of, turn_of
from counterpoint.reward.reward import Reward
from counterpoint.reward.rewards import orchestration as parl
from counterpoint.reward.rewards.process import shaping
from counterpoint.trace import Edge, Event, Trace
from counterpoint.trace.rows import Signal


def ev(name: str, t: float, agent: str = "a", type_: Any = "message", **fields: Any) -> Event:
    return Event(id=name, t=t, type=type_, agent=agent, **fields)


def trace(events: list[Event], edges: list[tuple[str, str]] | None = None, **fields: Any) -> Trace:
    return Trace(trace_id="t", task_id="q", events=events, edges=[Edge(a, b, "causal") for a, b in edges or []], **fields)


def reward(name: str) -> Reward:
    found = registry.get("reward", name)
    assert isinstance(found, Reward)
    return found


def pay(name: str, of: Trace, **options: Any) -> dict[tuple[str, str], float]:
    return {(s.channel, s.unit_id): s.value for s in reward(name)(of, **options)}


# -- what is logged ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "scores", "one"),
    [
        ("mean", [1.0, 2.0, 6.0], 3.0),
        ("sum", [1.0, 2.0, 6.0], 9.0),
        ("last", [1.0, 2.0, 6.0], 6.0),
        ("min", [2.0, 1.0, 6.0], 1.0),
        ("max", [2.0, 6.0, 1.0], 6.0),
        ("all", [0.6, 1.0], 1.0),
        ("all", [0.5, 1.0], 0.0),
        ("majority", [0.6, 0.0, 1.0], 1.0),
        ("majority", [1.0, 0.0], 0.0),
        ("majority", [0.5, 1.0], 0.0),
        ("majority", [0.0, 0.6, 0.4], 0.0),
    ],
)
def test_ways_to_make_one_of_several(how: str, scores: list[float], one: float) -> None:
    assert combined(how, scores) == one
    assert list(COMBINE) == ["mean", "sum", "last", "min", "max", "all", "majority"]


def test_the_first_channel_that_an_event_has_counts() -> None:
    events = [
        ev("1", 3, reward={"R2": 1.0, "R3": 2.0}),
        ev("2", 2, reward={"R2": 3.0}),
        ev("3", 1, "b", "return", reward={"R3": 0}),
        ev("4", 0),
        ev("5", 4, reward={"R9": 1.0}),
    ]
    of = trace(events)
    assert [(e.id, v) for e, v in amounts(of, ["R3", "R2"])] == [("3", 0.0), ("2", 3.0), ("1", 2.0)]
    assert [(e.id, v) for e, v in amounts(of, ["R3"], ["return"])] == [("3", 0.0)]
    assert [e.id for e in chosen(of, ["return", "message"])] == ["4", "3", "2", "1", "5"]
    assert chosen(trace([]), ["message"]) == []
    with pytest.raises(InputError, match="no event type 'mesage'"):
        chosen(trace([]), ["message", "mesage"])


def test_amounts_of_a_unit_are_gathered_in_their_order() -> None:
    assert gathered([("b", 1.0), (None, 9.0), ("a", 2.0), ("b", 3.0)], "last") == {"b": 3.0, "a": 2.0}
    assert list(gathered([("b", 1.0), ("a", 2.0), ("b", 3.0)], "sum")) == ["b", "a"]
    with pytest.raises(InputError, match="no way 'meen' to combine scores"):
        gathered([], "meen")


def test_turns_members_and_answers() -> None:
    assert turn_of(ev("1", 0, turn=0)) == "a#0"
    assert turn_of(ev("1", 0)) is None
    assert members(trace([])) == []
    assert members(trace([ev("1", 1, "w"), ev("2", 0, "user"), ev("3", 2, "v")])) == ["w", "v"]
    events = [ev("c", 0, type_="tool_call"), ev("r", 1, type_="tool_result"), ev("m", 1), ev("d", 2, type_="tool_call"), ev("s", 3, type_="tool_result")]
    answers = results_of(trace(events, [("c", "r"), ("c", "m"), ("c", "s"), ("m", "d")]))
    assert {call: [e.id for e in found] for call, found in answers.items()} == {"c": ["r", "s"], "d": []}


# -- the plug-ins ------------------------------------------------------------------------------------------------


def test_what_a_reward_says_of_itself() -> None:
    assert reward("team_outcome").options == ["channel", "verifier", "scale"]
    assert {n: (reward(n).family, reward(n).unit) for n in ("individual", "process", "tool_use", "debate", "orchestration", "hybrid", "role_rubric", "team_outcome")} == {
        "team_outcome": ("R1", "team"), "individual": ("R2", "agent"), "role_rubric": ("R3", "role"), "process": ("R4", "turn"),
        "tool_use": ("R5", "tool"), "debate": ("R6", "message"), "orchestration": ("R7", "orchestrator"), "hybrid": ("R8", "team"),
    }  # fmt: skip
    with pytest.raises(FrozenInstanceError):
        reward("hybrid").family = "R9"  # type: ignore[misc]
    with pytest.raises(InputError, match=r"t: R1 of team '' is inf") as caught:
        reward("team_outcome")(trace([ev("1", 0)], rewards={"team": math.inf}))
    assert caught.value.where == "t"


def test_the_unit_and_channel_of_each_row() -> None:
    of = trace([ev("m", 0, turn=3, role="r", reward={"R2": 1, "R3": 2, "R4": 3, "R6": 4})], rewards={"team": 5})
    assert reward("individual")(of) == [Signal("agent", "a", "R2", 1.0)]
    assert reward("role_rubric")(of) == [Signal("role", "r", "R3", 2.0)]
    assert reward("process")(of) == [Signal("turn", "a#3", "R4", 3.0)]
    assert reward("debate")(of) == [Signal("message", "m", "R6", 4.0)]
    assert reward("team_outcome")(of) == [Signal("team", "", "R1", 5.0)]
    assert reward("hybrid")(of, terms={"individual": 2.0, "team_outcome": 1}) == [Signal("agent", "a", "R8", 2.0), Signal("team", "", "R8", 5.0)]


def test_an_agent_is_paid_the_mean_of_what_it_was_logged() -> None:
    of = trace([ev("1", 0, reward={"R2": 1.0}), ev("2", 1, reward={"R2": 4.0}), ev("3", 2, "b")])
    assert pay("individual", of) == {("R2", "a"): 2.5}
    assert pay("individual", of, outcome=lambda t, agent: 0) == {("R2", "a"): 0.0, ("R2", "b"): 0.0}


def test_a_role_is_paid_by_the_first_of_three_channels_and_never_for_its_spawn() -> None:
    events = [
        ev("s", 0, "lead", "spawn", to="w", role="worker", reward={"R3": 100.0}),
        ev("1", 1, "w", role="worker", reward={"R6": 9.0, "R2": 1.0}),
        ev("2", 2, "w", role="worker", reward={"R2": 9.0, "R3": 2.0}),
        ev("3", 3, "w", role="critic", reward={"R6": 4.0}),
        ev("4", 4, "w", reward={"R3": 50.0}),
    ]
    assert pay("role_rubric", trace(events)) == {("R3", "worker"): 1.5, ("R3", "critic"): 4.0}
    assert pay("role_rubric", trace(events), how="max") == {("R3", "worker"): 2.0, ("R3", "critic"): 4.0}
    rubrics = {"worker": {"a": lambda t, r: 1.0, "b": (0.5, lambda t, r: 4.0)}, "critic": lambda t, r: 0, "nobody": lambda t, r: 1.0}
    assert pay("role_rubric", trace(events), rubrics=rubrics) == {("R3", "worker"): 2.0, ("R3", "critic"): 0.0}
    assert pay("role_rubric", trace(events[:1]), rubrics=rubrics) == {}
    for wrong in ((1.0,), (math.inf, len), (-1.0, len), (0, len), (1.0, 3), (1.0, len, 2)):
        with pytest.raises(InputError, match="the rubric of 'worker' is no callable"):
            pay("role_rubric", trace(events), rubrics={"worker": {"a": wrong}})


def test_a_potential_is_paid_by_its_gain() -> None:
    events = [ev("1", 0, turn=0, reward={"phi": 2.0}), ev("2", 1, turn=1, reward={"phi": 3.0}), ev("3", 2, "b", "spawn", turn=0, reward={"phi": 7.0})]
    assert pay("process", trace(events), potential="phi") == {("R4", "a#0"): 2.0, ("R4", "a#1"): 1.0, ("R4", "b#0"): 4.0}
    assert pay("process", trace(events), potential="phi", first=0.5, gamma=0.5) == {("R4", "a#0"): 0.5, ("R4", "a#1"): -0.5, ("R4", "b#0"): 0.5}
    by_call = pay("process", trace(events), potential=lambda t, e: e.t + 1)
    assert by_call == {("R4", "a#0"): 1.0, ("R4", "a#1"): 1.0}  # a spawn is no step
    assert pay("process", trace(events), model=lambda t, e: 0) == {("R4", "a#0"): 0.0, ("R4", "a#1"): 0.0}
    steps = ("orchestrator_decision", "message", "tool_call", "aggregate", "return")
    others = [ev(x, k, type_=x, turn=k) for k, x in enumerate((*steps, "despawn", "tool_result"))]
    assert len(pay("process", trace(others), model=lambda t, e: 1.0)) == 5


@pytest.mark.parametrize(
    ("call", "results", "value"),
    [
        ({"ok": True}, [{"ok": False}], 1.0),
        ({"ok": False}, [{"ok": True}], -0.5),
        ({"error": "x", "ok": True}, [], -0.5),
        ({}, [{"ok": True}, {"ok": False}], -0.5),
        ({}, [{"ok": True}, {}], 1.0),
        ({}, [{"error": ""}, {"ok": True}], -0.5),
        ({}, [{}], None),
        ({}, [], None),
    ],
)
def test_whether_a_call_succeeded(call: dict[str, Any], results: list[dict[str, Any]], value: float | None) -> None:
    events = [ev("c", 0, type_="tool_call", **call), *(ev(f"r{k}", 1, type_="tool_result", **r) for k, r in enumerate(results))]
    of = trace([ev("m", 0), *events], [("c", f"r{k}") for k in range(len(results))])
    assert pay("tool_use", of) == ({} if value is None else {("R5", "c"): value})


def test_tool_pay_at_the_threshold_and_what_is_logged() -> None:
    events = [ev("c", 0, type_="tool_call", ok=True, reward={"R5": 1.0}), ev("r", 1, type_="tool_result", reward={"R5": 2.0, "R6": 9.0}), ev("d", 2, type_="tool_call", ok=False)]
    of = trace(events, [("c", "r")], rewards={"team": 0.5})
    assert pay("tool_use", of, given_outcome=True, threshold=0.5) == {("R5", "c"): 0.0, ("R5", "d"): -0.5}
    assert pay("tool_use", of, given_outcome=True, success=3.0, price=0.5) == {("R5", "c"): 2.5, ("R5", "d"): -1.0}
    assert pay("tool_use", trace(events, [("c", "r")], rewards={"team": 0}), given_outcome=True)["R5", "c"] == 0.0
    assert pay("tool_use", of, logged=True) == {("R5", "c"): 3.0}
    assert pay("tool_use", of, logged=True, price=1.0) == {("R5", "c"): 2.0}


def test_talk_is_messages_and_returns() -> None:
    events = [ev(x, k, type_=x, reward={"R6": float(k)}) for k, x in enumerate(("message", "return", "aggregate", "tool_call"))]
    assert pay("debate", trace(events)) == {("R6", "message"): 0.0, ("R6", "return"): 1.0}
    assert pay("debate", trace(events), channel="R6", types=["aggregate"]) == {("R6", "aggregate"): 2.0}
    assert pay("debate", trace(events), judge=lambda t, e: e.t + 1) == {("R6", "message"): 1.0, ("R6", "return"): 2.0}
    assert pay("debate", trace(events), judge=[lambda t, e: 1.0, lambda t, e: 4.0]) == {("R6", "message"): 2.5, ("R6", "return"): 2.5}
    for options, said in (({"by_author": "dorp"}, "no rule 'dorp'"), ({"panel": "x"}, "no way 'x'"), ({"judge": ()}, "the panel has no judge")):
        with pytest.raises(InputError, match=said):
            pay("debate", trace(events), **options)  # type: ignore[arg-type]


def spawns(count: int, returned: int, team: float = 0.0) -> Trace:
    events = [ev("d", 0, "lead", "orchestrator_decision"), ev("e", 1, "lead", "orchestrator_decision")]
    events += [ev(f"s{k}", 2, "lead", "spawn", to=f"w{k}") for k in range(count)]
    events += [ev(f"m{k}", 3, f"w{k}") for k in range(count)]
    events += [ev(f"r{k}", 4, f"w{k}", "return", to="lead") for k in range(returned)]
    return trace(events, rewards={"team": team, "other": 2.0})


def test_orchestration_defaults_and_forms() -> None:
    of = spawns(4, 3)
    assert pay("orchestration", of) == pytest.approx({("R7_parallel", "lead"): 0.4, ("R7_finish", "lead"): 0.75, ("R7_speed_up", "lead"): 0.5})
    assert pay("orchestration", of, form="additive") == pytest.approx({("R7", "lead"): 0.04 + 0.075})
    assert pay("orchestration", spawns(0, 0), form="additive", lambda2=5.0) == {("R7", "lead"): 0.0}
    assert pay("orchestration", of, form="mixture", perf="team") == pytest.approx({("R7", "lead"): 0.04})  # 0 is no success
    assert pay("orchestration", of, form="mixture", perf="other") == pytest.approx({("R7", "lead"): 0.04 + 0.9 * 2})
    assert pay("orchestration", spawns(4, 3, 0.5), form="mixture", perf="team") == pytest.approx({("R7", "lead"): 0.04 + 0.45})
    assert pay("orchestration", of, form="mixture", perf="other", success_above=2.0) == pytest.approx({("R7", "lead"): 0.04})
    assert pay("orchestration", of, form="additive", perf="team", lambda1=lambda s: s, lambda2=0, step=0.5) == pytest.approx({("R7", "lead"): 0.2})
    assert pay("orchestration", of, form="additive", lambda1=lambda s: 1 + s, lambda2=0) == pytest.approx({("R7", "lead"): 0.4})
    both = pay("orchestration", of, form="additive", judge=lambda t, e: e.t)
    assert both == pytest.approx({("R7_decision", "d"): 0.0, ("R7_decision", "e"): 1.0, ("R7", "lead"): 0.115})
    assert list(pay("orchestration", of, parts=["aggregation", "finish"], aggregation=lambda t: 0)) == [("R7_aggregation", "lead"), ("R7_finish", "lead")]
    assert pay("orchestration", trace([ev("1", 0, "user")])) == {}
    only = trace([ev("1", 0, "x", "return")])
    assert pay("orchestration", only) == {("R7_parallel", "x"): 0.0}  # no step, so no speed
    with pytest.raises(InputError, match="R7 has no part 'finsh'"):
        pay("orchestration", of, parts=["finish", "finsh"])


def test_a_hybrid_adds_what_goes_to_one_unit() -> None:
    of = trace([ev("m", 0, reward={"R2": 1.0})], rewards={"team": 3.0, "R1": 5.0})
    assert pay("hybrid", of, terms={"team_outcome": {"channel": "R1"}}) == {("R8", ""): 5.0}  # a weight of 1 unless given
    assert pay("hybrid", of, terms={"team_outcome": 2.0, "individual": 10.0}, as_team=True) == {("R8", ""): 16.0}
    assert pay("hybrid", of, terms={"team_outcome": lambda step: 1 + step}) == {("R8", ""): 3.0}
    assert pay("hybrid", of, terms={"individual": -1.0}) == {("R8", "a"): -1.0}
    for weight in (math.inf, -math.inf, math.nan):
        with pytest.raises(InputError, match="the weight of individual is"):
            pay("hybrid", of, terms={"individual": weight})


def test_a_hybrid_takes_rewards_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "get", lambda room, name: "words")
    with pytest.raises(InputError, match="odd is a str, not a Reward"):
        reward_hybrid(trace([ev("m", 0)]), terms={"odd": 1.0})


reward_hybrid = reward("hybrid")


# -- shaping and PARL --------------------------------------------------------------------------------------------


def test_shaping_defaults_and_limits() -> None:
    assert shaping([3.0]).tolist() == [3.0]
    assert shaping([3.0, 5.0]).tolist() == [3.0, 2.0]
    assert shaping([3.0], gamma=0.0).tolist() == [0.0]
    assert shaping([3.0], first=1.0, gamma=1.0).tolist() == [2.0]
    assert shaping([], ends_at_zero=True).tolist() == []
    for wrong in ({"gamma": -0.1}, {"gamma": 1.1}, {"first": math.nan}):
        with pytest.raises(InputError):
            shaping([1.0], **wrong)
    given = np.array([1.0, 2.0])
    shaping(given, ends_at_zero=True)
    assert given.tolist() == [1.0, 2.0]  # what was given is not changed


def test_parl_at_its_limits() -> None:
    assert (parl.parallel(5, 5), parl.parallel(4, 5), parl.parallel(6, 5)) == (1.0, 0.8, 1.0)
    assert (parl.finish(5, 5), parl.finish(0, 5), parl.finish(1, 4)) == (1.0, 0.0, 0.25)
    assert (parl.speed_up(5, 5), parl.speed_up(0, 4), parl.speed_up(1, 4)) == (0.0, 1.0, 0.75)
    assert (parl.mixture(2.0, True, 0.5, 0.0), parl.mixture(2.0, True, 0.5, 1.0)) == (2.0, 0.5)
    at = {"perf": 0.5, "r_parallel": 1.0, "r_finish": 1.0, "lambda1": 0.5, "lambda2": 1.0}
    assert parl.parl("mixture", **at, success_above=0.5) == 0.5
    assert parl.parl("mixture", **at | {"perf": 0.0}) == 0.5
    assert parl.FORMS == ("additive", "mixture")
    for call in (
        lambda: parl.parallel(-1, 5),
        lambda: parl.parallel(1, -5),
        lambda: parl.finish(-1, 1),
        lambda: parl.speed_up(-1, 1),
        lambda: parl.mixture(1, True, 1, -0.1),
    ):
        with pytest.raises(InputError):
            call()


# -- published ---------------------------------------------------------------------------------------------------


def near(x: Any) -> Any:
    return pytest.approx(x, abs=1e-12)


def test_published_weights_one_by_one() -> None:
    assert pub.matpo(0.5, 0.25, [1.0, 0.0], w_acc=2.0, w_fmt=4.0) == near(1.0 + 0.5 * (1.0 + 2.0))
    assert pub.m_grpo_main(True, 0.5) == near(0.55)
    assert pub.m_grpo_main(True, 0.5, alpha=(1.0, 4.0)) == near(3.0)
    assert pub.m_grpo_sub(True, 0.5, 0.0) == near(0.3)
    assert pub.m_grpo_sub(True, 0.0, 0.5) == near(0.35)
    assert pub.m_grpo_sub(False, 1.0, 1.0) == 0.0
    assert pub.m_grpo_sub(True, 0.99, as_released=True) == 0.1
    assert pub.m_grpo_sub(True, 1.5, as_released=True) == 1.0
    common: dict[str, Any] = {"format_ok": True, "accessed": True}
    assert pub.wideseek(0.5, **common, max_turn_tokens=0) == near(0.65)
    assert pub.wideseek(0.5, **common, max_turn_tokens=5000) == near(0.55)
    assert pub.wideseek(0.5, **common, max_turn_tokens=3500) == near(0.65 - 0.025)
    assert pub.wideseek(0.0, **common, max_turn_tokens=6000, w_format=1.0, w_access=2.0, w_length=4.0) == near(-1.0)
    assert pub.agent_qmix(0.5, 10_000) == near(0.4)
    assert pub.agent_qmix(0.5, 5_000, max_tokens=20_000, w_tok=0.4) == near(0.4)
    assert pub.himpo(1.0, [0.5], w_dense=2.0) == near(2.0)
    assert pub.paramanager(1, 0, 0, 0) == near(1.0)
    assert pub.paramanager(0, 1, 0, 0) == near(0.2)
    assert pub.paramanager(0, 0, 1, 0) == near(0.1)
    assert pub.paramanager(0, 0, 0, 1) == near(0.1)
    assert pub.paramanager(1, 2, 3, 4, weights=(1, 1, 1, 1)) == near(10.0)
    assert pub.sharp(1.0, {"a": 0.5}, {"a": 1.0}, base=0.0, lambda_s=2.0, lambda_p=3.0) == near({"a": 4.0})
    assert pub.sharp(1.0, {"a": 0.5, "b": 2.0}, {}, base=0.25) == near({"a": 0.5, "b": -0.25})
    assert pub.mae_proposer(0.7, 0.5, 0.0) == near((0.7 + 0.5) / 3)
    assert pub.mae_proposer(0.5, 0.5, 0.5, least=0.6) == near(1 / 3)
    assert pub.mae_solver(1.0, 0.0) == pub.mae_solver(0.0, 1.0) == 0.5
    assert pub.comas(2.0) == {"solution": 0.5, "evaluation": 0.5, "scorer": 0.0}
    assert pub.comas(0) == pub.comas(4) == pub.comas(2.5) == pub.comas(None) == {"scorer": -1.0}


def test_published_groups() -> None:
    assert pub.debate_gate([[1, 0]]) == [1.0, 0.0]
    assert pub.debate_gate([[], []]) == []
    with pytest.raises(InputError):
        pub.debate_gate([])
    assert pub.hera_rank([0.5, 0.5, 0.9], [2, 2, 9]) == ([2, 0, 1], False, False)
    assert pub.hera_rank([0.5, 0.9], [1, 1], success_above=0.5) == ([1, 0], True, False)
    assert pub.hera_rank([0.0], [1]) == ([0], False, True)
    assert pub.hera_rank([], []) == ([], False, False)
    assert (pub.hera_utility(4, 0), pub.hera_utility(4, 4)) == (0.0, 1.0)
    for uses, successes in ((1, 2), (1, -1)):
        with pytest.raises(InputError, match=f"{successes} successes of {uses} uses"):
            pub.hera_utility(uses, successes)


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda x: pub.matpo(1, x, []), "main"),
        (lambda x: pub.matpo(1, 1, [1, x]), "worker 1"),
        (lambda x: pub.m_grpo_main(False, x), "correct"),
        (lambda x: pub.m_grpo_sub(False, x), "main"),
        (lambda x: pub.m_grpo_sub(True, 1, x), "expert"),
        (lambda x: pub.wideseek(x, format_ok=False, accessed=False, max_turn_tokens=1), "item_f1"),
        (lambda x: pub.wideseek(1, format_ok=False, accessed=False, max_turn_tokens=x), "max_turn_tokens"),
        (lambda x: pub.agent_qmix(x, 1), "accuracy"),
        (lambda x: pub.agent_qmix(1, x), "tokens"),
        (lambda x: pub.himpo(x, []), "task"),
        (lambda x: pub.himpo(1, [1, x]), "dense 1"),
        (lambda x: pub.paramanager(1, 1, x, 1), "diversity"),
        (lambda x: pub.sharp(x, {}, {}), "full"),
        (lambda x: pub.sharp(1, {}, {"a": x}), "tool a"),
        (lambda x: pub.mae_proposer(1, x, 1), "solver_mean"),
        (lambda x: pub.mae_solver(x, 1), "judge"),
        (lambda x: pub.mae_judge(x), "format_"),
        (lambda x: pub.hera_rank([x], [1]), "f1 0"),
        (lambda x: pub.hera_rank([1], [x]), "tokens 0"),
    ],
)
def test_what_is_no_number_is_named(call: Any, name: str) -> None:
    for value in (math.nan, math.inf):
        with pytest.raises(InputError, match=f"^{name} is {value}"):
            call(value)


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda x: steps.maporl([[x]]), "score"),
        (lambda x: steps.maporl_bonus([[x, 1], [1, 1]], ALPHA), "correctness"),
        (lambda x: steps.puppeteer(1.0, [x], budget=1.0), "load"),
        (lambda x: steps.malt([[[x]]]), "leaf"),
        (lambda x: steps.fold_reward(1.0, [x]), "process reward"),
        (lambda x: steps.mars2_shaping([-1], [x]), "reward"),
    ],
)
def test_steps_that_are_no_numbers_are_named(call: Any, what: str) -> None:
    for value in (math.nan, math.inf):
        with pytest.raises(InputError, match=f"^a {what} is not a number"):
            call(value)


def test_maporl_by_hand_at_the_edges() -> None:
    assert steps.maporl([[0.2, 0.4]]).tolist() == [[0.2, 0.4]]
    assert steps.maporl([[0.0, 0.0], [1.0, 0.0]]) == pytest.approx(np.array([[0.15 / 1.3] * 2, [1.0, 0.0]]))
    for wrong in ([1.0], [[]]):
        with pytest.raises(InputError, match="turns by agents"):
            steps.maporl(wrong)  # type: ignore[arg-type]


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
    assert steps.maporl_bonus(rows, ALPHA)[turn].tolist() == paid
    released = steps.maporl_bonus(rows, ALPHA, as_released=True)[turn]
    assert released.tolist() == ([-x for x in paid] if abs(paid[0]) > 2 else paid)


def test_of_three_agents_the_majority_of_the_others_counts() -> None:
    assert steps.maporl_bonus([[0, 1, 0], [1, 1, 0]], ALPHA)[1].tolist() == [2.0, 0.0, 0.0]  # one of two is no majority
    assert steps.maporl_bonus([[0, 1, 1], [1, 1, 1]], ALPHA)[1].tolist() == [1.0, 0.0, 0.0]


def test_puppeteer_by_hand() -> None:
    found = steps.puppeteer(2.0, [3.0, 5.0], budget=1.0)
    assert found.cost_T == near([3 * math.log(2), 5 * math.log(3)])
    assert found.reward_T == near([-0.3 * math.log(2), 2 - 0.5 * math.log(3)])
    assert found.return_T == near([-0.3 * math.log(2) + 0.99 * (2 - 0.5 * math.log(3)), 2 - 0.5 * math.log(3)])
    assert steps.puppeteer(1.0, [1.0, 1.0], budget=1.0, weight=0.0, gamma=0.5).return_T == near([0.5, 1.0])
    for load, budget in (([], 1.0), ([1.0], 0.0), ([1.0], -1.0)):
        with pytest.raises(InputError, match="at least one step and a positive budget"):
            steps.puppeteer(1.0, load, budget=budget)


def test_puppeteer_as_released_by_hand() -> None:
    s = [0.1 * math.log(1 + k / 3) / math.log(2) for k in (1, 2, 3)]
    found = steps.puppeteer_released(1.0, ["coder", "terminator"], [1e5], max_steps=2)
    assert found.cost_T == near(s[:2])
    assert found.reward_T == near([-s[0], 1 + 0.5 * s[2]])
    assert found.return_T == near([-s[0] + 0.99 * (1 + 0.5 * s[2]), 1 + 0.5 * s[2]])
    assert steps.puppeteer_released(0.0, ["web_search", "end"], [2e5], max_steps=2).reward_T == near([-3 * s[0], -0.5 * s[2]])
    mine = steps.puppeteer_released(1.0, ["coder", "x"], [1e5], max_steps=2, factors={"coder": 2.0, "terminator": 0.0}, scale=1.0, gamma=0.0)
    assert mine.reward_T == near([20 * s[0], 1.0])
    assert mine.return_T == near([20 * s[0], 1.0])
    with pytest.raises(InputError, match="token count is not a number"):
        steps.puppeteer_released(1.0, ["a", "b"], [math.nan], max_steps=2)


def test_malt_at_the_threshold() -> None:
    tree = steps.malt([[[0.5, 0.6, 0.4]]])
    assert tree.refiner_pairs == [(0, 0, 1, 0), (0, 0, 1, 2)]
    assert not tree.generator_right_G.any()
    assert steps.malt([[[0.5]]], threshold=0.4).generator_right_G.tolist() == [True]
    with pytest.raises(InputError, match="generators by verifiers by refiners"):
        steps.malt([[1.0]])  # type: ignore[list-item]
    with pytest.raises(InputError, match="generators by verifiers by refiners"):
        steps.malt(np.ones((1, 1, 0)))


@pytest.mark.parametrize(
    ("turn", "paper", "released"),
    [
        ({"on_main": True, "context_share": 0.5}, 0.0, 0.0),
        ({"on_main": True, "context_share": 0.51}, -1.0, -1.0),
        ({"on_main": False, "context_share": 0.9}, 0.0, 0.0),
        ({"on_main": True, "context_share": 0.9, "tool_failed": True}, -2.0, -2.0),
        ({"on_main": True, "in_scope": False}, 0.0, 0.0),
        ({"on_main": False, "in_scope": False, "tool_failed": True}, -1.2, -1.0),
        ({"on_main": False, "in_scope": True, "tool_failed": True}, -1.0, 0.0),
        ({"on_main": True, "in_scope": True, "odd_characters": True}, 0.0, -1.0),
        ({"on_main": False, "never_branched": True}, 0.0, 0.0),
        ({"on_main": True, "never_branched": True, "odd_characters": True}, 0.0, -2.0),
    ],
)
def test_fold_penalties_add_up(turn: dict[str, Any], paper: float, released: float) -> None:
    assert steps.fold_process(**turn) == near(paper)
    assert steps.fold_process(**turn, as_released=True) == released


def test_fold_and_mars2_at_the_edges() -> None:
    assert steps.fold_reward(0.5, [0.4, 0.9, -0.9]).tolist() == near([0.9, 1.0, 0.0])
    assert (steps.fold_flat(1.0, True), steps.fold_flat(1.0, False, shift=0.5)) == (1.2, 0.5)
    # an only child of a root without siblings: the parent alone is the base; a root with siblings: theirs alone
    assert steps.mars2_shaping([-1, 0], [0.4, 1.0]) == pytest.approx([0.4, 1.3])
    assert steps.mars2_shaping([-1, -1, -1], [0.0, 0.6, 0.9]) == pytest.approx([-0.375, 0.675, 1.2])
    assert steps.mars2_shaping([-1, 0, 0], [1.0, 0.0, 0.5], gain=1.0, mix=0.25) == pytest.approx([1.0, -0.625, 0.75])
    with pytest.raises(InputError, match="node 1 has the parent 1"):
        steps.mars2_shaping([-1, 1], [0, 0])
