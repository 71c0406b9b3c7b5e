"""Tokens of known vendors in a text, whole or broken across lines.

One pass over the bytes finds the runs that are long enough to be a token, one pattern of all beginnings looks through those,
and a rule is tried only behind its beginning; a rule that failed is not tried again in the same run.

Always true: the time is linear in the text, because every repetition in a rule is bounded.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from counterpoint.formats.masking.base import SecretSpan, every, is_random, is_word_at
from counterpoint.formats.masking.patterns import lazy
from counterpoint.formats.masking.rules import RULES, Rule

Places = NDArray[np.intp]
_SHORTEST = 16
"""No token is shorter; a run of characters that is, is not looked at."""
# Tokens that have a fair chance of holding no digit.
_WITHOUT_DIGITS = ("AKIA", "ASIA", "hf_", "sk-")
_LEFT, _RIGHT = 100, 2100
_ALPHABET = {"@A": "[A-Za-z0-9]", "@W": "[A-Za-z0-9_-]", "@H": "[0-9A-Fa-f]", "@B": "[A-Za-z0-9+/]", "@T": "[A-Za-z0-9+/_-]"}
_IS_TOKEN = np.zeros(256, bool)
_IS_TOKEN[[ord(c) for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.:/~+=$%|"]] = True
_MAY_BREAK = np.zeros(256, bool)
_MAY_BREAK[[ord(c) for c in "\n\r\\\"' "]] = True
_RUN = lazy(r"[A-Za-z0-9_-]*+")
_HEX = "0123456789abcdefABCDEF"
_PICTURE = 2000
_BASE64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="
# Rules that lines of base64 without a meaning of their own may fit.
_BLOBS = frozenset({"twitter-bearer"})
# Words that end in the beginning of a key: a task-..., a disk-...
_SK_WORDS = lazy(r"(?:ta|di|ma|de|ri|fla|kio|aste?ri|du|hu|mu|tu|whi|bri|a|ba|ca|fri|obeli)\Z", re.IGNORECASE)
# A line break inside a token: its own, one written out, one of a string that goes on, or one of a quoted or commented text.
BREAK = lazy(
    r"(?:[\"'`]?[ \t]{0,4}\\{0,2}\r?\n[ \t]{0,40}(?:[+>|#*][ \t]{0,4})?[\"'`]?|\\{1,4}r?\\{0,4}n|[\"']\s{0,8}[+.&]?\s{0,8}[\"'])"
)


def trie(words: Sequence[str]) -> str:
    """A pattern that matches the longest of some literals, and looks at a character once for all of them."""
    heads: dict[str, list[str]] = {}
    for word in words:
        if word:
            heads.setdefault(word[0], []).append(word[1:])
    branches = [re.escape(head) + trie(tails) for head, tails in sorted(heads.items())]
    body = branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})" if branches else ""
    return f"(?:{body})?" if body and "" in words else body


def _pattern(rule: Rule, begin: str) -> str:
    rest = f"{rule.before}{re.escape(begin)}{rule.rest}"
    for short, alphabet in _ALPHABET.items():
        rest = rest.replace(short, alphabet)
    return re.sub(r"(?<!\\)([}])(?![+?])", r"\1+", rest) if not rule.before else rest


_BY_BEGIN: dict[str, list[tuple[Rule, re.Pattern[str]]]] = {}
for _rule in RULES:
    for _begin in _rule.begins.split():
        _BY_BEGIN.setdefault(_begin, []).append((_rule, lazy(partial(_pattern, _rule, _begin))))
_BEGINS = lazy(lambda: trie(list(_BY_BEGIN)))
# What is tried behind a beginning: its own rules, and those of every shorter one that it starts with.
_TRIED = {begin: [pair for k in range(len(begin), 0, -1) for pair in _BY_BEGIN.get(begin[:k], ())] for begin in _BY_BEGIN}
_SHAPES = (("discord-bot", lazy(r"[MNO][A-Za-z0-9_-]{22,28}\.[A-Za-z0-9_-]{6,7}\.[A-Za-z0-9_-]{27,40}(?![\w.-])")),)


# The secret half of an AWS key has no form of its own, and is taken where it stands behind the first.
_AWS_SECRET = lazy(r"(?<![A-Za-z0-9/+=])[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=])")


def is_beginning(text: str, at: int) -> bool:
    """Whether a token that shows clearly whose it is begins at a place."""
    hit = _BEGINS.match(text, at)
    return hit is not None and any(
        pattern.match(text, at) for rule, pattern in _TRIED[hit[0]] if not rule.before and not rule.is_short
    )


class Runs(NamedTuple):
    """Runs of the characters that tokens are made of."""

    starts: Places
    ends: Places
    digits: Places
    """How many digits each has behind its first character."""
    codes: NDArray[np.uint8]
    """A byte for each character of the text."""


def runs(text: str) -> Runs:
    """Where runs of the characters of tokens begin and end."""
    codes = np.frombuffer(text.encode("latin-1", "replace"), np.uint8)
    inside = _IS_TOKEN[codes]
    edges = np.flatnonzero(inside[1:] != inside[:-1]) + 1
    if len(inside) and inside[0]:
        edges = np.concatenate([[0], edges])
    if len(edges) % 2:
        edges = np.concatenate([edges, [len(inside)]])
    starts, ends = edges[::2], edges[1::2]
    digits = np.cumsum(codes - np.uint8(48) < 10, dtype=np.int32)
    return Runs(starts, ends, digits[ends - 1] - digits[starts], codes)


def tokens(text: str, text_runs: Runs) -> list[SecretSpan]:
    """Every token that stands in one piece."""
    is_one = (text_runs.ends - text_runs.starts >= _SHORTEST) & (text_runs.digits > 0)
    places = dict.fromkeys(zip(text_runs.starts[is_one].tolist(), text_runs.ends[is_one].tolist(), strict=True))
    for needle in _WITHOUT_DIGITS:
        for at in every(text, needle):
            k = int(np.searchsorted(text_runs.starts, at, "right")) - 1
            places[int(text_runs.starts[k]), int(text_runs.ends[k])] = None
    return list(_in_pieces(text, [(start, _worth(text[start:end])) for start, end in sorted(places)]))


def _worth(run: str) -> str:
    """The part of a run that is worth a look: of a picture in base64, only its beginning."""
    return run[:200] if len(run) > _PICTURE and not run.strip(_BASE64) else run


def _in_pieces(text: str, pieces: list[tuple[int, str]]) -> Iterator[SecretSpan]:
    """Tokens that begin in pieces of a text, which are looked through as one."""
    joined = "\n".join(piece for _, piece in pieces)
    offsets, at = [], 0
    for _, piece in pieces:
        offsets.append(at)
        at += len(piece) + 1
    done = 0
    failed: dict[str, int] = {}
    hit = _BEGINS.search(joined)
    while hit:
        k = bisect_right(offsets, hit.start()) - 1
        place = pieces[k][0] + hit.start() - offsets[k]
        if place >= done and (span := _token(text, place, hit[0], failed)):
            done = span.end
            yield span
            if span.rule == "aws-key-id" and (half := _AWS_SECRET.search(text, span.end, span.end + 120)) and is_random(half[0]):
                yield SecretSpan(*half.span(), "key", "aws-secret-key", half[0])
        hit = _BEGINS.search(joined, hit.start() + 1)
    for rule, shape in _SHAPES:
        for shaped in shape.finditer(joined):
            k = bisect_right(offsets, shaped.start()) - 1
            start = pieces[k][0] + shaped.start() - offsets[k]
            if is_random(shaped[0]):
                yield SecretSpan(start, start + len(shaped[0]), "key", rule, shaped[0])


def _token(text: str, at: int, begin: str, failed: dict[str, int]) -> SecretSpan | None:
    for rule, pattern in _TRIED[begin]:
        if failed.get(rule.id, -1) > at:
            continue
        match = pattern.search(text, max(0, at - _LEFT), at + _RIGHT) if rule.before else pattern.match(text, at)
        if match is None or not match.start() <= at < match.end():
            if not rule.before:
                run = _RUN.match(text, at + len(begin))
                failed[rule.id] = run.end() if run else at + 1
            continue
        if _is_token(text, match, rule, begin):
            return SecretSpan(match.start(), match.end(), "key", rule.id, match[0])
    return None


def _is_token(text: str, match: re.Match[str], rule: Rule, begin: str) -> bool:
    body = match[0].removeprefix(begin)
    if begin[-1:].isalnum() and _is_blob(text, match.start()):
        return False
    if rule.id == "aws-key-id":
        return any(c.isdigit() for c in body) or not is_word_at(text, match.start())
    is_apart = not is_word_at(text, match.start()) and text[match.start() - 1 : match.start()] not in ("-", "_")
    is_clean = not rule.is_short or rule.id == "hugging-face" or (rule.id == "openai-old" and is_apart)
    is_solid = is_clean and len(body) >= 20 and len(set(body)) > 8 and not any(c in "_-./" for c in body)
    if not is_solid and not is_random(body) and not (len(set(body)) > 5 and any(c.isdigit() for c in body) and not rule.is_short):
        return False
    if not rule.is_short or not is_word_at(text, match.start()):
        return True
    before = text[max(0, match.start() - 8) : match.start()]
    if begin.startswith("sk") and _SK_WORDS.search(before):
        return False
    if not (is_solid or is_random(body)) or len(body) < 20 or text[match.end() : match.end() + 1].isalnum():
        return False
    if begin[0].isdigit() and (before[-1].isdigit() or (rule.id == "asana" and ":" not in body)):
        return False
    # A number in hex may hold the beginning of a key by chance.
    return begin[-1] in "-_./" or not (before[-1] in _HEX and all(c in _HEX for c in begin) and body.strip(_HEX) == "")


def _is_blob(text: str, at: int) -> bool:
    """Whether a long run of base64 goes on at a place: a picture, not a key behind a letter."""
    before = text[max(0, at - 80) : at]
    line = before.rstrip(" \t\r\n\"'\\b")[-32:] if before[-1:].isspace() or before[-1:] in ("'", '"') else before[-32:]
    return len(line) == 32 and not line.rstrip(_BASE64)


def broken_tokens(text: str, text_runs: Runs, whole: Sequence[SecretSpan]) -> Iterator[SecretSpan]:
    """Every token that a line break, or the end of a string that goes on, cuts in two or more."""
    chains = list(_chains(text, text_runs))
    if not chains:
        return
    ends = {span.start: span.end for span in whole}
    joined = "\n".join(chain[0] for chain in chains)
    at = 0
    for chain_text, parts in chains:
        for span in _in_pieces(joined, [(at, chain_text)]):
            start, end = span.start - at, min(span.end - at, len(chain_text))
            first, last = _part(parts, start), _part(parts, end - 1)
            if first == last or span.rule in _BLOBS:
                continue
            place = parts[first][1] + start - parts[first][0]
            tail = chain_text[parts[last][0] : end]
            if place in ends and ends[place] >= parts[first][2] and not is_tail(tail):
                continue  # whole on its own line, and a word follows
            yield SecretSpan(place, parts[last][1] + end - parts[last][0], "key", span.rule, chain_text[start:end])
        at += len(chain_text) + 1


def _without_joiners(text_runs: Runs) -> Runs:
    """Runs without those that are only the sign between two parts of a string that is put together."""
    first = text_runs.codes[text_runs.starts]
    is_sign = (text_runs.ends - text_runs.starts == 1) & ((first == ord("+")) | (first == ord(".")))
    keep = np.flatnonzero(~is_sign)
    return Runs(text_runs.starts[keep], text_runs.ends[keep], text_runs.digits[keep], text_runs.codes)


def is_tail(value: str) -> bool:
    """Whether a piece on the next line looks like the rest of a secret rather than like the next word."""
    return len(value) >= 6 and is_random(value)


def _part(parts: list[tuple[int, int, int]], at: int) -> int:
    return bisect_right([part[0] for part in parts], at) - 1


def _chains(text: str, text_runs: Runs) -> Iterator[tuple[str, list[tuple[int, int, int]]]]:
    """Runs that line breaks join: the joined text, and for each part its place there, its place in the text, and its end."""
    starts, ends, digits, codes = _without_joiners(text_runs)
    if len(starts) < 2:
        return
    gap, sizes = starts[1:] - ends[:-1], ends - starts
    may = (gap <= 50) & (sizes[1:] + sizes[:-1] >= _SHORTEST) & (sizes[:-1] >= 2)
    if "hf_" not in text:  # whose letters may be without a digit
        may &= digits[1:] + digits[:-1] > 0
    may &= _MAY_BREAK[codes[ends[:-1]]]
    joins = []
    for k in np.flatnonzero(may).tolist():
        end, start = int(ends[k]), int(starts[k + 1])
        gone = BREAK.match(text, end)
        if gone and (gone.end() == start or (gone.end() == start + 1 and text[start] == "n")):
            joins.append((k, gone.end()))
    at = 0
    while at < len(joins):
        stop = at
        while stop + 1 < len(joins) and joins[stop + 1][0] == joins[stop][0] + 1:
            stop += 1
        places = [int(starts[joins[at][0]])] + [begin for _, begin in joins[at : stop + 1]]
        limits = [int(ends[joins[at][0]])] + [int(ends[k + 1]) for k, _ in joins[at : stop + 1]]
        parts, pieces, size = [], [], 0
        for begin, limit in zip(places, limits, strict=True):
            parts.append((size, begin, limit))
            pieces.append(text[begin:limit])
            size += limit - begin
        yield "".join(pieces), parts
        at = stop + 1
