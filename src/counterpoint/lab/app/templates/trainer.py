"""plugin_name: questions and the answer that earned most, one pair for each question.

Always true: the same question comes once, with the answer of the highest credit; a question whose answers all earned nothing or
less is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from counterpoint.lab.trainers.text_call import TextCall, same_question
from counterpoint.lab.trainers.trainer import Trainer


def _best(calls: Sequence[TextCall]) -> list[dict[str, Any]]:
    out = []
    for answers in same_question(calls):
        call, earned, _ = max(zip(*answers, strict=True), key=lambda answer: answer[1])
        if earned > 0:
            out.append({"prompt": call.prompt(), "completion": call.completion(), "advantage": earned})
    return out


plugin_name = Trainer(
    about="the best answer to each question, for any trainer that imitates",
    suffixes=(".jsonl",),
    columns={"prompt": "messages", "completion": "messages", "advantage": "double"},
    lost="every other answer, token ids and log-probabilities, which agent gave it",
    write_texts=_best,
)


# -- test_plugin_name.py -----------------------------------------------------------------------------------------------
"""plugin_name keeps the contract of a trainer, and keeps the answer that was chosen by hand."""

# from here import plugin_name
from counterpoint.lab.testing import check_trainer
from counterpoint.lab.trainers.text_call import TextCall


def test_it_keeps_the_contract() -> None:
    check_trainer(plugin_name)


def test_the_best_by_hand() -> None:
    asked = (("user", "Which?"),)
    calls = [TextCall(f"t{i}", "e1", "lead", None, "p", "task", asked, text, float(i)) for i, text in enumerate(("red", "blue"))]
    assert plugin_name.write_texts is not None
    (row,) = plugin_name.write_texts(calls)
    assert row["advantage"] == 1.0
    assert "blue" in str(row["completion"])
