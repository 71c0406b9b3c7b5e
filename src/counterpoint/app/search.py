"""The search language: words, and fields such as `topology:swarm agents>5 reward<0.5 tokens>=5k open`.

Always true: terms are joined by and; a word matches the id, task or system; an unknown field is an error, never an empty list.
"""

from __future__ import annotations

import operator
import re
import shlex
from collections.abc import Callable
from typing import Any

from counterpoint.errors import InputError, did_you_mean

__all__ = ["FIELDS", "matcher"]

# The name in a query -> the attribute of a row.
FIELDS = {
    "id": "id",
    "task": "task_id",
    "system": "system",
    "topology": "topology",
    "source": "source",
    "events": "events",
    "edges": "edges",
    "agents": "agents",
    "tokens": "tokens",
    "seconds": "wall_clock_s",
    "reward": "team_reward",
    "errors": "errors",
}
_FLAGS = {"open": lambda row: row.is_open, "finished": lambda row: not row.is_open, "invalid": lambda row: row.errors > 0}
_COMPARE = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "=": operator.eq, "!=": operator.ne}
_TERM = re.compile(r"(\w+)(<=|>=|!=|[:<>=])(.+)")
_UNITS = {"": 1, "k": 1e3, "m": 1e6, "g": 1e9}


def matcher(query: str) -> Callable[[Any], bool]:
    """A predicate over rows, from a query."""
    try:
        terms = shlex.split(query)
    except ValueError as error:
        raise InputError(f"cannot read the query {query!r}", why=str(error), fix="close the quotes") from error
    tests = [_test(term) for term in terms]
    return lambda row: all(test(row) for test in tests)


def _test(term: str) -> Callable[[Any], bool]:
    if term in _FLAGS:
        return _FLAGS[term]
    found = _TERM.fullmatch(term)
    if not found:
        word = term.lower()
        return lambda row: any(word in (value or "").lower() for value in (row.id, row.task_id, row.system))
    name, sign, value = found.groups()
    if name not in FIELDS:
        raise InputError(f"no field named {name!r} in the query", fix=did_you_mean(name, FIELDS))
    attribute = FIELDS[name]
    if sign == ":":
        wanted = value.lower()
        return lambda row: wanted in str(getattr(row, attribute) or "").lower()
    number, compare = _number(value, term), _COMPARE[sign]
    return lambda row: (have := getattr(row, attribute)) is not None and not isinstance(have, str) and bool(compare(have, number))


def _number(text: str, term: str) -> float:
    found = re.fullmatch(r"(-?[\d.]+)([kmgKMG]?)", text)
    try:
        return float(found.group(1)) * _UNITS[found.group(2).lower()]  # type: ignore[union-attr]
    except (AttributeError, ValueError) as error:
        raise InputError(f"{text!r} in {term!r} is not a number", fix="write 5, 0.5 or 5k; use : to match text") from error
