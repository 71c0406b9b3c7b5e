"""Facts, claims and verdicts in text: what follows from which facts, and how statements are put together.

Always true: of two facts on the same thing the one with the later date holds, and a claim is decided by facts alone: true
where the chain of facts ends at what it says, false where it ends elsewhere, unknown where a link is missing. Texts may be
anything; what is no fact, claim or verdict in them is passed over.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

UNKNOWN = "unknown"
_FACT = re.compile(r"\[(\d{4}-\d{2}-\d{2})\] The ([a-z]{1,20}) of ([A-Z][\w ]{0,40}?) is ([A-Z][\w ]{0,40}?)\.")
_CLAIM = re.compile(
    r"\b(c\d{1,3}): (the [a-z]{1,20}(?: of the [a-z]{1,20}){0,11}) of ([A-Z][\w ]{0,40}?) is ([A-Z][\w ]{0,40}?)\."
)
_VERDICT = re.compile(r"\b(c\d{1,3})\s{0,3}[=:]\s{0,3}(true|false|unknown)\b", re.I)


@dataclass(frozen=True)
class Fact:
    """The relation of one thing is another, as of a day."""

    day: str
    relation: str
    of: str
    value: str

    def __str__(self) -> str:
        return f"[{self.day}] The {self.relation} of {self.of} is {self.value}."


@dataclass(frozen=True)
class Claim:
    """Follow the relations from a thing, the first one first, and arrive at a value."""

    id: str
    relations: tuple[str, ...]
    of: str
    value: str

    def __str__(self) -> str:
        path = " of ".join(f"the {relation}" for relation in reversed(self.relations))
        return f"{self.id}: {path} of {self.of} is {self.value}."


def facts(text: str) -> list[Fact]:
    """The facts in a text, in order."""
    return [Fact(*found) for found in _FACT.findall(text)]


def claims(text: str) -> list[Claim]:
    """The claims in a text, each id once."""
    found = {
        id_: Claim(id_, tuple(reversed(re.findall(r"the ([a-z]+)", path))), of, value)
        for id_, path, of, value in _CLAIM.findall(text)
    }
    return list(found.values())


def follows(asked: Sequence[Claim], known: Iterable[Fact]) -> dict[str, str]:
    """The verdict on each claim that these facts give."""
    latest: dict[tuple[str, str], Fact] = {}
    for fact in sorted(set(known), key=lambda f: (f.day, f.value)):
        latest[fact.relation, fact.of] = fact
    out = {}
    for claim in asked:
        at: str | None = claim.of
        for relation in claim.relations:
            fact_ = latest.get((relation, at)) if at is not None else None
            at = fact_.value if fact_ is not None else None
        out[claim.id] = UNKNOWN if at is None else "true" if at == claim.value else "false"
    return out


def verdicts(text: str) -> dict[str, str]:
    """The verdicts in a text; of two on one claim the last."""
    return {id_: word.lower() for id_, word in _VERDICT.findall(text)}


def voted(asked: Sequence[Claim], some: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """What most say of those who say anything, for each claim; of equals what was said first."""
    out = {}
    for claim in asked:
        said = Counter(one[claim.id] for one in some if one.get(claim.id, UNKNOWN) != UNKNOWN)
        out[claim.id] = said.most_common(1)[0][0] if said else UNKNOWN
    return out


def statement(given: Mapping[str, str], known: Iterable[Fact] = ()) -> str:
    """Verdicts, and the facts that they rest on, in one line."""
    text = "; ".join(f"{id_}={word}" for id_, word in given.items())
    listed = " ".join(dict.fromkeys(map(str, known)))
    return f"{text} | facts: {listed}" if listed else text
