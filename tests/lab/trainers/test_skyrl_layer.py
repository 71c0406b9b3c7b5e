"""SkyRL's own steps from a generator's output to advantages: rows of teams of any size, merged ones too, and what they earned."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from counterpoint.errors import InputError
from counterpoint.lab.trainers.layer import CreditLayer
from counterpoint.lab.trainers.skyrl_layer import credit_trainer, credited_output, rollouts_of

torch = pytest.importorskip("torch")


def row(run: str, prompt: list[int], ids: list[int], reward: Any, last: bool, **more: Any) -> dict[str, Any]:
    task, _, repetition = run.partition(":")
    about = {"team": more} if more else {}
    return {
        "prompt_token_ids": prompt, "response_ids": ids, "rewards": reward, "loss_masks": [1] * len(ids), "is_last_step": last,
        "stop_reasons": "stop", "rollout_logprobs": [-1.0] * len(ids), "env_metrics": about,
        "trajectory_ids": SimpleNamespace(instance_id=task, repetition_id=int(repetition)),
    }  # fmt: skip


def output(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {key: [one[key] for one in rows] for key in rows[0]} | {"rollout_metrics": {}}


def team(run: str, reward: float, workers: int, **about: Any) -> list[dict[str, Any]]:
    """A lead with two rows, the second of which goes on from the first, then a row for each worker, which is paid nothing itself."""
    lead = [row(run, [1], [2, 3], 0.0, False, agent="lead", name="lead"), row(run, [1, 2, 3, 4], [5], 0.0, False, agent="lead")]
    rest = [row(run, [9, k], [8, k, 7], 0.0, False, agent=f"w{k}", parent="lead", **about) for k in range(workers)]
    rows = [*lead, *rest]
    rows[-1] |= {"rewards": reward, "is_last_step": True}
    return rows


def batch() -> dict[str, Any]:
    return output([*team("t:0", 1.0, 2), *team("t:1", 3.0, 1), *team("u:0", 0.0, 1), *team("u:1", 5.0, 3)])


def test_rows_are_runs_and_masks_and_advantages_are_those_of_the_layer() -> None:
    given = batch()
    rollouts = rollouts_of(given)
    assert [(r.name, r.task, len(r.samples), r.reward) for r in rollouts] == [
        ("t_0", "t", 4, 1.0), ("t_1", "t", 3, 3.0), ("u_0", "u", 3, 0.0), ("u_1", "u", 5, 5.0),
    ]  # fmt: skip
    made = credited_output(given, CreditLayer("group_relative", convention="prime_rl")(rollouts))
    assert made["rewards"][:4] == [[-1, -1], [-1], [-1, -1, -1], [-1, -1, -1]]
    assert given["rewards"][3] == 1.0
    frozen = output([*team("t:0", 1.0, 1, frozen=True), *team("t:1", 3.0, 1, frozen=True)])
    masked = credited_output(frozen, CreditLayer("group_relative")(rollouts_of(frozen)))
    assert masked["loss_masks"][:3] == [[1, 1], [1], [0, 0, 0]]
    single = output([row("t:0", [1], [2], [0.0], True), row("t:1", [1], [2, 3], [0.5, 0.5], True)])
    assert [r.team_reward() for r in rollouts_of(single)] == [0.0, 1.0]


def test_what_each_row_was_paid() -> None:
    rows = [*team("t:0", 1.0, 1), *team("t:1", 3.0, 1)]
    rows[0]["rewards"], rows[3]["rewards"] = [0.0, 2.0], 1.0
    assert [r.team_reward() for r in rollouts_of(output(rows), "sample")] == [3.0, 4.0]
    assert [r.team_reward() for r in rollouts_of(output(rows), "parts")] == [3.0, 4.0]
    assert [s.reward for s in rollouts_of(output(rows), "sample")[0].samples] == [2.0, 0.0, 1.0]


BAD = [
    (lambda o: o.pop("trajectory_ids"), "no trajectory_ids"),
    (lambda o: o["is_last_step"].__setitem__(3, False), "t_0: is_last_step is not at its last row alone"),
    (lambda o: o.update(is_last_step=None), "t_0: 4 rows; generator.step_wise_trajectories"),
    (lambda o: o["trajectory_ids"].reverse() or o["trajectory_ids"].insert(0, o["trajectory_ids"].pop()), "not one after the other"),
    (lambda o: o["rewards"].__setitem__(1, float("nan")), "t_0: the reward is nan"),
    (lambda o: o["env_metrics"].__setitem__(2, {"team": {"agnet": "x"}}), "row 2: no word 'agnet'"),
]


@pytest.mark.parametrize(("spoil", "says"), BAD)
def test_what_is_wrong_names_the_run(spoil: Any, says: str) -> None:
    given = batch()
    spoil(given)
    with pytest.raises(InputError, match=says):
        rollouts_of(given)


def trainer_of(layer: CreditLayer, merge: bool) -> Any:
    """SkyRL's trainer without its workers."""
    module = pytest.importorskip("skyrl.train.trainer", reason="SkyRL with skyrl-train's packages is not installed")
    correction = SimpleNamespace(tis_ratio_type=None, sequence_mask_metric=None)
    algorithm = SimpleNamespace(zero_variance_filter=False, max_seq_len=64, off_policy_correction=correction, advantage_estimator="grpo",
                                gamma=1.0, lambd=1.0, grpo_norm_by_std=True)  # fmt: skip
    generator = SimpleNamespace(step_wise_trajectories=True, merge_stepwise_output=merge, n_samples_per_prompt=2)
    made = object.__new__(credit_trainer(layer))
    assert isinstance(made, module.RayPPOTrainer)
    settings = SimpleNamespace(algorithm=algorithm, train_batch_size=2, policy_mini_batch_size=2,
                               critic=SimpleNamespace(model=SimpleNamespace(path=None)))  # fmt: skip
    made.cfg = SimpleNamespace(generator=generator, trainer=settings)
    made.all_metrics, made.tokenizer = {}, SimpleNamespace(pad_token_id=0)
    made.dispatch = SimpleNamespace(get_lcm_dp_size=lambda: 4)  # of four ranks: the batch is filled up
    return made


