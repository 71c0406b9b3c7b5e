"""The reward plug-ins on a trace counted by hand, on TeamWorld, and on bad input."""

from __future__ import annotations

import math
from typing import Any

import pytest
from msgspec.structs import replace

import counterpoint as cpt
from counterpoint import registry
from counterpoint.errors import InputError, NotFound
from counterpoint.rewards.reward import Reward
from counterpoint.rewards.schedules import linear
from counterpoint.testing import SHAPES, odd_trace, synthetic_trace
from counterpoint.trace import Edge, Event, Trace
from counterpoint.trace.rows import Signal
from counterpoint.trace.vocabulary import REWARD_FAMILIES, UNITS

NAMES = ["debate", "hybrid", "individual", "orchestration", "process", "role_rubric", "team_outcome", "tool_use"]


def reward(name: str) -> Reward:
    found = registry.get("reward", name)
    assert isinstance(found, Reward)
    return found


def pay(name: str, trace: Trace, **options: Any) -> dict[tuple[str, str], float]:
    """Channel and unit id to value."""
    return {(s.channel, s.unit_id): s.value for s in reward(name)(trace, **options)}


def small() -> Trace:
    """A lead spawns two workers; a calls a tool twice (one fails), b once without an answer; only a returns."""
    lead: dict[str, Any] = {"agent": "lead", "role": "lead"}
    a, b = ({"agent": n, "role": "worker"} for n in "ab")
    events = [
        Event(id="d", t=0, type="orchestrator_decision", decision="spawn", turn=0, **lead),
        Event(id="s1", t=1, type="spawn", agent="lead", role="worker", to="a"),
        Event(id="s2", t=1, type="spawn", agent="lead", role="worker", to="b"),
        Event(id="c1", t=2, type="tool_call", tool="web", turn=0, **a),
        Event(id="r1", t=3, type="tool_result", tool="web", ok=True, turn=0, reward={"R5": 2.0}, **a),
        Event(id="c2", t=4, type="tool_call", tool="web", turn=1, **a),
        Event(id="r2", t=5, type="tool_result", tool="web", error="timeout", turn=1, **a),
        Event(id="c3", t=4, type="tool_call", tool="web", turn=0, **b),
        Event(id="m", t=5, type="message", to="a", turn=1, reward={"R6": 1.0, "R4": 0.25}, **b),
        Event(id="m2", t=5.5, type="message", to="b", reward={"R4": 9.0}, **a),
        Event(id="x", t=6, type="return", to="lead", turn=2, reward={"R2": 1.0, "R6": 0.5, "R4": 0.5}, **a),
        Event(id="g", t=7, type="aggregate", turn=1, reward={"draft": 3.0, "R2": 0.0}, **lead),
        Event(id="g2", t=8, type="aggregate", turn=1, reward={"draft": 2.0}, **lead),
    ]
    pairs = [("d", "s1"), ("d", "s2"), ("s1", "c1"), ("c1", "r1"), ("r1", "c2"), ("c2", "r2"), ("s2", "c3"), ("c3", "m")]
    pairs += [("r2", "m2"), ("m2", "x"), ("x", "g"), ("g", "g2")]
    edges = [Edge(s, d, "causal") for s, d in pairs]
    return Trace(trace_id="t", task_id="q", events=events, edges=edges, rewards={"team": 2.0, "R1": 3.0})


def test_the_eight_families_are_there() -> None:
    assert set(NAMES) <= set(registry.ids("reward"))
    assert [reward(n).family for n in NAMES] == ["R6", "R8", "R2", "R7", "R4", "R3", "R1", "R5"]
    assert {reward(n).family for n in NAMES} == set(REWARD_FAMILIES)


def test_team_outcome() -> None:
    assert pay("team_outcome", small()) == {("R1", ""): 2.0}
    assert pay("team_outcome", small(), channel="R1", scale=0.5) == {("R1", ""): 1.5}
    assert pay("team_outcome", small(), channel="other") == {}
    assert pay("team_outcome", small(), verifier=lambda t: len(t.events) == 13) == {("R1", ""): 1.0}
    assert pay("team_outcome", small(), verifier=lambda t: None) == {}


