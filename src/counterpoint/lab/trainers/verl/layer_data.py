"""The credit layer on verl's DataProto, for trainers that compute advantages themselves: subclasses and `ray_trainer`.

    from verl.trainer.ppo import ray_trainer
    ray_trainer.compute_advantage = layer_advantage(CreditLayer("agent_wise"))      # in the process that trains

Rows of one `uid` are compared. Columns of `non_tensor_batch` say of each row what `Sample` has: `rollout` (rows of one name are
one run; without it each row is one), agent, role, name, parent, after, policy, version, frozen, status, calls.

Always true: advantages stand where the row's `response_mask` is 1 and are 0 elsewhere; tokens that do not teach leave the mask.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from counterpoint.errors import InputError
from counterpoint.lab.trainers.credit_batch import CreditBatch
from counterpoint.lab.trainers.layer import CreditLayer
from counterpoint.lab.trainers.rollout import Rollout, Sample

Paid = Literal["team", "sample"]
_SAID = ("agent", "role", "name", "parent", "after", "reads", "policy", "version", "frozen", "status", "calls")


def credit_data(data: Any, layer: CreditLayer, *, paid: Paid = "team", version: int | None = None) -> CreditBatch:
    """Write `advantages`, `returns` and the mask of what teaches into a DataProto whose rows have `token_level_rewards`."""
    import torch

    columns = data.non_tensor_batch
    if "uid" not in columns:
        raise InputError("rows without a uid", where="verl", fix="data.non_tensor_batch['uid']: the prompt of each row")
    mask = data.batch["response_mask"]
    scores = data.batch["token_level_rewards" if "token_level_rewards" in data.batch else "rm_scores"]
    rewards = (scores * mask if scores.shape == mask.shape else scores).sum(-1).tolist()
    runs: dict[tuple[str, str], list[int]] = {}
    for i, uid in enumerate(columns["uid"]):
        runs.setdefault((str(uid), str(columns["rollout"][i]) if "rollout" in columns else str(i)), []).append(i)
    rollouts = [_rollout(data, task, f"{task}-{name}", rows, rewards, paid) for (task, name), rows in runs.items()]
    order = [i for rows in runs.values() for i in rows]
    batch = layer(rollouts, version=version)
    advantages, teaches = np.zeros(tuple(mask.shape), np.float32), np.zeros(tuple(mask.shape), np.int64)
    advantages[order] = batch.padded(mask.shape[1])
    for i, own in zip(order, batch.masks(), strict=True):
        teaches[i] = own
    batch.check(list(advantages[order]))
    data.batch["advantages"] = torch.as_tensor(advantages, device=mask.device)
    data.batch["returns"] = data.batch["advantages"].clone()
    data.batch["response_mask"] = torch.as_tensor(teaches, device=mask.device).to(mask.dtype)
    return batch


def layer_advantage(layer: CreditLayer, *, paid: Paid = "team") -> Callable[..., Any]:
    """What takes the place of verl's `compute_advantage`: the same data, with our advantages."""

    def compute_advantage(data: Any, *_: Any, **__: Any) -> Any:
        if "response_mask" not in data.batch:
            size = data.batch["responses"].size(1)
            data.batch["response_mask"] = data.batch["attention_mask"][:, -size:]
        credit_data(data, layer, paid=paid)
        return data

    return compute_advantage


def _rollout(data: Any, task: str, name: str, rows: list[int], rewards: list[float], paid: Paid) -> Rollout:
    columns = data.non_tensor_batch
    samples = []
    for i in rows:
        about: dict[str, Any] = {key: columns[key][i] for key in _SAID if key in columns and columns[key][i] is not None}
        about |= {key: int(about[key]) for key in ("after", "version") if key in about}
        if paid == "sample":
            about["reward"] = rewards[i]
        samples.append(Sample(ids=data.batch["responses"][i], mask=data.batch["response_mask"][i].cpu().numpy(), **about))
    paid_rows = [rewards[i] for i in rows]
    if paid == "team" and max(paid_rows) - min(paid_rows) > 1e-6:
        what = f"its rows are paid from {min(paid_rows):g} to {max(paid_rows):g}"
        raise InputError(what, where=name, fix="one reward for the team in each of its rows, or paid='sample'")
    return Rollout(name, task, samples, reward=paid_rows[0] if paid == "team" else None, about=rows)
