"""Labels in the place of secrets: `[masked:key:0001]`, the same for the same secret in all that leaves together.

What was found in one string is masked in all of them, wherever it stands. Two names that differ still differ afterwards.

Always true: two secrets have two labels; a label is a running number in order of appearance, so that nothing leads from it
back to the secret, and the same texts make the same labels; labels that are in the texts already are not given again.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from urllib.parse import quote

from counterpoint.formats.masking.base import LABEL, SecretSpan
from counterpoint.formats.masking.find import spans
from counterpoint.formats.masking.tokens import trie

_SEPARATOR = "\n\0\n"
_TOGETHER = 2_000_000
"""Characters that are looked through at once."""
# Once a secret is masked, a word beside it may turn out to be one too; more than a few such passes are never needed.
_PASSES = 4
_HEAD = 6
"""No secret that is looked for everywhere is shorter."""
_COMMON = re.compile(
    r"(?:sha|utf|base|int|uint|float|python|py|http|ipv|oauth|md|mp|gpt|claude|v|test|user|"
    r"step|part|page|item|node|agent|task|worker|version|\d+(?:st|nd|rd|th))-?\d{1,4}(?:[.-]\d+)*",
    re.IGNORECASE,
)


class Labels:
    """What becomes of strings: add all that leave together, then `settle`, then ask."""

    def __init__(self) -> None:
        self._strings: dict[str, None] = {}
        self._names: dict[str, None] = {}
        self._values: dict[str, None] = {}
        self._now: dict[str, str] = {}
        """A string to what it is now; those that stay as they are have no entry."""
        self.rules: dict[str, Counter[tuple[str, str]]] = {}
        """A string to the kinds and rules of what was found in it."""
        self._labels: dict[tuple[str, str], str] = {}
        self._numbers: Counter[str] = Counter()
        self._taken: set[str] = set()

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
        self._taken = {label for text in self._strings if "[masked:" in text for label in LABEL.findall(text)}
        current = {text: text for text in self._strings}
        known: dict[str, str] = {}
        for value in self._values:
            known[value] = self._label("key", value)
        for k in range(_PASSES):
            found = list(_spans_of(current))
            for text, where in found:
                current[text] = self._cut(text, current[text], where, known)
            if k == 0:
                self._everywhere(current, known)
            current = {text: current[text] for text, _ in found}
            if not found:
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
            for found in pattern.finditer(text):
                at = found.start()
                form = (
                    next((form for form in by_head.get(found["head"], ()) if _is_at(text, form, at)), None)
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
                made, k = self._now[name], 2
                while made in used:
                    made, k = f"{self._now[name]}~{k}", k + 1
                used.add(made)
                self._now[name] = made

    def _label(self, kind: str, secret: str) -> str:
        label = self._labels.get((kind, secret))
        while label is None:
            self._numbers[kind] += 1
            made = f"[masked:{kind}:{self._numbers[kind]:04x}]"
            label = None if made in self._taken else made
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


def _spans_of(current: dict[str, str]) -> Iterator[tuple[str, list[SecretSpan]]]:
    """The spans of each string that has some; many strings are looked through as one."""
    keys: list[str] = []
    size = 0
    for key, text in current.items():
        keys.append(key)
        size += len(text) + len(_SEPARATOR)
        if size >= _TOGETHER:
            yield from _spans_in(keys, current)
            keys, size = [], 0
    yield from _spans_in(keys, current)


def _spans_in(keys: list[str], current: dict[str, str]) -> Iterator[tuple[str, list[SecretSpan]]]:
    starts, at = [], 0
    for key in keys:
        starts.append(at)
        at += len(current[key]) + len(_SEPARATOR)
    by_string: dict[int, list[SecretSpan]] = {}
    for span in spans(_joined(current[key] for key in keys)):
        k = bisect_right(starts, span.start) - 1
        start, end = span.start - starts[k], min(span.end - starts[k], len(current[keys[k]]))
        if end > start:
            secret = span.secret if end == span.end - starts[k] else current[keys[k]][start:end]
            by_string.setdefault(k, []).append(span._replace(start=start, end=end, secret=secret))
    for k, found in by_string.items():
        yield keys[k], found


def _joined(texts: Iterable[str]) -> str:
    return _SEPARATOR.join(texts)
