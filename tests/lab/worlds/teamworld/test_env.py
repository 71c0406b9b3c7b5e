"""One episode by hand: what is seen, what is hidden, snapshots, and actions as plain data."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counterpoint.errors import InputError
from counterpoint.lab.worlds.teamworld.action import Action, as_action, as_data
from counterpoint.lab.worlds.teamworld.config import FAMILIES, RULES, TOPOLOGIES, Config
from counterpoint.lab.worlds.teamworld.observation import SEEN, Observation
from counterpoint.lab.worlds.teamworld.world import TeamWorld
from counterpoint.trace import encode

MIXED: dict[str, Any] = {"vote_items": 3, "pool_items": 1, "pool_mean": 5.0, "pool_slots": 12, "pool_calls": 8, "draft_items": 1, "draft_calls": 6,
                         "chain_items": 1, "chain_hops": 2, "node_modules": 1, "node_module_size": 2, "max_agents": 6, "max_rounds": 20}  # fmt: skip
HIDDEN = {"truth", "difficulty", "misled", "note", "present", "sound", "level", "right", "module", "planted", "compromised", "seed", "key",
          "word", "confidence_true", "violations"}  # fmt: skip


def world(**changes: Any) -> TeamWorld:
    return TeamWorld("mixed", "M", Config(**(MIXED | changes)))


def seen_arrays(obs: Observation) -> dict[str, np.ndarray]:
    parts = {f"{k}.{n}": v for k, part in obs.seen.items() for n, v in vars(part).items()} | vars(obs)
    return {k: v for k, v in parts.items() if isinstance(v, np.ndarray)}


def by_chance(w: TeamWorld, seed: int, steps: int = 6) -> Any:
    env, rng = w.env(), np.random.default_rng(seed)
    env.reset(seed)
    for _ in range(steps):
        if not env.batch.state.done[0]:
            env.step(env.sample(rng))
    return env


def test_nothing_hidden_is_seen() -> None:
    for topology in TOPOLOGIES:
        w = world(topology=topology, attack="AV3", attack_rate=0.5)
        env = by_chance(w, 1)
        s = env.batch.state
        obs = env.batch.observe()
        assert not {name.split(".")[-1] for name in seen_arrays(obs)} & HIDDEN
        assert not {n for names in SEEN.values() for n in names} & HIDDEN
        secret = [s.compromised, s.planted, s.seed, s.key, s.busy, s.violations]
        for _, kind in s.kinds.present():
            secret += [getattr(kind, n) for n in ("truth", "difficulty", "misled", "note", "present", "found", "sound", "level", "right", "module")
                       if hasattr(kind, n)]  # fmt: skip
        for name, array in seen_arrays(obs).items():
            assert not any(np.shares_memory(array, hidden) for hidden in secret), name
            assert not array.flags.writeable, name


def test_hidden_state_does_not_show() -> None:
    env = by_chance(world(), 2, 3)
    before = {k: v.copy() for k, v in seen_arrays(env.observe()).items()}
    s = env.batch.state
    for array in (s.kinds.vote.truth, s.kinds.vote.difficulty, s.kinds.vote.misled, s.kinds.draft.sound, s.kinds.draft.level, s.kinds.chain.right,
                  s.kinds.node.right, s.kinds.node.module, s.compromised, s.planted):  # fmt: skip
        array[...] = 1
    after = seen_arrays(env.observe())
    assert all(np.array_equal(before[k], after[k]) for k in before)


def test_an_observation_stays_as_it_was() -> None:
    env = by_chance(world(), 3, 2)
    kept = env.observe()
    before = {k: v.copy() for k, v in seen_arrays(kept).items()}
    env.step({"spawn": [{"number": 1}]})
    assert all(np.array_equal(before[k], v) for k, v in seen_arrays(kept).items())


def test_an_episode_by_hand() -> None:
    env = world().env()
    with pytest.raises(InputError, match="reset"):
        env.observe()
    obs, info = env.reset(4)
    assert info == {"seed": 4}
    assert env.agents == ["orchestrator"]
    assert obs.episodes == 1
    assert obs.round == 0
    obs, reward, ended, cut, info = env.step({"spawn": [{"number": 2, "family": "A"}, {"type": 1}]})
    assert env.agents == ["orchestrator", "a0", "a1", "a2"]
    assert not ended
    assert not cut
    assert obs.family[0, 1:4].tolist() == [0, 0, 1]
    assert obs.type[0, 1:4].tolist() == [0, 0, 1]
    assert reward == pytest.approx(-3 * 0.12 - 0.0875)
    assert info["agents"] == 3
    assert "quality" not in info
    env.step({"despawn": [2]})
    assert env.agents == ["orchestrator", "a0", "a2"]
    total = reward - 0.0875 + env.step({"stop": True})[1]
    assert total == pytest.approx(env.trace().rewards["team"])
    with pytest.raises(InputError, match="over"):
        env.step({})
    assert env.observe().running.tolist() == [False]


def test_truncation_is_not_termination() -> None:
    env = world(max_rounds=1).env()
    env.reset(0)
    assert env.step({})[2:4] == (False, True)


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_samples_are_legal_and_snapshots_exact(topology: str) -> None:
    w = world(topology=topology, votes_per_agent=1)
    env, rng = w.env(), np.random.default_rng(0)
    for seed in range(2):
        env.reset(seed)
        ended, ends = False, []
        for _ in range(4):
            env.step(env.sample(rng))
            if env.batch.state.done[0]:
                break
        kept = copy.copy(env.snapshot())
        for again in range(2):
            noise, ended = np.random.default_rng(9), bool(env.batch.state.done[0])
            while not ended:
                _, _, over, cut, _ = env.step(env.sample(noise))
                ended = over or cut
            ends.append(encode(env.trace()))
            env.restore(kept)
            if again:
                other = w.env()
                other.restore(kept)
                assert encode(other.trace()) == encode(env.trace())
        assert ends[0] == ends[1]


def test_foreign_snapshots_and_unlogged_traces_are_refused() -> None:
    env = by_chance(world(), 1, 1)
    with pytest.raises(InputError, match="snapshot"):
        world(max_rounds=21).env().restore(env.snapshot())


calls = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 6), st.integers(0, 3), st.integers(0, 2)), max_size=4)
orders = st.fixed_dictionaries(
    {"number": st.integers(1, 5), "family": st.sampled_from(FAMILIES), "type": st.integers(0, 1), "parent": st.integers(0, 6)}
)
actions = st.fixed_dictionaries(
    {},
    optional={
        "stop": st.just(True), "close": st.sets(st.integers(0, 7), min_size=1).map(sorted), "spawn": st.lists(orders, min_size=1, max_size=3),
        "despawn": st.lists(st.integers(1, 6), min_size=1, max_size=3), "calls": calls.filter(bool).map(lambda rows: [list(r) for r in rows]),
        "full_return": st.just(True), "broadcast": st.just(True), "rule": st.sampled_from(RULES[1:]),
    },
)  # fmt: skip


def flat(action: Action) -> dict[str, Any]:
    parts = (
        vars(action)
        | {f"spawns.{k}": v for k, v in vars(action.spawns).items()}
        | {f"calls.{k}": v for k, v in vars(action.calls).items()}
    )
    return {k: v for k, v in parts.items() if k not in ("spawns", "calls", "logp")}


@settings(max_examples=60, deadline=None)
@given(actions)
def test_actions_are_data_and_back(data: dict[str, Any]) -> None:
    config = world().config
    action = as_action(config, data)
    assert as_data(action) == data
    again = as_action(config, as_data(action))
    for name, value in flat(action).items():
        other = flat(again)[name]
        assert (value is None) == (other is None), name
        assert np.array_equal(np.array(value, object), np.array(other, object)), name


@pytest.mark.parametrize("data", [7, "stop", [], {"stopp": True}, {"stop": 1}, {"stop": "no"}, {"rule": "mean"}, {"spawn": [{"numbr": 1}]},
                                  {"spawn": [{"family": "C"}]}, {"spawn": [{"number": 1.5}]}, {"spawn": 2}, {"spawn": ["B"]}, {"calls": [[0]]},
                                  {"calls": [[0, 1, 2, 0, 5]]}, {"calls": [[0.5, 1]]}, {"calls": [["a", 1]]}, {"calls": 3}, {"close": [99]},
                                  {"close": [0.5]}, {"close": 1}, {"despawn": [1.5]}, {"despawn": 1}, {"broadcast": None}])  # fmt: skip
def test_data_that_is_no_action_is_one_clear_error(data: Any) -> None:
    env = world().env()
    env.reset(0)
    with pytest.raises(InputError):
        env.step(data)
    assert env.batch.state.round[0] == 0
