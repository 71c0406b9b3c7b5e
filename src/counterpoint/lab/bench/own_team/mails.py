"""Mails for the desk, drawn by a seed, and a weak demonstrator: rules that err by chance, and in one thing most of the time.

Always true: a seed's mails are the same everywhere; no two seeds share a stream. Every mail names two things, cities and numbers
of which one is meant, so that copying the first word is no answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from counterpoint.lab.bench.own_team.desk import CHECKER, READER

_THINGS = ("lamp", "chair", "desk", "mirror", "carpet", "kettle", "clock", "vase", "basket", "shelf", "pillow", "curtain")
_CITIES = ("Oslo", "Rome", "Lima", "Cairo", "Delhi", "Quito", "Tunis", "Riga", "Porto", "Seoul", "Accra", "Basel")
_NUMBERS = ("two", "three", "four", "five", "six", "seven", "eight", "nine")
_NAMES = ("Anna", "Boris", "Chen", "Dina", "Emil", "Fatma", "Goran", "Hana", "Ivo", "Jana")
_WANTS = {
    "order": ("please send me {n} {a}s to {c}", "I would like {n} {a}s for my house in {c}", "we need {n} new {a}s in {c}"),
    "return": ("I want to give back {n} {a}s that stand in {c}", "please fetch {n} {a}s from {c}, we do not want them",
               "the {n} {a}s in {c} should go back to you"),
    "broken": ("{n} {a}s arrived in {c} in pieces", "in {c} {n} {a}s do not work any more", "{n} of our {a}s in {c} fell apart"),
}  # fmt: skip
_BESIDE = (
    "Last year in {d} we had {m} {b}s and liked them.", "My sister in {d} has {m} {b}s.", "No hurry about the {m} {b}s for {d}.",
)  # fmt: skip
_DEPARTMENT = {"order": "sales", "return": "depot", "broken": "repair"}
ERRS = 0.2
"""How often the demonstrator gets a field wrong, by chance."""
MISTAKES = 0.7
"""How often it takes what is broken for what is to go back: more often than not, so that its most likely answer is wrong, too."""


def mail(rng: Random) -> dict[str, str]:
    """One case: the mail, and the line that is right."""
    want = rng.choice(sorted(_WANTS))
    a, b = rng.sample(_THINGS, 2)
    c, d = rng.sample(_CITIES, 2)
    n, m = rng.sample(_NUMBERS, 2)
    asked = rng.choice(_WANTS[want]).format(n=n, a=a, c=c)
    beside = rng.choice(_BESIDE).format(m=m, b=b, d=d)
    parts = [f"{asked[0].upper()}{asked[1:]}.", beside]
    rng.shuffle(parts)
    text = f"Hello, this is {rng.choice(_NAMES)}. {' '.join(parts)} Thank you."
    return {"question": text, "answer": f"{_DEPARTMENT[want]} | {n} | {a} | {c}"}


def mails(seed: int, count: int) -> Iterator[dict[str, str]]:
    """Different mails of a seed."""
    rng, seen = Random(f"mails {seed}"), set[str]()
    while len(seen) < count:
        made = mail(rng)
        if made["question"] not in seen:
            seen.add(made["question"])
            yield made


def write_cases(path: Path, seed: int, count: int) -> None:
    """The mails as a file of cases."""
    text = "".join(json.dumps({"id": f"mail-{k}", **one}) + "\n" for k, one in enumerate(mails(seed, count)))
    draft = path.with_name(f".{path.name}")
    path.parent.mkdir(parents=True, exist_ok=True)
    draft.write_text(text)
    draft.replace(path)


class Rules:
    """The demonstrator: it knows the line that is right, and errs in each field of each answer."""

    def __init__(self, case: dict[str, str], seed: int) -> None:
        self._true, self._rng = [part.strip() for part in case["answer"].split("|")], Random(f"rules {seed}")

    def answer(self, messages: Any) -> str:
        """What one role says: the first two of the mail, the router of the line that it is given."""
        system, text = str(messages[0].content), str(messages[1].content)
        is_router = system not in (READER, CHECKER)
        wants = {department: want for want, department in _DEPARTMENT.items()}
        seen = {**wants, "repair": "return"} if self._rng.random() < MISTAKES else wants
        kinds = (sorted(wants) if is_router else sorted(_WANTS), _NUMBERS, _THINGS, _CITIES)
        fields = [part.strip() for part in text.split("|")] if is_router else [seen[self._true[0]], *self._true[1:]]
        if is_router:
            fields[0] = _DEPARTMENT[fields[0]]
        told = [self._rng.choice(kind) if self._rng.random() < ERRS else field for field, kind in zip(fields, kinds, strict=True)]
        return " | ".join(told)
