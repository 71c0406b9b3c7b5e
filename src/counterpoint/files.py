"""Files that appear whole or not at all.

Always true: every file is written and synced beside its place before the first is renamed into it, so a reader sees the old
bytes or the new ones, even after a crash; when `put` raises before the first rename, nothing has changed and nothing is left.
A rename would put a plain file in the place of a device, a pipe or a folder: those are refused.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from counterpoint.errors import InputError

__all__ = ["put", "refuse"]


def refuse(path: Path, *, overwrite: bool) -> None:
    """Raise unless a file may be put here."""
    if path.is_dir():
        raise InputError("is a directory", where=os.fspath(path), fix="name a file in it")
    if path.exists() and not path.is_file():
        raise InputError("is not a plain file", where=os.fspath(path), fix="choose another name")
    if path.exists() and not overwrite:
        raise InputError("exists already", where=os.fspath(path), fix="use --force to replace it, or another name")


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
