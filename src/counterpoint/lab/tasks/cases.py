"""Cases of your own: a JSON object in each line, with a question, and the answer where an exact match is to score it.

    {"id": "product", "question": "What is 6 times 7?", "answer": "42"}

Always true: a line that cannot be read is an error that names it, before anything is played; ids are unique in a file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from counterpoint.errors import InputError, NotFound
from counterpoint.files import read_plain

_EXAMPLE = '{"question": "What is 6 times 7?", "answer": "42"}'
_ID = 40
"""Characters of an id that is made of the question."""


def read_lines(path: Path, *, has_scorer: bool) -> dict[str, dict[str, Any]]:
    """The lines of a file by the ids of their cases; without a scorer each has an answer to compare with."""
    try:
        data = read_plain(path).removeprefix(b"\xef\xbb\xbf")
    except FileNotFoundError as error:
        raise NotFound("no such file", where=str(path), fix=f"one case in each line: {_EXAMPLE}") from error
    out: dict[str, dict[str, Any]] = {}
    for n, text in enumerate(data.split(b"\n"), 1):
        if not text.strip():
            continue
        where = f"{path}:{n}"
        try:
            line = msgspec.json.decode(text, type=dict[str, Any])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise InputError("is not a JSON object", where=where, why=str(error), fix=f"as in {_EXAMPLE}") from error
        _check_line(line, where, has_scorer=has_scorer)
        out[_id_of(line, where, out)] = line
    if not out:
        raise InputError("holds no case", where=str(path), fix=f"one in each line: {_EXAMPLE}")
    return out


def without_answer(line: Mapping[str, Any]) -> dict[str, Any]:
    """What a team sees of a line."""
    return {name: value for name, value in line.items() if name != "answer"}


def is_match(answer: str, line: Mapping[str, Any]) -> bool:
    """Whether an answer is the line's, but for blanks around it."""
    return answer.strip() == str(line["answer"]).strip()


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


def _id_of(line: Mapping[str, Any], where: str, taken: Mapping[str, Any]) -> str:
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
