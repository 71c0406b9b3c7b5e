"""Files that appear whole or not at all, and files that somebody named, which are read only where they are plain.

Always true: every file is written and synced beside its place before the first is renamed into it, so a reader sees the old
bytes or the new ones, even after a crash; when `put` raises before the first rename, nothing has changed and nothing is left.
A rename would put a plain file in the place of a device, a pipe or a folder: those are refused. Reading refuses them too: a pipe
may never begin and a device never end. A TOML file is read in time and depth that its size bounds.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from counterpoint.errors import InputError

_TOML_BYTES = 1 << 18
_TOML_DEPTH = 16
# A quoted text, and a comment; then keys with so many dots, over which `tomllib` takes quadratic time.
_QUOTED = re.compile(
    r'''"""(?>[^"\\]++|\\.|"(?!""))*+(?:""")?+|"(?>[^"\\\n]++|\\.)*+"?+|'''
    r"""'''(?>[^']++|'(?!''))*+(?:''')?+|'[^'\n]*+'?+|#[^\n]*+""",
    re.DOTALL,
)
_DOTTED = re.compile(rf"(?<![\w-])(?:[\w-]++[ \t]*+\.[ \t]*+){{{_TOML_DEPTH}}}")


def open_plain(path: str | os.PathLike[str]) -> BinaryIO:
    """A file that somebody named, for reading; what is no plain file is refused without being opened, or waited for."""
    if os.path.isdir(path):
        raise InputError("is a directory, not a file", where=os.fspath(path), fix="name a file in it")
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise _not_plain(path)
    # Another may stand there by now: it is opened without waiting, and looked at again.
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise _not_plain(path)
    return open(handle, "rb")


def _not_plain(path: str | os.PathLike[str]) -> InputError:
    why = "reading a pipe or a device may never end"
    return InputError("is not a plain file", where=os.fspath(path), why=why, fix="save its content to a file, and name that")


def read_plain(path: str | os.PathLike[str]) -> bytes:
    """The bytes of a plain file that somebody named."""
    with open_plain(path) as file:
        return file.read()


def read_toml(path: str | os.PathLike[str], *, fix: str) -> dict[str, Any]:
    """The tables of a TOML file; what is none, is larger than any settings are, or is nested without end is one clear error."""
    where = os.fspath(path)
    with open_plain(path) as file:
        data = file.read(_TOML_BYTES + 1)
    if len(data) > _TOML_BYTES:
        raise InputError("is too large for a TOML file of settings: more than 256 KiB", where=where, fix=fix)
    deep = InputError(f"is nested too deeply: more than {_TOML_DEPTH} levels", where=where, fix=fix)
    if _DOTTED.search(_QUOTED.sub("x", data.decode("utf-8", "replace"))):
        raise deep
    try:
        table = tomllib.loads(data.decode("utf-8"))
    except RecursionError:
        raise deep from None
    except ValueError as error:  # of its syntax, its encoding, or a whole number of thousands of digits
        raise InputError(f"is not valid TOML: {error}", where=where, fix=fix) from error
    if _is_deep(table):
        raise deep
    return table


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(_TOML_DEPTH):
        inner = [v.values() if isinstance(v, dict) else v for v in level if isinstance(v, (dict, list))]
        level = [v for values in inner for v in values]
        if not level:
            return False
    return True


def refuse(path: Path, *, overwrite: bool) -> None:
    """Raise unless a file may be put here."""
    if path.is_dir():
        raise InputError("is a directory", where=os.fspath(path), fix="name a file in it")
    if path.exists() and not path.is_file():
        raise InputError("is not a plain file", where=os.fspath(path), fix="choose another name")
    if path.exists() and not overwrite:
        raise InputError("exists already", where=os.fspath(path), fix="use --overwrite to replace it, or another name")


def put(files: Sequence[tuple[Path, bytes]], *, overwrite: bool = True) -> None:
    """Bytes into each of the named files; folders are made where they are missing."""
    for path, _ in files:
        refuse(path, overwrite=overwrite)
    ready: list[tuple[str, Path]] = []
    try:
        for path, data in files:
            path.parent.mkdir(parents=True, exist_ok=True)
            ready.append((_draft(path, data), path))
        while ready:
            os.replace(*ready[0])
            ready.pop(0)
    finally:
        for draft, _ in ready:
            Path(draft).unlink(missing_ok=True)
    for folder in {path.parent for path, _ in files}:
        _sync(folder)


def _draft(path: Path, data: bytes) -> str:
    """A temporary file beside the place that holds the bytes durably; nothing is left behind when that fails."""
    draft = ""
    try:
        handle, draft = tempfile.mkstemp(prefix=".", suffix=".tmp", dir=path.parent)
        with os.fdopen(handle, "wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        # A temporary file is for its owner alone; the new one keeps the mode of the old, or has the usual one.
        os.chmod(draft, path.stat().st_mode & 0o7777 if path.exists() else 0o666 & ~_umask())
    except BaseException as error:
        if draft:
            Path(draft).unlink(missing_ok=True)
        if isinstance(error, OSError):  # about the file that was asked for, not about its draft
            raise OSError(error.errno, error.strerror, os.fspath(path)) from error
        raise
    return draft


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _sync(folder: Path) -> None:
    """Make the names in a folder survive a power cut; elsewhere than on POSIX a folder cannot be opened."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
