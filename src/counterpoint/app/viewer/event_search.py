"""The search language over the events of a trace: `kind:spawn agent:coder tokens>5k t<60 tainted "merge"`.

Always true: the fields and marks are those of `app.search`, terms are joined by and, and what is found comes in the story's
order. A word is looked for in the text, the id, the agent, the tool and what people noted, in any case; an amount that is not
recorded matches no comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterpoint.app.search import COMPARE, EVENT_FIELDS, EVENT_FLAGS, Term, amount, span_of_term, terms
from counterpoint.app.viewer.shapes import FLAGS, TYPES
from counterpoint.app.viewer.trace_view import TraceView, view_of
from counterpoint.errors import InputError
from counterpoint.trace import Trace
from counterpoint.trace.activity import moments
from counterpoint.trace.annotation import Annotation, annotations_of

Mask = NDArray[np.bool_]


def find(trace: Trace, query: str) -> list[int]:
    """The numbers of the events that match; every one for an empty query."""
    view = view_of(trace)
    found = np.ones(view.n, np.bool_)
    for term in terms(query, EVENT_FIELDS, EVENT_FLAGS):
        found &= _test(view, term)
    numbers: list[int] = np.flatnonzero(found[view.team.order_E]).tolist()
    return numbers


def _test(view: TraceView, term: Term) -> Mask:
    if not term.name:
        return _word(view, term.value.lower())
    if not term.sign:
        return (view.flags_E & FLAGS[EVENT_FLAGS[term.name]]) != 0
    if term.name == "score":
        return _scored(view, term)
    if EVENT_FIELDS[term.name] == "date":
        return _dated(view, term)
    if EVENT_FIELDS[term.name] == "number":
        have, is_known = _numbers(view, term.name)
        sign = "=" if term.sign == ":" else term.sign
        compared: Mask = COMPARE[sign](have, amount(term))
        return compared & is_known
    if term.sign not in (":", "=", "!="):
        raise InputError(f"{term.name!r} is text and cannot be compared", fix=f"write {term.name}:{term.value}")
    held = _text(view, term.name, term.value)
    return ~held if term.sign == "!=" else held


def _dated(view: TraceView, term: Term) -> Mask:
    """Where an event was recorded in the time that a term names; nowhere in a trace without a clock's time."""
    when = view.once("moments", lambda: _clock(view))
    begin, end = span_of_term(term._replace(sign="=") if term.sign == "!=" else term)
    inside: Mask = (when >= begin) & (when < end)
    return ~inside & np.isfinite(when) if term.sign == "!=" else inside


def _clock(view: TraceView) -> NDArray[np.float64]:
    return np.array([np.nan if at is None else at for at in moments(view.trace.events, view.trace.meta)], np.float64)


def _numbers(view: TraceView, name: str) -> tuple[NDArray[Any], Mask]:
    """A field's values, and where there is one."""
    facts, events, always = view.facts, view.trace.events, np.ones(view.n, np.bool_)
    match name:
        case "n":
            return view.team.place_E, always
        case "t":
            return facts.t_E, always
        case "seconds":
            return facts.dur_E, facts.has_dur_E
        case "tokens":
            return facts.tokens_E, facts.has_tokens_E
        case "cost":
            return facts.cost_E, facts.has_cost_E
        case "depth":
            return view.team.depth_A[view.team.agent_E], always
        case "reward":
            paid = [sum(map(float, e.reward.values())) if e.reward else np.nan for e in events]
            return np.array(paid, np.float64), np.isfinite(paid)
    turns = np.array([np.nan if e.turn is None else float(e.turn) for e in events], np.float64)
    return turns, np.isfinite(turns)


def _text(view: TraceView, name: str, value: str) -> Mask:
    """Where a text field holds the value; an id is the value."""
    team, events, wanted = view.team, view.trace.events, value.lower()
    match name:
        case "id":
            found = np.zeros(view.n, np.bool_)
            if value in view.trace.index:
                found[view.trace.index[value]] = True
            return found
        case "kind" | "type":
            return np.array([_is_kind(kind, wanted) for kind in TYPES], np.bool_)[view.kind_E]
        case "agent":
            return (_holding(team.names, wanted) | _holding(team.label_A, wanted))[team.agent_E]
        case "role":
            return _holding(view.facts.role_A, wanted)[team.agent_E]
        case "label":
            return _annotated_events(view, lambda a: a.label is not None and wanted in f"{a.name}={a.label}".lower())
        case "note":
            return _annotated_events(view, lambda a: wanted in (a.text or "").lower())
        case "tool":
            return _holding([None, *view.tools[0]], wanted)[view.tools[1]]
    fields = [getattr(e, name) for e in events]
    holds = {field: field is not None and wanted in field.lower() for field in set(fields)}
    return np.fromiter(map(holds.__getitem__, fields), np.bool_, view.n)


def _scored(view: TraceView, term: Term) -> Mask:
    """Where a score is so large; a colon is as good as an equals sign."""
    number, compare = amount(term), COMPARE["=" if term.sign == ":" else term.sign]
    return _annotated_events(view, lambda a: a.score is not None and bool(compare(a.score, number)))


def _annotated_events(view: TraceView, holds: Callable[[Annotation], bool]) -> Mask:
    """The events about which somebody says such a thing."""
    found = np.zeros(view.n, np.bool_)
    index = view.trace.index
    found[[index[a.event] for a in annotations_of(view.trace) if a.event in index and holds(a)]] = True
    return found


def _is_kind(kind: str, word: str) -> bool:
    """Whether a kind of event is meant by a word: how it begins, or one of its words. `spawn` is no `despawn`."""
    return kind.startswith(word) or word in kind.split("_")


def _holding(names: Sequence[str | None], wanted: str) -> Mask:
    return np.array([wanted in (name or "").lower() for name in names], np.bool_)


def _word(view: TraceView, word: str) -> Mask:
    """Events that hold a word in their text, id, agent, tool, or in what is noted about them."""
    names, of_E = view.once("texts", lambda: _texts(view))
    ids = view.once("ids", lambda: [e.id.lower() for e in view.trace.events])
    in_text = np.array([word in text for text in names] + [False], np.bool_)[of_E]
    named = np.fromiter((word in name for name in ids), np.bool_, view.n)
    noted = _annotated_events(view, lambda a: word in f"{a.name}={a.label or ''}\n{a.text or ''}".lower())
    return in_text | named | noted | _text(view, "agent", word) | _text(view, "tool", word)


def _texts(view: TraceView) -> tuple[list[str], NDArray[np.int64]]:
    """Every text once, in lower case, and for each event its text's place; the last place is no text."""
    contents = view.trace.contents
    place = {ref: k for k, ref in enumerate(contents)}
    none = len(place)
    of_E = np.fromiter((place.get(e.content_ref or "", none) for e in view.trace.events), np.int64, view.n)
    return [text.lower() for text in contents.values()], of_E
