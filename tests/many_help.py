"""A task of many tiny parts, for teams of very many: part k is to look up page k and to return its number.

`--task many_help:many --set parts=1000`, with tests/ on the path.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from counterpoint.lab.tasks.task import Act, Document, Draw, Instance, Score, Subtask, View
from counterpoint.lab.worlds.world import parameter


@dataclass(frozen=True)
class Config:
    """The dials."""

    parts: int = parameter(4, "parts", "Pages, each a part.")
    looks: int = parameter(1, "looks", "How often a worker looks before it returns.")


@dataclass(frozen=True)
class Many:
    """Follows `TextTask`."""

    config: Config = field(default_factory=Config)
    name = "many"
    short = "many"
    version = "1"
    rules = ("union",)

    def replace(self, **changes: Any) -> Many:
        """The same task with other dials."""
        return Many(replace(self.config, **changes))

    def instance(self, seed: int) -> Instance:
        """Pages p1, p2, ..."""
        pages = tuple(Document(f"p{k}", f"page {k}", f"The number of page {k} is {self._number(seed, k)}.") for k in self._all)
        return Instance(
            task=self.name,
            seed=seed,
            question="Sum up: which numbers are on the pages?",
            answer_format="numbers separated by spaces",
            subtasks=tuple(Subtask(f"s{k}", f"Open p{k} and return its number.") for k in self._all),
            tools=("open",),
            documents=pages,
        )

    @property
    def _all(self) -> range:
        return range(1, self.config.parts + 1)

    def _number(self, seed: int, k: int) -> int:
        return (seed + 1) * 10_000 + k

    def check(self, instance: Instance, answer: str) -> Score:
        """The share of numbers that were found."""
        truth = {str(self._number(instance.seed, k)) for k in self._all}
        value = len(truth & set(answer.split())) / len(truth)
        return Score(value, value == 1.0)

    def merge(self, instance: Instance, rule: str, texts: Sequence[str]) -> str:
        """All numbers, each once, in order."""
        return " ".join(sorted({word for text in texts for word in text.split() if word.isdigit()}))

    def work(self, view: View, draw: Draw, skill: float) -> Act:
        """Open the page as often as the dial says, then return its number."""
        page = next(s.text for s in reversed(view.seen) if s.kind == "subtask").split()[1]
        results = [s.text for s in view.seen if s.kind == "result"]
        if len(results) < self.config.looks and any(c.verb == "tool" for c in view.choices):
            return Act("tool", "open", page)
        return Act("return", "", results[-1].rpartition(" ")[2].rstrip(".") if results else "unknown")

    def truth_file(self, instance: Instance) -> str:
        """The numbers."""
        return " ".join(str(self._number(instance.seed, k)) for k in self._all)


many = Many()
