"""A world with rules of its own: its contract, episodes side by side, traces, and one error for whatever it says wrongly."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from tests.lab.train.ferry_world import NUMBERS, Trip, best, broken, ferry
from tests.lab.worlds.coin_world import CoinEnv, coin_world

from counterpoint.errors import InputError, NotFound, Refused
from counterpoint.lab.testing import check_world
from counterpoint.lab.worlds.rules.decision import Decision
from counterpoint.lab.worlds.rules.episodes import Due, play_episodes
from counterpoint.testing import ConformanceError
from counterpoint.trace import encode, problems


def test_it_keeps_the_contract_of_a_world() -> None:
    check_world(ferry)
    check_world(ferry.replace(rounds=1, fee=0.0))


def test_the_contract_notices_rules_that_draw_anew() -> None:
    rng = np.random.default_rng(0)

    def begin(config: Any, seed: int) -> Trip:
        return Trip(config, int(rng.integers(1000)))

    with pytest.raises(ConformanceError, match="same seeds give other numbers"):
        check_world(type(ferry)(name="ferry", config=ferry.config, begin=begin, best=best))


def test_the_best_play_is_worth_the_optimum() -> None:
    values = ferry.run("largest", range(1000)).values
    error = values.std(ddof=1) / math.sqrt(len(values))
    assert abs(values.mean() - ferry.optimum().value) < 4 * error
    assert ferry.run("random", range(200)).values.mean() < 0.5 * values.mean()


def test_an_episode_by_hand() -> None:
    env = ferry.env()
    due, _ = env.reset(3)
    assert (due.kind, list(due.names), env.agents) == ("spawn", list(NUMBERS), ["orchestrator"])
    due, paid, *_ = env.step("two")
    assert paid == -80.0
    assert (due.agent, env.agents) == ("ferry-0", ["orchestrator", "ferry-0"])
    saved, coins = env.snapshot(), [n for _, n in due.options]
    assert env.step(1)[1] == coins[1]
    env.restore(saved)
    assert env.step(0)[1] == coins[0]
    env.step(0)
    due, paid, over, truncated, _ = env.step("stop")
    assert (due, paid, over, truncated) == (None, 0.0, True, False)
    with pytest.raises(InputError, match="the episode is over"):
        env.step(0)
    trace = env.trace()
    assert [p for p in problems(trace) if p.severity == "error"] == []
    assert [(e.type, e.agent) for e in trace.events] == [
        ("orchestrator_decision", "orchestrator"), ("spawn", "orchestrator"), ("tool_call", "ferry-0"), ("spawn", "orchestrator"),
        ("tool_call", "ferry-1"), ("orchestrator_decision", "orchestrator"),
    ]  # fmt: skip
    assert trace.rewards["team"] == sum(e.reward["step"] for e in trace.events if e.reward)
    assert [e.options for e in trace.events if e.decision == "stop"] == [["stop", "go on"]]


@pytest.mark.parametrize("action", [3, -1, True, "four", 0.5, None, object()])
def test_what_is_no_option_is_refused_and_changes_nothing(action: Any) -> None:
    env = ferry.env()
    before, _ = env.reset(0)
    with pytest.raises(InputError, match=r"no action .*0 to 2, or one of one, two, three"):
        env.step(action)
    assert env.observe() == before


def test_side_by_side_as_one_by_one() -> None:
    """Whoever is played beside it, an episode is the same; so are its decisions as arrays, whatever number of options they have."""
    seeds = [5, 900, 2, 17, 2]
    together = ferry.run("random", seeds, log=True)
    for i, seed in enumerate(seeds):
        alone = ferry.run("random", [seed], log=True)
        assert alone.values[0] == together.values[i]
        assert encode(alone.trace(0)) == encode(together.trace(i))
    assert {len(e.options or ()) for i in range(5) for e in together.trace(i).events} >= {2, 3, 4, 5}


def test_a_drawn_option_has_its_chance() -> None:
    events = [e for i in range(20) for e in ferry.run("random", range(20), log=True).trace(i).events if e.options]
    assert all(math.isclose(e.logp or 0, -math.log(len(e.options or ()))) for e in events)
    by_hand = ferry.run("largest", [0], log=True).trace(0)
    assert all(e.logp is None for e in by_hand.events)  # a rule draws nothing


def test_policies() -> None:
    assert ferry.policies() == ["largest", "random"]
    assert ferry.run(lambda decision: 0, [0]).values[0] == ferry.run(lambda decision: 0, [0, 1]).values[0]
    with pytest.raises(NotFound, match=r"no policy named 'larges'.*did you mean 'largest'"):
        ferry.run("larges", [0])
    for wrong in (9, -1, "one", None, True, 0.0):
        with pytest.raises(InputError, match=r"world ferry, seed 4, decision 0: the policy chooses .*0 to 2"):
            ferry.run(lambda decision, wrong=wrong: wrong, [4])
    with pytest.raises(InputError, match="seeds are whole numbers"):
        ferry.run("random", [0.5])  # type: ignore[list-item]


def test_a_snapshot_of_another_world_is_refused() -> None:
    env, other = ferry.env(), ferry.replace(fee=1.0).env()
    env.reset(0)
    other.reset(0)
    with pytest.raises(Refused, match="another world or of other parameters"):
        other.restore(env.snapshot())
    with pytest.raises(InputError, match="is not a snapshot"):
        other.restore(3)
    with pytest.raises(InputError, match="no episode has begun"):
        ferry.env().step(0)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"decision": 7}, r"decision\(\) gives a int, not a Decision, nor None"),
    ({"raises": KeyError("piers")}, r"the world's code raises KeyError: 'piers'"),
    ({"kind": "sail"}, "no kind of decision named 'sail'"),
    ({"agent": ""}, "the agent's name is ''"),
    ({"options": []}, "the decision has no option"),
    ({"options": [[1, 2], [1]]}, r"the options cannot be read as numbers"),
    ({"options": [1.0, 2.0]}, r"the shape of the options is \(2,\)"),
    ({"options": [["a", "b"]]}, r"the options cannot be read as numbers"),
    ({"options": [[], []], "names": ["a", "b"]}, r"the shape of the options is \(2, 0\)"),
    ({"names": ["only"]}, r"2 options have the names \['only'\].*one name for each option"),
    ({"state": [1.0, math.nan, 0.0]}, "a number of the state is not finite"),
    ({"state": []}, r"the shape of the state is \(0,\)"),
    ({"state": [[1.0, 2.0, 3.0]]}, r"the shape of the state is \(1, 3\)"),
    ({"state": None}, r"the shape of the state is"),
    ({"state": [1.0, 2.0]}, "the state has 2 numbers and an option 2; before it was 3 and 2"),
    ({"options": [[1, 2, 3]], "names": ["a"]}, "the state has 3 numbers and an option 3; before it was 3 and 2"),
    ({"reward": math.nan}, "the reward is nan"),
    ({"reward": math.inf}, "the reward is inf"),
    ({"reward": "much"}, "the reward is 'much', not a number"),
    ({"reward": None}, "the reward is None, not a number"),
]


@pytest.mark.parametrize(("wrong", "says"), WRONG, ids=[f"{n}" for n in range(len(WRONG))])
def test_what_a_world_says_wrongly_is_one_error_that_names_the_place(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=f"(?s)world broken, seed 4, decision [23]: {says}"):
        broken(**wrong).run(lambda decision: 1, [4])


def test_an_episode_has_an_end_and_a_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("counterpoint.lab.worlds.rules.episodes.MOST", 50)
    with pytest.raises(InputError, match="seed 1, decision 50: the episode does not end within 50 decisions"):
        broken(endless=True).run(lambda decision: 1, [1])

    class Nothing:
        def decision(self) -> None: ...
        def act(self, option: int) -> float:
            return 0.0

    empty = type(ferry)(name="empty", config=ferry.config, begin=lambda c, s: Nothing(), best=best)
    with pytest.raises(InputError, match="seed 2, decision 0: the episode ends before its first decision"):
        empty.run("random", [2])


def test_the_contract_looks_at_the_decisions_of_any_env(monkeypatch: pytest.MonkeyPatch) -> None:
    """A world of another make is one to learn in as soon as its env has `decision`, and is held to what that promises."""

    def decision(env: Any) -> Decision | None:
        pot, names = float(env.pot), ("flip", "stop")
        return None if env.is_over else Decision(kind="stop", state=[pot], options=[[1, 0], [0, 1]], names=names)

    def step(env: Any, action: Any, plain: Any = CoinEnv.step) -> Any:
        return plain(env, action if isinstance(action, str) else ("flip", "stop")[action])

    monkeypatch.setattr(CoinEnv, "decision", decision, raising=False)
    monkeypatch.setattr(CoinEnv, "step", step)
    check_world(coin_world)
    monkeypatch.setattr(CoinEnv, "decision", lambda env: dataclasses.replace(decision(env), state=[0.0] * (1 + env.flips)))
    with pytest.raises(ConformanceError, match="decision 1: the state has 2 numbers and an option 2; before it was 1 and 2"):
        check_world(coin_world)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda c: 1 / 0, "raises ZeroDivisionError"), (lambda c: 3.0, r"gives 3\.0"),
        (lambda c: dataclasses.replace(best(c), value=math.inf), "gives Optimum"),
    ],
)  # fmt: skip
def test_an_optimum_is_one_and_finite(wrong: Any, says: str) -> None:
    with pytest.raises(InputError, match=rf"world ferry: best\(\) {says}.*an Optimum with a finite value"):
        dataclasses.replace(ferry, best=wrong).optimum()


def test_an_env_of_ones_own_is_enough() -> None:
    """Whatever has `reset`, `decision` and `step` is played, and what `step` gives is looked at."""

    class Short:
        name = "short"

        def __init__(self, given: Any) -> None:
            self.given = given

        def env(self) -> Any:
            return self

        def reset(self, seed: int) -> None:
            self.inner = Trip(ferry.config, seed)

        def decision(self) -> Any:
            return self.inner.decision()

        def step(self, option: int) -> Any:
            return self.given

    def first(due: Due) -> tuple[np.ndarray, None]:
        return np.zeros(len(due.rows), np.int64), None

    (steps,) = play_episodes(Short((None, 2.5, False, True, {})), [0], first)
    assert [step.reward for step in steps] == [2.5]
    with pytest.raises(InputError, match=r"step\(\) gives 3.*observation, reward, terminated, truncated, info"):
        play_episodes(Short(3), [0], first)
