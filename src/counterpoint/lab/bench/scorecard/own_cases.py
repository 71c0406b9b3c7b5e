"""Cases of your own: a JSON object in each line, and who scores the answer.

    {"id": "product", "question": "What is 6 times 7?", "answer": "42"}

Always true: a team is given all of its line but `answer`, the scorer all of it. A line that cannot be read is an error that names
it before anything is played. A score is a number from 0 to 1, by an exact match or by a function `(answer, case)` in a process of
its own; whatever that function does, it costs the one case. A case is the same as long as its line and its scorer's code are.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counterpoint.errors import InputError, NotFound
from counterpoint.files import read_plain
from counterpoint.lab.bench.results import decode, digest_of
from counterpoint.lab.bench.scorecard.cells import Cell
from counterpoint.lab.bench.scorecard.own_code import OwnRun
from counterpoint.lab.bench.scorecard.scorer import Scorer
from counterpoint.lab.bench.scorecard.team_code import code_of
from counterpoint.lab.tasks.task import Instance, Score, Subtask

_EXAMPLE = '{"question": "What is 6 times 7?", "answer": "42"}'
_ID = 40
"""Characters of an id that is made of the question."""
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
        return {name: value for name, value in self.line.items() if name != "answer"}

    def check(self, instance: Instance, answer: str, *, seconds: float = math.inf) -> Score:
        """What the answer is worth; a scorer that breaks raises `ScorerError`."""
        if self.scorer is None:
            value = float(answer.strip() == str(self.line["answer"]).strip())
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
    try:
        data = read_plain(path).removeprefix(b"\xef\xbb\xbf")
    except FileNotFoundError as error:
        raise NotFound("no such file", where=str(path), fix=f"one case in each line: {_EXAMPLE}") from error
    out: dict[str, OwnCase] = {}
    for n, text in enumerate(data.split(b"\n"), 1):
        if not text.strip():
            continue
        where = f"{path}:{n}"
        line = decode(text, dict[str, Any], "is not a JSON object", where, f"as in {_EXAMPLE}")
        _check_line(line, where, has_scorer=scorer is not None)
        id_ = _id_of(line, where, out)
        digest = digest_of({"line": line, "scorer": code})
        out[id_] = OwnCase(id=id_, kind="own", band=0, name=path.name, line=line, scorer=scorer, digest=digest)
    if not out:
        raise InputError("holds no case", where=str(path), fix=f"one in each line: {_EXAMPLE}")
    return list(out.values())


def _check_line(line: Mapping[str, Any], where: str, *, has_scorer: bool) -> None:
    question = line.get("question")
    if not isinstance(question, str) or not question.strip():
        what = "has no question" if question is None else f"question is {question!r}, not a text"
        raise InputError(what, where=where, fix=f"as in {_EXAMPLE}")
    if has_scorer:
        return
    if "answer" not in line:
        raise InputError("has no answer to compare with", where=where, fix="add it, or name a scorer: --reward my.py:score")
    if not isinstance(line["answer"], str | int | float) or isinstance(line["answer"], bool):
        what = f"answer is a {type(line['answer']).__name__}, and an exact match takes a text or a number"
        raise InputError(what, where=where, fix="name a scorer: --reward my.py:score")


def _id_of(line: Mapping[str, Any], where: str, taken: Mapping[str, OwnCase]) -> str:
    """The line's id, else the first words of its question: lines that come and go around it change neither."""
    given = line.get("id")
    if given is not None:
        id_ = str(given).strip() if isinstance(given, str | int) else ""
        if not id_ or not id_.isprintable():
            raise InputError(f"id is {given!r}", where=where, fix='a text in one line: "id": "product"')
        if id_ in taken:
            raise InputError(f"there is a case {id_!r} above", where=where, fix="give it another id")
        return id_
    made = "-".join(re.findall(r"\w+", line["question"].lower()))[:_ID].strip("-") or "case"
    return next(name for k in range(len(taken) + 1) if (name := made if not k else f"{made}-{k + 1}") not in taken)


def _short(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "...")
