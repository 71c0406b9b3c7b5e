"""Tinker, and servers that speak its API (SkyRL): a Datum per call.

For `forward_backward` with importance_sampling, ppo or cispo.

Always true: inputs and targets are shifted by one, so that the prompt's places have log-probability and advantage 0 and teach
nothing; numbers are float32 there, and what that would change by more than 1e-6 is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from counterpoint.errors import InputError
from counterpoint.lab.trainers.row import TrainingRow, as_float32, check_row, logps_of
from counterpoint.lab.trainers.trainer import Trainer, need, warn_version

TESTED = ("0.36.0", "0.38.0")
_encode = msgspec.json.Encoder().encode


def _parts(row: TrainingRow) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Input tokens, and what the loss is given for each of them."""
    if not len(row.prompt_ids):
        raise InputError("an empty prompt, and the first token needs something before it", where=row.name, fix="leave it out")
    whole = np.concatenate([row.prompt_ids, row.completion_ids])
    before = len(row.prompt_ids) - 1
    blank = np.zeros(before, np.float32)
    logps = as_float32(logps_of(row, "Tinker"), "log-probabilities", row.name)
    advantages = as_float32(np.where(row.mask == 1, row.advantages, 0.0), "advantages", row.name)
    inputs = {
        "target_tokens": whole[1:],
        "logprobs": np.concatenate([blank, logps]),
        "advantages": np.concatenate([blank, advantages]),
    }
    return whole[:-1], inputs


def datum(row: TrainingRow) -> Any:
    """A row as `tinker.Datum`."""
    need("tinker", "tinker")
    from tinker import Datum, ModelInput

    tokens, inputs = _parts(row)
    return Datum(model_input=ModelInput.from_ints(tokens.tolist()), loss_fn_inputs=dict(inputs))


def of_datum(datum: Any, about: dict[str, Any]) -> TrainingRow:
    """The row that a Datum holds; `about` is what a Datum has no place for, with the length of the prompt."""
    tokens = datum.model_input.to_ints()
    inputs = {name: np.asarray(part.data) for name, part in datum.loss_fn_inputs.items()}
    return _row(np.asarray(tokens, np.int64), inputs, about)


def _row(tokens: np.ndarray, inputs: dict[str, np.ndarray], about: dict[str, Any]) -> TrainingRow:
    rest = dict(about)
    n, mask = rest.pop("prompt_length"), np.asarray(rest.pop("mask"), np.int64)
    target = inputs["target_tokens"]
    if not np.array_equal(tokens[1:], target[:-1]):
        raise InputError(
            "targets that are not the inputs shifted by one", where=rest["event_id"], fix="a file of `counterpoint export`"
        )
    row = TrainingRow(
        prompt_ids=tokens[:n],
        completion_ids=target[n - 1 :].astype(np.int64),
        mask=mask,
        logps=inputs["logprobs"][n - 1 :].astype(np.float64),
        advantages=inputs["advantages"][n - 1 :].astype(np.float64),
        **rest,
    )
    check_row(row)
    return row


def _write(rows: Sequence[TrainingRow], suffix: str) -> bytes:
    lines = []
    for row in rows:
        tokens, inputs = _parts(row)
        chunk = {"type": "encoded_text", "tokens": tokens.tolist()}
        tensors = {
            name: {"data": values.tolist(), "dtype": "int64" if name == "target_tokens" else "float32", "shape": [len(values)]}
            for name, values in inputs.items()
        }
        about = row.about() | {"prompt_length": len(row.prompt_ids), "mask": row.mask.tolist()}
        lines.append(_encode({"model_input": {"chunks": [chunk]}, "loss_fn_inputs": tensors, "counterpoint": about}) + b"\n")
    return b"".join(lines)


def _read(data: bytes, suffix: str) -> list[TrainingRow]:
    out = []
    for line in data.splitlines():
        one = msgspec.json.decode(line)
        tokens = np.asarray([t for chunk in one["model_input"]["chunks"] for t in chunk["tokens"]], np.int64)
        inputs = {name: np.asarray(part["data"]) for name, part in one["loss_fn_inputs"].items()}
        out.append(_row(tokens, inputs, one["counterpoint"]))
    return out


def datums(data: bytes) -> list[Any]:
    """The `tinker.Datum`s of a file that `counterpoint export --to tinker` wrote."""
    warn_version("tinker", TESTED)
    return [datum(row) for row in _read(data, ".jsonl")]


tinker = Trainer(
    about="Tinker: a Datum per call, with log-probabilities and advantages",
    suffixes=(".jsonl",),
    columns=dict.fromkeys(
        ("model_input", "loss_fn_inputs.target_tokens", "loss_fn_inputs.logprobs", "loss_fn_inputs.advantages", "counterpoint"),
        "json",
    ),
    lost="groups, policies and versions stand beside the Datum, under `counterpoint`; texts, events and edges",
    package="tinker",
    tested=TESTED,
    write=_write,
    read=_read,
)
