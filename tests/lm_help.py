"""A toy task that a team of a tiny model can learn in seconds, and the words of its prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from counterpoint.lab.tasks.task import Act, Draw, Instance, Score, Subtask, View
from counterpoint.lab.worlds.world import changed, parameter

TEXTS = (
    "You are lead, agent in a team of agents that answers a question together.\nYou work alone with your tools; a worker can be "
    "spawned for a part.\nAnswer with exactly one line: one of the actions that are listed as legal, filled in where it has <...>.",
    "You split the work, spawn and brief workers, merge what they return, and stop when more costs more than it gives.",
    "Question from user:\nSay one: red, blue\nAnswer format: one word\nThe work can be split into these parts:\ns1: Say it.",
    "Legal now:\nSTOP: red\nSTOP: blue\nSPAWN worker\nDELEGATE worker.1: s1\nNOOP\nRETURN: <the answer>\nAGGREGATE first\nYour action:",
)
"""What a tokenizer should have words for."""
COLOURS = ("red", "blue", "grey", "gold")


@dataclass(frozen=True)
class Dials:
    colours: int = parameter(2, "1", "Words to choose from.")


@dataclass(frozen=True)
class Colours:
    """Say the one good word: nothing in the prompt tells which, so that only what is paid teaches it."""

    config: Dials = Dials()
    name = "tests.lm_help:colours"
    short = "colours"
    version = "1"
    rules = ("first",)

    def replace(self, **changes: Any) -> Colours:
        return Colours(changed(self.config, changes))

    def instance(self, seed: int) -> Instance:
        words = ", ".join(COLOURS[: self.config.colours])
        return Instance(
            task=self.name,
            seed=seed,
            question=f"Say one: {words}",
            answer_format="one word",
            subtasks=(Subtask("s1", "Say it."),),
        )

    def check(self, instance: Instance, answer: str) -> Score:
        value = float(answer.strip() == COLOURS[0])
        return Score(value, value == 1.0)

    def merge(self, instance: Instance, rule: str, texts: Sequence[str]) -> str:
        return texts[0] if texts else ""

    def work(self, view: View, draw: Draw, skill: float) -> Act:
        word = COLOURS[int(draw("word") * self.config.colours)]
        return Act("return", "", word)

    def truth_file(self, instance: Instance) -> str:
        return ""


colours = Colours()
