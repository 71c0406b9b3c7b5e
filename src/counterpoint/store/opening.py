"""Opening a folder as a store: what makes it one, and which forms this version reads.

Always true: the mark is made last, so a folder that has it is whole; any number of processes may make one store at once; a folder
that is no store, or one of a form that we do not know, is left as it is. A store of the first form gets its sums and its head
when it is first opened for writing.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

import counterpoint.store.disk as disk
import counterpoint.store.head as head
from counterpoint.errors import CounterpointError, InputError, NotFound
from counterpoint.store.journal import Journal, journals
from counterpoint.store.log import Log
from counterpoint.store.place import FOLDERS, MARK
from counterpoint.store.tally import lost_runs, sweep_tallies, tally_or_fault

if TYPE_CHECKING:  # who lists a store loads no lake
    from counterpoint.store.writing import Writer

VERSION = 2
"""2: every file of the log ends with its sum, and the log has a head. 1: neither."""
ANNOTATIONS = "annotations.jsonl"


def open_folder(path: Path, *, create: bool) -> int:
    """The form of the store in this folder, which is made when it is new or empty and `create` is set."""
    mark = path / MARK
    form = form_of(mark)
    if form is not None:
        return form
    if path.exists() and not path.is_dir():
        raise InputError("is a file, not a store", where=str(path), fix="name a folder with --store DIR")
    if path.is_dir() and not _is_new(path):
        form = form_of(mark)  # somebody may have made the store between our two looks
        if form is not None:
            return form
        raise _no_store(path)
    if not create:
        fix = "name one with --store DIR; `counterpoint import` makes one of your sessions"
        raise NotFound("there is no store here", where=str(path), fix=fix)
    for folder in FOLDERS:
        disk.make_folder(path / folder)
    head.Head.create(path / head.NAME)
    write_mark(path)
    return open_folder(path, create=False)


def write_mark(path: Path) -> None:
    """Say that the folder is a store of our form, unless somebody said so first."""
    disk.create(path / MARK, _mark(path))


def _mark(path: Path, *, has_annotations: bool = False) -> bytes:
    mark = {"counterpoint_store": VERSION}
    if has_annotations or (path / ANNOTATIONS).exists():
        mark["annotations"] = 1
    return msgspec.json.encode(mark) + b"\n"


def has_annotations(path: Path) -> bool:
    """Whether the mark says that the store has a file of annotations: then one that is not there was lost."""
    try:
        return "annotations" in msgspec.json.decode((path / MARK).read_bytes(), type=dict[str, int])
    except (FileNotFoundError, NotADirectoryError, msgspec.MsgspecError, UnicodeDecodeError):
        return False  # who opens the store is told about the mark


def note_annotations(path: Path) -> None:
    """Let the mark say that there is a file of annotations."""
    if not has_annotations(path) and form_of(path / MARK) == VERSION:
        disk.replace_file(path / MARK, _mark(path, has_annotations=True))


def _is_new(path: Path) -> bool:
    """Whether a folder holds no more than a store that is being made: our empty folders, drafts, and a head."""
    names = [name for name in os.listdir(path) if not name.startswith(disk.TEMPORARY)]
    return all(name == head.NAME or (name in FOLDERS and not os.listdir(path / name)) for name in names)


def _no_store(path: Path) -> InputError:
    if all((path / folder).is_dir() for folder in FOLDERS):
        fix = head.REPAIR.format(store=os.fspath(path))
        return InputError("the store's version file is missing", where=str(path / MARK), fix=fix)
    return InputError("this folder is not a store", where=str(path), fix="name an empty or new folder with --store DIR")


def form_of(mark: Path) -> int | None:
    """The form that the mark names; None when there is no mark."""
    try:
        data = mark.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        version = msgspec.json.decode(data, type=dict[str, int])["counterpoint_store"]
    except (msgspec.MsgspecError, UnicodeDecodeError, KeyError) as error:
        fix = head.REPAIR.format(store=os.fspath(mark.parent))
        raise InputError("the store's version file is damaged", where=str(mark), why=str(error), fix=fix) from error
    if version > VERSION:
        raise InputError(
            f"the store was written by a newer Counterpoint (format {version}; this one reads up to {VERSION})",
            where=str(mark.parent),
            fix="install a newer version of Counterpoint",
        )
    if version < 1:
        fix = f'it should say {{"counterpoint_store":{VERSION}}}'
        raise InputError(f"the store's version file names an unknown format: {version}", where=str(mark), fix=fix)
    return version


def open_log(path: Path, form: int, *, read_only: bool) -> Log:
    """The store's log; one of an older form is renewed first, where it may be written."""
    if form < VERSION and not read_only:
        try:
            _renew(path)
            form = VERSION
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise
    return Log(path / "log", path / head.NAME, is_summed=form == VERSION)


def _renew(path: Path) -> None:
    """Give a store of the first form its sums and its head. Killed in between, it is a store of the first form still."""
    head.Head.create(path / head.NAME)
    old = Log(path / "log", path / head.NAME, is_summed=False)
    try:
        with old.head.lock():
            if form_of(path / MARK) != VERSION:
                old.checkpoint(sweep_all=True)
                disk.replace_file(path / MARK, _mark(path))
    finally:
        old.close()


# -- What opening a store does about journals whose writers are gone --------------------------------------------------
# Always true: a journal that somebody holds is not touched. A dead one is cut to its last whole line; when it ends with a
# finish, which was written before its trace could be sealed, it is sealed now. A journal that cannot be read stays as it is and
# is reported, and the store opens all the same.

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
        sweep_tallies(folder, writer.refreshed().rows)
    return problems + [error for _, error in lost_runs(folder, writer.refreshed().rows)]


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
    tally, _ = tally_or_fault(path)
    if tally is not None and (tally.is_over or size < tally.size):
        return False
    if len(lines) < 3 or lines[-1] or not lines[-2].startswith(b'{"sum":'):
        return False
    return len(lines) > 3 and not lines[-3].startswith(b'{"finish":')


def _mend(path: Path, writer: Writer) -> None:
    tally, _ = tally_or_fault(path)
    resumed = Journal.resume(path)
    if resumed is None:
        return
    journal, lines = resumed
    try:
        if lines.finished is not None:
            writer.seal(lines.trace())
        if lines.finished is not None or (tally is not None and tally.is_over):  # over, and not finished: being dropped
            journal.delete()
    finally:
        journal.release()
