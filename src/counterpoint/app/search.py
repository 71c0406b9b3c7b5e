"""The search language: words, and fields such as `project:shop errors>0 cost>=5 since:7d tokens>=5k open "two words"`.

Always true: terms are joined by and; an unknown field, a field without a value and `OR` are errors, never an empty list; what
stands in double quotes is words, whatever it holds. Over traces `project:shop` finds a part of the name in any case,
`project=shop` the whole name as written; numbers are compared (`events:20` is `events=20`), with `score:fit>0.5` those of a name.
A word matches a trace's title, id, task, project, model or system, and over the events of a trace (`viewer.event_search`) their
text, id, agent and tool. Both sets of fields stand here, so that the language is one.

A trace matches a date when any of it was at work then: the terms about dates of a query (`since:7d`, `until:2026-11-16`,
`last:2w`, `date:2026-11`) say together from when to when. Days are those of this machine's time zone.
"""

from __future__ import annotations

import math
import operator
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from counterpoint.display import local_moment, zone
from counterpoint.errors import InputError, NotFound, did_you_mean
from counterpoint.store.handles import handle, is_handle
from counterpoint.store.summary import day_of
from counterpoint.trace.activity import QUARTER_S

if TYPE_CHECKING:
    from counterpoint.store.annotations import Dataset

# Over traces: the name in a query -> the attribute of a row.
FIELDS = {
    "id": "id",
    "title": "title",
    "project": "project",
    "model": "model",
    "date": "date",
    "day": "date",
    "since": "active",
    "until": "date",
    "last": "active",
    "active": "active",
    "task": "task_id",
    "system": "system",
    "topology": "topology",
    "source": "source",
    "events": "events",
    "edges": "edges",
    "agents": "agents",
    "tokens": "tokens",
    "cost": "cost_usd",
    "unpriced": "unpriced_tokens",
    "seconds": "wall_clock_s",
    "reward": "team_reward",
    "errors": "errors",
    "problems": "problems",
    "label": "label",
    "note": "note",
    "notes": "annotations",
    "score": "scores",
    "in": "id",
    "parent": "parent",
}
"""`since`, `until` and `last` say when a trace was at work, `active` when it was last; `parent` is the session that a run was
made for; `errors` are events that went wrong; `problems` what `counterpoint store check` finds in the records; `label`, `note`
(its text), `notes` (how many) and `score` are what people and models put on a trace; `in:NAME` is in a collection of
`counterpoint notes dataset`."""
_DATES = ("date", "day", "since", "until", "last", "active")
_SPANS = ("since", "until", "last")
_TEXTS = ("id", "title", "project", "model", "task", "system", "topology", "source", "label", "note", "parent")
_SEVERAL = {"model": "models", "label": "labels", "note": "remarks"}
"""Texts of which a trace may have several, and where they stand one by one."""
FACETS = ("project", "model", "day", "system", "topology")
"""What lists are counted by; `facet` gives the values of a row."""
FLAGS: dict[str, Callable[[Any], bool]] = {
    "open": lambda row: row.is_open or bool(row.waiting),
    "finished": lambda row: not row.is_open and not row.waiting,
    "invalid": lambda row: row.problems > 0,
    "failed": lambda row: row.errors > 0,
    "steered": lambda row: row.is_steered,
    "annotated": lambda row: row.annotations > 0,
}

EVENT_FIELDS: dict[str, Literal["text", "number", "date"]] = {
    "id": "text",
    "kind": "text",
    "type": "text",
    "agent": "text",
    "role": "text",
    "tool": "text",
    "model": "text",
    "to": "text",
    "task": "text",
    "n": "number",
    "t": "number",
    "seconds": "number",
    "tokens": "number",
    "cost": "number",
    "turn": "number",
    "step": "number",
    "depth": "number",
    "reward": "number",
    "label": "text",
    "note": "text",
    "score": "number",
    "date": "date",
    "since": "date",
    "until": "date",
    "last": "date",
}
"""Over events: what may be asked, and whether it is text (`:`), a number (`< <= > >= = !=`) or a date. `step` is the turn;
`label`, `note` and `score` are what people and models said about the event."""
EVENT_FLAGS = {
    "untrusted": "untrusted",
    "tainted": "tainted",
    "failed": "failed",
    "error": "failed",
    "open": "open",
    "path": "on_path",
    "on_path": "on_path",
    "text": "text",
    "human": "human",
    "safety": "safety",
    "unlinked": "unlinked",
}
"""Over events: a bare word that is a mark, and the mark's name in the page's columns."""

COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "!=": operator.ne,
}
_TERM = re.compile(r"""(?:(\w+)(<=|>=|!=|[:<>=]))?(?:"([^"]*)"|'([^']*)'(?=\s|$)|(\S+))""")
_BARE = re.compile(r"(\w+)(<=|>=|!=|[:<>=])")
_NAMED_SCORE = re.compile(r"([^<>=!]+)(<=|>=|!=|[<>])(.*)")
_UNITS = {"": 1, "k": 1e3, "m": 1e6, "g": 1e9}


class Term(NamedTuple):
    """One term: a field with a sign and a value, a flag (no sign), or a word (no name)."""

    name: str
    sign: str
    value: str


def terms(query: str, fields: Collection[str], flags: Collection[str]) -> list[Term]:
    """The terms of a query; `InputError` for a field that is not among those known."""
    out = []
    for found in _TERM.finditer(query):
        name, sign, *quoted, plain = found.groups()
        if plain is not None and plain.startswith(('"', "'")):
            raise InputError(f"cannot read the query {query!r}", why="a quote is not closed", fix="close the quotes")
        value = next((text for text in (*quoted, plain) if text is not None), "")
        if name is None:
            _check_word(plain or "", fields)
            out.append(Term(plain, "", "") if plain in flags else Term("", "", value))
        elif name in fields:
            out.append(Term(name, sign, value))
        else:
            raise InputError(f"no field named {name!r} in the query", fix=did_you_mean(name, fields))
    return out


def _check_word(plain: str, fields: Collection[str]) -> None:
    """Refuse what is meant as more than a word, and would find nothing as one."""
    if (bare := _BARE.fullmatch(plain)) and bare.group(1) in fields:
        fix = f'write {plain}VALUE without a space, or "{plain}" for the word'
        raise InputError(f"{plain!r} in the query has no value", fix=fix)
    if plain in ("OR", "NOT", "||", "&&"):
        fix = f'all terms of a query must hold, and != asks for others; write "{plain}" for the word'
        raise InputError(f"{plain} means nothing in a query", fix=fix)


def matcher(query: str, datasets: Mapping[str, Dataset] | None = None) -> Callable[[Any], bool]:
    """A predicate over rows of traces, from a query; `datasets` are the store's, for `in:NAME`."""
    return _matcher(query, datasets or {}, ())


def _matcher(query: str, datasets: Mapping[str, Dataset], inside: tuple[str, ...]) -> Callable[[Any], bool]:
    asked = terms(query, FIELDS, FLAGS)
    dates = [term for term in asked if is_date(term) and term.sign != "!="]
    others = [term for term in asked if term not in dates]
    tests = [_within(term, datasets, inside) if term.name == "in" else _test(term) for term in others]
    if dates:
        tests.append(_when(dates))
    return lambda row: all(test(row) for test in tests)


def _within(term: Term, datasets: Mapping[str, Dataset], inside: tuple[str, ...]) -> Callable[[Any], bool]:
    """Whether a trace is in a collection; one that is a query is asked now."""
    if term.sign not in (":", "=", "!="):
        raise InputError(f"{''.join(term)!r} is not a condition", fix="in:NAME, or in!=NAME")
    found = datasets.get(term.value)
    if found is None:
        raise NotFound(f"no dataset named {term.value!r}", fix=did_you_mean(term.value, datasets))
    if found.name in inside:
        raise InputError(f"the dataset {found.name!r} is defined by itself", fix="save it with another query")
    ids = frozenset(found.ids)
    holds = (lambda row: row.id in ids) if found.query is None else _matcher(found.query, datasets, (*inside, found.name))
    return (lambda row: not holds(row)) if term.sign == "!=" else holds


def facet(row: Any, name: str) -> tuple[str, ...]:
    """The values that a row has of a facet: none, one, or several models."""
    if name == "model":
        return tuple(row.models)
    if name == "day":
        if row.started is None and not row.is_open:
            return ()  # when it was added is not its day
        return tuple(dict.fromkeys(day_of(at) for q in row.pieces for at in (q.first, q.last)))
    value = getattr(row, FIELDS[name])
    return (str(value),) if value else ()


