"""What policy steps descend, in the sheet's numbers, and where each option of `clip` shows in an update."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import counterpoint.registry as registry
from counterpoint.errors import InputError
from counterpoint.lab.train.jobs import play
from counterpoint.lab.train.learner import _cut
from counterpoint.lab.train.settings import settings_of
from counterpoint.lab.train.surrogates import Reference, Steps, joined_loss, less_kl, surrogate, unit_codes
from counterpoint.lab.train.training import Training
from credits import vectors as v
from lab.train.quick import CONFIG

t = torch.tensor


def test_parls_objective() -> None:
    log_ratio = t([0.1, -0.05, 0.9, 0.0, -0.1], requires_grad=True)
    steps = Steps(mask_low=-0.693147, mask_high=0.693147, pull=0.1, weigh="row")
    advantage = t([0.5, 0.5, -0.5, -0.5, -0.5])
    zero = np.zeros(5, np.int64)
    assert float(-joined_loss(log_ratio, advantage, zero, zero, steps).detach()) == pytest.approx(-0.201494, abs=1e-6)
    surrogate(log_ratio, advantage, Steps(mask_low=-0.693147, mask_high=0.693147)).sum().backward()
    assert (log_ratio.grad != 0).tolist() == [True, True, False, True, True]  # the mask does not ask for the advantage's sign


def test_a_turns_ratio_and_a_sequences() -> None:
    dlogp, turns, _, _, mean = v.REMA
    rows, ep = t(dlogp), np.zeros(4, np.int64)
    unit = unit_codes(ep, np.array(turns), 0, "turn")
    steps = Steps(level="turn", log_max=3.0, dual=3.0)
    assert float(joined_loss(rows, torch.ones(4), ep, unit, steps)) == pytest.approx(mean, abs=1e-6)
    dlogp, one = v.GSPO
    sequence = Steps(level="sequence", clip=0.9)
    zero = np.zeros(3, np.int64)
    got = joined_loss(t(dlogp), torch.ones(3), zero, unit_codes(zero, np.arange(3), 0, "sequence"), sequence)
    assert float(-got) == pytest.approx(one, abs=1e-6)
    vetoed = Steps(level="sequence", veto=0.95)
    assert float(joined_loss(t(dlogp), torch.ones(3), zero, zero, vetoed)) == 0.0  # one of its ratios is exp(-0.1) = 0.905


def test_a_trajectory_counts_once_however_many_turns_it_has() -> None:
    ep = np.array([0, 0, 0, 1])
    unit = unit_codes(ep, np.array([0, 1, 2, 0]), 0, "turn")
    advantage = t([1.0, 1.0, 1.0, -1.0])
    assert float(joined_loss(torch.zeros(4), advantage, ep, unit, Steps(level="turn"))) == pytest.approx(0.0)
    assert float(joined_loss(torch.zeros(4), advantage, ep, unit, Steps(weigh="rollout"))) == pytest.approx(0.0)
    assert float(joined_loss(torch.zeros(4), advantage, ep, unit, Steps(weigh="row"))) == pytest.approx(-0.5)


def test_values_are_those_of_numpy() -> None:
    rng = np.random.default_rng(0)
    d, a = rng.normal(0, 0.5, 40), rng.normal(0, 1, 40)
    got = surrogate(torch.from_numpy(d), torch.from_numpy(a), Steps(clip=0.2, clip_high=0.28, dual=3.0))
    loss = np.maximum(-a * np.exp(d), -a * np.clip(np.exp(d), 0.8, 1.28))
    assert got.numpy() == pytest.approx(np.where(a < 0, np.minimum(loss, -3 * a), loss))
    far = surrogate(t([50.0, -50.0]), t([-1.0, -1.0]), Steps(log_max=3.0, clip=0.5))
    assert far.tolist() == pytest.approx([np.exp(3.0), 0.5])  # ratios are held at e^log_max


def test_kl_in_the_reward_is_what_is_still_to_come() -> None:
    places = {"stop": (np.zeros(3, np.int64), np.arange(3), np.zeros(3, np.int64))}
    logp = {"stop": np.array([0.5, -0.2, 0.3])}
    got = less_kl({"stop": np.ones(3)}, places, logp, {"stop": np.zeros(3)}, 0.01)
    assert got["stop"] == pytest.approx([0.994, 0.999, 0.997])


def learned(change: dict[str, object]) -> dict[str, np.ndarray]:
    training = Training(settings_of(CONFIG | {"preset": "grpo", "budget_calls": 0, "change": {"loss": change, "group": 2}, "episodes": 4}))
    for number in range(2):
        job = training.job(number, number, training.weights())
        training.learn([play(job.payload, job.weights)])
    assert all(np.isfinite(w).all() for w in training.weights().values())
    return training.weights()


@pytest.fixture(scope="module")
def plain() -> dict[str, np.ndarray]:
    return learned({})


@pytest.mark.parametrize(
    "options",
    [{"level": "turn", "log_max": 3.0}, {"level": "sequence", "veto": 1e-4}, {"weigh": "row"}, {"weigh": "rollout"}, {"weigh": "agent"}, {"mask_low": -0.5, "mask_high": 0.5, "pull": 0.1},
     {"kl_weight": 0.5}, {"kl_weight": 0.5, "kl": "k1", "kl_in": "reward"}, {"kl_most": 1e-9}],
)  # fmt: skip
def test_every_option_changes_an_update(options: dict[str, object], plain: dict[str, np.ndarray]) -> None:
    other = learned(options)
    assert any((w != other[k]).any() for k, w in plain.items())


def test_without_a_ratio_a_step_is_reinforces() -> None:
    log_ratio = torch.tensor([0.0, 0.9, -2.0], requires_grad=True)
    advantage = torch.tensor([1.0, 2.0, -3.0])
    surrogate(log_ratio, advantage, Steps(level="none")).sum().backward()
    assert log_ratio.grad is not None
    assert log_ratio.grad.tolist() == [-1.0, -2.0, 3.0]  # a clipped ratio has no gradient where it is 0.9


def test_parts_of_a_batch_are_whole_tasks() -> None:
    tasks = np.repeat([7, 3, 9, 5], 4)
    parts = _cut(np.random.default_rng(0), tasks, 2)
    assert sorted(np.concatenate(parts).tolist()) == list(range(16))
    assert [len(set(tasks[p])) for p in parts] == [2, 2]
    alone = _cut(np.random.default_rng(0), np.arange(10), 3)
    assert [p.tolist() for p in alone] == [p.tolist() for p in np.array_split(np.random.default_rng(0).permutation(10), 3)]


def test_reinforce_takes_as_many_steps_as_it_says() -> None:
    def moved(steps: int) -> int:
        plan = CONFIG | {"preset": "magrpo", "budget_calls": 0, "change": {"group": 2, "loss": {"steps": steps}}, "episodes": 8}
        training = Training(settings_of(plan))
        job = training.job(0, 0, training.weights())
        training.learn([play(job.payload, job.weights)])
        return int(max(float(s["step"]) for s in training.policy.state.values()))

    assert [moved(1), moved(4)] == [1, 4]


def test_agents_of_an_episode_weigh_the_same_by_hand() -> None:
    """Episode 0: the orchestrator decides three times, a worker once; episode 1: the orchestrator once."""
    ep, who = np.array([0, 0, 0, 0, 1]), np.array([0, 0, 3, 0, 0])
    advantage = torch.tensor([1.0, 2.0, 4.0, 3.0, 10.0])
    told = joined_loss(torch.zeros(5), advantage, ep, ep, Steps(weigh="agent"), who)
    assert float(told) == pytest.approx(-((1 + 2 + 3) / 3 / 2 + 4 / 2) / 2 - 10 / 2)
    assert float(joined_loss(torch.zeros(5), advantage, ep, ep, Steps(weigh="rollout"), who)) == pytest.approx(-10 / 4 / 2 - 10 / 2)


def test_kl_in_the_reward_of_a_batch_in_which_nobody_was_called() -> None:
    change = {"loss": {"kl_weight": 0.5, "kl": "k1", "kl_in": "reward"}, "group": 2}
    training = Training(settings_of(CONFIG | {"preset": "grpo", "budget_calls": 0, "change": change, "episodes": 4}))
    start, job = training.weights(), training.job(0, 0, training.weights())
    played = play(job.payload, job.weights)
    assert played.rollout.tables.pop("candidate")  # whom each call could have gone to
    played.rollout.tables["item"]["agent"][:] = -1
    training.learn([played])
    assert any((start[k] != w).any() for k, w in training.weights().items())


def test_the_reference_is_the_network_at_the_start_and_survives_a_checkpoint() -> None:
    training = Training(settings_of(CONFIG | {"preset": "grpo", "budget_calls": 0, "change": {"loss": {"kl_weight": 0.1}, "group": 2}, "episodes": 4}))
    start = training.weights()
    for number in range(2):
        job = training.job(number, number, training.weights())
        training.learn([play(job.payload, job.weights)])
    again = Training(training.settings)
    again.restore(training.state(), "a test")
    assert isinstance(again.module, Reference)
    held = again.module.network(again.net).state_dict()
    acts = ("for_", "purpose", "brief", "stop", "rule", "talk", "gate", "size")  # critics are fitted before a policy's first step
    changed = [k for k in start if k.startswith(acts) and (start[k] != training.weights()[k]).any()]
    assert len(changed) > 10
    assert all((held[k].numpy() == start[k]).all() for k in changed)


def test_options_that_do_not_exist_are_named() -> None:
    with pytest.raises(InputError, match=r"option level is 'turns'.*did you mean 'turn'"):
        registry.get("loss", "clip").resolved({"level": "turns"})
    with pytest.raises(InputError, match="the KL in the reward is k1"):
        registry.get("loss", "clip").resolved({"kl_in": "reward", "kl_weight": 0.1})
