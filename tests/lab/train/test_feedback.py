"""What a method may see, proved: feedback finer than it declares can be garbled without moving its policy, and its own cannot."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import msgspec
import numpy as np
import pytest
import torch

from counterpoint import registry
from counterpoint.credits.mechanism import FEEDBACK, Mechanism
from counterpoint.errors import InputError, NotIdentified
from counterpoint.lab.train.jobs import play
from counterpoint.lab.train.preset import named_preset
from counterpoint.lab.train.rollouts import TracedRollout
from counterpoint.lab.train.settings import Settings
from counterpoint.lab.train.training import Training

LEVELS = tuple(FEEDBACK)
WORLD: dict[str, Any] = {"vote_items": 4, "pool_items": 2, "max_agents": 4, "max_rounds": 6, "max_votes": 3, "pool_calls": 6}
NETWORKS = [n for n in registry.ids("preset") if "network" in named_preset(n).learns and named_preset(n).loss_name != "clone"]

TWO_SIDES = {"magic", "spiral"}
"""Their reward pays two sides, and what the sides get is the team's return and its negative: no finer than an episode."""


def garbled(played: TracedRollout, level: str) -> TracedRollout:
    """The same episodes with other feedback of this level and of every finer one; returns of whole episodes stay."""
    out, rng = copy.deepcopy(played), np.random.default_rng(7)
    rollout, finest = out.rollout, LEVELS.index(level)
    item = rollout.tables["item"]
    item["worth"] = rng.normal(size=len(item["worth"]))
    if finest <= LEVELS.index("item"):
        item["reward"] = rng.normal(size=len(item["reward"]))
        if "worker" in rollout.tables:
            right = rollout.tables["worker"]["right"]
            rollout.tables["worker"]["right"] = rng.permutation(~right.astype(bool)).astype(right.dtype)
        out.traces[:] = [
            msgspec.structs.replace(t, events=[msgspec.structs.replace(e, reward=None) for e in t.events]) for t in out.traces
        ]
    if finest <= LEVELS.index("round"):
        rollout.value_TE[1:-1] = rng.normal(size=rollout.value_TE[1:-1].shape)
    return out


def policy_after(settings: Settings, played: TracedRollout) -> dict[str, torch.Tensor]:
    """The policy's weights after one update."""
    training = Training(settings)
    training.learn([played])
    own = {id(p) for p in training.net.policy_parameters()}
    return {name: p.detach().clone() for name, p in training.net.named_parameters() if id(p) in own}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_policy_moves_by_the_feedback_that_its_preset_declares_and_by_no_finer_one(name: str) -> None:
    preset = named_preset(name)
    at_once = {"loss": {"warm": 0}} if "warm" in preset.loss[preset.loss_name] else {}
    settings = Settings(
        preset=name, world="W1", set={**WORLD, **preset.world}, seed=3, updates=4, episodes=2 * preset.group, change=at_once
    )
    training = Training(settings)
    job = training.job(0, 0, training.weights())
    played = play(job.payload, job.weights)
    whole = policy_after(settings, played)

    def moves(level: str) -> bool:
        try:
            other = policy_after(settings, garbled(played, level))
        except (InputError, NotIdentified):  # it asks for what is gone
            return True
        return any(not torch.equal(whole[k], other[k]) for k in whole)

    finer = LEVELS[LEVELS.index(preset.sees) + 1 :]
    assert not (finer and moves(finer[0])), f"{name} declares {preset.sees} and learns from {finer[0]}"
    if preset.sees != "episode" and name not in TWO_SIDES:
        assert moves(preset.sees), f"{name} declares {preset.sees} and learns from coarser feedback alone"


def test_ours_and_its_baseline_are_told_the_same() -> None:
    ours, dense = named_preset("counterpoint"), named_preset("dense_clip")
    assert (ours.sees, dense.sees) == ("draft", "draft")
    assert (ours.plays_forks, dense.plays_forks) == (True, False)
    assert [named_preset(n).sees for n in ("grpo", "mappo", "m_grpo")] == ["episode", "round", "item"]
    assert [named_preset(n).plays_forks for n in ("c3_replay", "c3")] == [True, False]


def test_a_reward_that_pays_agents_is_feedback_of_items() -> None:
    base = named_preset("grpo")
    assert base.changed({"reward": {"individual": {}}}).sees == "item"
    assert base.changed({"reward": {"orchestration": {}}}).sees == "episode"


def test_feedback_that_there_is_not_is_an_error() -> None:
    mechanism: Mechanism = registry.get("mechanism", "uniform")
    with pytest.raises(InputError, match="no feedback 'rounds'"):
        dataclasses.replace(mechanism, sees="rounds")