def is_narrow(query: str) -> bool:
    """Whether a query names a field or a flag, and is not only words."""
    return any(term.name for term in terms(query, FIELDS, FLAGS))


def _test(term: Term) -> Callable[[Any], bool]:
    if not term.name:
        word = term.value.lower()
        if is_handle(word):  # the short name that a list shows
            return lambda row: handle(row.id) == word or any(word in (value or "").lower() for value in _words(row))
        return lambda row: any(word in (value or "").lower() for value in _words(row))
    if not term.sign:
        return FLAGS[term.name]
    if term.name in _DATES:
        if term.name in _SPANS:
            span_of_term(term)  # says what would work
        worked = _when([term._replace(sign="=")])
        return lambda row: not worked(row)
    if term.name == "score":
        return _scored(term)
    if term.name in _TEXTS and term.sign in ("=", "!="):
        return _exactly(term)
    attribute = FIELDS[term.name]
    if term.name in _TEXTS:
        if term.sign != ":":
            raise InputError(f"{''.join(term)!r}: {term.name} is a text and has no order", fix=f"write {term.name}:{term.value}")
        wanted = term.value.lower()
        return lambda row: wanted in str(getattr(row, attribute) or "").lower()
    number, compare = amount(term), COMPARE["=" if term.sign == ":" else term.sign]
    return lambda row: (have := getattr(row, attribute)) is not None and not isinstance(have, str) and bool(compare(have, number))


def _exactly(term: Term) -> Callable[[Any], bool]:
    """Whether a text is this one, letter by letter; of several, whether one of them is."""
    name, several = FIELDS[term.name], _SEVERAL.get(term.name)

    def holds(row: Any) -> bool:
        return term.value in getattr(row, several) if several else str(getattr(row, name) or "") == term.value

    return (lambda row: not holds(row)) if term.sign == "!=" else holds


def _scored(term: Term) -> Callable[[Any], bool]:
    """Whether any score of a trace is so large; with a colon, whether one has that name, is NAME=VALUE, or NAME>VALUE."""
    if term.sign == ":" and (named := _NAMED_SCORE.fullmatch(term.value)):
        called, sign, than = named.groups()
        limit, holds = amount(Term(term.name + ":" + called, sign, than)), COMPARE[sign]
        return lambda row: any(name == called and holds(value, limit) for name, value in row.scores)
    if term.sign == ":":
        wanted = term.value.lower()
        return lambda row: any(wanted in f"{name}={value:g}".lower() for name, value in row.scores)
    number, compare = amount(term), COMPARE[term.sign]
    return lambda row: any(compare(value, number) for _, value in row.scores)


def _words(row: Any) -> tuple[str | None, ...]:
    return (row.title, row.id, row.task_id, row.project, row.model, row.system)


# -- dates ---------------------------------------------------------------------------------------------------------------


def is_date(term: Term) -> bool:
    """Whether a term is about when something was."""
    return bool(term.sign) and term.name in _DATES


def _when(asked: Sequence[Term]) -> Callable[[Any], bool]:
    """Whether a trace was at work in a time that all of these terms name."""
    begin, end = span_of_terms([term for term in asked if term.name != "active"])
    since, before = span_of_terms([term for term in asked if term.name == "active"])
    return lambda row: since <= row.active < before and any(q.first < end and q.last >= begin for q in row.pieces)


def span_of_terms(asked: Iterable[Term]) -> tuple[float, float]:
    """From when to before when the terms about dates say, seconds since the epoch; endless where they say nothing."""
    begin, end = -math.inf, math.inf
    for term in asked:
        low, high = span_of_term(term)
        begin, end = max(begin, low), min(end, high)
    return begin, end


def span_of_term(term: Term) -> tuple[float, float]:
    """The same of one term: `since:7d`, `until:2026-11-16`, `last:2w`, `date>=2026-11`."""
    whole = "".join(term)
    begin, end = span_of(term.value, repr(whole))
    if term.name in _SPANS:
        if term.sign not in (":", "="):
            raise InputError(f"{whole!r} is not a condition", fix=f"write {term.name}:{term.value}")
        if term.name == "last" and begin != end:
            fix = f"last:7d or last:12h; or since:{term.value}"
            raise InputError(f"{term.value!r} in {whole!r} is not a length of time", fix=fix)
        return (-math.inf, end) if term.name == "until" else (begin, math.inf)
    spans = {"<": (-math.inf, begin), "<=": (-math.inf, end), ">": (end, math.inf), ">=": (begin, math.inf)}
    return spans.get(term.sign, (begin, end))


