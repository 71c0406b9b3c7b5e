"""Every mechanism and reward meets bad input with an answer of its kind or one clear error, never with a crash."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

import counterpoint as cpt
from counterpoint import registry
from counterpoint.errors import CounterpointError, InputError, InvalidTrace, NotFound
from counterpoint.testing import synthetic_trace
from counterpoint.trace import Edge, Event, Trace
from counterpoint.trace.rows import Credit

MECHANISMS = registry.ids("mechanism")
REWARDS = registry.ids("reward")


def scored(*rewards: float) -> list[Trace]:
    made = [synthetic_trace(3, 24, "centralized", seed=i, contents=True) for i in range(len(rewards))]
    return [
        replace(t, trace_id=f"t{i}", task_id="task", rewards={"team": r})
        for i, (t, r) in enumerate(zip(made, rewards, strict=True))
    ]


def alone() -> Trace:
    events = [
        Event(id=f"e{i}", t=i, type="orchestrator_decision", agent="solo", role="orchestrator", decision="noop", turn=i)
        for i in range(3)
    ]
    return Trace(
        trace_id="alone", task_id="task", events=events, edges=[], rewards={"team": 1.0}, costs={"tokens": 0, "wall_clock_s": 2}
    )


def looped() -> Trace:
    one = scored(1.0)[0]
    first, last = one.events[0].id, one.events[-1].id
    return replace(one, edges=[*one.edges, Edge(first, last, "causal"), Edge(last, first, "causal")])


CASES = {
    "no rewards": lambda: [replace(t, rewards={}) for t in scored(1.0, 0.0)],
    "one agent": lambda: [alone(), replace(alone(), trace_id="other", rewards={"team": 0.0})],
    "a cycle": lambda: [looped(), *scored(0.0)],
    "all equal": lambda: scored(1.0, 1.0, 1.0),
    "a group of one": lambda: scored(1.0),
    "no events": lambda: [replace(alone(), events=[])],
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", MECHANISMS)
def test_a_mechanism_answers_or_says_why_not(name: str, case: str) -> None:
    try:
        credit = registry.get("mechanism", name)(CASES[case]())
    except CounterpointError:
        return
    assert isinstance(credit, Credit)
    assert all(math.isfinite(row.value) for row in credit.rows)


@pytest.mark.parametrize("name", MECHANISMS)
def test_rewards_that_are_no_numbers_are_refused(name: str) -> None:
    for value in (math.nan, math.inf):
        with pytest.raises(InputError, match="reward 'team' is"):
            registry.get("mechanism", name)(scored(1.0, value))


@pytest.mark.parametrize("name", ["group_relative", "wideseek", "agent_lightning", "matpo"])
def test_all_equal_rewards_give_nobody_an_advantage(name: str) -> None:
    credit = registry.get("mechanism", name)(CASES["all equal"]())
    assert credit.rows
    assert all(abs(row.value) < 1e-9 for row in credit.rows)


def test_a_group_of_one_is_refused_or_kept_as_the_convention_says() -> None:
    mechanism = registry.get("mechanism", "group_relative")
    with pytest.raises(CounterpointError, match="group of one"):
        mechanism(scored(2.0))
    assert [r.value for r in mechanism(scored(2.0), convention="verl").rows if r.unit == "team"] == [pytest.approx(2.0, rel=1e-5)]
    assert [r.value for r in mechanism(scored(2.0), singleton="zero").rows if r.unit == "team"] == [0.0]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", REWARDS)
def test_a_reward_pays_or_says_why_not(name: str, case: str) -> None:
    for trace in CASES[case]():
        try:
            signals = registry.get("reward", name)(trace)
        except CounterpointError:
            continue
        assert all(math.isfinite(s.value) for s in signals)


def test_no_traces_and_unknown_names() -> None:
    uniform = registry.get("mechanism", "uniform")
    with pytest.raises(InputError, match="no traces"):
        uniform([])
    with pytest.raises(InputError, match="no option 'unitt'; did you mean 'unit'"):
        uniform(scored(1.0), unitt="agent")
    with pytest.raises(NotFound, match="did you mean 'shapley'"):
        registry.get("mechanism", "shapely")


def test_a_cycle_is_named() -> None:
    with pytest.raises(InvalidTrace, match="cycle"):
        registry.get("mechanism", "cone")([looped()], value=lambda trace: [0.0] * (len(trace.events) + 1))


def test_a_unit_that_a_trace_has_none_of() -> None:
    world = cpt.world("D", chain_items=1)  # the orchestrator works alone: nobody is sent a message
    trace = world.run("oracle", [0], log=True).trace(0)
    assert registry.get("mechanism", "message_delete")([trace], replay=world).rows == ()
