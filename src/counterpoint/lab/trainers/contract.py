"""What every trainer promises, called: `testing.check_trainer` is this with its own error.

Always true: the checks use a trainer only as anybody may, so they hold for one from outside too; each failure is one sentence.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from counterpoint.errors import InputError
from counterpoint.lab.trainers.row import TrainingRow
from counterpoint.lab.trainers.text_call import TextCall
from counterpoint.lab.trainers.trainer import Trainer

Require = Callable[[bool, str], None]


def check_trainer(trainer: Any, require: Require) -> None:
    """Everything, cheap things first; `require` is told what fails."""
    require(isinstance(trainer, Trainer), f"is a {type(trainer).__name__}, not a Trainer")
    require(bool(trainer.about.strip() and trainer.lost.strip()), "does not say what it takes and what is lost")
    require(
        bool(trainer.columns) and all(s.startswith(".") for s in trainer.suffixes), "has no columns, or endings without a dot"
    )
    require(
        (trainer.write is None) == (trainer.read is None) != (trainer.write_texts is None), "writes rows and reads them, or texts"
    )
    if trainer.write_texts is not None:
        _check_texts(trainer, require)
        return
    rows = some_rows()
    for suffix in trainer.suffixes:
        data = trainer.to_bytes(rows, suffix)
        require(data == trainer.to_bytes(rows, suffix), f"the same rows give other bytes of {suffix}")
        short = dataclasses.replace(rows[0], advantages=rows[0].advantages[:-1])
        odd = dataclasses.replace(rows[0], advantages=rows[0].advantages * np.nan)
        for wrong, what in ((short, "too few advantages"), (odd, "advantages that are no numbers")):
            try:
                trainer.to_bytes([wrong], suffix)
            except InputError:
                continue
            require(False, f"takes {what}")


def some_rows() -> list[TrainingRow]:
    """Rows of two tasks, several agents and answers of many lengths, one of them with names that files and ids stumble over."""
    draw = np.random.default_rng(0)
    out = []
    for i in range(7):
        n, group = 1 + i * 2, ("lab:tâsk/1", "two")[i % 2]
        ids, answer = draw.integers(0, 32_000, 3 + i), draw.integers(0, 32_000, n)
        earned = draw.normal(size=n)
        about = (f"run:{i // 3}-{i % 2}", f"e{i}", f"a{i % 3}", None if i % 2 else "worker", "m", "p", str(i), group)
        mask, logps = np.ones(n, np.int64), -draw.random(n)
        out.append(TrainingRow(*about, ids, answer, mask, logps, earned, float(earned[0]), "agent", 0.1 * i))
    return out


def _check_texts(trainer: Trainer, require: Require) -> None:
    asked = (("system", "Answer."), ("user", "Which?"))
    calls = [TextCall(f"t{i}", "e1", "lead", None, "p", "task", asked, text, value)
             for i, (text, value) in enumerate((("red", 1.0), ("blue", -1.0), ("red", 0.5), ("grey", -0.25)))]  # fmt: skip
    write = trainer.write_texts
    assert write is not None
    records = write(calls)
    require(bool(records), "makes nothing of three answers to one question")
    for record in records:
        require(
            list(record) == list(trainer.columns), f"a record has {list(record)}, and the columns are {list(trainer.columns)}"
        )
    require(write(calls) == records, "the same calls give other records")