def test_individual() -> None:
    assert pay("individual", small()) == {("R2", "a"): 1.0, ("R2", "lead"): 0.0}
    assert pay("individual", small(), channel="R4", how="sum") == {("R2", "b"): 0.25, ("R2", "a"): 9.5}
    assert pay("individual", small(), channel="R4", how="last") == {("R2", "b"): 0.25, ("R2", "a"): 0.5}
    found = pay("individual", small(), outcome=lambda t, agent: None if agent == "b" else agent == "a")
    assert found == {("R2", "lead"): 0.0, ("R2", "a"): 1.0}
    with pytest.raises(InputError, match="did you mean 'mean'"):
        pay("individual", small(), how="maen")


def test_role_rubric() -> None:
    # the worker's events: message (R6 1.0) and return (R2 1.0); the lead's: aggregate (R2 0)
    assert pay("role_rubric", small()) == {("R3", "worker"): 1.0, ("R3", "lead"): 0.0}
    rubric = {"short": (3.0, lambda t, r: 1.0), "silent": lambda t, r: None, "polite": lambda t, r: 0.0}
    assert pay("role_rubric", small(), rubrics={"worker": rubric, "pilot": rubric}) == {("R3", "worker"): 0.75}
    assert pay("role_rubric", small(), rubrics={"lead": lambda t, r: None}) == {}
    with pytest.raises(InputError, match="rubric of 'lead'"):
        pay("role_rubric", small(), rubrics={"lead": {"short": (0.0, lambda t, r: 1.0)}})
    with pytest.raises(InputError, match="rubric of 'lead'"):
        pay("role_rubric", small(), rubrics={"lead": 3})


def test_process() -> None:
    assert pay("process", small()) == {("R4", "b#1"): 0.25, ("R4", "a#2"): 0.5}  # m2 has no turn, so no row
    found = pay("process", small(), model=lambda t, e: 1.0 if e.type == "aggregate" else None)
    assert found == {("R4", "lead#1"): 2.0}
    # a potential of 3 then 2 from a start of 1: gains 2 and -1, both in the lead's turn 1
    assert pay("process", small(), potential="draft", first=1.0) == {("R4", "lead#1"): 1.0}
    assert pay("process", small(), potential="draft", ends_at_zero=True) == {("R4", "lead#1"): 0.0}
    assert pay("process", small(), potential=lambda t, e: 5.0 if e.id == "x" else None) == {("R4", "a#2"): 5.0}
    with pytest.raises(InputError, match="not both"):
        pay("process", small(), model=lambda t, e: 1.0, potential="draft")


def test_tool_use() -> None:
    assert pay("tool_use", small()) == {("R5", "c1"): 1.0, ("R5", "c2"): -0.5}  # nothing answered c3
    assert pay("tool_use", small(), price=0.25) == {("R5", "c1"): 0.75, ("R5", "c2"): -0.75}
    assert pay("tool_use", small(), given_outcome=True, threshold=5) == {("R5", "c1"): 0.0, ("R5", "c2"): -0.5}
    assert pay("tool_use", small(), given_outcome=True) == {("R5", "c1"): 1.0, ("R5", "c2"): -0.5}
    assert pay("tool_use", replace(small(), rewards={}), given_outcome=True) == {("R5", "c2"): -0.5}
    assert pay("tool_use", small(), logged=True) == {("R5", "c1"): 2.0}
    claimed = replace(small(), events=[replace(e, ok=True) if e.id == "c2" else e for e in small().events])
    assert pay("tool_use", claimed)["R5", "c2"] == 1.0  # the call's own word goes first


class Peer:
    """A judge that is an agent of the team."""

    agent = "b"

    def __call__(self, trace: Trace, event: Event) -> float:
        return 1.0


