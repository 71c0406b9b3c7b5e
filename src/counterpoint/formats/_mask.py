"""Secrets out of texts, and labels in their place: `[masked:key:0001]`.

Always true: the same secret has the same label within a trace, and two have two; a label is a running number, so nothing leads
from it back to the secret, not even a guess; what is masked already stays as it is. Ids, agents, tools, edges and numbers are
never touched, and every reference to a text that changed is the reference of the new text.

What is masked of a trace: contents, the `task` and `error` of events, and the string values in `extra` and `meta`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from msgspec.structs import replace

from counterpoint.formats._secrets import LABEL, is_secret_value, spans
from counterpoint.trace import Event, Trace, content_ref

__all__ = ["glance", "mask", "masked", "secrets"]

_NAMES = ("password", "passwd", "passphrase", "secret", "token", "api_key", "apikey", "access_key", "secret_key", "private_key")
# Where a secret touches a word, that word may be one only now that the other is gone; more than a few in a row nobody writes.
_PASSES = 4
_APART = frozenset(" \t\r\n\"'`,;<>()|")


def mask(text: str) -> tuple[str, Counter[str]]:
    """A text without its secrets, and how many of each kind (`key`, `email`, `path`) it had."""
    masker = _Masker(lambda: [text])
    return masker.text(text), masker.found


def masked(trace: Trace) -> tuple[Trace, Counter[str]]:
    """A trace without the secrets in its texts, and how many of each kind it had. Without any it is the same trace."""
    masker = _Masker(lambda: _strings(trace))
    refs: dict[str, str] = {}
    contents: dict[str, str] = {}
    for ref, text in trace.contents.items():
        new = masker.text(text)
        if new != text:
            refs[ref] = content_ref(new)
        contents[refs.get(ref, ref)] = new
    events = [_event(event, masker, refs) for event in trace.events]
    meta = masker.value(trace.meta, refs)
    if not masker.found:
        return trace, masker.found
    return replace(trace, events=events, contents=contents, meta=meta), masker.found


def secrets(trace: Trace) -> Counter[str]:
    """How many secrets of each kind `masked` would take out of a trace."""
    masker = _Masker(lambda: _strings(trace))
    for text in trace.contents.values():
        masker.text(text)
    for event in trace.events:
        _event(event, masker, {})
    masker.value(trace.meta, {})
    return masker.found


def glance(trace: Trace) -> Counter[str]:
    """About how many secrets of each kind the texts of a trace hold, several times as fast as `secrets`: for a summary.

    All texts are looked through as one, a byte per character; a letter beyond ASCII before a key may hide or show it.
    """
    texts = [*trace.contents.values(), *(e.error for e in trace.events if e.error)]
    data = "\n\0\n".join(texts).encode("utf-8", "surrogatepass")
    return Counter(span.kind for span in spans(data.decode("latin-1"), data.lower().decode("latin-1")))


def _event(event: Event, masker: _Masker, refs: dict[str, str]) -> Event:
    changes: dict[str, Any] = {}
    if event.content_ref in refs:
        changes["content_ref"] = refs[event.content_ref]
    if event.error:
        changes["error"] = masker.text(event.error)
    if event.task:
        changes["task"] = masker.text(event.task)
    if event.extra:
        changes["extra"] = masker.value(event.extra, refs)
    return replace(event, **changes) if changes else event


class _Masker:
    """Labels given so far. `texts` are all that may hold labels of an earlier time, asked for when the first is needed."""

    def __init__(self, texts: Callable[[], Iterable[str]]) -> None:
        self.found: Counter[str] = Counter()
        self._texts = texts
        self._taken: set[str] | None = None
        self._labels: dict[tuple[str, str], str] = {}
        self._numbers: Counter[str] = Counter()

    def text(self, text: str) -> str:
        """The text with a label for each secret."""
        for _ in range(_PASSES):
            where = spans(text)
            if not where:
                break
            parts, done = [], 0
            for start, end, kind in where:
                parts += [text[done:start], self._label(kind, text[start:end])]
                done = end
            is_done = all(_stands_apart(text, *span) for span in where)
            text = "".join([*parts, text[done:]])
            if is_done:
                break
        return text

    def value(self, value: Any, refs: dict[str, str]) -> Any:
        """A value with every string in it masked; keys stay, and so do references, but to texts that changed."""
        if isinstance(value, str):
            return refs[value] if value in refs else self.text(value)
        if isinstance(value, dict):
            return {key: self._named(key, item, refs) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.value(item, refs) for item in value]
        return value

    def _named(self, name: Any, value: Any, refs: dict[str, str]) -> Any:
        """A value under a name that says that it is a secret is one, though nothing in it shows."""
        new = self.value(value, refs)
        if not isinstance(new, str) or new != value or not isinstance(name, str) or not name.lower().endswith(_NAMES):
            return new
        is_one = is_secret_value(new) and not any(c.isspace() for c in new) and "[masked:" not in new
        return self._label("key", new) if is_one else new

    def _label(self, kind: str, secret: str) -> str:
        self.found[kind] += 1
        if self._taken is None:
            self._taken = {label for text in self._texts() if "[masked:" in text for label in LABEL.findall(text)}
        label = self._labels.get((kind, secret))
        while label is None:
            self._numbers[kind] += 1
            made = f"[masked:{kind}:{self._numbers[kind]:04x}]"
            label = None if made in self._taken else made
        self._labels[kind, secret] = label
        return label


def _stands_apart(text: str, start: int, end: int, kind: str) -> bool:
    ends = "/\\" if kind == "path" else ""
    before, after = text[start - 1 : start], text[end : end + 1]
    return (before in _APART or before in ends) and (after in _APART or after in ends)


def _strings(trace: Trace) -> Iterator[str]:
    yield from trace.contents.values()
    for event in trace.events:
        yield event.error or ""
        yield event.task or ""
        yield from _strings_in(event.extra)
    yield from _strings_in(trace.meta)


def _strings_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _strings_in(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _strings_in(item)
