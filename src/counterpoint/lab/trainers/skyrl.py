"""SkyRL: the output of a generator for all calls, rewards per token, and the estimator that passes them on.

Always true: rewards are the advantages, token by token; a trajectory's id is its group, with the number of the call in it, so
that no two calls share one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from counterpoint.errors import InputError
from counterpoint.lab.trainers.row import TrainingRow, check_row, logps_of
from counterpoint.lab.trainers.trainer import Trainer

NAME = "counterpoint"
_encode = msgspec.json.Encoder().encode


def generated(rows: Sequence[TrainingRow]) -> dict[str, Any]:
    """The rows in the fields of SkyRL's `GeneratorOutput`; `trajectory_ids` as mappings that `TrajectoryID(**one)` takes."""
    counts: dict[str, int] = {}
    ids = []
    for row in rows:
        counts[row.group] = counts.get(row.group, -1) + 1
        ids.append({"instance_id": row.group, "repetition_id": counts[row.group]})
    return {
        "prompt_token_ids": [row.prompt_ids.tolist() for row in rows],
        "response_ids": [row.completion_ids.tolist() for row in rows],
        "rewards": [np.where(row.mask == 1, row.advantages, 0.0).tolist() for row in rows],
        "loss_masks": [row.mask.tolist() for row in rows],
        "rollout_logprobs": [logps_of(row, "SkyRL").tolist() for row in rows],
        "stop_reasons": ["stop"] * len(rows),
        "rollout_metrics": {},
        "trajectory_ids": ids,
    }


def rows_of(output: dict[str, Any], about: Sequence[dict[str, Any]]) -> list[TrainingRow]:
    """The rows in such an output; `about` is what it has no place for."""
    out = []
    parts = ("prompt_token_ids", "response_ids", "rewards", "loss_masks", "rollout_logprobs", "trajectory_ids")
    for about_row, prompt, answer, earned, mask, logps, name in zip(about, *(output[part] for part in parts), strict=True):
        if name["instance_id"] != about_row["group"]:
            raise InputError(f"a call of {about_row['group']!r} under {name['instance_id']!r}", where="SkyRL", fix="export again")
        row = TrainingRow(
            prompt_ids=np.asarray(prompt, np.int64),
            completion_ids=np.asarray(answer, np.int64),
            mask=np.asarray(mask, np.int64),
            logps=np.asarray(logps, np.float64),
            advantages=np.asarray(earned, np.float64),
            **about_row,
        )
        check_row(row)
        out.append(row)
    return out


def register() -> None:
    """Make `trainer.algorithm.advantage_estimator=counterpoint` known to SkyRL, in the process that calls this."""
    from skyrl.backends.skyrl_train.utils.ppo_utils import register_advantage_estimator

    register_advantage_estimator(NAME)(passed_on)


def passed_on(token_level_rewards: Any, response_mask: Any, **_: Any) -> tuple[Any, Any]:
    """The advantages and returns that the rewards of the tokens are already."""
    if token_level_rewards.shape != response_mask.shape:
        what = f"rewards of the shape {tuple(token_level_rewards.shape)} for a mask of {tuple(response_mask.shape)}"
        raise InputError(what, where="SkyRL", fix="rewards per token: counterpoint.lab.trainers.skyrl.generated")
    advantages = token_level_rewards * response_mask
    return advantages, advantages.clone()


def _write(rows: Sequence[TrainingRow], suffix: str) -> bytes:
    return _encode({"generator_output": generated(rows), "counterpoint": [row.about() for row in rows]})


def _read(data: bytes, suffix: str) -> list[TrainingRow]:
    one = msgspec.json.decode(data)
    return rows_of(one["generator_output"], one["counterpoint"])


skyrl = Trainer(
    about="SkyRL: a GeneratorOutput with rewards per token, as JSON",
    suffixes=(".json",),
    columns=dict.fromkeys(("generator_output", "counterpoint"), "json"),
    lost="policies, versions, agents and events stand beside the output, under `counterpoint`; texts and edges",
    write=_write,
    read=_read,
)