@pytest.mark.parametrize("merge", [False, True])
def test_skyrl_own_steps_bring_every_token_its_advantage(merge: bool) -> None:
    trainer = trainer_of(CreditLayer("agent_wise"), merge)
    given = batch()
    uids = [one.instance_id for one in given["trajectory_ids"]]
    processed, uids = trainer.postprocess_generator_output(given, uids)
    data = trainer.convert_to_training_input(processed, uids)
    data["values"] = None  # of its forward pass, without a critic
    data = trainer.compute_advantages_and_returns(data)
    found: dict[tuple[int, ...], list[list[float]]] = {}
    for i, (ids, mask) in enumerate(zip(processed["response_ids"], processed["loss_masks"], strict=True)):
        own = data["advantages"][i][-len(ids) :].tolist()
        assert data["loss_mask"][i][-len(ids) :].tolist() == mask
        assert float(data["advantages"][i].abs().sum()) == pytest.approx(sum(map(abs, own)))
        found.setdefault(tuple(ids), []).append(own)
    arrays = [array.tolist() for array in trainer.batch.arrays()]
    wanted: dict[tuple[int, ...], list[list[float]]] = {}
    for run in (range(4), range(4, 7), range(7, 10), range(10, 15)):
        first, second, *rest = run
        if merge:
            wanted.setdefault((2, 3, 4, 5), []).append([*arrays[first], 0.0, *arrays[second]])
        for i in [*([] if merge else [first, second]), *rest]:
            wanted.setdefault(tuple(given["response_ids"][i]), []).append(arrays[i])
    assert found == wanted  # bit for bit, in order
    assert len({a for row in arrays for a in row}) > 4  # SkyRL's own would give the same to all rows of a run
    assert trainer.all_metrics["credit/rollouts"] == 4
    assert trainer.all_metrics["reward/avg_raw_reward"] == pytest.approx((1 + 3 + 0 + 5) / 4)  # of rewards, not of advantages
