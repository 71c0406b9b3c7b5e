"""People in a text: e-mail addresses, and the user's name in a home folder.

A home folder is that of NAME in `home` or `Users`, at a root, on a volume or a server, or in a folder that holds homes
(`/var`, `/export`, `/nfs`), in `/media`, behind a tilde, and in a folder whose name stands for such a path (a slug such as
-home-NAME-project). Names of nobody (`root`, `runner`, `you`) stay, and so do `icon@2x.png`, `git@host` and `q@k.T`, which are
no e-mail addresses.

Always true: what is masked is the name alone; the rest of the path stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from counterpoint.formats.masking.base import SecretSpan, every
from counterpoint.formats.masking.patterns import lazy

_LOCAL = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._%+-"
_DOMAIN = lazy(r"(?!\d{1,63}+\.\d)(?:[A-Za-z0-9-]{1,63}+\.){1,8}(?P<top>[A-Za-z]{2,24}+)(?![A-Za-z0-9@])")
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


def _is_domain(text: str, match: re.Match[str]) -> bool:
    """Not the name of a file (icon@2x.png), and not a method of a matrix (q@k.transpose())."""
    top = match["top"].lower()
    return top not in _FILES and (top in _TOPS or text[match.end() : match.end() + 1] != "(")


_NAME = r"([A-Za-z0-9][A-Za-z0-9._-]*+)"
_WORD = r"([A-Za-z0-9][A-Za-z0-9._]*+)"
_HOME = "home"
# Folders that hold the homes of a machine or a network; below another folder `home` is a page or a module.
_HOLDERS = (
    "var", "usr", "export", "data", "mnt", "net", "nfs", "srv", "vol", "storage", "lustre", "gpfs", "cluster", "hpc", "scratch",
    "work", "private", "host", "hostfs", "rootfs", "nas", "shared", "fsx", "efs", "afs", "array",
)  # fmt: skip
_HELD = lazy(rf"(?:/(?:{'|'.join(_HOLDERS)})(?:/[A-Za-z0-9_.-]{{1,40}})?|-(?:{'|'.join(_HOLDERS)}))\Z")
_HOMES: tuple[tuple[str, re.Pattern[str]], ...] = (
    (f"/{_HOME}/", lazy(rf"/{_HOME}/{_NAME}")),
    (f"/{_HOME}s/", lazy(rf"/{_HOME}s/{_NAME}")),
    (f"-{_HOME}-", lazy(rf"-{_HOME}-{_WORD}")),
    ("Users", lazy(rf"Users(?:/|\\{{1,8}}+){_NAME}|Users-{_WORD}")),
    ("and Settings", lazy(rf"and Settings(?:/|\\{{1,8}}+){_NAME}")),
    ("/media/", lazy(rf"/media/{_NAME}(?=/)")),
    ("~", lazy(r"~([A-Za-z_][A-Za-z0-9._-]{1,31})(?=/)")),
)
_NOBODY = frozenset({
    "shared", "public", "default", "user", "users", "username", "runner", "runneradmin", "ubuntu", "vscode", "node", "root",
    "linuxbrew", "foo", "bar", "foobar", "baz", "xyz", "xxx", "you", "your", "me", "name", "someone", "somebody",
    "example", "test", "testuser",
    "path", "dir", "bin", "lib", "index.html", "joe", "you-user", "yourname", "your-name", "python", "jovyan",
    "circleci", "travis", "build", "app", "guest", "all", "to",
})  # fmt: skip
"""Names that are no person's: of machines, of images of machines, and of documentation."""


def homes(text: str) -> Iterator[SecretSpan]:
    """The user's name in every home folder."""
    for needle, pattern in _HOMES:
        for at in every(text, needle) if needle in text else ():
            match = pattern.match(text, at)
            if match is None or not match.lastindex or not _ASKED[needle](text, at):
                continue
            name = match[match.lastindex].rstrip(".")
            if name.lower() not in _NOBODY:
                start = match.start(match.lastindex)
                yield SecretSpan(start, start + len(name), "path", "home-folder", name)


