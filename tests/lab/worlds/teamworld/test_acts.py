"""What some methods train, in the world: acts of workers, judges, a proposer, a second side; each against hand-computed numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import counterpoint as cpt
from counterpoint.errors import InputError
from counterpoint.lab.testing import check_world
from counterpoint.lab.worlds.teamworld.action import Action, Calls, Spawns, as_action, as_data
from counterpoint.lab.worlds.teamworld.acts import AGGREGATE, BROADCAST, CONCEDE, DEBATE, PERSIST, QUERY, REFINE, SOLO, VERIFY
from counterpoint.lab.worlds.teamworld.config import ACTS, ATTACKS, Config
from counterpoint.lab.worlds.teamworld.engine import Batch
from counterpoint.lab.worlds.teamworld.policies import Opposed, named
from counterpoint.lab.worlds.teamworld.world import TeamWorld
from counterpoint.trace import Trace
from lab.worlds.teamworld.other_rules import ruled

SMALL: dict[str, Any] = {"vote_items": 3, "max_agents": 4, "types": 1, "max_rounds": 12, "votes_per_agent": 4, "max_votes": 8}
FAIR: dict[str, Any] = {"skill_a": (0.7,) * 3, "skill_b": (0.7,) * 3, "misconception_a": (0.0,) * 3, "misconception_b": (0.0,) * 3}
WORLDS: dict[str, dict[str, Any]] = {
    "deliberate": {"acts": "deliberate"},
    "communicate": {"acts": "communicate"},
    "judges": {"acts": "deliberate", "judges": 2},
    "proposer": {"judges": 2, "proposer": True},
    "opponent": {"opponent_rounds": 3, "attack_rate": 0.5},
    "all": {"acts": "communicate", "judges": 1, "proposer": True, "opponent_rounds": 2, "attack_rate": 0.5},
}


def begun(episodes: int, number: int = 3, family: int = 1, **changes: Any) -> Batch:
    batch = Batch(ruled(**(SMALL | FAIR | changes)), np.arange(episodes), log=episodes < 10)
    batch.step(Action(stop=np.zeros(episodes, np.bool_), spawns=Spawns.of(np.arange(episodes), number, family)))
    return batch


def call(batch: Batch, agent: int, act: int, item: int = 0) -> np.ndarray:
    """(E,) what the agent's answer is afterwards; it is called with the full brief."""
    e = batch.state.episodes
    batch.step(Action(stop=np.zeros(e, np.bool_), calls=Calls.of(np.arange(e), item, agent, 2, 0, act)))
    return answers(batch, agent, item)


def answers(batch: Batch, agent: int, item: int = 0) -> np.ndarray:
    assert batch.state.kinds.vote is not None
    return batch.state.kinds.vote.held[:, item, agent].astype(np.int64).copy()


def right(batch: Batch, said: np.ndarray, item: int = 0) -> np.ndarray:
    assert batch.state.kinds.vote is not None
    return np.asarray(said == batch.state.kinds.vote.truth[:, item])


def close_to(hits: np.ndarray, chance: float) -> None:
    assert abs(hits.mean() - chance) <= 5 * np.sqrt(chance * (1 - chance) / hits.size), (hits.mean(), chance)


@pytest.mark.parametrize("name", WORLDS)
def test_worlds_keep_the_contract(name: str) -> None:
    check_world(TeamWorld(f"acts_{name}", "T", Config(**(SMALL | WORLDS[name]))), episodes=8)


@pytest.mark.parametrize("name", ["all", "judges"])
def test_forks_of_such_traces_are_exact(name: str) -> None:
    world = TeamWorld(f"acts_{name}", "T", Config(**(SMALL | WORLDS[name])))
    trace = world.run("random", [7], log=True).trace(0)
    vote = next(e for e in trace.events if e.type == "return")
    assert world.fork(trace, vote.id).events == trace.events
    other = world.fork(trace, vote.id, cpt.Substitute(1 - vote.extra["claim"]))  # type: ignore[index]
    assert other.events[: trace.index[vote.id]] == trace.events[: trace.index[vote.id]]


def test_who_persists_or_concedes_pays_nothing_and_who_refines_is_less_often_wrong() -> None:
    batch = begun(4000, acts="deliberate", refine_gain=0.5)
    first = call(batch, 1, REFINE)
    close_to(right(batch, first), 0.7)  # a first look is a look like any other
    paid = batch.state.costs[:, 0].copy()
    assert (call(batch, 1, PERSIST) == first).all()
    assert (call(batch, 2, CONCEDE) == first).all()  # the draft is the only answer there is
    assert (batch.state.costs[:, 0] == paid).all()
    close_to(right(batch, call(batch, 1, REFINE)), 0.7 + 0.5 * 0.3)
    votes = batch.state.kinds.vote
    assert votes is not None
    assert (votes.tally[:, 0].sum(axis=(1, 2)) == 2).all()  # two agents, two answers, however often they spoke
    assert (batch.state.counts[:, 0] == 4).all()


