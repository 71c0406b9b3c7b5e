"""What a fork changes: edits by stable key, and which noise each call draws from.

Always true: an edit touches the event with its key and nothing else; a call whose key was recorded before a fork keeps the
noise it had, and with a fork's own seed every other call draws afresh. `seed(key)` depends on the seeds and the key alone,
never on the order in which calls are made.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from counterpoint.errors import InputError, did_you_mean
from counterpoint.lab.tasks import grammar
from counterpoint.lab.tasks.task import Act, Choice
from counterpoint.trace.replay import Delete, Do, Force, Insert, Substitute

PASSED = "|passed|"
"""In the key of a noop event: the decision's key stands before it, what was passed over after it."""
_DO: dict[str, type] = {"delete": Delete, "substitute": Substitute, "insert": Insert, "force": Force}
_FORCED = ("spawn", "stop", "noop", "delegate", "aggregate", "act")


def keyed_seed(seed: int, key: str) -> int:
    """hash(seed, key) as a number that every endpoint takes: 31 bits."""
    return int.from_bytes(hashlib.blake2b(f"{seed}|{key}".encode(), digest_size=4).digest(), "big") >> 1


def do_of(note: Mapping[str, Any] | None) -> Do | None:
    """An edit from plain data."""
    if note is None:
        return None
    return _DO[note["name"]](**{k: v for k, v in note.items() if k != "name"})


def edit_note(at: str, key: str, count: int, do: Do | None, seed: int | None) -> dict[str, Any]:
    """A fork as plain data, as its trace carries it: where, what, and how many events it kept."""
    plain = None
    if do is not None:
        name = next(n for n, kind in _DO.items() if isinstance(do, kind))
        plain = {"name": name, **{k: dict(v) if isinstance(v, Mapping) else v for k, v in vars(do).items()}}
    note = {"at": at, "key": key, "count": count, "do": plain, "seed": seed}
    tag = hashlib.blake2b(json.dumps(note, sort_keys=True, default=str).encode(), digest_size=4).hexdigest()
    return {"id": f"fork-{tag}", **note}


@dataclass
class Edits:
    """All edits of one run, and its noise."""

    seed0: int
    by_key: dict[str, Do] = field(default_factory=dict)
    fresh: list[tuple[frozenset[str], int]] = field(default_factory=list)
    """Per fork with a seed of its own: the keys that were recorded before it, and the seed."""

    @classmethod
    def of(cls, seed: int, notes: Sequence[Mapping[str, Any]], keys: Sequence[str | None]) -> Edits:
        """The edits of a trace that has these keys in its order; a fork keeps the first `count` of them."""
        edits = cls(seed)
        for note in notes:
            do = do_of(note["do"])
            if do is not None:
                edits.by_key[note["key"].split(PASSED)[0]] = do
            if note["seed"] is not None:
                edits.fresh.append((frozenset(k for k in keys[: note["count"]] if k is not None), note["seed"]))
        return edits

    def at(self, key: str) -> Do | None:
        """What is done to this event."""
        return self.by_key.get(key) if self.by_key else None

    def seed(self, key: str) -> int:
        """The noise of this call."""
        seed, mark = self.seed0, ""
        for before, fresh in self.fresh:
            if key not in before:
                seed, mark = fresh, "fork|"
        do = self.at(key)
        if isinstance(do, Substitute) and do.value is None:
            mark += f"draw {do.draw}|"
        return keyed_seed(seed, f"{mark}{key}")


def forced(action: Mapping[str, Any], choices: Sequence[Choice]) -> Act:
    """The act that a `Force` asks for, of what was legal: `{"spawn": 1}`, `{"stop": true}`, `{"act": "DELEGATE lead.1: s2"}`."""
    name = next(iter(action), "")
    if len(action) != 1 or name not in _FORCED:
        raise InputError(f"{dict(action)} forces nothing here", fix=f"one of {', '.join(_FORCED)}: {did_you_mean(name, _FORCED)}")
    value = action[name]
    if name == "act":
        found = grammar.read(str(value), choices)
        if isinstance(found, grammar.Malformed):
            raise InputError(f"{str(value)!r} was not legal there: {found.why}", fix=_legal(choices))
        return found
    if name == "noop" or (name in ("spawn", "stop") and not value):
        return Act("noop")
    mine = [c for c in choices if c.verb == name and (isinstance(value, bool | int) or str(value) in (c.target, c.text))]
    if not mine:
        raise InputError(f"{name} was not offered there", fix=_legal(choices))
    return Act(mine[0].verb, mine[0].target, mine[0].text or "")


def _legal(choices: Sequence[Choice]) -> str:
    return "legal were: " + ", ".join(grammar.label(c) for c in choices[:8])