def period_of(query: str) -> tuple[float, float] | None:
    """From when to before when a query asks, to the quarter of an hour; None where it says nothing of dates."""
    dates = [term for term in terms(query, FIELDS, FLAGS) if is_date(term) and term.sign != "!=" and term.name != "active"]
    if not dates:
        return None
    begin, end = span_of_terms(dates)
    first = begin if begin == -math.inf else begin // QUARTER_S * QUARTER_S
    return first, end if end == math.inf else -(-end // QUARTER_S) * QUARTER_S


def undated(query: str) -> str:
    """The query without its terms about the time of work: what `period_of` reads."""
    kept = []
    for found in _TERM.finditer(query):
        name, sign = found.group(1), found.group(2)
        if not (name in _DATES and sign and sign != "!=" and name != "active"):
            kept.append(found.group())
    return " ".join(kept)


def remarks(query: str) -> list[str]:
    """What to say about how a query was read: `date>7d` looks like "older than a week" and is not."""
    out = []
    for term in terms(query, FIELDS, FLAGS):
        if term.name in ("date", "day") and term.sign in ("<", "<=", ">", ">=") and _AGO.fullmatch(term.value):
            is_newer, at = term.sign.startswith(">"), local_moment(span_of(term.value, "")[0])
            said = f"at work since {at} ({zone()}), not older" if is_newer else f"at work before {at} ({zone()}), not newer"
            same = f"{'since' if is_newer else 'until'}:{term.value}"
            out.append(f"{''.join(term)} was taken for: {said}; {same} says the same")
    return out


_AGO = re.compile(r"(\d+)([dhwm])")
_SIZES = {"h": 3600, "d": 86400, "w": 7 * 86400, "m": 30 * 86400}
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:\d\d)?")


def span_of(text: str, where: str, *, now: float | None = None) -> tuple[float, float]:
    """First and last moment (seconds since the epoch) of a day, month, year or minute; of `7d` the moment so long ago."""
    if found := _AGO.fullmatch(text):
        at = (time.time() if now is None else now) - int(found.group(1)) * _SIZES[found.group(2)]
        return at, at
    try:
        for pattern in ("%Y-%m-%d", "%Y-%m", "%Y"):
            if (begin := _read(text, pattern)) is not None:
                return begin.astimezone().timestamp(), _next(begin, pattern).astimezone().timestamp()
        if _TIME.fullmatch(text):
            start = datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone().timestamp()
            return start, start + (1 if text.count(":", 0, 19) > 1 else 60)
    except (ValueError, OverflowError, OSError):  # a year that no clock has
        pass
    fix = "write a day as 2026-11-16, a minute as 2026-11-16T09:20, a month as 2026-11, or a span such as 7d or 12h"
    raise InputError(f"{text!r} in {where} is not a date", fix=fix)


def _read(text: str, pattern: str) -> datetime | None:
    try:
        return datetime.strptime(text, pattern)
    except ValueError:
        return None


def _next(begin: datetime, pattern: str) -> datetime:
    """When the next day, month or year begins."""
    if pattern == "%Y-%m-%d":
        return begin + timedelta(days=1)
    return (begin + timedelta(days=31)).replace(day=1) if pattern == "%Y-%m" else begin.replace(year=begin.year + 1)


def amount(term: Term) -> float:
    """The number of a term: 5, 0.5 or 5k."""
    found = re.fullmatch(r"(-?[\d.]+)([kmgKMG]?)", term.value)
    try:
        return float(found.group(1)) * _UNITS[found.group(2).lower()]  # type: ignore[union-attr]
    except (AttributeError, ValueError) as error:
        what = f"{term.value!r} in {''.join(term)!r} is not a number"
        fix = "write 5, 0.5 or 5k"
        if ends := re.fullmatch(r"(.+)\.\.(.+)", term.value):
            fix = f"write {term.name}>={ends.group(1)} {term.name}<={ends.group(2)}"
        raise InputError(what, fix=fix) from error
