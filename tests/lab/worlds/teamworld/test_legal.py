"""Illegal actions and impossible parameters: one clear error each, and not a byte of the state changes."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from counterpoint.errors import InputError
from counterpoint.lab.worlds.teamworld.action import ANSWER, NEXT, VERIFY, Action, Calls, Spawns
from counterpoint.lab.worlds.teamworld.config import Config
from counterpoint.lab.worlds.teamworld.engine import Batch
from counterpoint.lab.worlds.teamworld.world import TeamWorld
from lab.worlds.teamworld.other_rules import ruled

ITEMS: dict[str, Any] = {
    "vote_items": 2,
    "pool_items": 1,
    "draft_items": 1,
    "chain_items": 1,
    "node_modules": 1,
    "node_module_size": 2,
}
MAXIMA: dict[str, Any] = {
    "max_agents": 5,
    "max_votes": 3,
    "votes_per_agent": 1,
    "pool_calls": 3,
    "draft_calls": 2,
    "node_cross_edges": 0,
}
VOTE, POOL, DRAFT, CHAIN = 0, 2, 3, 4


def batch(**changes: Any) -> Batch:
    """Two episodes, three agents each, spawned a round ago; agent 3 has gone."""
    out = Batch(ruled(**(ITEMS | MAXIMA | {"chain_hops": 2, "hop_attempts": 2, "hop_checks": 1} | changes)), [0, 1], log=True)
    out.step(action(spawns=Spawns.of([0, 1], 3)))
    out.step(action(despawns=(np.array([0, 1]), np.array([3, 3]))))
    return out


def action(stop: Any = (False, False), **parts: Any) -> Action:
    return Action(stop=np.array(stop), **parts)


def calls(*rows: tuple[int, ...]) -> dict[str, Calls]:
    """Calls (ep, item, agent, brief, purpose), the last two as they usually are."""
    full = [[*row, *(2, ANSWER)[len(row) - 3 :]] for row in rows]
    return {"calls": Calls(*np.array(full, np.int64).T)}


def frozen(b: Batch) -> dict[str, Any]:
    def flat(value: Any, at: str) -> dict[str, Any]:
        if isinstance(value, np.ndarray):
            return {at: value.copy()}
        if dataclasses.is_dataclass(value):
            value = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return (
            {k: v for n, x in value.items() for k, v in flat(x, f"{at}.{n}").items()} if isinstance(value, dict) else {at: value}
        )

    assert b.writer is not None
    return flat(b.state, "") | {"rows": b.writer.log.rows, "edges": len(b.writer.log.edges)}


def refused(b: Batch, what: Action, match: str) -> None:
    before = frozen(b)
    with pytest.raises(InputError, match=match):
        b.step(what)
    after = frozen(b)
    assert before.keys() == after.keys()
    assert all(np.array_equal(before[k], after[k]) for k in before)


ILLEGAL: dict[str, tuple[dict[str, Any], str]] = {
    "dead agent": (calls((0, VOTE, 3)), "agent 3 is not alive"),
    "never spawned": (calls((0, VOTE, 4)), "agent 4 is not alive"),
    "no such slot": (calls((0, VOTE, 6)), "no agent slot 6"),
    "negative slot": (calls((0, VOTE, -1)), "no agent slot -1"),
    "no such item": (calls((0, 7, 1)), "no item 7"),
    "negative item": (calls((0, -1, 1)), "no item -1"),
    "no such episode": (calls((2, VOTE, 1)), "no episode 2"),
    "brief too long": (calls((0, VOTE, 1, 4)), "no size of brief 4"),
    "no such purpose": (calls((0, CHAIN, 1, 2, 3)), "no purpose 3"),
    "the orchestrator does not work": (calls((0, VOTE, 0)), "takes no calls"),
    "twice in a round": (calls((0, VOTE, 1), (0, 1, 1)), "more than 1 calls"),
    "two calls on a draft": (calls((0, DRAFT, 1), (0, DRAFT, 2)), "one call at a time"),
    "two calls on a chain": (calls((0, CHAIN, 1), (0, CHAIN, 2)), "one call at a time"),
    "a vote cannot be verified": (calls((0, VOTE, 1, 2, VERIFY)), "only be answered"),
    "a pool cannot go on": (calls((0, POOL, 1, 2, NEXT)), "only be answered"),
    "nothing to verify": (calls((0, CHAIN, 1, 2, VERIFY)), "cannot take this call"),
    "nothing to accept": (calls((0, CHAIN, 1, 2, NEXT)), "cannot take this call"),
    "too many spawns": ({"spawns": Spawns.of(1, 3)}, "would have spawned 6"),
    "too many in two orders": ({"spawns": Spawns.of([1, 1], [1, 2])}, "would have spawned 6"),
    "fewer than none": ({"spawns": Spawns.of(0, -1)}, "spawns -1"),
    "no such family": ({"spawns": Spawns.of(0, 1, 2)}, "no family 2"),
    "no such type": ({"spawns": Spawns.of(0, 1, 1, 2)}, "no type of work 2"),
    "a parent in a flat team": ({"spawns": Spawns.of(0, 1, 1, 0, 1)}, "only the orchestrator spawns"),
    "a dead parent": ({"spawns": Spawns.of(0, 1, 1, 0, 3)}, "not alive"),
    "a parent nowhere": ({"spawns": Spawns.of(0, 1, 1, 0, 9)}, "no agent slot 9"),
    "spawn in no episode": ({"spawns": Spawns.of(5, 1)}, "no episode 5"),
    "the orchestrator goes": ({"despawns": (np.array([0]), np.array([0]))}, "no agent slot 0"),
    "gone already": ({"despawns": (np.array([0]), np.array([3]))}, "not alive"),
    "goes twice": ({"despawns": (np.array([0, 0]), np.array([1, 1]))}, "despawned twice"),
    "called and sent away": (calls((0, VOTE, 1)) | {"despawns": (np.array([0]), np.array([1]))}, "called and despawned"),
    "despawns is not a pair": ({"despawns": (np.array([0]),)}, "despawns"),
    "despawns of two lengths": ({"despawns": (np.array([0]), np.array([1, 2]))}, "despawns"),
    "stop of another length": ({"stop": [False]}, "stop has shape"),
    "stop in numbers": ({"stop": [0, 0]}, "stop holds"),
    "close of another shape": ({"close": np.zeros((2, 3), np.bool_)}, "close has shape"),
    "close in numbers": ({"close": np.zeros((2, 7))}, "close holds"),
    "full return of another length": ({"full_return": np.zeros(3, np.bool_)}, "full_return has shape"),
    "broadcast in numbers": ({"broadcast": np.zeros(2)}, "broadcast holds"),
    "no such rule": ({"rule": np.array([0, 6])}, "no rule 6"),
    "a rule of nothing": ({"rule": np.array([0, np.nan])}, "rule holds"),
    "logp of another shape": ({"logp": np.zeros((2, 4))}, "logp has shape"),
    "logp of nothing": ({"logp": np.full((2, 5), np.nan)}, "logp is not finite"),
    "calls of two lengths": ({"calls": Calls(np.array([0]), np.array([0, 1]), np.array([1]), np.array([2]), np.array([0]))}, "calls.item"),
    "calls in halves": ({"calls": Calls(np.array([0]), np.array([0.5]), np.array([1]), np.array([2]), np.array([0]))}, "calls.item"),
    "spawns of two lengths": ({"spawns": Spawns(np.array([0]), np.array([1]), np.array([1]), np.array([0]), np.array([], np.int64))}, "spawns"),
}  # fmt: skip


@pytest.mark.parametrize("case", ILLEGAL)
def test_an_illegal_action_changes_nothing(case: str) -> None:
    parts, match = ILLEGAL[case]
    refused(batch(), action(**parts), match)


def test_after_stop_and_in_the_round_of_the_stop() -> None:
    b = batch()
    for stopped in ((True, False), (False, False)):
        refused(b, action(stop=(True, False), **calls((0, VOTE, 1))), "calls after it has stopped")
        refused(b, action(stop=(True, False), spawns=Spawns.of(0, 1)), "spawns after it has stopped")
        refused(b, action(stop=(True, False), despawns=(np.array([0]), np.array([1]))), "not alive")
        if stopped[0]:
            b.step(action(stop=stopped))
    b.step(action(**calls((1, VOTE, 1))))


def test_new_agents_are_not_there_yet_and_a_draft_takes_one_call_at_a_time() -> None:
    b = batch()
    refused(b, action(spawns=Spawns.of(0, 1), **calls((0, VOTE, 4))), "not alive")
    refused(b, action(**calls((0, DRAFT, 1), (0, DRAFT, 2))), "one call at a time")


def test_closed_items_and_spent_items() -> None:
    b = batch()
    close = np.zeros((2, 7), np.bool_)
    close[0, 1] = True
    refused(b, action(close=close, **calls((0, VOTE, 0))), "takes no calls")
    b.step(action(close=close))
    refused(b, action(**calls((0, 1, 1))), "item 1 is closed")
    b.step(action(**calls((1, 1, 1), (0, DRAFT, 1))))
    b.step(action(**calls((0, DRAFT, 2))))
    refused(b, action(**calls((0, DRAFT, 1))), "has had its 2 calls")


def test_one_vote_each() -> None:
    b = batch()
    b.step(action(**calls((0, VOTE, 1))))
    refused(b, action(**calls((0, VOTE, 1))), "has voted")
    b.step(action(**calls((0, VOTE, 2), (1, VOTE, 1))))
    loose = batch(votes_per_agent=2, max_votes=2)
    loose.step(action(**calls((0, VOTE, 1), (0, VOTE, 2))))
    refused(loose, action(**calls((0, VOTE, 1))), "has had its 2 calls")


def test_twice_on_an_item_in_a_round() -> None:
    refused(batch(calls_per_round=2), action(**calls((0, POOL, 1), (0, POOL, 1))), "called twice on item 2")
    batch(calls_per_round=2).step(action(**calls((0, POOL, 1), (0, VOTE, 1))))


def test_chains_and_nodes_have_an_order() -> None:
    b = batch()
    needs = b.observe().of("node").needs[0]
    root, leaf = (5, 6) if needs[1].any() else (6, 5)
    refused(b, action(**calls((0, leaf, 1))), r"\(node\) cannot take this call")
    refused(b, action(**calls((0, root, 1), (0, leaf, 2))), r"\(node\) cannot take this call")
    b.step(action(**calls((0, root, 1), (0, CHAIN, 2))))
    refused(b, action(**calls((0, root, 1))), "cannot take this call")
    b.step(action(**calls((0, leaf, 1), (0, CHAIN, 2, 2, VERIFY))))
    refused(b, action(**calls((0, CHAIN, 1, 2, VERIFY))), "cannot take this call")
    b.step(action(**calls((0, CHAIN, 1))))
    refused(b, action(**calls((0, CHAIN, 1))), "cannot take this call")
    b.step(action(**calls((0, CHAIN, 1, 2, NEXT))))
    refused(b, action(**calls((0, CHAIN, 1, 2, NEXT))), "cannot take this call")


def test_spawning_by_topology() -> None:
    refused(batch(topology="debate"), action(spawns=Spawns.of(0, 1)), "after the debate began")
    b = batch(topology="hierarchical", max_depth=2)
    b.step(action(spawns=Spawns.of(0, 1, 1, 0, 1)))
    refused(b, action(spawns=Spawns.of(0, 1, 1, 0, 4)), "lowest of 2 levels")


IMPOSSIBLE: dict[str, list[Any]] = {
    "topology": ["star", 3, None], "attack": ["AV9"], "vote_items": [-1, 1.5, True, "3", float("nan")],
    "pool_mean": [-1.0, float("inf"), float("nan")], "max_agents": [0, -2, 40_000], "max_rounds": [0], "calls_per_round": [0], "types": [0, 200],
    "mismatch": [1.1, -0.1], "price": [(0.1,), (0.1, -0.1), 0.1, (0.1, "b")], "brief_factor": [(1, 1, 1, 1.5), (1, 1)],
    "difficulty_shares": [(0.5, 0.5, 0.5), (0.5, 0.5)], "skill_a": [(0.5, 0.5, 2.0)], "misconception_b": [(0.5, 0.5, -0.1)],
    "right_if_misled": [1.01], "max_votes": [0, 61], "votes_per_agent": [0], "pool_find": [(0.5, 1.5)], "draft_gain": [(2.0, 0.1)],
    "chain_hops": [0],
    "attack_rate": [1.5], "orchestrator_works": [1, "yes"],
    "drift": [(0.0, -1.0)], "node_module_size": [0], "spawn_price": [-1],
}  # fmt: skip


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, values in IMPOSSIBLE.items() for v in values])
def test_impossible_parameters_are_named(name: str, value: Any) -> None:
    with pytest.raises(InputError, match=name):
        TeamWorld("t", "T", Config(vote_items=3)).replace(**{name: value})


def test_unknown_parameters_and_empty_worlds() -> None:
    world = TeamWorld("t", "T", Config(vote_items=3))
    with pytest.raises(InputError, match="vote_items"):
        world.replace(vote_itmes=2)
    with pytest.raises(InputError, match="without items"):
        world.replace(vote_items=0)
    assert world.replace(price=[0.1, 0.2]).config.price == (0.1, 0.2)
    assert repr(world.replace(vote_items=np.int64(4), price=[np.float64(0.1), 0.2])) == repr(world.replace(vote_items=4, price=(0.1, 0.2)))
    with pytest.raises(InputError) as wrong:
        world.replace(price=(0.1, -0.1))
    assert wrong.value.one_line() == "price is (0.1, -0.1); price takes a list of 2, each a number from 0 to 10,000,000"
