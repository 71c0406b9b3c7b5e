"""Short names of traces, for lists: an id as it is, its unique beginning, or a handle made of it.

Always true: a short name stands for one trace of the store, and `Store.find` knows it. A handle depends on the id alone.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches

_LONG, _PREFIX, _MOST_PREFIX = 20, 8, 13
_HANDLE = re.compile(r"[0-9a-f]{7}")
_SHOWN = 5


def handle(trace_id: str) -> str:
    """A short name made of an id."""
    return hashlib.sha256(trace_id.encode("utf-8", "surrogatepass")).hexdigest()[:7]


def is_handle(name: str) -> bool:
    """Whether a name may be a handle."""
    return _HANDLE.fullmatch(name) is not None


_OWN = 4
"""A source's own id is looked for inside ids by so many characters at least."""


def named(prefix: str, tasks: Mapping[str, str]) -> list[str]:
    """The ids (each with that of its task) that a name may stand for, by the best rule that finds any: their beginning, a handle,
    or the source's own id: what follows a slash or the name of the source, or the task's."""
    if not prefix:
        return []
    if names := [name for name in tasks if name.startswith(prefix)]:
        return names
    if is_handle(prefix) and (names := [name for name in tasks if handle(name) == prefix]):
        return names
    if len(prefix) < _OWN:
        return []
    inside = re.compile(rf"(?:/|^[a-z][a-z_]*-){re.escape(prefix)}")
    return [name for name, task in tasks.items() if inside.search(name) or task.startswith(prefix)]


def short_ids(ids: Iterable[str]) -> dict[str, str]:
    """Id to its short name: the id where it is short, a beginning that no other id has, else its handle."""
    ordered = sorted(set(ids))
    out: dict[str, str] = {}
    for k, name in enumerate(ordered):
        need = 1 + max((_shared(name, ordered[j]) for j in (k - 1, k + 1) if 0 <= j < len(ordered)), default=0)
        if len(name) <= _LONG:
            out[name] = name
            continue
        begin = name[: max(need, _PREFIX)]
        out[name] = begin if len(begin) <= _MOST_PREFIX and "/" not in begin and begin.isprintable() else handle(name)
    return out


def _shared(a: str, b: str) -> int:
    """How many characters two names begin with alike."""
    n = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        n += 1
    return n


def nearest(name: str, known: Sequence[str]) -> str:
    """The fix line for an unknown id: the known ones that are like it, or begin like it, else the last few."""
    begins = {one[: len(name)]: one for one in reversed(known)}
    like = [begins.get(word, word) for word in get_close_matches(name, {*known, *begins}, n=_SHOWN, cutoff=0.6)]
    if like:
        return f"did you mean {' or '.join(repr(one) for one in dict.fromkeys(like))}?"
    more = " ...; counterpoint ls lists them all" if len(known) > _SHOWN else ""
    return f"known: {', '.join(known[-_SHOWN:])}{more}" if known else "none is known"
