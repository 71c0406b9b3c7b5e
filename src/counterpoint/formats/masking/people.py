"""People in a text: e-mail addresses, and the user's name in a home folder.

Always true: names of nobody (`root`, `runner`, `you`) stay, and so do addresses that are none: `icon@2x.png`, `git@host`,
`q@k.T`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from counterpoint.formats.masking.base import SecretSpan, every

_LOCAL = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._%+-"
_DOMAIN = re.compile(r"(?!\d{1,63}+\.\d)(?:[A-Za-z0-9-]{1,63}+\.){1,8}(?P<top>[A-Za-z]{2,24}+)(?![A-Za-z0-9@])")
_TOPS = frozenset({"com", "org", "net", "edu", "gov", "io", "dev", "ai", "co", "de", "uk", "fr", "cn", "jp", "in", "eu", "info"})
_FILES = frozenset({
    "png", "jpg", "jpeg", "gif", "svg", "webp", "ico", "js", "ts", "tsx", "jsx", "mjs", "cjs", "css", "json", "html", "txt",
    "tgz", "gz", "zip", "whl", "yaml", "yml", "toml", "lock", "map",
})  # fmt: skip


def emails(text: str) -> Iterator[SecretSpan]:
    """Every e-mail address."""
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
                yield SecretSpan(start, domain.end(), "email", "email", text[start : domain.end()])
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
_NOBODY = frozenset({
    "shared", "public", "default", "user", "users", "username", "runner", "runneradmin", "ubuntu", "vscode", "node", "root",
    "linuxbrew", "foo", "bar", "foobar", "baz", "xyz", "xxx", "you", "your", "me", "name", "someone", "somebody",
    "example", "test", "testuser",
    "path", "dir", "bin", "lib", "index.html", "joe", "you-user", "yourname", "your-name", "python", "jovyan",
    "circleci", "travis", "build", "app", "guest", "all", "to",
})  # fmt: skip
"""Names of nobody: of machines, of images of machines, and of documentation."""


def homes(text: str) -> Iterator[SecretSpan]:
    """The user's name in every home folder."""
    for needle, pattern in _HOMES:
        for at in every(text, needle) if needle in text else ():
            found = pattern.match(text, at)
            if found is None or not found.lastindex or not (_is_root(text, at) if needle[0] == "/" else _is_users(text, at)):
                continue
            name = found[found.lastindex].rstrip(".")
            if name.lower() not in _NOBODY:
                start = found.start(found.lastindex)
                yield SecretSpan(start, start + len(name), "path", "home-folder", name)


def _is_inside(text: str, at: int) -> bool:
    if at == 0 or not (text[at - 1].isalnum() or text[at - 1] in "_-"):
        return False
    return not (text[at - 1] in "nrtb" and text[at - 2 : at - 1] == "\\")


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
