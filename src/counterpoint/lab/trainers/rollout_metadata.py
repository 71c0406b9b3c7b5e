"""What a trainer's own record says of a sample's place in its team: the mapping `team` in its metadata.

    sample.metadata["team"] = {"agent": "planner", "name": "plan", "parent": "lead", "after": 1, "frozen": False}

Always true: a word that is not known, or of another type, is an error that names the sample; what is not said is as in `Sample`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from counterpoint.errors import InputError, did_you_mean

Paid = Literal["team", "sample", "parts"]
PAID = ("team", "sample", "parts")
"""Whether a record's reward is that of its team, its own, or a part of the team's (reward / K)."""
KEY = "team"
OF_SAMPLE: dict[str, tuple[type, ...]] = {
    "agent": (str,), "role": (str,), "policy": (str,), "name": (str,), "parent": (str,), "after": (int,), "reads": (list, tuple),
    "spans": (list, tuple), "calls": (list, tuple), "frozen": (bool,), "version": (int,),
}  # fmt: skip
OF_ROLLOUT: dict[str, tuple[type, ...]] = {"rollout": (str, int), "task": (str, int), "attempt": (int,), "samples": (int,)}
"""Of the whole run: its name, its task, which attempt it is, how many samples it has."""
_KNOWN = OF_SAMPLE | OF_ROLLOUT
_SAME = 1e-6


def team_words(metadata: Any, where: str) -> dict[str, Any]:
    """The words of a record's metadata; none where it says nothing of a team."""
    told = metadata.get(KEY) if isinstance(metadata, Mapping) else None
    if told is None:
        return {}
    if not isinstance(told, Mapping):
        raise InputError(f"{KEY!r} is a {type(told).__name__}", where=where, fix=f"{{{KEY!r}: {{'agent': 'planner'}}}}")
    for word, value in told.items():
        if word not in _KNOWN:
            raise InputError(f"no word {word!r} in {KEY!r}", where=where, fix=did_you_mean(str(word), _KNOWN))
        if value is not None and (not isinstance(value, _KNOWN[word]) or (isinstance(value, bool) and bool not in _KNOWN[word])):
            kinds = " or ".join(kind.__name__ for kind in _KNOWN[word])
            raise InputError(f"{word!r} is a {type(value).__name__}", where=where, fix=f"{word}: a {kinds}")
    return {word: value for word, value in told.items() if value is not None}


def of_sample(words: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the words that `Sample` takes."""
    return {word: value for word, value in words.items() if word in OF_SAMPLE}


def of_call(words: Mapping[str, Any], record: int, call: int, records: Sequence[str], where: str) -> dict[str, Any]:
    """What `Sample` takes for one call of a record with several: `name` is `record.call`, `parent` the call of the record of that
    name after which it began (for later calls: the first one, which they go on from)."""
    told = of_sample(words)
    parent, after = told.pop("parent", None), told.pop("after", 0)
    if parent is not None:
        if parent not in records:
            raise InputError(f"no {parent!r}", where=where, fix=f"parent: one of {', '.join(sorted(set(records)))}")
        parent = f"{record}.0" if call else f"{records.index(parent)}.{after}"
    return told | {"name": f"{record}.{call}", "parent": parent}


def check_payment(paid: str) -> None:
    """Refuse another word than those known."""
    if paid not in PAID:
        raise InputError(f"paid={paid!r}", fix=did_you_mean(paid, PAID))


def team_reward(rewards: Sequence[float | None], paid: Paid, where: str) -> float | None:
    """What the team was paid, by the rewards of its records; None where nobody says it, or where each was paid its own."""
    known = [float(x) for x in rewards if x is not None]
    if paid == "sample" or not known:
        return None
    if paid == "parts":
        return math.fsum(known)
    if max(known) - min(known) > _SAME:
        what = f"its samples are paid from {min(known):g} to {max(known):g}"
        raise InputError(
            what, where=where, fix="paid='sample' where each is paid by itself, 'parts' where they add up to the team's"
        )
    return known[0]