def test_nobody_persists_or_concedes_with_nothing_to_go_by() -> None:
    batch = begun(1, acts="deliberate")
    for act in (PERSIST, CONCEDE):
        with pytest.raises(InputError, match=f"cannot {ACTS['deliberate'][act]}"):
            call(batch, 1, act)
    call(batch, 1, REFINE)
    with pytest.raises(InputError, match="cannot persist"):
        call(batch, 2, PERSIST)
    with pytest.raises(InputError, match="no act 5"):
        call(batch, 2, 5)


def test_a_query_looks_again_where_the_other_differs() -> None:
    batch = begun(6000, acts="communicate", refine_gain=0.5)
    call(batch, 1, SOLO)
    before = batch.state.costs[:, :2].copy()
    said = call(batch, 2, QUERY)
    # right: both looks agree and are right, 0.49; or they differ, 0.42, and the second look is right, 0.85
    close_to(right(batch, said), 0.49 + 0.42 * 0.85)
    spent = batch.state.costs[:, :2] - before
    price, twice = batch.config.price[1], np.isclose(spent[:, 0], 2 * batch.config.price[1])
    assert (twice | np.isclose(spent[:, 0], price)).all()
    close_to(twice, 0.42)
    assert np.allclose(spent[:, 1], 2 * batch.config.brief_price + 2 * batch.config.broadcast_price)
    assert (batch.state.further == twice).all()


def test_a_debate_is_settled_by_three_looks_and_heard_by_all() -> None:
    batch = begun(6000, acts="communicate", refine_gain=0.5)
    call(batch, 1, SOLO)
    said = call(batch, 2, DEBATE)
    two_of_two, one_of_two = 0.85**2, 1 - 0.15**2
    close_to(right(batch, said), 0.49 + 0.21 * one_of_two + 0.21 * two_of_two)
    assert batch.state.kinds.vote is not None
    assert batch.state.kinds.vote.shared[:, 0].sum(axis=1).tolist() == [1] * 6000


def test_only_the_board_is_aggregated() -> None:
    batch = begun(4000, number=4, acts="communicate")
    call(batch, 1, SOLO)
    with pytest.raises(InputError, match="cannot aggregate"):
        call(batch, 2, AGGREGATE)
    call(batch, 1, BROADCAST)
    call(batch, 2, BROADCAST)
    board = np.stack([answers(batch, 1), answers(batch, 2)])
    said = call(batch, 3, AGGREGATE)
    agree = board[0] == board[1]
    assert (said[agree] == board[0][agree]).all()  # two to one
    close_to(right(batch, said), 0.7**3 + 3 * 0.7**2 * 0.3)  # most of three looks


def test_a_check_turns_a_wrong_answer_over() -> None:
    batch = begun(6000, acts="communicate", check_false_accept=0.2, check_false_reject=0.1)
    close_to(right(batch, call(batch, 1, VERIFY)), 0.7 * 0.9 + 0.3 * 0.8)
    assert np.allclose(batch.state.costs[:, 0], batch.config.price[1] + batch.config.check_price)


def test_judges_err_as_often_as_they_should_and_their_score_is_what_counts() -> None:
    batch = begun(6000, acts="deliberate", judges=2, judge_false_accept=0.3, judge_false_reject=0.1)
    good = right(batch, call(batch, 1, REFINE))
    votes = batch.state.kinds.vote
    assert votes is not None
    score = votes.held_confidence[:, 0, 1]
    assert set(np.unique(score)) == {0.0, 0.5, 1.0}
    close_to(score[good] == 1.0, 0.9**2)
    close_to(score[~good] == 0.0, 0.7**2)
    assert np.allclose(batch.state.costs[:, 5], 2 * batch.config.judge_price)


def logged(**changes: Any) -> Trace:
    world = TeamWorld("acts", "T", Config(**(SMALL | changes)))
    return world.run("random", [3], log=True).trace(0)


def test_traces_say_who_did_what_and_was_given_which_score() -> None:
    trace = logged(acts="communicate", judges=2)
    answers_ = [e for e in trace.events if e.type == "return"]
    assert {e.extra["act"] for e in answers_ if e.extra} <= set(ACTS["communicate"])
    for answer in answers_:
        verdicts = [trace.events[trace.index[x.dst]] for x in trace.edges if x.src == answer.id and x.type == "message"]
        judges = [v for v in verdicts if v.role == "judge"]
        assert [v.agent for v in judges] == ["judge0", "judge1"]
        assert answer.reward is not None
        assert answer.reward["score"] == np.mean([v.extra["accept"] for v in judges])  # type: ignore[index]
    assert trace.rewards["R6"] == np.mean([e.reward["R6"] for e in trace.events if e.role == "judge" and e.reward])


