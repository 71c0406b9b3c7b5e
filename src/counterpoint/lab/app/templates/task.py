"""plugin_name: each of a few notes holds a number, and the answer is their sum.

Always true: the sum stands in no note (it has a digit more than any number in them); the same seed gives the same notes; an
answer is one whole number, and any other text scores 0.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from counterpoint.errors import InputError, NotFound, did_you_mean
from counterpoint.lab.tasks.leakage import marker
from counterpoint.lab.tasks.task import Act, Document, Draw, Instance, Score, Subtask, View
from counterpoint.lab.worlds.world import changed, parameter
from counterpoint.trace.keyed import purpose, uniform

_NUMBER = re.compile(r"\bN-([1-9])(?: holds |\|)(\d{5})\b")
_PATIENCE = 12
"""Acts after which a worker answers with what it has."""


@dataclass(frozen=True)
class Config:
    """The dials."""

    notes: int = parameter(4, "notes", "Notes to add up.")

    def __post_init__(self) -> None:
        if not isinstance(self.notes, int) or isinstance(self.notes, bool) or not 2 <= self.notes <= 9:
            raise InputError(f"notes cannot be {self.notes!r}", fix="a whole number from 2 to 9")


@dataclass(frozen=True)
class Notes:
    """The task, with its dials."""

    config: Config = field(default_factory=Config)
    name: str = "plugin_name"
    short: str = "plugin_name"
    version: str = "1"
    rules: tuple[str, ...] = ("sum",)

    def replace(self, **changes: Any) -> Notes:
        """The same task with other dials."""
        return Notes(changed(self.config, changes))

    def _numbers(self, seed: int) -> list[int]:
        return [60_000 + int(40_000 * uniform(seed, purpose("note"), k)) for k in range(self.config.notes)]

    def instance(self, seed: int) -> Instance:
        """The instance of a seed."""
        notes = [f"N-{k + 1}" for k in range(self.config.notes)]
        texts = [f"{note} holds {number}." for note, number in zip(notes, self._numbers(seed), strict=True)]
        return Instance(
            task=self.name,
            seed=seed,
            question=f"Each of the notes {', '.join(notes)} holds a number. What is their sum?",
            answer_format="one whole number",
            subtasks=tuple(Subtask(note, f"Open {note} and return {note}|its number.") for note in notes),
            tools=("open",),
            documents=tuple(Document(note, f"Note {note[2:]}", text) for note, text in zip(notes, texts, strict=True)),
        )

    def check(self, instance: Instance, answer: str) -> Score:
        """1 for the sum, else 0."""
        is_right = answer.strip() == str(sum(self._numbers(instance.seed)))
        return Score(float(is_right), is_right)

    def merge(self, instance: Instance, rule: str, texts: Sequence[str]) -> str:
        """The sum of the numbers that the texts name, or the one text that is a sum already."""
        if rule not in self.rules:
            raise NotFound(f"no rule named {rule!r}", fix=did_you_mean(rule, self.rules))
        numbers = {note: int(number) for text in texts for note, number in _NUMBER.findall(text)}
        return str(sum(numbers.values())) if numbers else next((text.strip() for text in texts if text.strip()), "")

    def work(self, view: View, draw: Draw, skill: float) -> Act:
        """Open the notes that are asked for and unknown, then return their numbers, or their sum."""
        numbers = {f"N-{note}": int(number) for seen in view.seen for note, number in _NUMBER.findall(seen.text)}
        part = next((seen.text for seen in reversed(view.seen) if seen.kind == "subtask"), "")
        question = next((seen.text for seen in view.seen if seen.kind == "question"), "")
        asked = re.findall(r"\bN-[1-9]\b", part or question)
        missing = [note for note in asked if note not in numbers]
        can_open = any((c.verb, c.target) == ("tool", "open") for c in view.choices)
        if missing and can_open and sum(seen.kind == "own" for seen in view.seen) < _PATIENCE:
            return Act("tool", "open", missing[0])
        slip = int(draw("slip") >= skill)
        if part:
            return _answer(view, "; ".join(f"{note}|{numbers[note] + slip}" for note in dict.fromkeys(asked) if note in numbers))
        return _answer(view, str(sum(numbers[note] for note in {*asked} & {*numbers}) + slip))

    def truth_file(self, instance: Instance) -> str:
        """The marker, and the sum."""
        return f"{marker(self.name, instance.seed)}\n{sum(self._numbers(instance.seed))}\n"


def _answer(view: View, text: str) -> Act:
    choice = next((c for c in view.choices if c.text is None and c.verb in ("return", "stop", "message")), view.choices[0])
    return Act(choice.verb, choice.target, text if choice.text is None else choice.text)


plugin_name = Notes()


# -- test_plugin_name.py -----------------------------------------------------------------------------------------------
"""plugin_name keeps the contract of a task, and scores what was added up by hand."""

# from here import plugin_name
from counterpoint.lab.testing import check_task


def test_it_keeps_the_contract() -> None:
    check_task(plugin_name)


def test_a_sum_by_hand() -> None:
    instance = plugin_name.replace(notes=2).instance(0)
    numbers = [int(document.text.split()[-1].rstrip(".")) for document in instance.documents]
    assert plugin_name.replace(notes=2).check(instance, f" {numbers[0] + numbers[1]}\n").is_solved
    assert plugin_name.merge(instance, "sum", ["N-1|60001", "N-2|60002"]) == "120003"
