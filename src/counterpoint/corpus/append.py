"""A paper more in a user's file.

Always true: the file holds either all of its old lines or all of them and the new one, whatever dies when; a paper that
the pool or the file already has is never added; two writers take turns.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from counterpoint.corpus.load import papers, read_papers
from counterpoint.corpus.records import Paper
from counterpoint.corpus.validate import Seen
from counterpoint.errors import InputError, NotFound, TryAgain
from counterpoint.files import put, refuse

_PATIENCE_S = 2.0


def line(paper: Paper) -> str:
    """The paper as its line in a file."""
    return msgspec.json.encode(paper).decode()


@contextlib.contextmanager
def _turn(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, so that a read and a rename by two writers cannot interleave. No file is left behind."""
    try:
        import fcntl
    except ImportError:  # no such lock on this system: the rename is still atomic
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TryAgain("another process is writing here", where=str(folder), fix="run it again") from None
                time.sleep(0.02)
        yield
    finally:
        os.close(handle)


def _check(paper: Paper, path: Path) -> int:
    """The number of papers already in the file; a duplicate is an error."""
    held = read_papers(path) if path.exists() else []
    for where, others in (("the built-in corpus", papers()), (str(path), held)):
        clash = Seen(others).clash(paper)
        if clash:
            raise InputError(clash, where=where, fix="`counterpoint corpus show` prints the record that is there")
    return len(held)


def add(paper: Paper, path: Path, *, dry_run: bool = False) -> int:
    """Append a checked paper to the file at `path`; returns how many papers it then holds."""
    target = Path(os.path.realpath(path))  # a link stays a link
    if not target.parent.is_dir():
        raise NotFound("no such folder", where=str(path.parent), fix=f"mkdir -p {path.parent}")
    refuse(target, overwrite=True)
    with _turn(target.parent):
        count = _check(paper, path)
        if not dry_run:
            old = target.read_bytes() if target.exists() else b""
            if old and not old.endswith(b"\n"):
                old += b"\n"
            put([(target, old + line(paper).encode() + b"\n")])
    return count + 1