def test_debate() -> None:
    assert pay("debate", small()) == {("R6", "m"): 1.0, ("R6", "x"): 0.5}
    yes, no, abstains = (lambda t, e: True), (lambda t, e: 0.0), (lambda t, e: None)
    talk = [("R6", "m"), ("R6", "m2"), ("R6", "x")]
    assert pay("debate", small(), judge=yes) == dict.fromkeys(talk, 1.0)
    assert pay("debate", small(), judge=abstains) == {}
    for panel, value in (("mean", 2 / 3), ("all", 0.0), ("majority", 1.0), ("min", 0.0), ("max", 1.0)):
        assert pay("debate", small(), judge=[yes, no, yes, abstains], panel=panel) == pytest.approx(dict.fromkeys(talk, value))
    assert set(pay("debate", small(), judge=Peer())) == {("R6", "m2"), ("R6", "x")}  # m is b's own
    for options in ({"judge": []}, {"panel": "unanimous"}):
        with pytest.raises(InputError):
            pay("debate", small(), **options)


def test_orchestration_parts() -> None:
    found = pay("orchestration", small(), most=4)
    # steps: lead d, (g, g2 are one turn): 2; a: c1, c2, m2: 3; b: c3, m: 2; critical 2 + 3 of 7
    assert found == pytest.approx({("R7_parallel", "lead"): 0.5, ("R7_finish", "lead"): 0.5, ("R7_speed_up", "lead"): 1 - 5 / 7})
    quality = {"split": lambda t: 0.25, "aggregation": lambda t: None}
    assert pay("orchestration", small(), parts=["split", "aggregation"], **quality) == {("R7_split", "lead"): 0.25}


def test_orchestration_per_decision() -> None:
    found = pay("orchestration", small(), parts=[], judge=lambda t, e: 0.5 if e.decision == "spawn" else None)
    assert found == {("R7_decision", "d"): 0.5}


def test_orchestration_forms() -> None:
    base: dict[str, Any] = {"most": 4, "lambda1": 0.2, "lambda2": 0.1}
    assert pay("orchestration", small(), form="additive", **base) == pytest.approx({("R7", "lead"): 0.15})
    assert pay("orchestration", small(), form="additive", perf="team", **base) == pytest.approx({("R7", "lead"): 2.15})
    assert pay("orchestration", small(), form="mixture", perf="team", **base) == pytest.approx({("R7", "lead"): 0.1 + 0.8 * 2})
    assert pay("orchestration", small(), form="additive", perf="missing", **base) == {}
    annealed = {"most": 4, "lambda1": linear(0.2, 100), "lambda2": 0.0, "form": "additive"}
    assert pay("orchestration", small(), step=50, **annealed) == pytest.approx({("R7", "lead"): 0.05})
    for options in ({"form": "aditive"}, {"form": "mixture"}, {"parts": ["speedup"]}, {"most": 0}):
        with pytest.raises(InputError):
            pay("orchestration", small(), **options)


def test_a_team_that_never_spawns_is_not_parallel_and_has_no_finish_rate() -> None:
    alone = Trace(trace_id="1", task_id="q", events=[Event(id="a", t=0, type="message", agent="x")])
    assert pay("orchestration", alone) == {("R7_parallel", "x"): 0.0, ("R7_speed_up", "x"): 0.0}


def test_hybrid() -> None:
    terms = {"team_outcome": 1.0, "tool_use": {"weight": 0.1, "failure": -1.0}, "process": linear(0.5, 10)}
    found = reward("hybrid")(small(), terms=terms, step=5)
    assert found[0] == Signal("team", "", "R8", 2.0)
    assert {s[:3]: s.value for s in found[1:]} == pytest.approx(
        {("tool", "c1", "R8"): 0.1, ("tool", "c2", "R8"): -0.1, ("turn", "b#1", "R8"): 0.0625, ("turn", "a#2", "R8"): 0.125}
    )
    assert pay("hybrid", small(), terms=terms, step=5, as_team=True) == pytest.approx({("R8", ""): 2.1875})
    assert pay("hybrid", small()) == {("R8", ""): 2.0}
    assert pay("hybrid", small(), terms={"team_outcome": 0.0}) == {}
    both = {"individual": 1.0, "orchestration": {"weight": 2.0, "parts": ["finish"]}}
    units = {(s.unit, s.unit_id): s.value for s in reward("hybrid")(small(), terms=both)}
    assert units == {("agent", "a"): 1.0, ("agent", "lead"): 0.0, ("orchestrator", "lead"): 1.0}


