"""The page's questions about one trace, each by its name in the address, and the functions that answer them.

Always true: an answer is a function of the trace and of the question's words; a word that is no number where one belongs is
`InputError`, and an event or agent that is not there is `NotFound`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from counterpoint.app.viewer import columns, credit_tab, event_search, events, notes, outcomes, overview, trace_diff
from counterpoint.app.viewer.panel import panels
from counterpoint.app.viewer.shapes import AlertCount, Diff, EventDetail
from counterpoint.errors import InputError
from counterpoint.trace import Trace

Words = Mapping[str, str]


def _whole(words: Words, name: str, default: int) -> int:
    try:
        return int(words.get(name) or default)
    except ValueError as error:
        raise InputError(f"{words[name]!r} is not a whole number", where=name, fix=f"as in {name}={default}") from error


def _number(words: Words, name: str, default: float) -> float:
    try:
        found = float(words.get(name) or default)
    except ValueError as error:
        raise InputError(f"{words[name]!r} is not a number", where=name, fix=f"as in {name}=12.5") from error
    if found != found:
        raise InputError("is not a number", where=name, fix=f"as in {name}=12.5")
    return found


def _is_set(words: Words, name: str, default: str = "0") -> bool:
    return words.get(name, default) not in ("", "0", "false")


def _window(trace: Trace, words: Words) -> bytes:
    start, end = _number(words, "from", float("-inf")), _number(words, "to", float("inf"))
    return columns.window(trace, start, end, max(0, min(_whole(words, "limit", 12_000), 200_000)))


def _talk(trace: Trace, words: Words) -> Any:
    agent, first = _whole(words, "agent", -1), _whole(words, "first", 0)
    count = max(0, min(_whole(words, "count", 200), 2_000))
    return events.talk(trace, agent, tree=_is_set(words, "tree"), first=max(first, 0), count=count)


def _find(trace: Trace, words: Words) -> Any:
    return {"events": event_search.find(trace, words.get("q", ""))}


def _credit(trace: Trace, words: Words) -> Any:
    if not words.get("method"):
        raise InputError("no method named", where="method", fix="as in method=uniform; methods/ lists them")
    return credit_tab.credit(trace, words["method"], words.get("unit", ""))


QUESTIONS: dict[str, Callable[[Trace, Words], Any]] = {
    "": lambda trace, words: overview.overview(trace),
    "columns": lambda trace, words: columns.columns(trace),
    "bins": lambda trace, words: columns.bins(trace),
    "window": _window,
    "talk": _talk,
    "find": _find,
    "work": lambda trace, words: credit_tab.work(trace),
    "methods": lambda trace, words: credit_tab.methods(trace),
    "credit": _credit,
    "annotations": lambda trace, words: notes.annotation_list(trace),
    "outcomes": lambda trace, words: outcomes.outcomes(trace),
}
"""What comes after `/api/t/ID/`, and who answers."""


def question(name: str) -> Callable[[Trace, Words], Any] | None:
    """Who answers a question: the page's own, or the panel of that name; None where nobody does."""
    if name in QUESTIONS:
        return QUESTIONS[name]
    panel = panels().get(name)
    return None if panel is None else lambda trace, words: panel.answer(trace)


def event_of(trace: Trace, number: str, words: Words, badges: Mapping[str, str] | None) -> EventDetail:
    """One event by its number; in a fork with its badge."""
    n = int(number) if number.isascii() and number.isdigit() and len(number) <= 10 else -1
    found = events.event(trace, n, whole=_is_set(words, "whole"))
    return found if badges is None else msgspec.structs.replace(found, badge=badges.get(found.id))


def alert_count(trace: Trace) -> AlertCount:
    """How many alerts a trace has."""
    return overview.alert_count(trace)


def file_of(trace: Trace, words: Words) -> bytes:
    """The trace as a one-file page: `mask=0` leaves secrets in it; `from`, `to`, `agent` cut it; `texts=0` leaves texts out."""
    from counterpoint.app.viewer.share_file import share_file

    window = None
    if words.get("from") or words.get("to"):
        window = _number(words, "from", 0.0), _number(words, "to", float("inf"))
    agents = [words["agent"]] if words.get("agent") else []
    is_bare, is_summary = not _is_set(words, "mask", default="1"), not _is_set(words, "texts", default="1")
    return share_file([trace], agents=agents, window=window, is_summary=is_summary, is_bare=is_bare).file.data


def diff(a: Trace, b: Trace) -> Diff:
    """Two traces side by side."""
    return trace_diff.diff(a, b)