def test_a_proposer_sets_how_hard_and_how_many() -> None:
    config = Config(**(SMALL | {"vote_items": 9, "proposer": True, "proposal_flaws": (0.0, 0.5, 1.0)}))
    batch = Batch(config, np.arange(900))
    batch.step(Action(stop=np.zeros(900, np.bool_), proposal=np.tile([2, 1], (900, 1))))
    votes = batch.state.kinds.vote
    assert votes is not None
    close_to((votes.difficulty == 2).astype(np.float64), 0.8)
    assert (batch.state.open.sum(axis=1) == 6).all()
    assert np.allclose(votes.soundness(config, batch.state.seed), 1 - votes.flawed[:, :6].mean(axis=1))
    assert (batch.worth()[:, 6:] == 0).all()
    assert (batch.worth()[votes.flawed] == 0).all()
    with pytest.raises(InputError, match="nobody can propose"):
        batch.step(Action(stop=np.zeros(900, np.bool_), proposal=np.zeros((900, 2), np.int64)))


def test_the_second_side_may_attack_in_so_many_rounds_and_its_pay_is_the_teams_loss() -> None:
    config = ruled(**(SMALL | {"opponent_rounds": 2, "attack_rate": 1.0, "obey": 1.0}))
    world = TeamWorld("opposed", "T", config)
    trace = world.run(Opposed(named("spawn_all", config), "AV2"), [5], log=True).trace(0)
    attacks = [e.extra["attack"] for e in trace.events if e.role == "opponent" and e.extra]
    assert attacks.count("AV2") == 2
    planted = {e.turn for e in trace.events if (e.extra or {}).get("planted") == "AV2"}
    assert planted == {i for i, name in enumerate(attacks) if name == "AV2"}
    pay = {who: [e.reward["zero_sum"] for e in trace.events if e.agent == who and e.reward and "zero_sum" in e.reward]
           for who in ("orchestrator", "opponent")}  # fmt: skip
    assert np.allclose(np.add(pay["orchestrator"], pay["opponent"]), 0)
    start = Batch(config, [5]).value()[0]
    assert np.isclose(sum(pay["orchestrator"]), trace.rewards["team"] - start)
    assert trace.rewards["opponent"] == -trace.rewards["team"]
    batch = Batch(config, [0])
    for attack in (3, 4):
        batch.step(Action(stop=np.array([False]), attack=np.array([attack])))
    with pytest.raises(InputError, match="more than 2 rounds"):
        batch.step(Action(stop=np.array([False]), attack=np.array([1])))


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_that_is_chosen_does_what_the_fixed_one_does(attack: str) -> None:
    """Played all the time, the second side's attack gives the returns of the world that has it built in."""
    fixed = Config(**(SMALL | {"attack": attack, "attack_rate": 0.5}))
    free = Config(**(SMALL | {"opponent_rounds": 12, "attack_rate": 0.5}))
    seeds = np.arange(40)
    one = TeamWorld("fixed", "T", fixed).run("reference", seeds)
    other = TeamWorld("free", "T", free).run(Opposed(named("reference", free), attack), seeds)
    assert np.allclose(one.values, other.values)


def test_the_second_side_is_free_to_leave_them_alone() -> None:
    calm, free = Config(**SMALL), Config(**(SMALL | {"opponent_rounds": 4, "attack_rate": 0.5}))
    runs = [TeamWorld("w", "T", c).run("reference", range(20)).values for c in (calm, free)]
    assert (runs[0] == runs[1]).all()


def test_plain_data_holds_acts_attacks_and_proposals() -> None:
    config = Config(**(SMALL | WORLDS["all"]))
    data = {"calls": [[0, 1, 2, 0, 3]], "attack": "AV4", "proposal": [2, 0]}
    assert as_data(as_action(config, data)) == data
    with pytest.raises(InputError, match="no attack 'AV9'"):
        as_action(config, {"attack": "AV9"})


@pytest.mark.parametrize(
    "changes", [{"acts": "dance"}, {"opponent_rounds": 3}, {"opponent_rounds": 3, "attack": "AV2", "attack_rate": 0.1}, {"judges": 12}]
)
def test_impossible_worlds_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Config(**(SMALL | changes))


def test_what_is_off_leaves_no_mark() -> None:
    plain = Config(vote_items=4)
    assert "acts" not in repr(plain)
    assert "judges" not in plain.stated()
    assert Config(vote_items=4, judges=1).stated()["judges"] == 1
