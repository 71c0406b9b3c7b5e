"""Answers worth imitating: calls that earned more than 0, with what they were asked.

Always true: the same answer to the same messages comes once. Rejection sampling by credit: what a team's reward would keep whole
is kept call by call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from counterpoint.lab.trainers.text_call import TextCall, same_question
from counterpoint.lab.trainers.trainer import Trainer

COLUMNS = {
    "prompt": "messages", "completion": "messages", "advantage": "double", "given": "int64", "policy": "string",
    "group": "string", "trace_id": "string", "event_id": "string", "agent": "string", "role": "string",
}  # fmt: skip


def _good(calls: Sequence[TextCall]) -> list[dict[str, Any]]:
    out = []
    for answers in same_question(calls):
        for call, earned, share in zip(*answers, strict=True):
            if earned > 0:
                out.append(
                    {"prompt": call.prompt(), "completion": call.completion(), "advantage": earned, "given": share} | call.about()
                )
    return out


sft = Trainer(
    about="answers that earned more than 0, for TRL's SFTTrainer and others",
    suffixes=(".jsonl", ".parquet"),
    columns=COLUMNS,
    lost="calls that earned nothing or less, token ids and log-probabilities",
    package="trl",
    tested=("1.16.0",),
    write_texts=_good,
)
