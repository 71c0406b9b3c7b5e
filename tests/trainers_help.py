"""For the tests of trainers: rows with odd numbers, and a tiny model with the toy task of `lm_help`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from counterpoint.lab.trainers.contract import some_rows
from counterpoint.lab.trainers.row import TrainingRow
from counterpoint.lab.trainers.text_call import TextCall
from lm_help import TEXTS
from tiny_help import make_tiny

LIMITS = {"width": 1, "max_tokens": 8, "turns": 6, "steps": 3, "repairs": 0}
TASK = {"name": "lm_help:colours", "topology": "harness", "limits": LIMITS}


def toy_model(folder: Path) -> Path:
    """A tiny Llama with words for the toy task, imitated from somebody who says either word."""
    from counterpoint.lab.train.lm.run import train_language

    raw = make_tiny(folder / "raw", texts=TEXTS, words=512, spread=0.15, context=2048)
    imitate = {"teams": 24, "steps": 30, "batch": 12, "lr": 1e-2, "warmup": 4}
    config: dict[str, Any] = {"model": str(raw), "task": [TASK], "imitate": imitate, "learn": {"updates": 0}, "workers": 1,
                              "eval_every": 100, "checkpoint_every": 100, "eval_episodes": 1, "is_eval_first": False}  # fmt: skip
    train_language(folder / "run", config)
    return folder / "run" / "model"


def rows() -> list[TrainingRow]:
    return some_rows()


def text_calls() -> list[TextCall]:
    """Answers to two questions, some of them better than others."""
    out = []
    for number, (question, text, value) in enumerate(
        [("Which?", "red", 1.0), ("Which?", "blue", -1.0), ("Who?", "lead", 0.5), ("Who?", "worker", 0.25), ("Who?", "lead", 0.1)]
    ):
        asked = (("system", "Answer in one word."), ("user", question))
        out.append(TextCall(f"t{number}", "e1", "lead", "agent", "p", "task", asked, text, value))
    return out
