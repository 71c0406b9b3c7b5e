"""Forks are exact: F1, F2 and F3 on long episodes, and every kind of edit on short ones."""

from __future__ import annotations

import dataclasses

import msgspec
import numpy as np
import pytest

from counterpoint import registry
from counterpoint.errors import InputError, NotFound, NotIdentified, Refused
from counterpoint.lab.bench.claims.fork_exact import fork_exact
from counterpoint.lab.worlds.teamworld.config import TOPOLOGIES
from counterpoint.lab.worlds.teamworld.policies import named
from counterpoint.lab.worlds.teamworld.team_replay import TeamReplay
from counterpoint.lab.worlds.teamworld.world import TeamWorld
from counterpoint.trace import Event, Trace, encode, problems
from counterpoint.trace.replay import Delete, Force, Fork, Insert, ManyReplay, Replay, Substitute

W1: TeamWorld = registry.get("world", "wide_verify").replace(vote_items=16, max_agents=12)
ONE = W1.replace(vote_items=1, max_agents=1, types=1, max_votes=1, spawn_price=0.0, round_price=0.0)
MIXED: TeamWorld = registry.get("world", "mixture").replace(
    vote_items=4,
    pool_items=1,
    draft_items=1,
    chain_items=1,
    pool_calls=6,
    draft_calls=6,
    node_modules=2,
    node_module_size=2,
    max_agents=7,
)
WORLDS = {
    "votes": W1,
    "mixed": MIXED,
    "panel": registry.get("world", "debate_panel").replace(vote_items=6),
    "chains": registry.get("world", "deep_chain").replace(chain_items=2),
    **{t: MIXED.replace(topology=t, attack="AV2", attack_rate=0.2) for t in TOPOLOGIES},
}


PLAYED: dict[object, Trace] = {}


def run(world: TeamWorld, policy: str = "reference", seed: int = 7) -> Trace:
    key = (world.name, world.config, policy, seed)
    if key not in PLAYED:
        PLAYED[key] = world.run(policy, [seed], log=True).trace(0)
    return PLAYED[key]


def hashes(events: list[Event]) -> dict[str, tuple[object, ...]]:
    return {str(e.key): (e.content_ref, e.t, e.agent, e.to) for e in events}


