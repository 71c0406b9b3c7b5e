"""Tinker's own types hold every token, mask, log-probability and advantage, and give them back."""

from __future__ import annotations

import dataclasses

import msgspec
import numpy as np
import pytest

pytest.importorskip("tinker", reason="the package tinker is not installed: pip install '.[tinker]'")

from tinker import Datum, ModelInput, TensorData

from counterpoint.errors import InputError
from counterpoint.lab.trainers.row import check_same
from counterpoint.lab.trainers.tinker import datum, datums, of_datum, tinker
from trainers_help import rows


def test_a_datum_gives_its_row_back() -> None:
    found = []
    for row in rows():
        made = datum(row)
        assert isinstance(made, Datum)
        inputs = made.loss_fn_inputs
        assert {len(part.data) for part in inputs.values()} == {made.model_input.length}
        assert made.model_input.to_ints()[1:] == inputs["target_tokens"].data[:-1]
        before = len(row.prompt_ids) - 1  # places where the prompt is predicted teach nothing
        assert not any(inputs["advantages"].data[:before])
        assert {name: part.dtype for name, part in inputs.items()} == {"target_tokens": "int64", "logprobs": "float32", "advantages": "float32"}
        about = row.about() | {"prompt_length": len(row.prompt_ids), "mask": row.mask.tolist()}
        found.append(of_datum(made, about))
    check_same(rows(), found, "tinker")


def test_a_file_is_what_tinkers_types_take() -> None:
    data = tinker.to_bytes(rows(), ".jsonl")
    made = datums(data)
    for line, one in zip(data.splitlines(), made, strict=True):
        told = msgspec.json.decode(line)
        inputs = {n: TensorData(data=p["data"], dtype=p["dtype"], shape=p["shape"]) for n, p in told["loss_fn_inputs"].items()}
        again = Datum(model_input=ModelInput.from_ints(told["model_input"]["chunks"][0]["tokens"]), loss_fn_inputs=inputs)
        assert again.model_input.to_ints() == one.model_input.to_ints()
        for name, part in again.loss_fn_inputs.items():
            np.testing.assert_array_equal(part.data, one.loss_fn_inputs[name].data)


def test_what_a_datum_would_change_is_refused() -> None:
    row = rows()[0]
    with pytest.raises(InputError, match="Tinker learns from them"):
        datum(dataclasses.replace(row, logps=None))
    with pytest.raises(InputError, match="rounded"):
        datum(dataclasses.replace(row, advantages=row.advantages + 12345.678))
    with pytest.raises(InputError, match="an empty prompt"):
        datum(dataclasses.replace(row, prompt_ids=row.prompt_ids[:0]))
