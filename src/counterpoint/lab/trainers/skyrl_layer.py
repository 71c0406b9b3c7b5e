"""SkyRL: a GeneratorOutput in memory to credit, and back as advantages for each token, for teams of any number of rows.

    class Experiment(BasePPOExp):
        def get_trainer(self, *args, **kwargs):
            return credit_trainer(CreditLayer("agent_wise"))(*args, **kwargs)

with `generator.step_wise_trajectories=true`: a generator returns a row for each call (or for calls that go on from each other),
rows of one run one after the other with the same TrajectoryID, `is_last_step` at the last. `env_metrics[i]["team"]` says who
wrote a row (`team_words`). SkyRL's own estimators see the last row of a run, and give the same advantage to all of its rows.

Always true: what reaches the loss is what the layer gave, token for token; tokens that do not teach have a `loss_masks` of 0; the
generator's output is not changed, and SkyRL's metrics are those of its rewards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from counterpoint.errors import InputError
from counterpoint.lab.trainers.credit_batch import CreditBatch
from counterpoint.lab.trainers.layer import CreditLayer
from counterpoint.lab.trainers.rollout import Rollout, Sample, Status
from counterpoint.lab.trainers.rollout_metadata import Paid, check_payment, of_sample, team_reward, team_words

TESTED = ("0.4.0",)
STATUS: Mapping[str, Status] = {"length": "truncated", "abort": "aborted"}
"""What a reason to stop says of a row; any other is complete."""


def rollouts_of(output: Mapping[str, Any], paid: Paid = "team") -> list[Rollout]:
    """The rows as runs of teams; `paid`: the last row's reward is its team's, each row's is its own, or a part of it."""
    ids = output.get("trajectory_ids")
    if ids is None:
        raise InputError("no trajectory_ids", where="SkyRL", fix="a TrajectoryID for each row")
    runs: dict[str, list[int]] = {}
    for i, one in enumerate(ids):
        name = f"{one.instance_id}_{one.repetition_id}"
        if runs and name in runs and i - 1 != runs[name][-1]:
            raise InputError(
                "rows that are not one after the other", where=name, fix="all rows of a run together, the last one last"
            )
        runs.setdefault(name, []).append(i)
    return [_rollout(output, name, rows, paid) for name, rows in runs.items()]


def credited_output(output: Mapping[str, Any], batch: CreditBatch) -> dict[str, Any]:
    """The output with advantages in place of rewards, and masks of what teaches."""
    rewards, masks = [array.tolist() for array in batch.arrays()], [mask.astype(int).tolist() for mask in batch.masks()]
    return {**output, "rewards": rewards, "loss_masks": masks}


def credit_trainer(layer: CreditLayer, base: type[Any] | None = None, *, paid: Paid = "team") -> type[Any]:
    """SkyRL's RayPPOTrainer (or `base`: one that is made from it) with the advantages of the layer."""
    check_payment(paid)
    trainer: Any = _skyrl_trainer() if base is None else base

    class CreditTrainer(trainer):
        """The trainer whose advantages are computed credit."""

        batch = CreditBatch([], [], [], {})

        def postprocess_generator_output(
            self, generator_output: Any, uids: Any, metrics_generator_output: Any = None, metrics_uids: Any = None
        ) -> Any:
            """SkyRL's own metrics of the rewards, and its own merging of rows, with our advantages."""
            metrics = generator_output if metrics_generator_output is None else metrics_generator_output
            self.batch = layer(rollouts_of(generator_output, paid))
            credited = credited_output(generator_output, self.batch)
            return super().postprocess_generator_output(credited, uids, metrics, uids if metrics_uids is None else metrics_uids)

        def compute_advantages_and_returns(self, data: Any) -> Any:
            """The advantages as they stand in `rewards`."""
            data = super().compute_advantages_and_returns(data)
            advantages = data["rewards"] * data["response_mask"]
            data["advantages"], data["returns"] = advantages, advantages.clone()
            _tell(self, data, advantages)
            return data

    return CreditTrainer


def _skyrl_trainer() -> type[Any]:
    from skyrl.train.trainer import RayPPOTrainer

    own: type[Any] = RayPPOTrainer
    return own


def _rollout(output: Mapping[str, Any], name: str, rows: Sequence[int], paid: Paid) -> Rollout:
    last = output.get("is_last_step")
    if last is not None and [bool(last[i]) for i in rows] != [False] * (len(rows) - 1) + [True]:
        raise InputError("is_last_step is not at its last row alone", where=name, fix="True for the last row of a run")
    if last is None and len(rows) > 1:
        raise InputError(f"{len(rows)} rows", where=name, fix="generator.step_wise_trajectories=true, and is_last_step")
    rewards = [float(np.sum(output["rewards"][i])) for i in rows]
    bad = next((x for x in rewards if not np.isfinite(x)), None)
    if bad is not None:
        raise InputError(f"the reward is {bad}", where=name, fix="numbers")
    samples = [_sample(output, i, x if paid == "sample" else None) for i, x in zip(rows, rewards, strict=True)]
    reward = team_reward(rewards[-1:] if paid == "team" else rewards, paid, name)
    status: Status = "aborted" if all(sample.status == "aborted" for sample in samples) else "complete"
    return Rollout(name, str(output["trajectory_ids"][rows[0]].instance_id), samples, reward=reward, status=status, about=output)


def _sample(output: Mapping[str, Any], i: int, reward: float | None) -> Sample:
    about, reasons, logps = output.get("env_metrics"), output.get("stop_reasons"), output.get("rollout_logprobs")
    words = of_sample(team_words(about[i], f"row {i}")) if about is not None else {}
    status = STATUS.get(str(reasons[i]), "complete") if reasons is not None else "complete"
    return Sample(
        ids=output["response_ids"][i], mask=output["loss_masks"][i], logps=None if logps is None else logps[i],
        prompt_ids=output["prompt_token_ids"][i], reward=reward, status=status, **words,
    )  # fmt: skip


def _tell(trainer: Any, data: Any, advantages: Any) -> None:
    """SkyRL's metrics of advantages, of ours."""
    own = advantages[: len(advantages) - data.metadata.get("pad_size", 0)]
    mask = data["response_mask"][: len(own)].bool()
    mean, size = own[mask].mean().item(), own[mask].abs().mean().item()
    data.metadata["metrics"] |= {"avg_advantages": mean, "avg_advantages_abs": size}
    trainer.all_metrics |= {"loss/avg_raw_advantages": mean, "loss/avg_raw_advantages_abs": size}
    trainer.all_metrics |= {"credit/rollouts": len(trainer.batch.accounts), "credit/unknown": len(trainer.batch.unknown)}
