"""The multi-agent view: who acts when, what a worker sees, and that silent workers change nothing."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from counterpoint.errors import InputError
from counterpoint.lab.worlds.teamworld.config import Config
from counterpoint.lab.worlds.teamworld.world import ORCHESTRATOR, InboxNote, TeamAgents, TeamWorld, WorkerView
from counterpoint.trace import Trace, encode, problems


def world(**changes: Any) -> TeamWorld:
    base: dict[str, Any] = {"vote_items": 3, "max_agents": 4, "max_votes": 6, "types": 1}
    return TeamWorld("small", "T", Config(**(base | changes)))


def called(w: TeamWorld, seed: int = 0, calls: list[list[int]] | None = None, **parts: Any) -> tuple[TeamAgents, dict[str, Any]]:
    """Two workers, called on items 0 and 1."""
    team = w.agents()
    team.reset(seed)
    team.step({ORCHESTRATOR: {"spawn": [{"number": 2}]}})
    seen, *_ = team.step({ORCHESTRATOR: {"calls": calls or [[0, 1], [1, 2]], **parts}})
    return team, seen


def test_the_orchestrator_acts_then_who_was_called_then_the_orchestrator() -> None:
    team = world().agents()
    first, infos = team.reset(3)
    assert (list(first), list(infos), team.agents) == ([ORCHESTRATOR], [ORCHESTRATOR], [ORCHESTRATOR])
    team.step({ORCHESTRATOR: {"spawn": [{"number": 2}]}})
    assert team.agents == [ORCHESTRATOR]
    assert team.alive == [ORCHESTRATOR, "a0", "a1"]
    seen, rewards, *_ = team.step({ORCHESTRATOR: {"calls": [[0, 2]]}})
    assert team.agents == ["a1"]
    assert list(seen) == ["a1"]
    assert rewards == {ORCHESTRATOR: 0.0}
    seen, rewards, ended, cut, infos = team.step({"a1": None})
    assert team.agents == [ORCHESTRATOR]
    assert list(seen) == [ORCHESTRATOR]
    assert list(rewards) == list(ended) == list(cut) == list(infos) == [ORCHESTRATOR, "a1"]
    assert rewards[ORCHESTRATOR] == rewards["a1"] < 0
    _, _, ended, _, _ = team.step({ORCHESTRATOR: {"stop": True}})
    assert ended == {ORCHESTRATOR: True}
    assert team.agents == []


def test_a_worker_sees_its_brief_its_tool_and_nothing_hidden() -> None:
    team, seen = called(world(), calls=[[0, 1, 3]])
    view = seen["a0"]
    assert isinstance(view, WorkerView)
    assert view == team.observe("a0")
    assert {f.name for f in dataclasses.fields(view)} == {"agent", "family", "specialty", "taken", "tasks", "inbox"}
    (task,) = view.tasks
    assert (task.item, task.kind, task.purpose, task.brief, view.taken, view.inbox) == (0, "vote", "answer", 3, 0, ())
    assert task.tool in (0, 1)
    assert {f.name for f in dataclasses.fields(task)} == {"item", "kind", "purpose", "brief", "tool"}


@pytest.mark.parametrize("topology", ["centralized", "swarm", "debate", "planner_executor_critic"])
def test_workers_who_say_what_their_tools_said_change_nothing(topology: str) -> None:
    w = world(topology=topology)
    env, team = w.env(), w.agents()
    env.reset(5), team.reset(5)
    script: list[dict[str, Any]] = [
        {"spawn": [{"number": 3}]},
        {"calls": [[0, 1], [1, 2]], "broadcast": True},
        {"calls": [[0, 3]]},
        {"stop": True},
    ]
    for action in script:
        reward = env.step(action)[1]
        got = team.step({ORCHESTRATOR: action})[1]
        if team.agents not in ([ORCHESTRATOR], []):
            got = team.step(dict.fromkeys(team.agents))[1]
        assert got[ORCHESTRATOR] == reward
    assert encode(team.trace()) == encode(env.trace())


def test_a_worker_may_vote_otherwise_and_the_team_pays_for_it() -> None:
    w = world(skill_b=(1.0,) * 3, misconception_b=(0.0,) * 3, vote_items=1)
    for lie in (False, True):
        team, seen = called(w, calls=[[0, 1]])
        tool = seen["a0"].tasks[0].tool
        team.step({"a0": 1 - tool if lie else None})
        view: Any = team.observe(ORCHESTRATOR)
        said = 1 - tool if lie else tool
        assert view.of("vote").tally[0, 0].tolist() == [[0, 0], [1 - said, said]]
        reward = team.step({ORCHESTRATOR: {"stop": True}})[1][ORCHESTRATOR]
        assert reward == (0.0 if lie else 1.0)
        trace = team.trace()
        claims = [(e.extra or {})["claim"] for e in trace.events if e.type == "return"]
        results = [trace.contents[e.content_ref] for e in trace.events if e.type == "tool_result" and e.content_ref]
        right = [(e.reward or {})["R2"] for e in trace.events if e.type == "return"]
        assert claims == [said]
        assert results == [f"vote 0: {tool}"]
        assert right == [0.0 if lie else 1.0]
        assert not [p for p in problems(trace) if p.severity == "error"]


def test_the_critic_judges_what_was_said() -> None:
    w = world(
        skill_b=(1.0,) * 3,
        misconception_b=(0.0,) * 3,
        topology="planner_executor_critic",
        critic_false_accept=0.0,
        critic_false_reject=0.0,
    )
    team, seen = called(w, calls=[[0, 1], [1, 2]])
    team.step({"a0": 1 - seen["a0"].tasks[0].tool, "a1": None})
    view: Any = team.observe(ORCHESTRATOR)
    assert view.of("vote").rejected[0, :2, 1].tolist() == [1, 0]


def test_only_votes_and_verdicts_are_free() -> None:
    w = TeamWorld("small", "T", Config(pool_items=1, chain_items=1, max_agents=4, types=1))
    team, seen = called(w, calls=[[0, 1], [1, 2]])
    finds = seen["a0"].tasks[0].tool
    for wrong in ({"a0": finds + 1, "a1": None}, {"a0": None, "a1": 0}):
        with pytest.raises(InputError, match="only votes and verdicts"):
            team.step(wrong)
    team.step({"a0": finds, "a1": 1})
    seen, *_ = team.step({ORCHESTRATOR: {"calls": [[1, 1, 2, 1]]}})
    team.step({"a0": 1 - seen["a0"].tasks[0].tool})
    chain = team.observe(ORCHESTRATOR).of("chain")  # type: ignore[union-attr]
    assert int(chain.passes[0, 0]) == 1 - seen["a0"].tasks[0].tool


def test_the_inbox_holds_what_was_broadcast_and_what_is_noted() -> None:
    team, _ = called(world(topology="debate"), broadcast=True)
    team.step({"a0": 1, "a1": 0})
    seen, *_ = team.step({ORCHESTRATOR: {"calls": [[0, 2], [2, 1]]}})
    assert seen["a1"].inbox == (InboxNote(0, "broadcast", 0, 1),)
    assert seen["a0"].inbox == ()
    team, _ = called(world(topology="swarm"))
    team.step({"a0": 0, "a1": 0})
    seen, *_ = team.step({ORCHESTRATOR: {"calls": [[0, 2]]}})
    assert seen["a1"].inbox == (InboxNote(0, "memory", 1, 0),)


def test_several_calls_take_a_list_of_claims() -> None:
    team, seen = called(world(calls_per_round=2), calls=[[0, 1], [1, 1]])
    assert len(seen["a0"].tasks) == 2
    for wrong in (1, [1], [1, None, 0]):
        with pytest.raises(InputError, match="of 2 calls"):
            team.step({"a0": wrong})
    team.step({"a0": [1, 1]})
    assert team.observe(ORCHESTRATOR).of("vote").tally[0, :2, 1, 1].tolist() == [1, 1]  # type: ignore[union-attr]


@pytest.mark.parametrize("actions", [{}, {"a0": None}, {ORCHESTRATOR: {"stop": True}}, {"a0": None, "a1": None, "a7": None}, {"a0": None, "a1": 2},
                                     {"a0": None, "a1": "yes"}, {"a0": None, "a1": True}, {"a0": [], "a1": None}])  # fmt: skip
def test_wrong_turns_change_nothing(actions: dict[str, Any]) -> None:
    team, seen = called(world())
    before = encode(team.trace())
    with pytest.raises(InputError):
        team.step(actions)
    assert team.agents == ["a0", "a1"]
    assert {n: team.observe(n) for n in team.agents} == seen
    assert encode(team.trace()) == before
    team.step({"a0": None, "a1": None})


@pytest.mark.parametrize("actions", [{}, {"a0": None}, {ORCHESTRATOR: {"calls": [[0, 3]]}}, {ORCHESTRATOR: {"calls": [[0, 1], [0, 1]]}},
                                     {ORCHESTRATOR: {"stop": 1}}, {ORCHESTRATOR: {}, "a0": None}])  # fmt: skip
def test_wrong_orders_change_nothing(actions: dict[str, Any]) -> None:
    team = world().agents()
    team.reset(0)
    team.step({ORCHESTRATOR: {"spawn": [{"number": 2}]}})
    before = encode(team.trace())
    with pytest.raises(InputError):
        team.step(actions)
    assert team.agents == [ORCHESTRATOR]
    assert encode(team.trace()) == before


def test_looking_and_acting_where_one_cannot() -> None:
    team = world().agents()
    with pytest.raises(InputError, match="reset"):
        _ = team.agents
    team.reset(0)
    with pytest.raises(InputError, match="nothing to look at"):
        team.observe("a0")
    team.step({ORCHESTRATOR: {"stop": True}})
    with pytest.raises(InputError, match="over"):
        team.step({ORCHESTRATOR: {}})


def test_rewards_sum_to_the_return_and_episodes_repeat() -> None:
    def play(seed: int) -> tuple[float, Trace]:
        team, rng, total = world(attack="AV6", attack_rate=0.5).agents(), np.random.default_rng(seed), 0.0
        team.reset(seed)
        for _ in range(60):
            if not team.agents:
                break
            first = team.agents == [ORCHESTRATOR]
            actions = {ORCHESTRATOR: team._env.sample(rng)} if first else dict.fromkeys(team.agents)
            total += team.step(actions)[1][ORCHESTRATOR]
        return total, team.trace()

    for seed in range(4):
        total, trace = play(seed)
        again, same = play(seed)
        if trace.events[-1].decision == "stop":
            assert total == pytest.approx(trace.rewards["team"], abs=1e-9)
        assert total == again
        assert encode(trace) == encode(same)
