"""verl: a DataProto of the rows, with per-token advantages as `token_level_rewards`.

`estimator` passes them on to the loss, `agent_loop` plays teams with the model that verl serves.

Always true: prompts are filled up on the left and answers on the right, as verl's own rollouts are; numbers are float32 there,
and what that would change by more than 1e-6 is refused; nothing is cut.
"""

from __future__ import annotations

import io
import json
import pickle
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from counterpoint.errors import InputError
from counterpoint.lab.trainers.row import TrainingRow, as_float32, check_row, logps_of
from counterpoint.lab.trainers.trainer import Trainer, need, warn_version

TESTED = ("0.9.1",)
_ABOUT = ("trace_id", "event_id", "agent", "role", "model", "policy", "version", "advantage", "level", "share")


def batch(rows: Sequence[TrainingRow], *, pad_id: int = 0, prompt_length: int = 0, response_length: int = 0) -> Any:
    """The rows as `verl.DataProto`: what a rollout of verl gives, with `token_level_rewards` and `rm_scores` per token.

    `prompt_length` and `response_length` are those of verl's configuration, or 0 for the longest row; longer rows are refused.
    `uid` is the group, so that verl's own estimators compare what we compare.
    """
    need("verl", "verl")
    warn_version("verl", TESTED)
    import torch
    from verl import DataProto

    if not rows:
        raise InputError("no rows", fix="a batch of at least one")
    wide, long = (
        _room(rows, name, length) for name, length in (("prompt_ids", prompt_length), ("completion_ids", response_length))
    )
    sizes = {"prompts": wide, "prompt_mask": wide, "responses": long, "answer_mask": long, "response_mask": long}
    ints = {name: np.zeros((len(rows), size), np.int64) for name, size in sizes.items()}
    ints["prompts"] += pad_id
    ints["responses"] += pad_id
    is_bare = all(row.logps is None for row in rows)  # verl's actor computes them anyway; these only correct for its engine's
    told = ("token_level_rewards",) if is_bare else ("rollout_log_probs", "token_level_rewards")
    floats = {name: np.zeros((len(rows), long), np.float32) for name in told}
    for i, row in enumerate(rows):
        p, n = len(row.prompt_ids), len(row.completion_ids)
        ints["prompts"][i, wide - p :], ints["prompt_mask"][i, wide - p :] = row.prompt_ids, 1
        ints["responses"][i, :n], ints["answer_mask"][i, :n], ints["response_mask"][i, :n] = row.completion_ids, 1, row.mask
        if not is_bare:
            floats["rollout_log_probs"][i, :n] = as_float32(logps_of(row, "verl"), "log-probabilities", row.name)
        floats["token_level_rewards"][i, :n] = as_float32(row.advantages, "advantages", row.name)
    mask = np.concatenate([ints["prompt_mask"], ints["answer_mask"]], axis=1)
    tensors = {
        "prompts": ints["prompts"], "responses": ints["responses"], "response_mask": ints["response_mask"],
        "input_ids": np.concatenate([ints["prompts"], ints["responses"]], axis=1), "attention_mask": mask,
        "position_ids": np.clip(mask.cumsum(axis=1) - 1, 0, None), **floats, "token_level_scores": floats["token_level_rewards"],
        "rm_scores": floats["token_level_rewards"],
    }  # fmt: skip
    others = {"uid": _objects([row.group for row in rows])} | {n: _objects([getattr(r, n) for r in rows]) for n in _ABOUT}
    return DataProto.from_dict(tensors={n: torch.as_tensor(v.copy()) for n, v in tensors.items()}, non_tensors=others)


def _objects(values: Sequence[Any]) -> np.ndarray:
    out = np.empty(len(values), object)
    out[:] = values
    return out


def _room(rows: Sequence[TrainingRow], name: str, length: int) -> int:
    longest = max(rows, key=lambda row: len(getattr(row, name)))
    size = len(getattr(longest, name))
    if length and size > length:
        what = f"{name} of {size:,} tokens where {length:,} fit"
        raise InputError(
            what, where=longest.name, why="verl would cut them", fix="raise data.max_prompt_length or max_response_length"
        )
    return length or size


def rows_of(data: Any) -> list[TrainingRow]:
    """The rows in such a DataProto."""
    parts = {name: value.cpu().numpy() for name, value in data.batch.items()}
    others, wide = data.non_tensor_batch, parts["prompts"].shape[1]
    out = []
    for i in range(len(parts["prompts"])):
        attention = parts["attention_mask"][i] == 1
        n = int(attention[wide:].sum())
        row = TrainingRow(
            group=others["uid"][i],
            prompt_ids=parts["prompts"][i][attention[:wide]].astype(np.int64),
            completion_ids=parts["responses"][i, :n].astype(np.int64),
            mask=parts["response_mask"][i, :n].astype(np.int64),
            logps=parts["rollout_log_probs"][i, :n].astype(np.float64) if "rollout_log_probs" in parts else None,
            advantages=parts["token_level_rewards"][i, :n].astype(np.float64),
            **{name: others[name][i] for name in _ABOUT},
        )
        check_row(row)
        out.append(row)
    return out


def tasks(
    name: str, seeds: Iterable[int], *, held_out: bool = False, agent: str = "counterpoint", **mix: Any
) -> list[dict[str, Any]]:
    """Rows of a dataset for verl: a task of ours for each seed, played by the agent loop of `agent_loop`.

    `mix` are the keys of a task in a run's settings (set, topology, limits); `held_out` is for the validation file, whose prompts
    get rewards instead of advantages. Write them with `pyarrow.parquet.write_table(pyarrow.Table.from_pylist(tasks(...)), path)`.
    """
    from counterpoint.lab.train.lm.settings import TaskMix

    mixture = TaskMix(name=name, **mix)
    out = []
    for place, seed in enumerate(seeds):
        team = {"spec": mixture.spec(seed, "engine").as_meta(), "held_out": held_out}
        prompt = [{"role": "user", "content": f"{name} {seed}"}]
        about = {"index": place, "seed": seed}
        out.append(
            {"data_source": "counterpoint", "agent_name": agent, "prompt": prompt, "team": json.dumps(team), "extra_info": about}
        )
    return out


def _write(rows: Sequence[TrainingRow], suffix: str) -> bytes:
    file = io.BytesIO()
    pickle.dump(batch(rows), file)  # what DataProto.load_from_disk reads
    return file.getvalue()


def _read(data: bytes, suffix: str) -> list[TrainingRow]:
    return rows_of(pickle.loads(data))


verl = Trainer(
    about="verl: a DataProto for DataProto.load_from_disk, advantages as token_level_rewards",
    suffixes=(".pkl",),
    columns=dict.fromkeys(
        (
            "prompts",
            "responses",
            "response_mask",
            "input_ids",
            "attention_mask",
            "position_ids",
            "rollout_log_probs",
            "token_level_rewards",
            "rm_scores",
            "uid",
            *_ABOUT,
        ),
        "json",
    ),
    lost="texts, events and edges: rows hold token ids",
    package="verl",
    tested=TESTED,
    logps="all or none",
    write_needs=("verl",),
    extra="verl",
    write=_write,
    read=_read,
)
