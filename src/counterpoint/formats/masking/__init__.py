"""Secrets out of traces, and labels in their place: `[masked:key:0001]`. Everything that leaves goes through `masked_all`.

`find.py` finds every secret in a text: tokens of known vendors (`tokens.py`, by `rules.py`), values given to a name that says
they are secret (`assignments.py`, by `names.py`; in tables and SQL `tables.py`, in a sentence `prose.py`), secrets that a
notation or a word gives away (`forms.py`, `seeds.py`) or that are encoded (`encodings.py`), and people (`people.py`, where asked
`personal.py`). What is masked already, numbers, and the survey's words (types, decisions, sources) stay.

Always true: every string of a trace is masked, ids and names too; the same secret has the same label in all traces that leave
together, and different ids stay different, so edges, agents and references still fit; a reference to a text that changed is
that of the new text; a model call that read or wrote a secret leaves without its token ids, which say the same.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import accumulate, pairwise
from typing import Any, NamedTuple
from urllib.parse import quote

from msgspec.structs import replace

from counterpoint.formats.masking.assignments import is_secret
from counterpoint.formats.masking.base import LABEL, SecretSpan
from counterpoint.formats.masking.find import spans
from counterpoint.formats.masking.names import PASSWORD, TOKEN, level_of
from counterpoint.formats.masking.patterns import lazy
from counterpoint.formats.masking.tokens import trie
from counterpoint.trace import Edge, Event, Trace, content_ref
from counterpoint.trace.edges import Edges
from counterpoint.trace.model_calls import model_call, prompt_parts, without_ids, words_in

# -- Labels in the place of secrets: `[masked:key:0001]`, the same for the same secret in all that leaves together ----
# What was found in one string is masked in all of them, wherever it stands. Two names that differ still differ afterwards.
#
# Always true: two secrets have two labels; a label is a running number in order of appearance, so that nothing leads from it
# back to the secret, and the same texts make the same labels; labels that are in the texts already are not given again.

_SEPARATOR = "\n\0\n"
_TOGETHER = 2_000_000
"""Characters that are looked through at once."""
# Once a secret is masked, a word beside it may turn out to be one too; more than a few such passes are never needed.
_PASSES = 4
_HEAD = 6
"""No secret that is looked for everywhere is shorter."""
_COMMON = lazy(
    r"(?:sha|utf|base|int|uint|float|python|py|http|ipv|oauth|md|mp|gpt|claude|v|test|user|"
    r"step|part|page|item|node|agent|task|worker|version|\d+(?:st|nd|rd|th))-?\d{1,4}(?:[.-]\d+)*",
    re.IGNORECASE,
)


class Labels:
    """What becomes of strings: add all that leave together, then `settle`, then ask."""

    def __init__(self, *, is_personal: bool = False) -> None:
        self._is_personal = is_personal
        self._strings: dict[str, None] = {}
        self._names: dict[str, None] = {}
        self._values: dict[str, None] = {}
        self._now: dict[str, str] = {}
        """A string to what it is now; those that stay as they are have no entry."""
        self.rules: dict[str, Counter[tuple[str, str]]] = {}
        """A string to the kinds and rules of what was found in it."""
        self._labels: dict[tuple[str, str], str] = {}
        self._numbers: Counter[str] = Counter()
        self._used_labels: set[str] = set()

    def add(self, text: str, *, is_name: bool = False) -> None:
        """A string that leaves; different names stay different."""
        self._strings[text] = None
        if is_name:
            self._names[text] = None

    def add_value(self, value: str) -> None:
        """A value that is secret because of its name."""
        self._values[value] = None

    def settle(self) -> None:
        """Find everything."""
        self._used_labels = {label for text in self._strings if "[masked:" in text for label in LABEL.findall(text)}
        current = {text: text for text in self._strings}
        known: dict[str, str] = {}
        for value in self._values:
            known[value] = self._label("key", value)
        for k in range(_PASSES):
            located = list(_spans_of(current, is_personal=self._is_personal))
            for text, where in located:
                current[text] = self._cut(text, current[text], where, known)
            if k == 0:
                self._everywhere(current, known)
            current = {text: current[text] for text, _ in located}
            if not located:
                break
        self._keep_apart()

    def text(self, text: str) -> str:
        """What becomes of a string."""
        return self._now.get(text, text)

    def label(self, secret: str) -> str:
        """The label of a value that was added by its name."""
        return self._labels["key", secret]

    @property
    def is_empty(self) -> bool:
        """Whether everything stays as it is."""
        return not self._now and not self._values

    def _cut(self, key: str, text: str, where: list[SecretSpan], known: dict[str, str]) -> str:
        parts, done = [], 0
        rules = self.rules.setdefault(key, Counter())
        for span in where:
            secret = span.secret or text[span.start : span.end]
            label = self._label(span.kind, secret)
            if span.kind == "key" and span.rule != "private-key":
                known.setdefault(secret, label)
            parts += [text[done : span.start], label]
            rules[span.kind, span.rule] += 1
            done = span.end
        self._now[key] = "".join([*parts, text[done:]])
        return self._now[key]

    def _everywhere(self, current: dict[str, str], known: dict[str, str]) -> None:
        """Take out what was found in one string wherever else it stands."""
        forms = {form: label for secret, label in known.items() if _is_telling(secret) for form in _forms(secret)}
        if not forms:
            return
        by_head: dict[str, list[str]] = {}
        for longest in sorted(forms, key=len, reverse=True):
            by_head.setdefault(longest[:_HEAD], []).append(longest)
        pattern = re.compile(f"{LABEL.pattern}|(?P<head>{trie(sorted(by_head))})")
        for key, text in current.items():
            parts, done = [], 0
            for match in pattern.finditer(text):
                at = match.start()
                form = (
                    next((form for form in by_head.get(match["head"], ()) if _is_at(text, form, at)), None)
                    if at >= done
                    else None
                )
                if form is not None:
                    parts += [text[done:at], forms[form]]
                    done = at + len(form)
            if parts:
                self._now[key] = current[key] = "".join([*parts, text[done:]])
                self.rules.setdefault(key, Counter())["key", "known-secret"] += len(parts) // 2

    def _keep_apart(self) -> None:
        """Two names that differ must differ after masking: what would be one gets a number."""
        used = {name for name in self._names if name not in self._now}
        for name in self._names:
            if name in self._now:
                label, k = self._now[name], 2
                while label in used:
                    label, k = f"{self._now[name]}~{k}", k + 1
                used.add(label)
                self._now[name] = label

    def _label(self, kind: str, secret: str) -> str:
        label = self._labels.get((kind, secret))
        while label is None:
            self._numbers[kind] += 1
            candidate = f"[masked:{kind}:{self._numbers[kind]:04x}]"
            label = None if candidate in self._used_labels else candidate
        self._labels[kind, secret] = label
        return label


def _is_telling(secret: str) -> bool:
    """Whether a secret is so much its own that the same characters elsewhere are it again."""
    has_digit, has_letter = any(c.isdigit() for c in secret), any(c.isalpha() for c in secret)
    if len(secret) < _HEAD or not has_letter or "masked" in secret or _COMMON.fullmatch(secret):
        return False
    return has_digit or (len(secret) >= 12 and not secret.isalpha()) or len(secret) >= 20


def _forms(secret: str) -> Iterator[str]:
    yield secret
    quoted = quote(secret, safe="", errors="surrogatepass")
    if quoted != secret:
        yield quoted


def _is_at(text: str, secret: str, at: int) -> bool:
    """Whether a secret stands at a place; a short one, as a word of its own."""
    if not text.startswith(secret, at):
        return False
    end = at + len(secret)
    return len(secret) >= 12 or not ((at and text[at - 1].isalnum()) or text[end : end + 1].isalnum())


def _spans_of(current: dict[str, str], *, is_personal: bool) -> Iterator[tuple[str, list[SecretSpan]]]:
    """The spans of each string that has some; many strings are looked through as one."""
    keys: list[str] = []
    size = 0
    for key, text in current.items():
        keys.append(key)
        size += len(text) + len(_SEPARATOR)
        if size >= _TOGETHER:
            yield from _spans_in(keys, current, is_personal=is_personal)
            keys, size = [], 0
    yield from _spans_in(keys, current, is_personal=is_personal)


def _spans_in(keys: list[str], current: dict[str, str], *, is_personal: bool) -> Iterator[tuple[str, list[SecretSpan]]]:
    starts, at = [], 0
    for key in keys:
        starts.append(at)
        at += len(current[key]) + len(_SEPARATOR)
    by_string: dict[int, list[SecretSpan]] = {}
    for span in spans(_joined(current[key] for key in keys), is_personal=is_personal):
        k = bisect_right(starts, span.start) - 1
        start, end = span.start - starts[k], min(span.end - starts[k], len(current[keys[k]]))
        if end > start:
            secret = span.secret if end == span.end - starts[k] else current[keys[k]][start:end]
            by_string.setdefault(k, []).append(span._replace(start=start, end=end, secret=secret))
    for k, spans_here in by_string.items():
        yield keys[k], spans_here


def _joined(texts: Iterable[str]) -> str:
    return _SEPARATOR.join(texts)


_NAMES = ("id", "agent", "role", "from_", "to", "tool", "model", "policy", "key")
_TEXTS = ("task", "error")
_OUR_REF = lazy(r"sha256:[0-9a-f]{64}")
# In a pair of these the first says what the second is: {"name": "DB_PASSWORD", "value": ...}.
_NAMING, _NAMED = ("name", "key", "header", "field", "variable", "env"), ("value", "val", "content", "default")


class MaskedTraces(NamedTuple):
    """Traces without their secrets, and what was masked where."""

    traces: list[Trace]
    where: Counter[tuple[str, str, str]]
    """How many secrets were masked, by kind (`key`, `email`, `path`), rule and place."""

    @property
    def by_kind(self) -> Counter[str]:
        """How many secrets were masked, by kind."""
        counts: Counter[str] = Counter()
        for (kind, _, _), n in self.where.items():
            counts[kind] += n
        return counts


def mask(text: str, *, is_personal: bool = False) -> tuple[str, Counter[str]]:
    """A text without its secrets, and how many of each kind it had; with `is_personal` also without personal numbers."""
    labels = Labels(is_personal=is_personal)
    labels.add(text)
    labels.settle()
    counts: Counter[str] = Counter()
    for (kind, _), n in labels.rules.get(text, Counter()).items():
        counts[kind] += n
    return labels.text(text), counts


def masked(trace: Trace) -> tuple[Trace, Counter[str]]:
    """A trace without its secrets, and how many of each kind it had. Without any it is the same trace."""
    done = masked_all([trace])
    return done.traces[0], done.by_kind


def masked_all(traces: Sequence[Trace], *, is_personal: bool = False) -> MaskedTraces:
    """Traces that leave together without their secrets, and with `is_personal` without what says who somebody is; those without
    any are the same traces."""
    labels = Labels(is_personal=is_personal)
    for trace in traces:
        _Walk(labels.add, labels.add_value).trace(trace)
    labels.settle()
    if labels.is_empty:
        return MaskedTraces(list(traces), Counter())
    cut = _Cut(labels)
    return MaskedTraces([cut.trace(trace) for trace in traces], cut.where)


def secrets(trace: Trace) -> Counter[str]:
    """How many secrets of each kind `masked` would take out of a trace."""
    return masked(trace)[1]


Seen = dict[str, set[int]]
"""Kind of secret to the different ones, each as a number that does not lead back to it."""


def glance(*traces: Trace) -> Seen:
    """Which secrets the texts of some traces hold, as far as a quick look shows, much faster than `secrets`: for a summary.

    The first texts are looked at, then one of `_STRIDE`, and every text in which a well-known kind of key begins. Texts are
    looked through as one, a byte per character, as they stand; a letter beyond ASCII before a key may hide or show it.
    """
    texts = [text for trace in traces for text in trace.contents.values()]
    first = bisect_right(list(accumulate(map(len, texts))), _LOOKED) + 1
    marked = [text for text in texts[first:] if any(mark in text for mark in _KEY_MARKS)]
    data = "\n\0\n".join([*texts[:first], *texts[first::_STRIDE], *marked]).encode("utf-8", "surrogatepass")
    hashes: Seen = {}
    for span in spans(data.decode("latin-1"), data.lower().decode("latin-1"), is_quick=True):
        number = blake2b(span.secret.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        hashes.setdefault(span.kind, set()).add(int.from_bytes(number, "big"))
    return hashes


# A glance looks at this much of a trace's text whole, and then at one text of so many.
_LOOKED = 1 << 16
_STRIDE = 16
_KEY_MARKS = ("sk-ant-", "sk-proj-", "ghp_", "github_pat_", "AKIA", "PRIVATE KEY")


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
            for _, item in _secret_items(value):
                self._add_value(item)
        elif isinstance(value, (list, tuple)):
            for item in value:
                self._value(item)
            for item in _listed(value):
                self._add_value(item)


def _secret_items(value: dict[Any, Any]) -> Iterator[tuple[str, str]]:
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
        ids = {new.id for old, new in zip(trace.events, events, strict=True) if self._is_told_by_ids(trace, old, refs)}
        return without_ids(replace(trace, **changes), ids) if ids else replace(trace, **changes)

    def _is_told_by_ids(self, trace: Trace, event: Event, refs: dict[str, str]) -> bool:
        """Whether an event's model call read or wrote a secret: its token ids say what the texts said."""
        note = model_call(event)
        if note is None or ("prompt_ids" not in note and "token_ids" not in note):
            return False
        kept = [note.get(name) for name in ("completion", "tools", "tool_calls")]
        return any(part in refs or self._labels.text(part) != part for part in (*prompt_parts(trace, event), *words_in(kept)))

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
        for key, item in _secret_items(value):
            forced.setdefault(key, set()).add(item)
        for key, item in value.items():
            name = self._text(key, f"{place} (names)") if isinstance(key, str) else key
            inside = f"{place}.{name}" if place.count(".") < 4 and isinstance(name, str) else place
            yield name, self._value(item, inside, refs, forced.get(key, ()))

    def _whole(self, value: str, place: str) -> str:
        self.where["key", "named-value", place] += 1
        return self._labels.label(value)
