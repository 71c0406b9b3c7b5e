"""Rewards balanced by their gradients, and weights that an indicator drives: what a run can turn on, and what that changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from counterpoint.errors import InputError
from counterpoint.lab.train.jobs import play
from counterpoint.lab.train.learner import Balancer, update
from counterpoint.lab.train.preset import named_preset
from counterpoint.lab.train.rollouts import Rollout
from counterpoint.lab.train.row_credit import Scaffolds
from counterpoint.lab.train.settings import Settings
from counterpoint.lab.train.surrogates import Steps
from counterpoint.lab.train.training import Training
from lab.train.quick import TINY


def training(**change: Any) -> Training:
    return Training(Settings(preset="kimi_parl", world="wide_verify", set=TINY, updates=3, episodes=16, change=change))


def learn(run: Training, updates: int) -> dict[str, Any]:
    for _ in range(updates):
        job = run.job(run.update, run.update, run.weights())
        row = run.learn([play(job.payload, job.weights)])
    return row


def same(a: Training, b: Training) -> bool:
    return all((w == b.weights()[k]).all() for k, w in a.weights().items())


@pytest.mark.parametrize(
    "change", [{"balance": "gradient"}, {"reward": {"orchestration": {"weight": {"indicator": 0.2}}}}], ids=["gradient", "indicator"]
)
def test_it_changes_what_is_learned_and_resumes_to_the_same_numbers(change: dict[str, Any]) -> None:
    whole, plain = training(**change), training()
    row = learn(whole, 3)
    assert "weights" not in learn(plain, 3)
    assert not same(whole, plain)
    first = training(**change)
    learn(first, 1)
    later = training(**change)
    later.restore(first.state(), "here")
    assert learn(later, 2) == row
    assert same(whole, later)
    assert set(row["weights"]) <= {"team_outcome", "orchestration"}


def rolled(run: Training) -> tuple[Rollout, dict[str, np.ndarray]]:
    job = run.job(0, 0, run.weights())
    rolled = play(job.payload, job.weights)
    return rolled.rollout, run.advantages(rolled.rollout, rolled.traces)[0]


def stepped(against: float | None) -> tuple[list[float], np.ndarray]:
    """Weights of the rewards, and how far one step moved the policy: the second reward is the first times a number."""
    run = training()
    out, advantages = rolled(run)
    balancer = Balancer()
    balancer.advantages = [advantages] if against is None else [advantages, {k: against * v for k, v in advantages.items()}]
    steps, before = Steps(epochs=1, entropy=0.0), run.weights()
    update(run.net, run.policy, out.tables, advantages, len(out.values), steps, run.rng(1), balancer=balancer, parts=1)
    moved = [run.weights()[k] - before[k] for k in sorted(before)]
    return balancer.weights, np.concatenate([m.reshape(-1) for m in moved])


def test_a_reward_against_the_first_is_not_followed_and_scale_cancels() -> None:
    alone, step = stepped(None)
    assert alone == [1.0]
    weights, moved = stepped(-3.0)
    assert weights == [1.0, 0.0]
    assert moved == pytest.approx(step, abs=1e-7)
    small, large = stepped(0.01), stepped(100.0)
    assert small[0][1] > 0.9
    assert small[0] == pytest.approx(large[0])
    assert small[1] == pytest.approx(large[1], abs=1e-7)


def test_the_scaffold_leaves_once_the_first_reward_tells_whether_to_spawn() -> None:
    preset = named_preset("kimi_parl").changed({"reward": {"orchestration": {"weight": {"indicator": 0.5, "fall": 0.5}}}})
    scaffolds = Scaffolds(preset, roles=2)
    assert scaffolds.weights() == {"orchestration": 0.5}
    out, _ = rolled(training())
    episodes = len(out.values)
    t = {"role": np.zeros(episodes, np.int64), "choice": np.arange(episodes) % 2 == 0, "ep": np.arange(episodes)}
    clear, unclear = t["choice"] + 0.01 * (np.arange(episodes) % 4), np.arange(episodes) // 2 % 2.0
    spawns = Rollout(out.config, out.seeds, out.salts, {"spawn": t}, out.value_TE, out.values, {})
    scaffolds.update(spawns, unclear)
    assert scaffolds.weights() == {"orchestration": pytest.approx(0.5)}
    for _ in range(40):
        scaffolds.update(spawns, clear)
    assert scaffolds.weights()["orchestration"] < 1e-3


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"balance": "gradeint"}, "no balance 'gradeint'.*did you mean 'gradient'"),
        ({"reward": {"orchestration": {"weight": {"indicator": 0.2, "deacy": 0.9}}}}, "has no 'deacy'.*did you mean 'decay'"),
        ({"reward": {"orchestration": {"weight": {"indicator": "much"}}}}, "indicator of the weight of orchestration is 'much'.*a number"),
        ({"reward": {"team_outcome": {"weight": {"indicator": 0.2}}}}, "the first reward, is driven by an indicator"),
    ],
)
def test_wrong_values_are_one_clear_error(change: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        training(**change)


@pytest.mark.parametrize(("preset", "says"), [("counterpoint", "there is nothing to balance"), ("grpo", "one reward, and nothing to balance")])
def test_where_there_is_nothing_to_balance(preset: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        Training(Settings(preset=preset, world="wide_verify", set=TINY, updates=3, change={"balance": "gradient"}))