def middle(trace: Trace, kind: str, **fields: object) -> Event:
    found = [e for e in trace.events if e.type == kind and all(getattr(e, k) == v for k, v in fields.items())]
    return found[len(found) // 2]


def test_long_episodes_repeat_exactly_here_and_in_other_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the claim does it, with forks at the first event, the last, and two between them where it has five."""
    monkeypatch.setattr("counterpoint.lab.bench.claims.fork_exact._PLACES", 2)
    rows = list(fork_exact(seed=5, seeds=1))
    assert rows[0].value > 10_000
    assert all(row.ok for row in rows), rows


# Every world with every policy; the topologies, which are one world in six orders, with a policy each in turn.
POLICIES = ("reference", "random", "oracle")
EACH = [(n, p) for n in WORLDS if n not in TOPOLOGIES for p in POLICIES]
EACH += [(name, POLICIES[i % 3]) for i, name in enumerate(TOPOLOGIES)]


@pytest.mark.parametrize(("name", "policy"), EACH)
def test_an_empty_fork_is_the_trace_itself_at_every_kind_of_event(name: str, policy: str) -> None:
    world = WORLDS[name]
    trace = run(world, policy)
    kinds = sorted({e.type for e in trace.events if e.agent != "critic"})
    for kind in kinds[:: 1 if name == "mixed" and policy == "oracle" else 4]:
        event = middle(trace, kind, **({} if kind != "message" else {"role": "orchestrator"}))
        assert encode(world.fork(trace, event.id)) == encode(trace)


def test_a_world_and_its_replay_are_replays() -> None:
    assert isinstance(W1, Replay)
    assert isinstance(TeamReplay(W1), ManyReplay)


@pytest.mark.parametrize("kind", ["message", "tool_call", "tool_result", "return", "spawn", "aggregate", "orchestrator_decision"])
@pytest.mark.parametrize("name", ["votes", "mixed", "hierarchical"])
def test_deleting_keeps_the_prefix_and_gives_a_valid_trace(name: str, kind: str) -> None:
    world = WORLDS[name]
    trace = run(world)
    event = middle(trace, kind)
    fork = world.fork(trace, event.id, Delete())
    at = trace.index[event.id]
    assert [(e.key, e.content_ref) for e in fork.events[:at]] == [(e.key, e.content_ref) for e in trace.events[:at]]
    assert not [p for p in problems(fork) if p.severity == "error"]
    if kind in ("message", "return", "spawn"):
        assert event.key not in {e.key for e in fork.events if e.turn == event.turn and e.type == kind}
    assert fork.trace_id != trace.trace_id


def test_a_deleted_return_is_a_vote_that_was_not_counted() -> None:
    world = ONE
    trace = run(world)
    event = middle(trace, "return")
    fork = world.fork(trace, event.id, Delete())
    truth = int(trace.rewards["R1"]) == int((event.extra or {})["claim"])  # the answer was the vote; 0 without one
    assert fork.rewards["R1"] == (0.0 if truth else 1.0)
    assert fork.rewards["cost_calls"] == trace.rewards["cost_calls"]


def test_a_substituted_vote_is_the_one_given_and_nobody_elses_noise_moves() -> None:
    trace = run(W1)
    event = middle(trace, "return")
    other = 1 - int((event.extra or {})["claim"])
    fork = W1.fork(trace, event.id, Substitute(other))
    changed = next(e for e in fork.events if e.key == event.key)
    assert (changed.extra or {})["claim"] == other
    same_round = [e for e in trace.events if e.turn == event.turn and e.type == "return" and e.key != event.key]
    forked = hashes(fork.events)
    assert all(forked[str(e.key)] == (e.content_ref, e.t, e.agent, e.to) for e in same_round)


def test_drawing_anew_gives_each_draw_its_own_noise_and_the_right_rate() -> None:
    world = ONE.replace(difficulty_shares=(1.0, 0.0, 0.0), misconception_b=(0.0, 0.0, 0.0))
    trace = run(world)
    event = middle(trace, "return")
    runs = TeamReplay(world).forks(trace, [Fork(event.id, Substitute(draw=d)) for d in range(1, 2001)])
    assert abs(runs.columns["quality"].mean() - 0.92) < 5 * np.sqrt(0.92 * 0.08 / 2000)


def test_many_forks_at_once_are_the_forks_one_by_one() -> None:
    trace = run(MIXED)
    picks = [e for e in trace.events if e.agent != "critic"][:: len(trace.events) // 4]
    forks = [Fork(e.id, do, seed) for e in picks for do, seed in ((Delete(), None), (None, 3), (None, None))]
    runs = MIXED.forks(trace, forks)
    single = [MIXED.fork(trace, f.at, f.do, f.seed).rewards["team"] for f in forks]
    np.testing.assert_allclose(runs.values, single, rtol=0, atol=1e-9)


def test_fresh_noise_begins_right_after_the_event() -> None:
    trace = run(W1, seed=11)
    for kind in ("tool_result", "return"):
        event = middle(trace, kind)
        at = trace.index[event.id]
        fork = W1.fork(trace, event.id, seed=123)
        assert [e.content_ref for e in fork.events[: at + 1]] == [e.content_ref for e in trace.events[: at + 1]]
        assert [e.content_ref for e in fork.events[at + 1 :]] != [e.content_ref for e in trace.events[at + 1 :]]


def test_fresh_forks_of_the_first_event_have_the_mean_of_fresh_episodes_given_the_instance() -> None:
    """Fresh noise keeps the instance (the questions) and redraws the rest, so the means over instances agree."""
    world = W1.replace(vote_items=12)
    fresh = []
    for seed in range(16):
        trace = run(world, seed=seed)
        fresh.append(world.forks(trace, [Fork(trace.events[0].id, None, s) for s in range(12)]).values.mean())
    plain = world.run("reference", range(10_000, 11_000)).values
    error = np.hypot(np.std(fresh) / np.sqrt(16), plain.std() / np.sqrt(1000))
    assert abs(np.mean(fresh) - plain.mean()) < 4.5 * error


def test_forced_decisions() -> None:
    trace = run(W1)

    def decided(name: str, turn: int) -> str:
        return next(
            e.id
            for e in trace.events
            if e.type == "orchestrator_decision" and (e.extra or {})["sub_decision"] == name and e.turn == turn
        )

    stopped = W1.fork(trace, decided("stop", 3), Force({"stop": True}))
    assert max(e.turn or 0 for e in stopped.events) == 3
    assert stopped.events[-1].decision == "stop"
    fewer = W1.fork(trace, decided("spawn", 0), Force({"spawn": 2, "family": "A", "type": 1}))
    assert [(e.extra or {})["family"] for e in fewer.events if e.type == "spawn"] == ["A", "A"]
    more = W1.fork(trace, decided("spawn", 2), Force({"spawn": 1}))
    assert sum(e.type == "spawn" for e in more.events) == sum(e.type == "spawn" for e in trace.events) + 1
    idle = W1.fork(trace, decided("delegate", 1), Force({"calls": [[0, 1]]}))
    assert sum(e.type == "tool_call" and e.turn == 1 for e in idle.events) == 1
    curt = W1.fork(trace, decided("communicate", 1), Force({"brief": 0}))
    assert {(e.extra or {})["brief"] for e in curt.events if e.type == "message" and e.turn == 1} == {0}
    lossy = W1.fork(trace, decided("aggregate", 1), Force({"rule": "lossy"}))
    assert next((e.extra or {})["rule"] for e in lossy.events if e.type == "aggregate" and e.turn == 1) == "lossy"
    on = W1.fork(trace, trace.events[-1].id, Force({"stop": False}))
    assert len(on.events) > len(trace.events)


def test_an_inserted_vote_is_counted() -> None:
    world = ONE
    trace = run(world)
    stop = trace.events[0].id
    for value in (0, 1):
        fork = world.fork(trace, stop, Insert(value, {"item": 0, "family": "B"}))
        assert [e.type for e in fork.events].count("human_intervention") == 1
        assert not [p for p in problems(fork) if p.severity == "error"]


def test_deleting_a_safety_event_spares_the_call() -> None:
    world = W1.replace(attack="AV5", attack_rate=0.3)
    trace = run(world)
    event = middle(trace, "safety_event")
    fork = world.fork(trace, event.id, Delete())
    assert fork.rewards["cost_harm"] == pytest.approx(trace.rewards["cost_harm"] + world.config.harm_price)


def test_forks_of_forks() -> None:
    trace = run(W1)
    once = W1.fork(trace, middle(trace, "return").id, Delete(), seed=1)
    twice = W1.fork(once, once.events[-3].id, None, seed=2)
    at = len(once.events) - 3
    assert [e.content_ref for e in twice.events[:at]] == [e.content_ref for e in once.events[:at]]
    assert len(twice.meta["edits"]) == 2
    assert encode(W1.fork(twice, twice.events[5].id)) == encode(twice)


def test_an_episode_stepped_by_hand_can_be_repeated_and_forked_with_a_policy() -> None:
    env = W1.env()
    env.reset(3)
    env.step({"spawn": [{"number": 2, "family": "B", "type": 0}]})
    for item in range(4):
        env.step({"calls": [[2 * item, 1], [2 * item + 1, 2, 1]], "rule": "majority"})
    env.step({"stop": True})
    trace = env.trace()
    assert encode(W1.fork(trace, trace.events[10].id)) == encode(trace)
    with pytest.raises(NotIdentified, match="continued"):
        W1.fork(trace, trace.events[10].id, Delete())
    replay = TeamReplay(W1, named("reference", W1.config))
    event = middle(trace, "return")
    fork = replay.fork(trace, event.id, Delete())
    assert len(fork.events) > len(trace.events)
    again = replay.fork(fork, fork.events[-1].id)
    assert encode(again) == encode(fork)
    many = replay.forks(trace, [Fork(e.id, Delete()) for e in trace.events if e.type == "return"])
    assert len(many.values) == sum(e.type == "return" for e in trace.events)


def test_what_cannot_be_forked_says_so_and_leaves_the_trace_alone() -> None:
    trace = run(W1)
    before = encode(trace)
    last = trace.events[-1].id
    with pytest.raises(NotFound, match="no event 'e999999'"):
        W1.fork(trace, "e999999", Delete())
    older = msgspec.structs.replace(trace, meta=trace.meta | {"version": "0"})
    with pytest.raises(Refused, match="version 0"):
        W1.fork(older, last)
    with pytest.raises(Refused, match="a trace of 'wide_verify'"):
        MIXED.fork(trace, last)
    with pytest.raises(NotIdentified, match="not made by a simulator"):
        W1.fork(msgspec.structs.replace(trace, meta={}), last)
    unknown = msgspec.structs.replace(trace, meta=trace.meta | {"policy": "mine"})
    with pytest.raises(NotIdentified, match="mine"):
        W1.fork(unknown, last)
    other = msgspec.structs.replace(trace, meta=trace.meta | {"policy": "serial"})
    with pytest.raises(Refused, match="does not come out again"):
        W1.fork(other, last)
    with pytest.raises(InputError, match="cannot be forced"):
        W1.fork(trace, middle(trace, "return").id, Force({"stop": True}))
    with pytest.raises(InputError, match="has no 'spwan'"):
        W1.fork(trace, trace.events[1].id, Force({"spwan": 1}))
    with pytest.raises(InputError, match="over the limit"):
        W1.fork(trace, trace.events[1].id, Force({"spawn": 13}))
    with pytest.raises(InputError, match="is a vote"):
        W1.fork(trace, last, Insert(2, {"item": 0}))
    with pytest.raises(InputError, match="seed is -1"):
        W1.fork(trace, last, seed=-1)
    assert encode(trace) == before


def test_snapshots_go_on_to_the_same_bytes() -> None:
    policy = named("random", MIXED.config)
    batch = MIXED.batch(range(5), log=True)
    for _ in range(6):
        batch.step(policy.act(batch.observe()))
    saved = batch.snapshot()

    def on() -> tuple[list[np.ndarray], int]:
        while not batch.state.done.all():
            batch.step(policy.act(batch.observe()))
        flat = [v for v in vars(batch.state).values() if isinstance(v, np.ndarray)]
        return [batch.value(), *flat], batch.writer.log.rows if batch.writer else 0

    first, rows = on()
    batch.restore(saved)
    second, rows_again = on()
    assert rows == rows_again
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_snapshot_can_be_restored_into_many_copies() -> None:
    policy = named("reference", W1.config)
    batch = W1.batch(range(3))
    for _ in range(4):
        batch.step(policy.act(batch.observe()))
    saved = batch.snapshot()
    while not batch.state.done.all():
        batch.step(policy.act(batch.observe()))
    whole = batch.value()
    batch.restore(saved, np.array([2, 0, 2, 1]))
    while not batch.state.done.all():
        batch.step(policy.act(batch.observe()))
    np.testing.assert_array_equal(batch.value(), whole[[2, 0, 2, 1]])


def test_replacing_parameters_travels_with_the_trace() -> None:
    base: TeamWorld = registry.get("world", "wide_verify")
    trace = run(W1)
    assert encode(base.fork(trace, trace.events[3].id)) == encode(trace)
    assert dataclasses.asdict(W1.config)["vote_items"] == trace.meta["config"]["vote_items"]
