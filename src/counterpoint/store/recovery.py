"""What opening a store does about journals whose writers are gone.

Always true: a journal that somebody holds is not touched. A dead one is cut to its last whole line; when it ends with a
finish, which was written before its trace could be sealed, it is sealed now. A journal that cannot be read stays as it is and
is reported, and the store opens all the same.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

import counterpoint.store.disk as disk
from counterpoint.errors import CounterpointError
from counterpoint.store.journal import Journal, journals
from counterpoint.store.writing import Writer

_TAIL = 1 << 16
# Drafts live for milliseconds; one that is older has lost its writer.
_DRAFT_AGE_S = 3600.0


def recover(folder: Path, writer: Writer) -> list[CounterpointError]:
    """Mend every dead journal of the folder; returns what could not be mended."""
    problems: list[CounterpointError] = []
    for path in journals(folder):
        try:
            if not _is_settled(path):
                _mend(path, writer)
        except CounterpointError as error:
            cause = error.__cause__
            if not (isinstance(cause, OSError) and cause.errno in (errno.EACCES, errno.EPERM, errno.EROFS)):
                problems.append(error)
    with suppress(OSError):  # somebody else's folder, or read-only: nothing here depends on it
        disk.sweep(folder, _DRAFT_AGE_S)
    return problems


def _is_settled(path: Path) -> bool:
    """Whether the end of a journal shows a whole commit that is not a finish: then there is nothing to do."""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - _TAIL))
            lines = file.read().split(b"\n")
    except FileNotFoundError:
        return True
    except OSError:
        return False
    if len(lines) < 3 or lines[-1] or not lines[-2].startswith(b'{"sum":'):
        return False
    return len(lines) > 3 and not lines[-3].startswith(b'{"finish":')


def _mend(path: Path, writer: Writer) -> None:
    taken = Journal.resume(path)
    if taken is None:
        return
    journal, lines = taken
    try:
        if lines.finished is not None:
            writer.seal(lines.trace())
            journal.delete()
    finally:
        journal.release()
