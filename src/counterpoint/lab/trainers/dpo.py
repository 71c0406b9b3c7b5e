"""Pairs of answers to the same messages, the better one first: for DPO and its kin.

Always true: both answers were given to the very same messages of one task; the chosen one earned more, by at least 1e-9.

A pair is the best answer against each worse one (Rafailov et al. 2023, arXiv 2305.18290). What was asked once, was answered in
one way, or equally well in all ways, gives no pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from counterpoint.lab.trainers.text_call import TextCall, same_question
from counterpoint.lab.trainers.trainer import Trainer

_LEAST = 1e-9
COLUMNS = {
    "prompt": "messages", "chosen": "messages", "rejected": "messages", "chosen_advantage": "double",
    "rejected_advantage": "double", "policy": "string", "group": "string", "trace_id": "string", "event_id": "string",
    "agent": "string", "role": "string", "rejected_trace_id": "string", "rejected_event_id": "string",
}  # fmt: skip


def _pairs(calls: Sequence[TextCall]) -> list[dict[str, Any]]:
    out = []
    for answers in same_question(calls):
        best = answers.calls[0]
        for worse, earned in zip(answers.calls[1:], answers.earned[1:], strict=True):
            if answers.earned[0] - earned < _LEAST:
                continue
            names = {"rejected_trace_id": worse.trace_id, "rejected_event_id": worse.event_id}
            amounts = {"chosen_advantage": answers.earned[0], "rejected_advantage": earned}
            out.append(
                {"prompt": best.prompt(), "chosen": best.completion(), "rejected": worse.completion(), **amounts}
                | best.about()
                | names
            )
    return out


dpo = Trainer(
    about="pairs of answers to the same messages, for TRL's DPOTrainer and others",
    suffixes=(".jsonl", ".parquet"),
    columns=COLUMNS,
    lost="calls that were asked once or answered in one way, token ids and log-probabilities",
    package="trl",
    tested=("1.16.0",),
    write_texts=_pairs,
)
