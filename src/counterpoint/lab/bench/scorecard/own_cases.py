"""Cases of your own: a JSON object in each line, and who scores the answer.

    {"id": "product", "question": "What is 6 times 7?", "answer": "42"}

Always true: a team is given all of its line but `answer`, the scorer all of it. A line that cannot be read is an error that names
it before anything is played. A score is a number from 0 to 1, by an exact match or by a function `(answer, case)` in a process of
its own; whatever that function does, it costs the one case. A case is the same as long as its line and its scorer's code are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counterpoint.lab.bench.results import digest_of
from counterpoint.lab.bench.scorecard.cells import Cell
from counterpoint.lab.bench.scorecard.own_code import OwnRun
from counterpoint.lab.bench.scorecard.scorer import Scorer
from counterpoint.lab.bench.scorecard.team_code import code_of
from counterpoint.lab.tasks.cases import is_match, read_lines, without_answer
from counterpoint.lab.tasks.task import Instance, Score, Subtask

_SHOWN = 60
"""Characters of an answer that a row keeps."""


@dataclass(frozen=True, kw_only=True)
class OwnCase(Cell):
    """One line of the file; a cell that a function of yours can play."""

    line: Mapping[str, Any]
    scorer: Scorer | None
    """None: an exact match."""
    digest: str
    """Of the line and of the scorer's code."""

    @property
    def key(self) -> str:
        """A row is of this case while neither its line nor its scorer changes."""
        return self.digest

    def make(self) -> OwnCase:
        """Itself: it is the task, too."""
        return self

    def close(self) -> None:
        """End the scorer's process."""
        if self.scorer is not None:
            self.scorer.close()

    def instance(self, seed: int) -> Instance:
        """The question, without the answer."""
        question = str(self.line["question"])
        whole = (Subtask("all", question),)
        how = str(self.line.get("answer_format", ""))
        return Instance(task=self.name, seed=seed, question=question, answer_format=how, subtasks=whole)

    def visible(self) -> dict[str, Any]:
        """What a team sees of the line."""
        return without_answer(self.line)

    def check(self, instance: Instance, answer: str, *, seconds: float = math.inf) -> Score:
        """What the answer is worth; a scorer that breaks raises `ScorerError`."""
        if self.scorer is None:
            value = float(is_match(answer, self.line))
        else:
            value = self.scorer.score(answer, {**self.line, "id": self.id}, seconds=seconds)
        return Score(value, value == 1.0)

    def remark(self, got: OwnRun, score: Score) -> str:
        """Why a case is on the card's list: what went wrong, or what was answered instead."""
        if got.why or score.is_solved:
            return got.why
        verdict = f"which scores {score.value:g}" if self.scorer else f"not {_short(str(self.line['answer']))}"
        return f"answered {_short(got.answer)}, {verdict}"


def read_cases(path: Path, reward: str | None = None) -> list[OwnCase]:
    """The cases of a file, scored by `reward` ("path/to/file.py:function"), else by an exact match."""
    scorer = None if reward is None else Scorer.named(reward)
    code = "" if reward is None else code_of(reward).digest + reward.rpartition(":")[2]
    out: dict[str, OwnCase] = {}
    for id_, line in read_lines(path, has_scorer=scorer is not None).items():
        digest = digest_of({"line": line, "scorer": code})
        out[id_] = OwnCase(id=id_, kind="own", band=0, name=path.name, line=line, scorer=scorer, digest=digest)
    return list(out.values())


def _short(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "...")
