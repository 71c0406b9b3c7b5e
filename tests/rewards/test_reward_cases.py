"""Rewards at their edges: thresholds at equality, defaults by their numbers, which of several channels, and who is refused."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest

from counterpoint import registry
from counterpoint.errors import InputError
from counterpoint.rewards.reward import (
    COMBINE,
    Reward,
    amounts,
    combined,
    events_of_types,
    gathered,
    members,
    results_of,
    turn_of,
)
from counterpoint.rewards.terms import orchestration as parl
from counterpoint.rewards.terms.process import shaping
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
    assert [e.id for e in events_of_types(of, ["return", "message"])] == ["4", "3", "2", "1", "5"]
    assert events_of_types(trace([]), ["message"]) == []
    with pytest.raises(InputError, match="no event type 'mesage'"):
        events_of_types(trace([]), ["message", "mesage"])


def test_amounts_of_a_unit_are_gathered_in_their_order() -> None:
    assert gathered([("b", 1.0), (None, 9.0), ("a", 2.0), ("b", 3.0)], "last") == {"b": 3.0, "a": 2.0}
    assert list(gathered([("b", 1.0), ("a", 2.0), ("b", 3.0)], "sum")) == ["b", "a"]
    with pytest.raises(InputError, match="unknown combination 'meen' of scores"):
        gathered([], "meen")


def test_turns_members_and_answers() -> None:
    assert turn_of(ev("1", 0, turn=0)) == "a#0"
    assert turn_of(ev("1", 0)) is None
    assert members(trace([])) == []
    assert members(trace([ev("1", 1, "w"), ev("2", 0, "user"), ev("3", 2, "v")])) == ["w", "v"]
    events = [
        ev("c", 0, type_="tool_call"),
        ev("r", 1, type_="tool_result"),
        ev("m", 1),
        ev("d", 2, type_="tool_call"),
        ev("s", 3, type_="tool_result"),
    ]
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
    assert reward("hybrid")(of, terms={"individual": 2.0, "team_outcome": 1}) == [
        Signal("agent", "a", "R8", 2.0),
        Signal("team", "", "R8", 5.0),
    ]


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
    rubrics = {
        "worker": {"a": lambda t, r: 1.0, "b": (0.5, lambda t, r: 4.0)},
        "critic": lambda t, r: 0,
        "nobody": lambda t, r: 1.0,
    }
    assert pay("role_rubric", trace(events), rubrics=rubrics) == {("R3", "worker"): 2.0, ("R3", "critic"): 0.0}
    assert pay("role_rubric", trace(events[:1]), rubrics=rubrics) == {}
    for wrong in ((1.0,), (math.inf, len), (-1.0, len), (0, len), (1.0, 3), (1.0, len, 2)):
        with pytest.raises(InputError, match="the rubric of 'worker' is not a callable"):
            pay("role_rubric", trace(events), rubrics={"worker": {"a": wrong}})


def test_a_potential_is_paid_by_its_gain() -> None:
    events = [
        ev("1", 0, turn=0, reward={"phi": 2.0}),
        ev("2", 1, turn=1, reward={"phi": 3.0}),
        ev("3", 2, "b", "spawn", turn=0, reward={"phi": 7.0}),
    ]
    assert pay("process", trace(events), potential="phi") == {("R4", "a#0"): 2.0, ("R4", "a#1"): 1.0, ("R4", "b#0"): 4.0}
    assert pay("process", trace(events), potential="phi", first=0.5, gamma=0.5) == {
        ("R4", "a#0"): 0.5,
        ("R4", "a#1"): -0.5,
        ("R4", "b#0"): 0.5,
    }
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
    events = [
        ev("c", 0, type_="tool_call", ok=True, reward={"R5": 1.0}),
        ev("r", 1, type_="tool_result", reward={"R5": 2.0, "R6": 9.0}),
        ev("d", 2, type_="tool_call", ok=False),
    ]
    of = trace(events, [("c", "r")], rewards={"team": 0.5})
    assert pay("tool_use", of, given_outcome=True, threshold=0.5) == {("R5", "c"): 0.0, ("R5", "d"): -0.5}
    assert pay("tool_use", of, given_outcome=True, success=3.0, price=0.5) == {("R5", "c"): 2.5, ("R5", "d"): -1.0}
    assert pay("tool_use", trace(events, [("c", "r")], rewards={"team": 0}), given_outcome=True)["R5", "c"] == 0.0
    assert pay("tool_use", of, logged=True) == {("R5", "c"): 3.0}
    assert pay("tool_use", of, logged=True, price=1.0) == {("R5", "c"): 2.0}


def test_talk_is_messages_and_returns() -> None:
    events = [ev(x, k, type_=x, reward={"R6": float(k)}) for k, x in enumerate(("message", "return", "aggregate", "tool_call"))]
    assert pay("debate", trace(events)) == {("R6", "message"): 0.0, ("R6", "return"): 1.0}
    assert pay("debate", trace(events), judge=lambda t, e: e.t + 1) == {("R6", "message"): 1.0, ("R6", "return"): 2.0}
    assert pay("debate", trace(events), judge=[lambda t, e: 1.0, lambda t, e: 4.0]) == {
        ("R6", "message"): 2.5,
        ("R6", "return"): 2.5,
    }
    for options, said in (
        ({"panel": "x"}, "unknown combination 'x'"),
        ({"judge": ()}, "the panel has no judge"),
    ):
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
    assert pay("orchestration", of) == pytest.approx(
        {("R7_parallel", "lead"): 0.4, ("R7_finish", "lead"): 0.75, ("R7_speed_up", "lead"): 0.5}
    )
    assert pay("orchestration", of, form="additive") == pytest.approx({("R7", "lead"): 0.04 + 0.075})
    assert pay("orchestration", spawns(0, 0), form="additive", lambda2=5.0) == {("R7", "lead"): 0.0}
    assert pay("orchestration", of, form="mixture", perf="team") == pytest.approx({("R7", "lead"): 0.04})  # 0 is no success
    assert pay("orchestration", of, form="mixture", perf="other") == pytest.approx({("R7", "lead"): 0.04 + 0.9 * 2})
    assert pay("orchestration", spawns(4, 3, 0.5), form="mixture", perf="team") == pytest.approx({("R7", "lead"): 0.04 + 0.45})
    assert pay("orchestration", of, form="mixture", perf="other", success_above=2.0) == pytest.approx({("R7", "lead"): 0.04})
    assert pay("orchestration", of, form="additive", perf="team", lambda1=lambda s: s, lambda2=0, step=0.5) == pytest.approx(
        {("R7", "lead"): 0.2}
    )
    assert pay("orchestration", of, form="additive", lambda1=lambda s: 1 + s, lambda2=0) == pytest.approx({("R7", "lead"): 0.4})
    both = pay("orchestration", of, form="additive", judge=lambda t, e: e.t)
    assert both == pytest.approx({("R7_decision", "d"): 0.0, ("R7_decision", "e"): 1.0, ("R7", "lead"): 0.115})
    assert list(pay("orchestration", of, parts=["aggregation", "finish"], aggregation=lambda t: 0)) == [
        ("R7_aggregation", "lead"),
        ("R7_finish", "lead"),
    ]
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
