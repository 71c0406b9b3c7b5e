"""Where the secrets in a text are: keys and tokens of known vendors, passwords, e-mail addresses, names of home folders.

Always true: the time is linear in the text, whatever is in it: a text is looked through for fixed substrings first, and a pattern
is tried only where one stands; patterns are possessive, so none goes back. Spans do not overlap, and our own labels are no
secret. A secret of no known form (a bare word, a hash) is not found: this lowers the risk of publishing a log, and does not end
it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["LABEL", "Span", "is_secret_value", "spans"]

LABEL = re.compile(r"\[masked:(?:key|email|path):[0-9a-f]{4,}\]")
"""What stands where a secret was."""


_SHORTEST = 15
"""No key of a vendor is shorter."""


class Span(NamedTuple):
    """Where a secret is, and its kind: `key`, `email` or `path`."""

    start: int
    end: int
    kind: str


def spans(text: str, low: str | None = None) -> list[Span]:
    """Every secret in a text, in order; those that overlap are one. `low` is the text with ASCII letters in lower case."""
    if low is None:
        low = text.lower() if text.isascii() else text.encode("utf-8", "surrogatepass").lower().decode("utf-8", "surrogatepass")
    keys = [*_vendor_keys(text), *_headers(text, low), *_private_keys(text)] if len(text) >= _SHORTEST else []
    if ":" in text or "=" in text:
        keys += _assigned(text, low)
    begun = {span.start for span in keys}  # name:password@host is no address
    found = [*keys, *(span for span in _emails(text) if span.start not in begun), *_homes(text)]
    if len(found) < 2:
        return found
    found.sort(key=lambda s: (s.start, -s.end))
    apart = found[:1]
    for span in found[1:]:
        last = apart[-1]
        if span.start >= last.end:
            apart.append(span)
        elif span.end > last.end:
            apart[-1] = last._replace(end=span.end)
    return apart


def _every(text: str, needle: str) -> Iterator[int]:
    at = text.find(needle)
    while at >= 0:
        yield at
        at = text.find(needle, at + len(needle))


def _is_inside(text: str, at: int) -> bool:
    """Whether a word goes on at a place; a line break written out as `\\n` is no part of one."""
    if at == 0 or not (text[at - 1].isalnum() or text[at - 1] in "_-"):
        return False
    return not (text[at - 1] in "nrtb" and text[at - 2 : at - 1] == "\\")


# -- keys that show what they are ----------------------------------------------------------------------------------------



def _literal(pattern: str) -> str:
    return "" if "[" in pattern or "(" in pattern else pattern.replace("\\", "")


_AWS = r"[A-Z0-9]{16}(?:[\s,:;|\"']{1,8}+[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=]))?+"
# How a key begins, and the whole of it. Beginnings with a letter in common are looked for together, which is as fast as one;
# one alone is a substring (the first of the three), which is faster.
_VENDORS: tuple[tuple[str, re.Pattern[str], re.Pattern[str]], ...] = tuple(
    (_literal(begins), re.compile(begins), re.compile(f"(?:{'|'.join(wholes)})(?![A-Za-z0-9_-])"))
    for begins, *wholes in (
        # Anthropic, OpenAI, OpenRouter, Langfuse, Stripe; and the old form of many, which is letters and digits only.
        (
            r"sk[-_]",
            r"sk-(?:ant|proj|svcacct|admin|or-v1|lf)-[A-Za-z0-9_-]{16,}+",
            r"sk-(?=[A-Za-z]{0,60}[0-9])[A-Za-z0-9]{20,}+",
            r"sk_live_[A-Za-z0-9]{16,}+",
        ),
        # GitHub, GitLab, Groq.
        (
            r"gh[pousr]_|github_pat_|glpat-|gsk_",
            r"gh[pousr]_[A-Za-z0-9]{20,}+",
            r"github_pat_[A-Za-z0-9_]{20,}+",
            r"glpat-[A-Za-z0-9_-]{16,}+",
            r"gsk_[A-Za-z0-9]{20,}+",
        ),
        # AWS, whose secret half has no form of its own and is taken where it stands right behind the first; Google.
        (r"A(?:KIA|SIA|Iza)", rf"A[KS]IA{_AWS}", r"AIza[A-Za-z0-9_-]{30,}+"),
        (r"ya29\.", r"ya29\.[A-Za-z0-9_-]{20,}+"),
        (r"GOCSPX-", r"GOCSPX-[A-Za-z0-9_-]{20,}+"),
        # Slack, xAI.
        (
            r"x(?:ox[abeoprs]-|app-|ai-)",
            r"xox[abeoprs]-[A-Za-z0-9-]{10,}+",
            r"xapp-[A-Za-z0-9-]{16,}+",
            r"xai-[A-Za-z0-9]{20,}+",
        ),
        # Hugging Face, NVIDIA, Perplexity, Tavily, LangSmith, SendGrid, DigitalOcean; registries of packages.
        (r"hf_", r"hf_[A-Za-z0-9]{30,}+"),
        (r"nvapi-", r"nvapi-[A-Za-z0-9_-]{20,}+"),
        (r"p(?:plx-|ypi-AgE)", r"pplx-[A-Za-z0-9]{20,}+", r"pypi-AgE[A-Za-z0-9_-]{40,}+"),
        (r"tvly-", r"tvly-[A-Za-z0-9-]{16,}+"),
        (r"lsv2_", r"lsv2_(?:pt|sk)_[A-Za-z0-9_]{20,}+"),
        (r"SG\.", r"SG\.[A-Za-z0-9_-]{16,}+\.[A-Za-z0-9_-]{16,}+"),
        (r"dop_v1_", r"dop_v1_[a-f0-9]{40,}+"),
        (r"npm_", r"npm_[A-Za-z0-9]{30,}+"),
        # Signed tokens of anybody.
        (r"eyJ", r"eyJ[A-Za-z0-9_-]{8,}+\.eyJ[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}+"),
    )
)


def _vendor_keys(text: str) -> Iterator[Span]:
    for needle, begins, whole in _VENDORS:
        if needle and needle not in text:
            continue
        for begin in begins.finditer(text):
            at = begin.start()
            if not _is_inside(text, at) and (found := whole.match(text, at)):
                yield Span(at, found.end(), "key")


# -- headers, addresses with a password, private keys --------------------------------------------------------------------

_CREDENTIAL = re.compile(r"[\"'\s:=\\]{1,12}+(?:(?:[Bb]earer|[Bb]asic|[Tt]oken|BEARER)\s{1,4}+)?+([A-Za-z0-9._~+/-]{8,}+=*+)")
_BEARER = re.compile(r"\s{1,4}+([A-Za-z0-9._~+/-]{16,}+=*+)")
_IN_URL = re.compile(r"://[^\s/:@\"'\\<>\[\]]{0,64}+:([^\s/@\"'\\<>\[\]{}$]{3,200}+)@")
_KEY_BEGIN, _KEY_END, _KEY_HEAD = "PRIVATE KEY-----", "-----END", "-----BEGIN "
_BODY = re.compile(r"(?:\\[nr]|[A-Za-z0-9+/=\s])*+")


def _headers(text: str, low: str) -> Iterator[Span]:
    for at in _every(low, "authorization") if "authorization" in low else ():
        if (found := _CREDENTIAL.match(text, at + 13)) and is_secret_value(found[1]):
            yield Span(*found.span(1), "key")
    for at in _every(low, "bearer ") if "bearer " in low else ():
        if (found := _BEARER.match(text, at + 6)) and _has_digit(found[1]):
            yield Span(*found.span(1), "key")
    if "@" in text:
        for at in _every(text, "://"):
            if (found := _IN_URL.match(text, at)) and found[1].lower() not in _WORDS:
                yield Span(*found.span(1), "key")


def _private_keys(text: str) -> Iterator[Span]:
    end = -1
    at = text.find(_KEY_BEGIN)
    while at >= 0:
        begin = text.rfind(_KEY_HEAD, max(0, at - 40), at)
        after = at + len(_KEY_BEGIN)
        if begin >= 0:
            if end < after:
                end = text.find(_KEY_END, after)
                end = len(text) if end < 0 else end
            body = _BODY.match(text, after)
            stop = body.end() if body else after
            if end - after < 1 << 14 and end < len(text):
                closing = text.find("-----", end + len(_KEY_END), end + 80)
                stop = closing + 5 if closing >= 0 else end
            if stop - after >= 64:
                yield Span(begin, stop, "key")
                after = stop
        at = text.find(_KEY_BEGIN, after)


# -- names that are given a value ----------------------------------------------------------------------------------------

# The end of a name, and what may stand before it; None for anything. (A pwd alone is where a shell is.)
_NAMES: tuple[tuple[str, tuple[str, ...] | None, bool], ...] = (
    ("password", None, True),
    ("passwd", None, True),
    ("pwd", ("_", ";"), True),
    ("secret", None, False),
    ("token", None, False),
    ("apikey", None, False),
    ("_key", ("api", "secret", "access", "private", "auth", "account"), False),
    ("-key", ("api", "secret", "access", "private", "auth", "account"), False),
    ("accountkey", None, False),
)
_ASSIGNS = frozenset(" \t\"'\\:=")
_QUOTED = re.compile(r"(?:\\*+[\"'])?+\s{0,4}+[:=]>?+\s{0,4}+(?:b|f|r)?(\\*+[\"'])([^\s\"'\\<>\[\]{}$]{4,500}+)(?=\\*+[\"'])")
_BARE = re.compile(r"(?:\\*+[\"'])?+\s{0,4}+[:=]\s{0,4}+([A-Za-z0-9_~!#%^*+/=.@-]{6,500}+)(?![\w(\[{<$])")
_PATH_OF_NAMES = re.compile(r"[A-Za-z_]\w*+(?:\.[A-Za-z_]\w*+)++")
# What stands for a value in documentation, schemas and code.
_WORDS = frozenset({
    "string", "str", "text", "none", "null", "true", "false", "undefined", "required", "optional", "password", "passwd",
    "secret", "token", "value", "number", "integer", "object", "boolean", "bytes", "changeme", "redacted", "masked", "hidden",
    "example", "placeholder", "dummy", "test", "pass", "user", "username",
})  # fmt: skip
_FILLERS = ("your", "xxxx", "****", "....", "example", "placeholder", "redacted", "changeme", "dummy", "insert", "env.")


def _assigned(text: str, low: str) -> Iterator[Span]:
    for name, before, is_password in _NAMES:
        for at in _every(low, name) if name in low else ():
            place = at + len(name)
            if text[place : place + 1] not in _ASSIGNS or (before and not low[max(0, at - 8) : at].endswith(before)):
                continue
            if found := _value(text, place, is_password=is_password):
                yield found


def _value(text: str, at: int, *, is_password: bool) -> Span | None:
    if found := _QUOTED.match(text, at):
        value = found[2]
        is_one = is_secret_value(value) if not is_password else not _is_filler(value)
        return Span(*found.span(2), "key") if is_one and len(value) >= (4 if is_password else 8) else None
    if found := _BARE.match(text, at):
        value = found[1].rstrip(".,")
        is_one = _has_digit(value) and any(c.isalpha() for c in value) and not _is_filler(value)
        if is_one and len(value) >= (6 if is_password else 8) and not _PATH_OF_NAMES.fullmatch(value):
            return Span(found.start(1), found.start(1) + len(value), "key")
    return None


def is_secret_value(value: str) -> bool:
    """Whether a value of a name that says so (`api_key`) looks like one: long enough, not a word that stands for it."""
    if len(value) < 8 or _is_filler(value):
        return False
    return _has_digit(value) or (len(value) >= 16 and not value.islower() and not value.isupper())


def _is_filler(value: str) -> bool:
    low = value.lower()
    return low in _WORDS or len(set(low)) < 4 or any(part in low for part in _FILLERS)


def _has_digit(value: str) -> bool:
    return any(c.isdigit() for c in value)


# -- people --------------------------------------------------------------------------------------------------------------

_LOCAL = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._%+-"
_DOMAIN = re.compile(r"(?!\d+\.\d)(?:[A-Za-z0-9-]{1,63}+\.){1,8}(?P<top>[A-Za-z]{2,24}+)(?![A-Za-z0-9@])")
_TOPS = frozenset({"com", "org", "net", "edu", "gov", "io", "dev", "ai", "co", "de", "uk", "fr", "cn", "jp", "in", "eu", "info"})
_FILES = frozenset({
    "png", "jpg", "jpeg", "gif", "svg", "webp", "ico", "js", "ts", "tsx", "jsx", "mjs", "cjs", "css", "json", "html", "txt",
    "tgz", "gz", "zip", "whl", "yaml", "yml", "toml", "lock", "map",
})  # fmt: skip


def _emails(text: str) -> Iterator[Span]:
    at = text.find("@")
    while at >= 0:
        domain = _DOMAIN.match(text, at + 1)
        if domain and _is_domain(text, domain):
            before = text[max(0, at - 65) : at]
            size = len(before) - len(before.rstrip(_LOCAL))
            start = at - size
            if size and text[start] in "nrt" and text[start - 1 : start] == "\\":
                start += 1
            start = at - len(text[start:at].lstrip("._%+-"))
            if start < at and at - start <= 64 and text[start:at] != "git":
                yield Span(start, domain.end(), "email")
        at = text.find("@", at + 1)


def _is_domain(text: str, found: re.Match[str]) -> bool:
    """Not the name of a file (icon@2x.png), and not a method of a matrix (q@k.transpose())."""
    top = found["top"].lower()
    return top not in _FILES and (top in _TOPS or text[found.end() : found.end() + 1] != "(")


_HOME = "home"
_HOMES = (
    # A root, a drive, or a folder whose name stands for a path (/repo/x as -repo-x).
    (f"/{_HOME}/", re.compile(rf"/{_HOME}/([A-Za-z0-9][A-Za-z0-9._-]*+)")),
    (f"/-{_HOME}-", re.compile(rf"/-{_HOME}-([A-Za-z0-9][A-Za-z0-9._]*+)")),
    ("Users", re.compile(r"Users(?:/|\\{1,8}+)([A-Za-z0-9][A-Za-z0-9._-]*+)|Users-([A-Za-z0-9][A-Za-z0-9._]*+)")),
)
# Names of nobody.
_NOBODY = frozenset({
    "shared", "public", "default", "user", "users", "username", "runner", "runneradmin", "ubuntu", "vscode", "node", "root",
    "linuxbrew",
})  # fmt: skip


def _homes(text: str) -> Iterator[Span]:
    for needle, pattern in _HOMES:
        for at in _every(text, needle) if needle in text else ():
            found = pattern.match(text, at)
            if found is None or not found.lastindex or not (_is_root(text, at) if needle[0] == "/" else _is_users(text, at)):
                continue
            name = found[found.lastindex].rstrip(".")
            if name.lower() not in _NOBODY:
                start = found.start(found.lastindex)
                yield Span(start, start + len(name), "path")


def _is_root(text: str, at: int) -> bool:
    """Whether a path begins at a slash: nothing stands before it that would be part of one."""
    if text[at : at + 2] == "/-":
        return True
    return not _is_inside(text, at) and text[at - 1 : at] not in (".", "~", ")", "]", "}")


def _is_users(text: str, at: int) -> bool:
    """Whether `Users` stands at a root: /Users, C:\\Users, C:/Users, /c/Users, /-Users."""
    before = text[max(0, at - 9) : at]
    if before.endswith((":/", "/-")) or (before.endswith("\\") and before.rstrip("\\").endswith(":")):
        return True
    if not before.endswith("/"):
        return False
    return _is_root(text, at - 1) or (len(before) > 2 and before[-3] == "/" and before[-2].isalpha())
