"""A toy task: say the one good word. Nothing in the prompt tells which, so that only what is paid teaches it."""

from __future__ import annotations

from dataclasses import dataclass

from counterpoint.lab.tasks.task import Act, Instance, Score, Subtask
from counterpoint.lab.worlds.world import changed, parameter

WORDS = ("red", "blue")


@dataclass(frozen=True)
class Dials:
    good: str = parameter("red", "word", "The word that is paid.")


@dataclass(frozen=True)
class Colours:
    config: Dials = Dials()
    name = "colours:colours"
    short = "colours"
    version = "1"
    rules = ("first",)

    def replace(self, **changes):
        return Colours(changed(self.config, changes))

    def instance(self, seed):
        question = f"Say one: {', '.join(WORDS)}"
        parts = (Subtask("s1", "Say it."),)
        return Instance(task=self.name, seed=seed, question=question, answer_format="one word", subtasks=parts)

    def check(self, instance, answer):
        value = float(answer.strip() == self.config.good)
        return Score(value, value == 1.0)

    def merge(self, instance, rule, texts):
        return texts[0] if texts else ""

    def work(self, view, draw, skill):
        return Act("return", "", WORDS[int(draw("word") * len(WORDS))])

    def truth_file(self, instance):
        return ""


colours = Colours()
