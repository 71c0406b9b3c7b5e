"""Secrets out of traces, and labels in their place: `[masked:key:0001]`. Everything that leaves goes through `masked_all`.

`find.py` finds every secret in a text: tokens of known vendors (`tokens.py`, by the rules in `rules.py`), values given to a
name that says they are secret (`assigned.py`, by the names in `names.py`), and secrets that a notation gives away
(`forms.py`). `labels.py` puts labels in their place. What is masked already, numbers, and the survey's words (types,
decisions, sources) stay.

Always true: every string of a trace is masked, ids and names too; the same secret has the same label in all traces that leave
together, and different ids stay different, so edges, agents and references still fit; a reference to a text that changed is
that of the new text; a model call that read or wrote a secret leaves without its token ids, which say the same.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Container, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from msgspec.structs import replace

from counterpoint.formats.masking.assigned import is_secret
from counterpoint.formats.masking.find import spans
from counterpoint.formats.masking.labels import Labels
from counterpoint.formats.masking.names import PASSWORD, TOKEN, level_of
from counterpoint.trace import Edge, Event, Trace, content_ref
from counterpoint.trace.edges import Edges
from counterpoint.trace.model_calls import model_call, prompt_parts, without_ids

_NAMES = ("id", "agent", "role", "from_", "to", "tool", "model", "policy", "key")
_TEXTS = ("task", "error")
_OUR_REF = re.compile(r"sha256:[0-9a-f]{64}")
# In a pair of these the first says what the second is: {"name": "DB_PASSWORD", "value": ...}.
_NAMING, _NAMED = ("name", "key", "header", "field", "variable", "env"), ("value", "val", "content", "default")


class Masked(NamedTuple):
    """Traces without their secrets, and what was masked where."""

    traces: list[Trace]
    where: Counter[tuple[str, str, str]]
    """How many secrets were masked, by kind (`key`, `email`, `path`), rule and place."""

    @property
    def found(self) -> Counter[str]:
        """How many secrets were masked, by kind."""
        counts: Counter[str] = Counter()
        for (kind, _, _), n in self.where.items():
            counts[kind] += n
        return counts


def mask(text: str) -> tuple[str, Counter[str]]:
    """A text without its secrets, and how many of each kind it had."""
    labels = Labels()
    labels.add(text)
    labels.settle()
    counts: Counter[str] = Counter()
    for (kind, _), n in labels.rules.get(text, Counter()).items():
        counts[kind] += n
    return labels.text(text), counts


def masked(trace: Trace) -> tuple[Trace, Counter[str]]:
    """A trace without its secrets, and how many of each kind it had. Without any it is the same trace."""
    done = masked_all([trace])
    return done.traces[0], done.found


def masked_all(traces: Sequence[Trace]) -> Masked:
    """Traces that leave together without their secrets; those without any are the same traces."""
    labels = Labels()
    for trace in traces:
        _Walk(labels.add, labels.add_value).trace(trace)
    labels.settle()
    if labels.is_empty:
        return Masked(list(traces), Counter())
    cut = _Cut(labels)
    return Masked([cut.trace(trace) for trace in traces], cut.where)


def secrets(trace: Trace) -> Counter[str]:
    """How many secrets of each kind `masked` would take out of a trace."""
    return masked(trace)[1]


def glance(trace: Trace) -> Counter[str]:
    """About how many secrets of each kind the texts of a trace hold, faster than `secrets`: for a summary.

    All texts are looked through as one, a byte per character, as they stand; a letter beyond ASCII before a key may hide
    or show it.
    """
    texts = [*trace.contents.values(), *(e.error for e in trace.events if e.error)]
    data = "\n\0\n".join(texts).encode("utf-8", "surrogatepass")
    found = spans(data.decode("latin-1"), data.lower().decode("latin-1"), is_quick=True)
    return Counter(span.kind for span in found)


class _Walk:
    """Every string of a trace, in order: names, texts, and values that are secret because of their names."""

    def __init__(self, add: Callable[..., None], add_value: Callable[[str], None]) -> None:
        self._add, self._add_value = add, add_value

    def trace(self, trace: Trace) -> None:
        for name in (trace.trace_id, trace.task_id, trace.system):
            self._name(name)
        for event in trace.events:
            self._event(event)
        for edge in trace.edges if not isinstance(trace.edges, Edges) else ():
            self._name(edge.src)
            self._name(edge.dst)
        for names in (trace.rewards, trace.costs, trace.metrics or {}):
            for name in names:
                self._name(name)
        for ref, text in trace.contents.items():
            self._name(ref)
            self._add(text)
        self._value(trace.meta)

    def _event(self, event: Event) -> None:
        for field in _NAMES:
            self._name(getattr(event, field))
        self._name(event.content_ref)
        for field in _TEXTS:
            if text := getattr(event, field):
                self._add(text)
        for option in event.options or ():
            self._name(option)
        for name in event.reward or ():
            self._name(name)
        if event.extra:
            self._value(event.extra)

    def _name(self, name: str | None) -> None:
        if name and not _OUR_REF.fullmatch(name):
            self._add(name, is_name=True)

    def _value(self, value: Any) -> None:
        if isinstance(value, str):
            self._add(value)
        elif isinstance(value, dict):
            for key, item in value.items():
                if isinstance(key, str):
                    self._name(key)
                self._value(item)
            for _, item in _named(value):
                self._add_value(item)
        elif isinstance(value, (list, tuple)):
            for item in value:
                self._value(item)
            for item in _listed(value):
                self._add_value(item)


def _named(value: dict[Any, Any]) -> Iterator[tuple[str, str]]:
    """The keys of a dict whose values are secret, and those values; of a list, those of its items that are."""
    naming = next(
        (item for key, item in value.items() if isinstance(key, str) and key.lower() in _NAMING and isinstance(item, str)), None
    )
    for key, item in value.items():
        if not isinstance(key, str):
            continue
        for name in (key, naming) if naming is not None and key.lower() in _NAMED else (key,):
            if isinstance(item, str) and _is_named_secret(name, item):
                yield key, item
            elif isinstance(item, int) and not isinstance(item, bool) and abs(item) > 999 and level_of(name) == PASSWORD:
                yield key, str(item)
            elif isinstance(item, (list, tuple)) and level_of(name) >= TOKEN:
                yield from ((key, part) for part in item if isinstance(part, str) and _is_named_secret(name, part))


def _listed(value: Sequence[Any]) -> Iterator[str]:
    """The arguments of a command that the option before them makes secrets."""
    for name, item in pairwise(value):
        is_pair = isinstance(name, str) and isinstance(item, str) and name.startswith("-") and not item.startswith("-")
        if is_pair and _is_named_secret(name, item):
            yield item


def _is_named_secret(name: str, value: str) -> bool:
    level = level_of(name)
    return level > 0 and "[masked:" not in value and len(value) <= 4096 and is_secret(value, level, is_quoted=True)


class _Cut:
    """The same walk again, with labels; it counts what was masked where."""

    def __init__(self, labels: Labels) -> None:
        self._labels = labels
        self.where: Counter[tuple[str, str, str]] = Counter()

    def trace(self, trace: Trace) -> Trace:
        refs = {ref: content_ref(new) for ref, text in trace.contents.items() if (new := self._labels.text(text)) != text}
        contents = {
            refs.get(ref) or self._text(ref, "contents"): self._text(text, "contents") for ref, text in trace.contents.items()
        }
        events = [self._event(event, refs) for event in trace.events]
        changes: dict[str, Any] = {
            "events": events,
            "edges": self._edges(trace, events),
            "contents": contents,
            "meta": self._value(trace.meta, "meta", refs),
            **{
                name: self._keys(getattr(trace, name), name)
                for name in ("rewards", "costs", "metrics")
                if getattr(trace, name) is not None
            },
            **{
                name: self._text(getattr(trace, name), name)
                for name in ("trace_id", "task_id", "system")
                if getattr(trace, name) is not None
            },
        }
        told = {new.id for old, new in zip(trace.events, events, strict=True) if self._is_told_by_ids(trace, old, refs)}
        return without_ids(replace(trace, **changes), told) if told else replace(trace, **changes)

    def _is_told_by_ids(self, trace: Trace, event: Event, refs: dict[str, str]) -> bool:
        """Whether an event's model call read or wrote a secret: its token ids say what the texts said."""
        note = model_call(event)
        if note is None or ("prompt_ids" not in note and "token_ids" not in note):
            return False
        parts = (*prompt_parts(trace, event), str(note.get("completion")))
        return any(part in refs or self._labels.text(part) != part for part in parts)

    def _event(self, event: Event, refs: dict[str, str]) -> Event:
        changes: dict[str, Any] = {}
        for field in (*_NAMES, *_TEXTS):
            old = getattr(event, field)
            if old is not None and (new := self._text(old, f"event.{field.rstrip('_')}")) != old:
                changes[field] = new
        if event.content_ref is not None:
            changes["content_ref"] = refs.get(event.content_ref) or self._text(event.content_ref, "event.content_ref")
        if event.options is not None:
            changes["options"] = [self._text(option, "event.options") for option in event.options]
        if event.reward is not None:
            changes["reward"] = self._keys(event.reward, "event.reward")
        if event.extra is not None:
            changes["extra"] = self._value(event.extra, "event.extra", refs)
        return replace(event, **changes) if changes else event

    def _edges(self, trace: Trace, events: list[Event]) -> Sequence[Edge]:
        edges = trace.edges
        if isinstance(edges, Edges):
            return Edges(events, edges.src, edges.dst, edges.type)
        return [Edge(self._text(edge.src, "edge.src"), self._text(edge.dst, "edge.dst"), edge.type) for edge in edges]

    def _keys(self, values: dict[str, Any], place: str) -> dict[str, Any]:
        return {self._text(key, f"{place} (names)"): value for key, value in values.items()}

    def _text(self, text: str, place: str) -> str:
        new = self._labels.text(text)
        if new != text:
            for (kind, rule), n in self._labels.rules.get(text, Counter()).items():
                self.where[kind, rule, place] += n
        return new

    def _value(self, value: Any, place: str, refs: dict[str, str], forced: Container[Any] = ()) -> Any:
        """A value with every string in it masked; what is in `forced` is masked whole."""
        if isinstance(value, str):
            if value in refs:
                return refs[value]
            return self._whole(value, place) if value in forced else self._text(value, place)
        if isinstance(value, dict):
            return dict(self._items(value, place, refs))
        if isinstance(value, (list, tuple)):
            within = {*_listed(value), *(item for item in value if isinstance(item, str) and item in forced)}
            return [self._value(item, place, refs, within) for item in value]
        if isinstance(value, int) and not isinstance(value, bool) and str(value) in forced:
            return self._whole(str(value), place)
        return value

    def _items(self, value: dict[Any, Any], place: str, refs: dict[str, str]) -> Iterator[tuple[Any, Any]]:
        forced: dict[Any, set[str]] = {}
        for key, item in _named(value):
            forced.setdefault(key, set()).add(item)
        for key, item in value.items():
            name = self._text(key, f"{place} (names)") if isinstance(key, str) else key
            inside = f"{place}.{name}" if place.count(".") < 4 and isinstance(name, str) else place
            yield name, self._value(item, inside, refs, forced.get(key, ()))

    def _whole(self, value: str, place: str) -> str:
        self.where["key", "named-value", place] += 1
        return self._labels.label(value)
