"""Stopping worlds as traces: forced continuation, what is read back, and forks that share their noise."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoint import problems, registry
from counterpoint.errors import InputError, NotFound, NotIdentified, Refused
from counterpoint.guard.stop_paths import payoffs
from counterpoint.lab.worlds.stopping.config import WideSearch
from counterpoint.lab.worlds.stopping.sample import increments
from counterpoint.lab.worlds.stopping.world import StoppingWorld
from counterpoint.trace import Event, Trace
from counterpoint.trace.replay import Delete, Force, Insert, Replay, Substitute

WORLDS: list[StoppingWorld] = [registry.get("world", name) for name in ("s0", "s1", "s1b", "s2", "s3")]
each_world = pytest.mark.parametrize("world", WORLDS, ids=[w.name for w in WORLDS])
S1, S2 = WORLDS[1], WORLDS[3]


def _refs(trace: Trace) -> dict[str, str | None]:
    return {e.id: e.content_ref for e in trace.events}


def _decisions(trace: Trace) -> list[Event]:
    return [e for e in trace.events if e.type == "orchestrator_decision"]


@each_world
@pytest.mark.parametrize("policy", ["optimum", "random", "first"])
@pytest.mark.parametrize("forced", [True, False])
def test_traces_are_clean(world: StoppingWorld, policy: str, forced: bool) -> None:
    for seed in range(3):
        assert problems(world.trace(seed, policy, forced=forced)) == []


@each_world
def test_a_forced_trace_gives_its_payoffs_back(world: StoppingWorld) -> None:
    for seed in range(4):
        trace = world.trace(seed)
        assert np.array_equal(payoffs(trace), world.paths([seed]).payoffs[0])
        assert trace.rewards == {"team": float(world.run("optimum", [seed]).values[0])}


def test_forced_continuation_logs_the_intention_and_goes_on() -> None:
    forced, free = S1.trace(3, "cap:5"), S1.trace(3, "cap:5", forced=False)
    assert len(_decisions(forced)) == 41
    assert len(_decisions(free)) == 6
    assert {name for name, _ in _refs(free).items() - _refs(forced).items()} == {"e5", "e5.1"}
    fifth = forced.events[forced.index["d5"]]
    assert (fifth.decision, fifth.options, fifth.logp, fifth.policy, fifth.extra) == (
        "stop",
        ["stop", "continue"],
        0,
        "cap:5",
        {"executed": "continue"},
    )
    assert free.events[free.index["d5"]].extra is None
    assert free.events[free.index["d4"]].decision == "noop"
    assert forced.rewards == free.rewards


def test_a_coin_logs_its_chances() -> None:
    for event in _decisions(S1.trace(8, "random"))[:-1]:
        assert event.logp == pytest.approx(math.log(0.1 if event.decision == "stop" else 0.9))


def test_payoffs_of_any_source() -> None:
    drafts = [Event(id=f"x{t}", t=10 - t, type="aggregate", agent="lead", reward={"draft": t}) for t in range(3)]
    other = Event(id="y", t=0, type="aggregate", agent="lead", reward={"style": 1})
    trace = Trace(trace_id="a", task_id="b", events=[other, *drafts])
    assert payoffs(trace).tolist() == [2, 1, 0]
    with pytest.raises(InputError, match="no scored draft"):
        payoffs(Trace(trace_id="a", task_id="b", events=[other]))
    with pytest.raises(Refused, match="later payoffs are not known"):
        payoffs(S1.trace(1, forced=False))


# -- forks -----------------------------------------------------------------------------------------------------------------


@each_world
@pytest.mark.parametrize("forced", [True, False])
def test_an_empty_fork_reproduces_the_trace(world: StoppingWorld, forced: bool) -> None:
    assert isinstance(world, Replay)
    trace = world.trace(6, "random", forced=forced)
    for at in (trace.events[0].id, trace.events[-1].id, "d0"):
        assert world.fork(trace, at) == trace


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(WORLDS), st.integers(0, 10**6), st.integers(1, 204), st.integers(0, 99))
def test_what_comes_before_a_fork_is_kept(world: StoppingWorld, seed: int, place: int, fresh: int) -> None:
    trace = world.trace(seed, "random")
    at = trace.events[place].id
    fork = world.fork(trace, at, seed=10**7 + fresh)
    assert fork.events[: place + 1] == trace.events[: place + 1]
    assert problems(fork) == []
    assert world.fork(fork, at) == fork


def test_forcing_a_decision() -> None:
    trace = S1.trace(3, "cap:6", forced=False)
    stopped = S1.fork(trace, "d2", Force({"stop": True}))
    assert _decisions(stopped)[-1].id == "d2"
    assert stopped.rewards["team"] == S1.paths([3]).payoffs[0, 2]
    forced = stopped.events[stopped.index["d2"]]
    assert (forced.policy, forced.logp) == ("forced", None)
    went_on = S1.fork(trace, "d6", Force({"stop": False}))
    assert _decisions(went_on)[-1].id == "d7"
    assert S1.fork(trace, "d6", Delete()).events == went_on.events
    both = S1.fork(went_on, "d7", Delete())
    assert _decisions(both)[-1].id == "d8"
    assert [edit["at"] for edit in both.meta["edits"]] == ["d6", "d7"]


@each_world
def test_a_message_that_is_not_delivered_changes_only_what_reads_it(world: StoppingWorld) -> None:
    trace = world.trace(3)
    told = next(t for t in range(1, 41) if world.paths([3]).features[0, t, 2] != 0)
    at = f"m{told}"
    fork = world.fork(trace, at, Delete())
    before, after = _refs(trace), _refs(fork)
    assert set(before) - set(after) == {at}
    cone = {trace.events[i].id for i in np.flatnonzero(trace.graph.descendants(trace.index[at]))}
    changed = {name for name, ref in after.items() if ref != before[name]}
    assert f"a{told}" in changed
    assert changed <= cone
    assert not changed & {f"{kind}{t}" for kind in "crm" for t in range(1, 41)}  # the worker does not hear of it
    assert problems(fork) == []


def test_an_undelivered_find_is_in_no_draft() -> None:
    trace = S1.trace(3, "never")
    finds = np.diff(payoffs(trace)) + 0.9
    gone = payoffs(S1.fork(trace, "m4", Delete()))
    assert np.allclose(payoffs(trace) - gone, np.where(np.arange(41) >= 4, finds[3], 0))
    more = payoffs(S1.fork(trace, "m4", Insert(5)))
    assert np.allclose(more - payoffs(trace), np.where(np.arange(41) >= 4, 5, 0))
    other = S1.fork(trace, "r4", Substitute(9))
    assert np.allclose(np.diff(payoffs(other))[3], 9 - 0.9)
    assert other.text(other.events[other.index["m4"]]) == "Round 4: 9 new items"


@each_world
def test_a_round_drawn_anew_keeps_the_past(world: StoppingWorld) -> None:
    trace = world.trace(3, "never")
    forks = [world.fork(trace, "r5", Substitute(draw=n)) for n in range(1, 15)]
    assert all(np.array_equal(payoffs(f)[:5], payoffs(trace)[:5]) for f in forks)
    assert len({_refs(f)["r5"] for f in forks}) > 1
    assert world.fork(trace, "r5", Substitute(draw=3)) == forks[2]


def test_fresh_rounds_follow_the_same_law() -> None:
    """Given what is hidden, finds of rounds that are drawn afresh have the mean of any: 0.12 of what is left; none is lost."""
    config, episodes = WideSearch(horizon=200), 4000
    base = np.full(episodes, 11)
    first = increments(config, [(0, base)])[0]
    fresh = increments(config, [(0, base), (2, np.arange(episodes))])
    assert (fresh[:, :2] == first[:2]).all()
    left = first[2:].sum()
    assert (fresh[:, 2:].sum(axis=1) == left).mean() > 0.999
    redrawn = increments(config, [(0, base), (2, np.arange(episodes)), (3, base)])
    for found, chance in ((fresh[:, 2], 0.12), (fresh[:, 10], 0.12 * 0.88**8), (redrawn[:, 2], 0.12)):
        assert abs(found.mean() - left * chance) < 4.5 * np.sqrt(left * chance / episodes)
    assert (redrawn.sum(axis=1) == first.sum()).mean() > 0.999


def test_what_cannot_be_asked_is_refused_and_changes_nothing() -> None:
    trace = S2.trace(3)
    refs = _refs(trace)
    asks: list[tuple[type[Exception], str, Any]] = [
        (NotFound, "d99", None),
        (InputError, "d3", Force({"spawn": 1})),
        (InputError, "d40", Force({"stop": False})),
        (InputError, "m3", Substitute(7)),
        (InputError, "m3", Insert("yes")),
        (NotIdentified, "m3", Substitute()),
        (NotIdentified, "m3", Force({"stop": True})),
        (NotIdentified, "s0", Delete()),
        (NotIdentified, "a3", Delete()),
    ]
    for error, at, do in asks:
        with pytest.raises(error):
            S2.fork(trace, at, do)
    assert _refs(trace) == refs


def test_only_its_own_unchanged_traces_are_forked() -> None:
    trace = S1.trace(3)
    with pytest.raises(InputError, match="is of s1, not of s2"):
        S2.fork(trace, "d0")
    with pytest.raises(Refused, match="version 0"):
        S1.fork(msgspec.structs.replace(trace, meta=trace.meta | {"version": "0"}), "d0")
    with pytest.raises(Refused, match="other parameters"):
        S1.replace(price=0.5).fork(trace, "d0")
    with pytest.raises(Refused, match="not what this world"):
        S1.fork(msgspec.structs.replace(trace, events=trace.events[:-1]), "d0")
    with pytest.raises(InputError, match="no world"):
        S1.fork(Trace(trace_id="x", task_id="y", events=trace.events), "d0")


def test_a_function_must_be_given_again() -> None:
    def fifth(t: int, x: np.ndarray) -> np.ndarray:
        return x[:, 0] >= 5

    trace = S1.run(fifth, [3], log=True).trace(0)
    assert trace.meta["policy"] == "given"
    with pytest.raises(NotIdentified, match="does not hold its policy"):
        S1.fork(trace, "d0")
    assert S1.fork(trace, "d0", policy=fifth) == trace


def test_an_episode_by_hand_can_be_forked_once_it_is_over() -> None:
    env = S1.env()
    env.reset(3)
    env.step(False)
    with pytest.raises(NotIdentified, match="unfinished"):
        S1.fork(env.trace(), "d0")
    assert problems(env.trace()) == []
    env.step(True)
    trace = env.trace()
    assert trace.meta["policy"] == "by hand:1"
    assert all(e.logp is None for e in _decisions(trace))
    assert S1.fork(trace, "d0") == trace
    assert _decisions(S1.fork(trace, "d1", Force({"stop": False})))[-1].id == "d2"


def test_a_trace_survives_a_round_trip_and_forks_again() -> None:
    trace = S2.trace(5)
    again = msgspec.structs.replace(trace, meta=msgspec.json.decode(msgspec.json.encode(trace.meta)))
    assert S2.fork(again, "d3", Force({"stop": True})) == S2.fork(trace, "d3", Force({"stop": True}))
