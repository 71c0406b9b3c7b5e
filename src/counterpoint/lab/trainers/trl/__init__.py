"""TRL: a table of rows that `datasets` loads.

`grpo` learns from them with an advantage per token, `rollout_worker` plays for the asynchronous trainer.

Always true: a file read back gives the same rows, digit by digit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from counterpoint.lab.trainers.row import COLUMNS, TrainingRow, as_record, of_record
from counterpoint.lab.trainers.tables import of_table, to_table
from counterpoint.lab.trainers.trainer import Trainer

TESTED = ("1.16.0",)


def _write(rows: Sequence[TrainingRow], suffix: str) -> bytes:
    return to_table([as_record(row) for row in rows], COLUMNS, suffix)


def rows_of(dataset: Iterable[Mapping[str, Any]]) -> list[TrainingRow]:
    """The rows of a dataset that `counterpoint export --to trl` wrote, as `datasets.load_dataset` gives it."""
    return [of_record(record, f"row {i}") for i, record in enumerate(dataset)]


def _read(data: bytes, suffix: str) -> list[TrainingRow]:
    return rows_of(of_table(data, suffix))


trl = Trainer(
    about="TRL: a table with a row per call, for counterpoint.lab.trainers.trl.grpo",
    suffixes=(".parquet", ".jsonl"),
    columns=COLUMNS,
    lost="texts, events and edges: rows hold token ids",
    package="trl",
    tested=TESTED,
    logps="optional",
    write=_write,
    read=_read,
)
