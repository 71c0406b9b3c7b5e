"""slime: a Sample per call for --load-debug-rollout-data, and the function that fills in its advantages.

Always true: a Sample's index is the place of its row in the file, and by it the advantages are found again: slime passes on a
fixed list of a Sample's fields to its trainers, and neither metadata nor advantages are among them.
"""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from counterpoint.errors import InputError, NotFound
from counterpoint.lab.trainers.row import TrainingRow, as_float32, check_row, group_numbers, logps_of
from counterpoint.lab.trainers.trainer import Trainer

ROWS = "COUNTERPOINT_SLIME_ROWS"
"""The environment variable that names the file for `advantages`, where slime's own argument does not."""


def samples(rows: Sequence[TrainingRow]) -> list[dict[str, Any]]:
    """The rows as what `slime.utils.types.Sample.from_dict` takes."""
    out = []
    for place, (row, group) in enumerate(zip(rows, group_numbers(rows), strict=True)):
        about = row.about() | {"advantages": np.where(row.mask == 1, row.advantages, 0.0).tolist()}
        out.append(
            {
                "group_index": group,
                "index": place,
                "prompt": "",
                "tokens": np.concatenate([row.prompt_ids, row.completion_ids]).tolist(),
                "response": "",
                "response_length": len(row.completion_ids),
                "reward": float(row.advantages.mean()),
                "loss_mask": row.mask.tolist(),
                "weight_versions": [] if row.version is None else [row.version],
                "rollout_log_probs": logps_of(row, "slime").tolist(),
                "status": "completed",
                "metadata": about,
            }
        )
    return out


def rows_of(samples: Sequence[Mapping[str, Any]]) -> list[TrainingRow]:
    """The rows in such Samples."""
    out = []
    for place, sample in enumerate(samples):
        about = dict(sample["metadata"])
        if sample["index"] != place:
            raise InputError(
                f"sample {place} has the index {sample['index']}", why="advantages are found by it", fix="export again"
            )
        n, advantages = sample["response_length"], np.asarray(about.pop("advantages"), np.float64)
        tokens = np.asarray(sample["tokens"], np.int64)
        row = TrainingRow(
            prompt_ids=tokens[: len(tokens) - n],
            completion_ids=tokens[len(tokens) - n :],
            mask=np.asarray(sample["loss_mask"], np.int64),
            logps=np.asarray(sample["rollout_log_probs"], np.float64),
            advantages=advantages,
            **about,
        )
        check_row(row)
        out.append(row)
    return out


def _write(rows: Sequence[TrainingRow], suffix: str) -> bytes:
    import torch

    for row in rows:
        as_float32(row.advantages, "advantages", row.name)
    file = io.BytesIO()
    torch.save({"rollout_id": 0, "samples": samples(rows)}, file)
    return file.getvalue()


def _read(data: bytes, suffix: str) -> list[TrainingRow]:
    import torch

    return rows_of(torch.load(io.BytesIO(data), weights_only=True)["samples"])


@lru_cache(maxsize=4)
def _cached_rows(path: str, changed_ns: int) -> list[TrainingRow]:
    with open(path, "rb") as file:
        return _read(file.read(), ".pt")


def advantages(args: Any, rollout_data: dict[str, Any]) -> None:
    """For --custom-advantage-function-path: fill in `advantages` and `returns` from the file, by the index of each Sample."""
    import torch

    path = os.environ.get(ROWS) or getattr(args, "load_debug_rollout_data", None)
    if not path:
        raise NotFound("no file of rows was named", where="slime", fix=f"--load-debug-rollout-data rows.pt, or {ROWS}=rows.pt")
    rows = _cached_rows(path, os.stat(path).st_mtime_ns)
    tensors = []
    for place, (index, like) in enumerate(zip(rollout_data["sample_indices"], rollout_data["kl"], strict=True)):
        if not 0 <= int(index) < len(rows):
            raise InputError(f"sample {index} of {len(rows)} rows", where=path, fix="the file that the samples were read from")
        row = rows[int(index)]
        if len(row.completion_ids) != int(rollout_data["response_lengths"][place]) or len(like) != len(row.completion_ids):
            what = f"{len(like)} places for {len(row.completion_ids)} advantages"
            raise InputError(what, where=row.name, why="another file, or answers cut over GPUs", fix="--context-parallel-size 1")
        values = as_float32(np.where(row.mask == 1, row.advantages, 0.0), "advantages", row.name)
        tensors.append(torch.as_tensor(values, dtype=torch.float32, device=like.device))
    rollout_data["advantages"], rollout_data["returns"] = tensors, [value.clone() for value in tensors]


slime = Trainer(
    about="slime: a Sample per call for --load-debug-rollout-data, with a function for its advantages",
    suffixes=(".pt",),
    columns=dict.fromkeys(("rollout_id", "samples"), "json"),
    lost="a Sample's reward is the mean of its advantages, for slime's logs alone; texts, events and edges",
    write_needs=("torch",),
    extra="train",
    write=_write,
    read=_read,
)
