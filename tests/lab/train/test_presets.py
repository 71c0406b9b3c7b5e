"""Every preset trains end to end on a small TeamWorld and beats its own starting point on tasks it has not seen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from counterpoint import registry
from counterpoint.errors import InputError, NotFound, Refused
from counterpoint.lab.bench.claims.presets import EASY, SUITED
from counterpoint.lab.train.jobs import play
from counterpoint.lab.train.policies.network import Network
from counterpoint.lab.train.preset import GRADES, Preset, named_preset
from counterpoint.lab.train.rollouts import play_out
from counterpoint.lab.train.settings import settings_of
from counterpoint.lab.train.training import Training

TASKS = np.arange(5_000, 5_600)


def returns(training: Training, start: Mapping[str, np.ndarray]) -> np.ndarray:
    """Of unseen tasks, played as in training: choices are drawn. Before it has learned, a greedy policy is a set of coin tosses
    (logits near 0), which often spawns nobody: no starting point to speak of. Opponents and proposers are those of the start."""
    config, workers = training.worlds[0].config, training.preset.regime in "BC"
    beside = {k: v for k, v in start.items() if k.startswith(("extra.attack", "extra.proposal"))}
    net = Network.of(training.weights() | beside, apart=training.preset.regime == "C")
    return play_out(config, net, TASKS, np.zeros(len(TASKS), np.int64), workers=workers).values


def begun(preset: str, updates: int, world: Mapping[str, Any] = EASY, **more: Any) -> Training:
    plan = {"preset": preset, "world": "W1", "set": dict(world), "updates": updates, "budget_calls": 0, "seed": 0, **more}
    return Training(settings_of(plan))


def learn(training: Training, updates: int) -> None:
    for _ in range(updates):
        job = training.job(training.update, training.update, training.weights())
        training.learn([play(job.payload, job.weights)])


@pytest.mark.parametrize("name", ["counterpoint", "grpo", "kimi_parl", "ppo", "owl"])  # all of them: reproduce presets
def test_it_beats_its_own_starting_point(name: str) -> None:
    """A run of 14 updates, looked at after 2, 4, 7 and 10: who is clearly ahead by then (three standard errors) need not go on."""
    training = begun(name, 14, {**SUITED.get(name, EASY), **named_preset(name).world})
    first = training.weights()
    start = returns(training, first)
    for updates, errors in ((2, 3), (2, 3), (3, 3), (3, 3), (4, 2)):
        learn(training, updates)
        gain = returns(training, first) - start
        error = gain.std(ddof=1) / np.sqrt(len(gain))
        said = f"{name}: {start.mean():.2f}, {gain.mean():+.2f} after {training.update} updates, standard error {error:.2f}"
        print(said)  # pytest -rP shows it
        if gain.mean() > errors * error:
            return
    pytest.fail(said)


def test_the_same_seed_gives_the_same_weights() -> None:
    for name in ("sharp", "qmix"):
        runs = [begun(name, 2, {**EASY, "vote_items": 6, "max_rounds": 8}, episodes=named_preset(name).group) for _ in range(2)]
        for training in runs:
            learn(training, 2)
        one, other = (training.weights() for training in runs)
        assert all(np.array_equal(one[k], other[k]) for k in one)


@pytest.mark.parametrize("name", registry.ids("preset"))
def test_it_states_source_grade_and_departures(name: str) -> None:
    preset = named_preset(name)
    assert preset.grade in GRADES
    assert len(preset.source) > 5
    assert len(preset.departures) > 3


def test_what_is_wrong_with_a_preset_is_said_at_once() -> None:
    with pytest.raises(NotFound, match="did you mean 'grpo'"):
        named_preset("grpoo")
    good = {"source": "s", "grade": "P", "departures": "none"}
    with pytest.raises(InputError, match="no loss 'clap'"):
        Preset(**good, credit={"uniform": {}}, loss={"clap": {}})
    with pytest.raises(InputError, match="groups of 5"):
        Preset(**good, credit={"uniform": {}}, loss={"clip": {}}, group=5, episodes=24)
    with pytest.raises(InputError, match="one credit mechanism"):
        Preset(**good, credit={}, loss={"clip": {}})


def test_a_world_that_lacks_what_it_needs_is_refused() -> None:
    with pytest.raises(Refused, match="needs votes"):
        Training(settings_of({"preset": "sharp", "world": "A"}))