def _is_inside(text: str, at: int) -> bool:
    if at == 0 or not (text[at - 1].isalnum() or text[at - 1] in "_-"):
        return False
    return not (text[at - 1] in "nrtb" and text[at - 2 : at - 1] == "\\")


def _is_root(text: str, at: int) -> bool:
    """Whether a path begins at a slash: nothing stands before it that would be part of one."""
    return not _is_inside(text, at) and text[at - 1 : at] not in (".", "~", ")", "]", "}")


def _is_held(text: str, at: int) -> bool:
    """Whether a folder that holds homes stands before a place, at a root."""
    held = _HELD.search(text, max(0, at - 60), at)
    return held is not None and _is_root(text, held.start())


def _is_home(text: str, at: int) -> bool:
    return _is_root(text, at) or _is_held(text, at)


def _is_slug(text: str, at: int) -> bool:
    """Whether a folder's name that stands for a path begins here, or with the name of a folder that holds homes."""
    before = text[max(0, at - 1) : at]
    if not before or before in "/\\\"'`=:,( \t\n\0":
        return True
    held = _HELD.search(text, max(0, at - 20), at)
    return held is not None and (held.start() == 0 or text[held.start() - 1] in "/\\\"'`=:,( \t\n\0")


_ON_VOLUME = lazy(
    r"/(?:System/Volumes|Volumes|mnt|media|run/media|export|data|net|nfs|srv|cygdrive)/(?:[^/\n\"'`:]{1,40}/){0,2}\Z"
)
_ON_SERVER = lazy(r"(?:\\{2,4}|//)[A-Za-z0-9_.-]{1,60}(?:\\{1,2}|/)(?:[A-Za-z]\$(?:\\{1,2}|/))?\Z")
_DRIVE_SLUG = lazy(r"(?:^|[/\\\"'`=:,(\s\0])(?:[A-Za-z]-{1,2}|-(?:mnt-|cygdrive-)?(?:[a-z]-)?)\Z")


def _is_users(text: str, at: int) -> bool:
    """Whether `Users` stands at a root: /Users, C:\\Users, C:/Users, /c/Users, on a volume or a server, or in a slug."""
    before = text[max(0, at - 9) : at]
    if before.endswith(":/") or (before.endswith("\\") and before.rstrip("\\").endswith(":")):
        return True
    if text[at + 5 : at + 6] == "-":
        return _DRIVE_SLUG.search(text, max(0, at - 16), at) is not None
    if before.endswith("\\"):
        return _ON_SERVER.search(text, max(0, at - 80), at) is not None
    if not before.endswith("/"):
        return False
    if _is_root(text, at - 1) or (len(before) > 2 and before[-3] == "/" and before[-2].isalpha()):
        return True
    volume = _ON_VOLUME.search(text, max(0, at - 100), at)
    return volume is not None and _is_root(text, volume.start())


def _is_settings(text: str, at: int) -> bool:
    return text[max(0, at - 10) : at] == "Documents "


def _is_media(text: str, at: int) -> bool:
    """Whether a disk is mounted here for somebody: /media/NAME/DISK, /run/media/NAME/DISK; in a site it holds pictures."""
    if text[max(0, at - 4) : at] == "/run":
        return _is_root(text, at - 4)
    return _is_root(text, at) and _DISK.match(text, at) is not None


_DISK = lazy(r"/media/[a-z_][a-z0-9_-]{1,31}/(?:[A-Z0-9][A-Z0-9_ -]{2,31}|[0-9a-f]{4,8}-[0-9a-f-]{4,31})(?:[/\s\"']|\Z)")


def _is_tilde(text: str, at: int) -> bool:
    """Whether ~NAME is somebody's folder: at the beginning of a word, or of the path of an address."""
    before = text[max(0, at - 1) : at]
    if before == "/":
        return "://" in text[max(0, at - 80) : at].split()[-1]
    return not before or before in "\"'`=:( \t\n\0,"


_ASKED = {
    f"/{_HOME}/": _is_home, f"/{_HOME}s/": _is_home, f"-{_HOME}-": _is_slug, "Users": _is_users, "and Settings": _is_settings,
    "/media/": _is_media, "~": _is_tilde,
}  # fmt: skip
