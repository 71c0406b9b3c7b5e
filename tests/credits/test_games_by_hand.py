"""Games over agents: orders, worths and values that can be counted on paper, and what a trace says about its own game."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from counterpoint.credits.games import (
    MOST_EXACT,
    Game,
    VoteGame,
    above,
    by_keys,
    closure,
    exact_owen,
    exact_shapley,
    extension,
    mean_over_orders,
    parent_first,
    table,
    tree,
)
from counterpoint.credits.mechanisms.message_masked import message_masked
from counterpoint.credits.mechanisms.shapley import shapley
from counterpoint.credits.mechanisms.sharp import marginals, normalised, rewards, sharp
from counterpoint.credits.mechanisms.winter import winter
from counterpoint.credits.team_games import exact_votes, forked_without, play, roles_of, solve, vote_game
from counterpoint.errors import InputError, NotIdentified
from counterpoint.trace import Edge, Event, Trace
from counterpoint.trace.replay import Delete, Do
from counterpoint.trace.rows import Cost


def rows(credit: Any, unit: str = "agent") -> dict[tuple[int, str], float]:
    return {(r.trace, r.unit_id): r.value for r in credit.rows if r.unit == unit}


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


# -- orders -------------------------------------------------------------------------------------------------------------


def test_trees_and_their_orders() -> None:
    team = tree(ints(-1, 0, 0, 1, -1))
    assert team.size_A.tolist() == [4, 2, 1, 1, 1]
    assert [level.tolist() for level in team.levels] == [[0, 4], [1, 2], [3]]
    assert tree(ints()).levels == []
    keys = np.array([0.9, 0.5, 0.2, 0.1, 0.3])
    assert by_keys(keys).tolist() == [3, 2, 4, 1, 0]
    assert parent_first(team, keys).tolist() == [4, 0, 2, 1, 3]
    assert parent_first(team, 1 - keys).tolist() == [0, 1, 3, 2, 4]


def test_orders_come_in_pairs() -> None:
    seen: list[np.ndarray] = []

    def keep(keys: np.ndarray) -> np.ndarray:
        seen.append(keys)
        return by_keys(keys)

    def first(order: np.ndarray) -> np.ndarray:
        return np.bincount(order[:1], minlength=3).astype(float)

    rng = np.random.default_rng(0)
    found = mean_over_orders(first, keep, 3, 5, rng)
    assert (found.orders, len(seen)) == (6, 6)  # an odd number is rounded up
    for a, b in zip(seen[::2], seen[1::2], strict=True):
        assert b == pytest.approx(1 - a)  # antithetic unless told
    assert sorted((np.array(seen)[:, 0] * 6).astype(int).tolist()) == list(range(6))  # and stratified
    pairs = np.array([(first(by_keys(a)) + first(by_keys(b))) / 2 for a, b in zip(seen[::2], seen[1::2], strict=True)])
    assert found.mean_A == pytest.approx(pairs.mean(axis=0))
    assert found.se_A == pytest.approx(pairs.std(axis=0, ddof=1) / 3**0.5)
    seen.clear()
    mean_over_orders(first, keep, 3, 4, np.random.default_rng(0), antithetic=False)
    assert not np.allclose(seen[1], 1 - seen[0])
    seen.clear()
    plain = mean_over_orders(first, keep, 3, 3, np.random.default_rng(0), stratified=False)
    expected = np.random.default_rng(0).random((2, 3))
    assert [k.tolist() for k in seen[::2]] == expected.tolist()
    assert plain.orders == 4
    one = mean_over_orders(first, by_keys, 3, 2, np.random.default_rng(0))
    assert one.orders == 2
    assert np.isnan(one.se_A).all()


def test_sampling_stops_once_it_is_sure_and_not_before() -> None:
    still = lambda order: np.ones(2)  # noqa: E731
    stop = lambda **more: mean_over_orders(still, by_keys, 2, 40, np.random.default_rng(0), **more).orders  # noqa: E731
    assert stop() == 40
    assert stop(stop_se=0.0) == 8
    assert stop(stop_se=0.0, least=12) == 12
    assert stop(stop_se=0.0, least=0) == 4  # two pairs at the least
    turn = iter([0.0, 0.0, 4.0, 4.0, 0.0, 0.0, 4.0, 4.0, *[2.0] * 32])
    moving = mean_over_orders(lambda order: np.array([next(turn)]), by_keys, 1, 40, np.random.default_rng(0), stop_se=0.8)
    # pairs 0, 4, 0, 4, 2, 2, 2: squares 16, and se^2 = 16 / (p - 1) / p: 0.53 after six, 0.38 after seven... 0.64 is the bar
    assert moving.orders == 12
    assert moving.se_A == pytest.approx([math.sqrt(16 / 5 / 6)])


def test_an_extension_respects_edges_and_takes_the_least_key() -> None:
    events = [Event(id=f"e{i}", t=i, type="message", agent="a") for i in range(5)]
    edges = [Edge("e0", "e2", "causal"), Edge("e1", "e2", "causal"), Edge("e2", "e4", "causal")]
    graph = Trace(trace_id="t", task_id="q", events=events, edges=edges).graph
    assert extension(graph, np.array([0.9, 0.1, 0.0, 0.5, 0.2])) == [1, 3, 0, 2, 4]
    assert extension(graph, np.array([0.1, 0.2, 0.8, 0.9, 0.3])) == [0, 1, 2, 4, 3]


# -- worths -------------------------------------------------------------------------------------------------------------


def test_ancestors_and_loops() -> None:
    assert above(ints(-1, 0, 1, -1)) == [[], [0], [1, 0], []]
    assert above(ints(2, 0, -1)) == [[2], [0, 2], []]
    assert above(ints(1, 2, 3, -1)) == [[1, 2, 3], [2, 3], [3], []]
    for loop in (ints(1, 0), ints(0), ints(1, 2, 0)):
        with pytest.raises(InputError, match="the spawn tree has a loop"):
            above(loop)
    assert closure(ints(-1, 0, 1), np.array([True, True, False])).tolist() == [True, True, False]


def test_a_worth_is_called_once_for_a_set() -> None:
    asked: list[tuple[bool, ...]] = []

    def worth(present: np.ndarray) -> float:
        asked.append(tuple(present.tolist()))
        return float(present.sum()) ** 2

    game = Game(3, worth)
    assert game.along(ints(2, 0, 1)).tolist() == [3.0, 5.0, 1.0]
    assert game.along(ints(2, 0, 1)).tolist() == [3.0, 5.0, 1.0]
    assert len(asked) == 4
    # with parents 1 -> 0 -> none: 1 counts only once 0 is there
    assert game.along(ints(1, 0, 2), ints(-1, 0, -1)).tolist() == [4.0, 0.0, 5.0]


def test_votes_by_hand() -> None:
    # item 0 (weight 4): agents 0 right, 1 wrong, 2 wrong; item 1 (weight 10): agent 1 right
    game = VoteGame(3, ints(0, 1, 2, 1), ints(0, 0, 0, 1), np.array([True, False, False, True]), np.array([4.0, 10.0]), 0.25)
    worth = {s: game.worth(np.array([int(c) for c in s], bool)) for s in ("000", "100", "010", "110", "011", "111")}
    assert worth == {"000": 1 + 2.5, "100": 4 + 2.5, "010": 0 + 10.0, "110": 1 + 10.0, "011": 0 + 10.0, "111": 0 + 10.0}
    assert game.sign_V.tolist() == [1, -1, -1, 1]
    assert game.share(np.array([-2, -1, 0, 1, 2])).tolist() == [0.0, 0.0, 0.25, 1.0, 1.0]
    assert game.along(ints(0, 1, 2)).tolist() == [3.0, -3.0 + 7.5, -1.0]
    assert game.along(ints(1, 2, 0), ints(1, -1, 1)).tolist() == [0.0, -1.0 + 7.5, 0.0]
    # under 0, nobody counts before 0 has come
    assert game.along(ints(1, 2, 0), ints(-1, 0, 0)).tolist() == [worth["111"] - worth["000"], 0.0, 0.0]
    assert VoteGame(1, ints(), ints(), np.zeros(0, bool), np.ones(2)).worth(np.ones(1, bool)) == 1.0  # a coin's half of each
    by_orders = exact_shapley(table(game))
    assert exact_votes(game) == pytest.approx(by_orders)
    assert by_orders.sum() == pytest.approx(worth["111"] - worth["000"])


def test_tables_hold_at_most_fourteen_players() -> None:
    assert MOST_EXACT == 14
    first = Game(2, lambda s: float(s[0]) + 10.0 * float(s[1]))
    assert table(first).tolist() == [0.0, 1.0, 10.0, 11.0]  # bit i is player i
    assert table(first, ints(1, -1)).tolist() == [0.0, 0.0, 10.0, 11.0]
    small = Game(14, lambda s: 0.0)
    assert len(table(small)) == 2**14
    with pytest.raises(InputError, match="15 players have too many subsets; at most 14"):
        table(Game(15, lambda s: 0.0))
    assert exact_owen(table(first), ints(-1, 0)).tolist() == [1.0, 10.0]


def test_solving_says_how() -> None:
    game, alone = Game(3, lambda s: float(s.sum())), ints(-1, -1, -1)
    exact = solve(game, "exact", alone)
    assert (exact.value_A.tolist(), exact.se_A, exact.orders) == ([1.0, 1.0, 1.0], None, 0)
    sampled = solve(game, "sampled", alone)
    assert sampled.orders == 64
    assert sampled.se_A is not None
    assert solve(game, "permission", alone, orders=4).orders == 4
    assert solve(game, "sampled", alone, orders=2).orders == 2
    assert solve(game, "sampled", alone, stop_se=1.0).orders == 8
    for value, orders in (("sampled", 1), ("exact", 2)):
        with pytest.raises(InputError, match=f"orders={orders} with value='{value}'"):
            solve(game, value, alone, orders=orders)
    with pytest.raises(InputError, match="no value 'fair'"):
        solve(game, "fair", alone)
    many = Game(15, lambda s: float(s.sum()))
    with pytest.raises(InputError, match="15 agents are too many for an exact value"):
        solve(many, "exact", np.full(15, -1))
    assert solve(many, "permission", np.full(15, -1)).orders == 64
    fourteen = Game(14, lambda s: float(s[0]))
    assert solve(fourteen, "exact", np.full(14, -1)).value_A[:2] == pytest.approx([1.0, 0.0])
    votes = VoteGame(20, np.arange(20), np.zeros(20, int), np.ones(20, bool), np.ones(1))
    assert solve(votes, "exact", np.full(20, -1)).value_A == pytest.approx([0.5 / 20] * 20)
    assert solve(votes, "nested_owen", np.full(20, -1)).orders == 0
    random = Game(3, lambda s: float(s.all()))
    draws = {tuple(solve(random, "sampled", alone, orders=2, seed=s).value_A.tolist()) for s in range(12)}
    assert len(draws) > 1
    cubes = Game(6, lambda s: float(s @ np.arange(1.0, 7.0)) ** 3)
    drawn = [
        solve(cubes, "sampled", np.full(6, -1), orders=2, **more).value_A.tolist() for more in ({}, {"seed": 0}, {"seed": 1})
    ]
    assert drawn[0] == drawn[1] != drawn[2]


def test_values_over_a_tree_sampled_and_exact() -> None:
    # 0 leads 1 and 2; 1 and 2 together earn 6; whoever is alone earns nothing
    game, parent = Game(3, lambda s: 6.0 * float(s[1] and s[2])), ints(-1, 0, 0)
    assert solve(game, "permission", parent).value_A == pytest.approx([2.0, 2.0, 2.0])
    assert solve(game, "nested_owen", parent).value_A == pytest.approx([0.0, 3.0, 3.0])
    assert solve(game, "exact", parent).value_A == pytest.approx([0.0, 3.0, 3.0])
    for value, exact in (("permission", [2.0, 2.0, 2.0]), ("nested_owen", [0.0, 3.0, 3.0])):
        assert solve(game, value, parent, orders=100).value_A == pytest.approx(exact, abs=0.6)


def test_exact_votes_over_trees() -> None:
    # both of 0's workers vote right on one item of weight 6: from a coin (3) to right (6)
    game, parent = VoteGame(3, ints(1, 2), ints(0, 0), np.ones(2, bool), np.array([6.0])), ints(-1, 0, 0)
    assert exact_votes(game, "nested_owen", parent) == pytest.approx([0.0, 1.5, 1.5])
    # permission: 3 once 0 and one of the others are there; the pivot is 0 in four of six orders
    assert exact_votes(game, "permission", parent) == pytest.approx([2.0, 0.5, 0.5])
    assert exact_votes(game, "shapley", parent) == pytest.approx([0.0, 1.5, 1.5])
    unasked = VoteGame(2, ints(0), ints(1), np.ones(1, bool), np.array([8.0, 2.0, 4.0]))  # nobody voted on two items
    assert exact_votes(unasked) == pytest.approx([1.0, 0.0])
    for value in ("nested_owen", "permission"):
        with pytest.raises(InputError, match=f"{value} needs the spawn tree"):
            exact_votes(game, value)
    # a wrong vote below a right one, three deep, against the definition
    deep = VoteGame(
        4, ints(0, 1, 2, 3, 3), ints(0, 0, 0, 0, 1), np.array([True, False, False, True, False]), np.array([3.0, 2.0])
    )
    up = ints(-1, 0, 1, 0)
    assert exact_votes(deep, "permission", up) == pytest.approx(exact_shapley(table(deep, up)))
    assert exact_votes(deep, "nested_owen", up) == pytest.approx(exact_owen(table(deep), up))


# -- traces -------------------------------------------------------------------------------------------------------------


def vote(k: int, agent: str, item: str, right: float, **more: Any) -> Event:
    return Event(
        id=f"v{k}",
        t=10.0 + k,
        type="return",
        agent=agent,
        task=f"vote {item}",
        reward={"R2": right},
        **{"extra": {"claim": 1}, **more},
    )


def voted(*more: Event, meta: dict[str, Any] | None = None, **fields: Any) -> Trace:
    events = [
        Event(id="d", t=0, type="orchestrator_decision", agent="lead", role="boss"),
        Event(id="s0", t=1, type="spawn", agent="lead", to="w0", role="hand", tokens_out=5),
        Event(id="s1", t=2, type="spawn", agent="lead", to="w1", role="hand", tokens_in=1, tokens_out=1),
        Event(id="m", t=3, type="message", agent="w1", role="helper", tokens_out=7),
        *more,
    ]
    rewards_ = fields.pop("rewards", {"team": 2.0})
    return Trace(trace_id=fields.pop("name", "t"), task_id="q", events=events, rewards=rewards_, meta=meta or {}, **fields)


def test_which_returns_are_votes() -> None:
    number = {"w0": 0, "w1": 1}
    kept = [vote(0, "w0", "a", 1.0), vote(1, "w1", "b", 0.5), vote(2, "w1", "a", 0.75)]
    left = [
        vote(3, "zz", "a", 1.0),
        vote(4, "w0", "a", 1.0, extra={"other": 1}),
        replace(vote(5, "w0", "a", 1.0), task="poll a"),
        replace(vote(6, "w0", "a", 1.0), task=None),
        replace(vote(7, "w0", "a", 1.0), reward={"R1": 1.0}),
        replace(vote(8, "w0", "a", 1.0), type="message"),
        replace(vote(9, "w0", "a", 1.0), reward=None, extra=None),
    ]
    game = vote_game(voted(*kept, *left), number)
    assert game is not None
    assert (game.n, game.tie) == (2, 0.5)
    assert game.agent_V.tolist() == [0, 1, 1]
    assert game.item_V.tolist() == [0, 1, 0]
    assert game.right_V.tolist() == [True, False, True]  # right is above one half
    assert game.weight_J.tolist() == [1.0, 1.0]
    paid = vote_game(voted(*kept, meta={"config": {"vote_weight": 3}}), number, tie=0.25)
    assert paid is not None
    assert (paid.weight_J.tolist(), paid.tie) == ([3.0, 3.0], 0.25)
    assert vote_game(voted(*left), number) is None


def test_a_vote_that_no_merge_read_is_worth_nothing_to_anybody() -> None:
    """By hand: w0's wrong vote was merged, and the team earned 0; w1's right one on another item came too late for every merge."""
    merge = Event(id="g", t=17, type="aggregate", agent="lead", role="boss")
    wrong, right = vote(6, "w0", "a", 0.0), vote(9, "w1", "b", 1.0)
    read = [Edge(src=wrong.id, dst="g", type="aggregate")]
    late = voted(wrong, merge, right, edges=read, rewards={"team": 0.0})
    in_time = replace(late, edges=[*read, Edge(src=right.id, dst="g", type="return")])
    unknown = replace(late, edges=[])  # nothing says what the merge read: every vote counts
    for trace, half, whole in ((late, 0.0, 0.0), (in_time, 0.5, 1.0), (unknown, 0.5, 1.0)):
        found = [rows(m([trace], **more))[0, "w1"] for m, more in ((shapley, {}), (winter, {}), (sharp, {"give": "marginal"}))]
        assert found == [half] * 3
        assert message_masked([trace]).of(0)[right.id] == whole
        assert rows(shapley([trace]))[0, "w0"] == -0.5


def test_who_plays() -> None:
    trace = voted(vote(0, "w0", "a", 1.0), Event(id="u", t=20, type="message", agent="user"))
    played = play(trace)
    assert played.names == ["lead", "w1", "w0"]  # as they first act
    assert played.roles == ["boss", "helper", "hand"]  # the role it acts in, else the one it was spawned for
    assert roles_of(trace) == {"lead": "boss", "w0": "hand", "w1": "helper"}
    assert played.parent_A.tolist() == [-1, 0, 0]
    assert (played.worth, played.cost, played.all_and_nobody) == ("votes", Cost(), (1.0, 0.5))
    assert play(trace, tie=0.25).all_and_nobody == (1.0, 0.25)
    given = play(trace, worth=lambda t, agents: float(len(agents)) + ("w1" in agents))
    assert (given.worth, given.all_and_nobody) == ("given", (4.0, 0.0))
    nameless = play(voted(vote(0, "w0", "a", 1.0), Event(id="x", t=30, type="message", agent="solo")))
    assert nameless.roles[-1] == "solo"
    twice = voted(Event(id="x", t=30, type="message", agent="w1", role="late"))
    assert roles_of(twice)["w1"] == "helper"  # the first
    with pytest.raises(NotIdentified, match="no agents to share among") as error:
        play(Trace(trace_id="none", task_id="q", events=[]))
    assert error.value.where == "none"
    with pytest.raises(NotIdentified, match="no scored votes") as error:
        play(voted())
    assert error.value.where == "t"


class Without:
    """A team pays 1 for w0, 2 for w1 and 4 for both; whoever is not spawned says nothing."""

    def fork(self, trace: Trace, at: str, do: Do | None = None, seed: int | None = None) -> Trace:
        assert isinstance(do, Delete)
        gone = trace.events[trace.index[at]].to
        left = [e for e in trace.events if e.id != at and e.agent != gone]
        here = {e.to for e in left if e.type == "spawn"}
        paid = {frozenset(): 0.0, frozenset({"w0"}): 1.0, frozenset({"w1"}): 2.0, frozenset({"w0", "w1"}): 4.0}[frozenset(here)]
        return replace(trace, events=left, rewards={"team": paid})


def test_forks_without_agents() -> None:
    trace = voted(rewards={"team": 4.0})
    fork, cost = forked_without(trace, ["w0"], Without())
    assert [e.id for e in fork.events] == ["d", "s1", "m"]
    assert cost == Cost(1, 2 + 7)  # what runs again from the fork on
    both, cost = forked_without(trace, ["w1", "w0"], Without())
    assert (both.rewards["team"], cost) == (0.0, Cost(2, 9 + 0))
    more = voted(Event(id="n", t=4, type="message", agent="lead", tokens_in=3))
    assert forked_without(more, ["w0"], Without())[1] == Cost(1, 2 + 7 + 3)

    class Stubborn(Without):
        def fork(self, trace: Trace, at: str, do: Do | None = None, seed: int | None = None) -> Trace:
            assert "again" not in trace.meta  # who is spawned again by another decision stays
            return replace(trace, meta={"again": True})

    assert forked_without(trace, ["w0"], Stubborn())[1].forks == 1
    same, cost = forked_without(trace, ["nobody"], Without())
    assert same is trace
    assert cost == Cost()
    played = play(trace, replay=Without())
    assert (played.names, played.worth) == (["w1", "w0"], "forks")  # nobody spawned the lead
    credit = shapley([trace, trace], replay=Without())
    assert rows(credit) == {(i, n): v for i in (0, 1) for n, v in (("w0", 1.5), ("w1", 2.5))}
    assert credit.cost == Cost(8, 2 * (9 + 0 + 9))
    assert credit.declared is not None
    assert credit.declared.tolist() == [4.0, 4.0]
    assert rows(sharp(trace, give="marginal", replay=Without())) == {(0, "w0"): 2.0, (0, "w1"): 3.0}
    assert sharp([trace, trace], give="marginal", replay=Without()).cost == Cost(4, 2 * (9 + 0))
    roles = winter(trace, replay=Without())
    assert rows(roles) == {(0, "w0"): 1.5, (0, "w1"): 2.5}
    assert rows(roles, "role") == {(0, "hand"): 1.5, (0, "helper"): 2.5}
    assert roles.cost == Cost(4, 9 + 0 + 9)


def test_shapley_notes_and_errors_of_samples() -> None:
    trace = voted(vote(0, "w0", "a", 1.0), vote(1, "w1", "a", 1.0), vote(2, "w1", "b", 0.0), rewards={"team": 2.0, "R1": 3.0})
    credit = shapley(trace)
    assert rows(credit) == pytest.approx({(0, "lead"): 0.0, (0, "w0"): 0.25, (0, "w1"): 0.25 - 0.5})
    assert credit.notes == {
        "value": "auto",
        "traces": [{"worth": "votes", "v_all": 1.0, "v_nobody": 1.0, "orders": 0, "recorded": 3.0, "gap": 2.0}],
    }
    assert [r.se for r in credit.rows] == [None] * 3
    assert (credit.mechanism, credit.additive, credit.trace_ids) == ("shapley", True, ("t",))
    assert shapley(trace, worth=lambda t, agents: float(len(agents))).notes["traces"][0]["orders"] == 0  # few: exact
    given = shapley(trace, worth=lambda t, agents: float(len(agents)), value="sampled", orders=4)
    assert given.notes["traces"] == [{"worth": "given", "v_all": 3.0, "v_nobody": 0.0, "orders": 4, "recorded": 2.0, "gap": -1.0}]
    assert [r.se for r in given.rows] == [0.0] * 3
    assert [r.se for r in shapley(trace, value="sampled", orders=2).rows] == [None] * 3  # one pair has no error
    assert shapley(voted(vote(0, "w0", "a", 1.0), rewards={})).notes["traces"][0].keys() == {
        "worth",
        "v_all",
        "v_nobody",
        "orders",
    }
    assert shapley(trace, orders=6).notes["traces"][0]["orders"] == 6  # auto samples where it is told how often
    assert shapley(trace, value="sampled", stop_se=9.0).notes["traces"][0]["orders"] == 8
    assert shapley(trace, tie=0.0).notes["traces"][0]["v_nobody"] == 0.0
    estimands = {v: shapley(trace, value=v).estimand for v in ("auto", "exact", "sampled", "permission", "nested_owen")}
    assert len(set(estimands.values())) == 5
    assert "sigma" in estimands["permission"]
    assert "parent-first" in estimands["nested_owen"]
    # a worth that depends on the order of luck: each trace has its own draw, each seed another
    uneven = lambda t, agents: float({"lead", "w0", "w1"} <= agents)  # noqa: E731
    two = [rows(shapley([trace, trace], worth=uneven, value="sampled", orders=2, seed=s)) for s in range(12)]
    assert len({tuple(v.values()) for v in two}) > 1
    assert any(v[0, "w0"] != v[1, "w0"] for v in two)
    assert two == [rows(shapley([trace, trace], worth=uneven, value="sampled", orders=2, seed=s)) for s in range(12)]
    lead = rows(shapley(trace, worth=lambda t, agents: float("w0" in agents), value="permission"))
    assert lead == pytest.approx({(0, "lead"): 0.5, (0, "w0"): 0.5, (0, "w1"): 0.0})


def test_winter_by_hand() -> None:
    trace = voted()
    # w0 and w1 are needed both: in one role they share a half each; roles apart from the lead, who is worth nothing
    same = replace(trace, events=[replace(e, role="hand") if e.id == "m" else e for e in trace.events])
    both = lambda t, agents: float({"w0", "w1"} <= agents) + 2.0 * float("lead" in agents)  # noqa: E731
    credit = winter([same, trace], worth=both)
    assert rows(credit) == pytest.approx({(i, n): v for i in (0, 1) for n, v in (("lead", 2.0), ("w0", 0.5), ("w1", 0.5))})
    assert rows(credit, "role") == pytest.approx(
        {(0, "boss"): 2.0, (0, "hand"): 1.0, (1, "boss"): 2.0, (1, "hand"): 0.5, (1, "helper"): 0.5}
    )
    assert [r.unit for r in credit.rows if r.trace == 0] == ["role", "role", "agent", "agent", "agent"]
    assert credit.declared is not None
    assert credit.declared.tolist() == [3.0, 3.0]
    assert {r.se for r in credit.rows} == {None}
    assert (credit.mechanism, credit.estimand, credit.additive) == ("winter", winter.estimand, True)
    drawn = winter(same, worth=both, orders=4)
    assert next(r.se for r in drawn.rows if r.unit == "agent") == 0.0
    assert {r.se for r in drawn.rows if r.unit == "role"} == {None}
    assert {r.se for r in winter(same, worth=both, orders=2).rows} == {None}
    # two suffice, and three are of one role: that role has it all, though the lead is as good as any of them
    odd = voted(Event(id="s2", t=4, type="spawn", agent="lead", to="w2", role="hand"))
    odd = replace(odd, events=[replace(e, role="hand") if e.id == "m" else e for e in odd.events])
    any_two = lambda t, agents: float(len(agents) >= 2)  # noqa: E731
    shared = winter(odd, worth=any_two)
    assert rows(shared, "role") == pytest.approx({(0, "boss"): 0.0, (0, "hand"): 1.0})
    counted = winter(voted(vote(0, "w0", "a", 1.0), vote(1, "w1", "a", 1.0)), tie=0.0)
    assert rows(counted, "role") == pytest.approx({(0, "boss"): 0.0, (0, "hand"): 0.5, (0, "helper"): 0.5})
    uneven = lambda t, agents: float({"lead", "w0", "w1"} <= agents)  # noqa: E731
    two = [rows(winter([trace, trace], worth=uneven, orders=2, seed=s)) for s in range(12)]
    assert len({tuple(v.values()) for v in two}) > 1
    assert any(v[0, "w0"] != v[1, "w0"] for v in two)
    early = winter(same, worth=lambda t, agents: float(len(agents)), orders=40, stop_se=1.0)
    assert rows(early) == pytest.approx({(0, n): 1.0 for n in ("lead", "w0", "w1")})


def test_winter_stops_early_when_it_is_told_to() -> None:
    asked: list[frozenset[str]] = []

    def worth(trace: Trace, agents: frozenset[str]) -> float:
        asked.append(agents)
        return float(len(agents))

    big = [Event(id=f"s{k}", t=20.0 + k, type="spawn", agent="lead", to=f"x{k}", role="hand") for k in range(2, 20)]
    winter(voted(*big), worth=worth, orders=120, stop_se=1.0)
    few = len(asked)
    asked.clear()
    winter(voted(*big), worth=worth, orders=120)
    assert few < len(asked) / 4


def votes_of_one(name: str, reward: float) -> Trace:
    return Trace(trace_id=name, task_id="q", events=[Event(id="e0", t=0, type="message", agent="w")], rewards={"team": reward})


def test_sharp_by_verdicts_is_ccpos_bonus() -> None:
    """Without w two of four are right in the first game (the mean of verdicts is 0: no bonus), one in the second (-0.5: helped)."""
    right_with = [1, 1, 0, 0]
    traces = [msgspec.structs.replace(votes_of_one(f"t{i}", float(r)), events=[
        Event(id="d", t=0, type="orchestrator_decision", agent="lead", role="orchestrator"),
        Event(id="e0", t=1, type="message", agent="w"),
    ]) for i, r in enumerate(right_with)]  # fmt: skip
    about = {"event": "verdict", "lambda_s": 0.2, "lambda_p": 0.0}
    for right_without, bonus in (([0, 1, 1, 0], 0.0), ([0, 1, 0, 0], 0.2)):

        def worth(t: Trace, agents: Any, right_without: list[int] = right_without) -> float:
            return float((right_with if "w" in agents else right_without)[int(t.trace_id[1])])

        paid = sharp(traces, worth=worth, **about)
        assert [paid.of(i)["w"] for i in range(4)] == pytest.approx([1 + bonus, 1 + bonus, -1, -1])
        assert [paid.of(i)["lead"] for i in range(4)] == [1, 1, -1, -1]
        centred = sharp(traces, give="advantage", worth=worth, scale=False, **about)
        own = np.array([1 + bonus, 1 + bonus, -1, -1])
        assert [centred.of(i)["w"] for i in range(4)] == pytest.approx(own - own.mean())
    with pytest.raises(InputError, match="no event='size_'"):
        sharp(traces, event="size_", worth=worth)


def test_sharp_by_hand() -> None:
    assert marginals(3.0, [1.0, 3.5]).tolist() == [2.0, -0.5]
    assert rewards(1.0, np.array([2.0, 4.0]), [math.nan, 3.0], 0.5, 0.25).tolist() == [2.0, 3.75]
    assert normalised([0.0, 2e-6]) == pytest.approx([-1 / (2**0.5 + 1), 1 / (2**0.5 + 1)])
    assert normalised([0.0, 2.0], ddof=0, eps=1.0).tolist() == [-0.5, 0.5]
    tool = lambda k, agent, paid: Event(id=f"r{k}", t=20.0 + k, type="tool_result", agent=agent, tool="s", reward=paid)  # noqa: E731
    trace = voted(
        vote(0, "w0", "a", 1.0),
        tool(0, "w0", {"R5": 1.0}),
        tool(1, "w0", {"R5": 0.5}),
        tool(2, "w1", {"R1": 1.0}),
        tool(3, "w1", None),
        replace(tool(4, "w1", {"R5": 9.0}), type="tool_call"),
    )
    assert rows(sharp(trace)) == pytest.approx({(0, "lead"): 2.0, (0, "w0"): 2.0 + 0.5 * 0.5 + 0.1 * 0.75, (0, "w1"): 2.0})
    assert rows(sharp(trace, lambda_s=2.0, lambda_p=4.0, tie=0.25))[0, "w0"] == pytest.approx(2.0 + 2.0 * 0.75 + 4.0 * 0.75)
    other = replace(trace, trace_id="u", rewards={"team": 4.0})
    lone = replace(trace, trace_id="z", task_id="p")
    pair = sharp([trace, other, lone], give="advantage", eps=1.0)
    assert rows(pair) == pytest.approx({(i, n): s / (2**0.5 + 1) for i, s in ((0, -1), (1, 1)) for n in ("lead", "w0", "w1")})
    assert [r.trace for r in pair.rows] == [0, 0, 0, 1, 1, 1]
    assert pair.unidentified == {(2, n): "the only trace of its task in which it takes part" for n in ("lead", "w0", "w1")}
    assert pair.notes == {"lambda_s": 0.5, "lambda_p": 0.1, "ddof": 1, "eps": 1.0, "event": "size", "scale": True}
    assert rows(sharp([trace, other], give="advantage", eps=1.0, ddof=0))[1, "w1"] == pytest.approx(0.5)
    three = sharp([trace, other, replace(trace, trace_id="v", rewards={"team": 6.0})], give="advantage", eps=0.0)
    assert [rows(three)[i, "w0"] for i in range(3)] == pytest.approx([-1.0, 0.0, 1.0])
    assert rows(sharp(trace, give="marginal", worth=lambda t, agents: float(len(agents) ** 2)))[0, "w0"] == 5.0
    with pytest.raises(InputError, match="no give='all'"):
        sharp(trace, give="all")
    assert len({sharp(trace, give=g).estimand for g in ("marginal", "reward")}) == 2
    assert (pair.mechanism, pair.additive, pair.trace_ids) == ("sharp", False, ("t", "u", "z"))
