"""Answers that were good or bad, each for itself: for KTO.

Always true: an answer is good where it earned more than 0, bad where it earned less; what earned nothing either way is left out.
Ethayarajh et al. 2024, arXiv 2402.01306.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from counterpoint.lab.trainers.text_call import TextCall
from counterpoint.lab.trainers.trainer import Trainer

COLUMNS = {
    "prompt": "messages", "completion": "messages", "label": "bool", "advantage": "double", "policy": "string", "group": "string",
    "trace_id": "string", "event_id": "string", "agent": "string", "role": "string",
}  # fmt: skip


def _labelled(calls: Sequence[TextCall]) -> list[dict[str, Any]]:
    return [
        {"prompt": c.prompt(), "completion": c.completion(), "label": c.advantage > 0, "advantage": c.advantage} | c.about()
        for c in calls
        if c.advantage
    ]


kto = Trainer(
    about="answers marked good or bad, for TRL's KTOTrainer and others",
    suffixes=(".jsonl", ".parquet"),
    columns=COLUMNS,
    lost="calls that earned 0, the size of an advantage in the loss, token ids and log-probabilities",
    package="trl",
    tested=("1.16.0",),
    write_texts=_labelled,
)