def test_hybrid_errors() -> None:
    with pytest.raises(NotFound, match="did you mean 'tool_use'"):
        pay("hybrid", small(), terms={"tool_uze": 1.0})
    with pytest.raises(InputError, match="did you mean 'failure'"):
        pay("hybrid", small(), terms={"tool_use": {"failur": 1.0}})
    with pytest.raises(InputError, match="at least one reward"):
        pay("hybrid", small(), terms={})
    with pytest.raises(InputError, match="term of itself"):
        pay("hybrid", small(), terms={"hybrid": 1.0})
    with pytest.raises(InputError, match="weight of tool_use"):
        pay("hybrid", small(), terms={"tool_use": math.nan})


# -- all of them ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_defaults_work_on_any_trace(name: str) -> None:
    traces = [*(synthetic_trace(5, 40, shape) for shape in SHAPES), odd_trace(), small()]
    for trace in traces:
        rows = reward(name)(trace)
        assert rows == reward(name)(trace)
        assert all(s.unit in UNITS and math.isfinite(s.value) for s in rows)
        assert len({(s.unit, s.unit_id, s.channel) for s in rows}) == len(rows)
        assert {s.unit for s in rows} <= {reward(name).unit}


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_trace_has_no_rows(name: str) -> None:
    assert reward(name)(Trace(trace_id="0", task_id="q", events=[])) == []


@pytest.mark.parametrize("name", NAMES)
def test_the_order_of_the_file_does_not_matter(name: str) -> None:
    turned = replace(small(), events=small().events[::-1])
    assert sorted(reward(name)(turned)) == sorted(reward(name)(small()))


@pytest.mark.parametrize("name", NAMES)
def test_an_unknown_option_is_one_clear_error(name: str) -> None:
    option = reward(name).options[0]
    with pytest.raises(InputError, match=f"did you mean {option!r}"):
        reward(name)(small(), **{option + "x": 1})


def test_what_is_no_number_is_refused_by_name() -> None:
    with pytest.raises(InputError, match="t: R1 of team '' is nan"):
        pay("team_outcome", replace(small(), rewards={"team": math.nan}))
    with pytest.raises(InputError, match="t: R6 of message 'm' is inf"):
        pay("debate", small(), judge=lambda t, e: math.inf)
    with pytest.raises(InputError):
        pay("process", small(), potential=lambda t, e: math.nan)


def test_many_traces() -> None:
    other = replace(small(), trace_id="u", rewards={})
    found = reward("team_outcome").many([small(), other])
    assert found.trace_ids == ("t", "u")
    assert found.totals()[0] == 2.0
    assert math.isnan(found.totals()[1])
    with pytest.raises(InputError, match="two traces are named 't'"):
        reward("team_outcome").many([small(), small()])


def test_teamworld_agrees_with_its_own_books() -> None:
    trace = cpt.world("W1", vote_items=24).run("reference", [0], log=True).trace(0)
    own = trace.rewards
    assert sum(pay("process", trace).values()) == pytest.approx(own["R4"])
    returns = [e for e in trace.events if e.type == "return"]
    rates = pay("individual", trace)
    mean = sum(rates["R2", e.agent] for e in returns) / len(returns)  # agents' means, weighed by their returns
    assert mean == pytest.approx(own["R2"])
    assert pay("role_rubric", trace)["R3", "worker"] == pytest.approx(own["R3"])
    calls = pay("tool_use", trace)
    assert len(calls) == trace.costs["tool_calls"]
    assert sum(calls.values()) / len(calls) == pytest.approx(own["R5"])
    assert pay("orchestration", trace)["R7_finish", "orchestrator"] == own["R7_finish"]
    gain = sum(pay("process", trace, potential="draft").values())
    drafts = [e.reward["draft"] for e in trace.events if e.reward and "draft" in e.reward]
    assert gain == pytest.approx(drafts[-1])  # it telescopes to the last draft
