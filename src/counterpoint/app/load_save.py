"""`load` and `save`: a trace by path or by id, whatever form it is in.

Always true: a file is written whole or not at all, and reading changes nothing. What the store has an id for is that trace,
also where the id has a slash; a file that is there is that file; `names_file` says which it is where both could be.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import counterpoint.registry as registry
from counterpoint.errors import InputError, NotFound
from counterpoint.files import open_plain, put
from counterpoint.formats.format import Format, detect
from counterpoint.formats.importing.files import HEAD
from counterpoint.store.place import store_path
from counterpoint.trace import Trace

if TYPE_CHECKING:
    from counterpoint.store import Store

_SUFFIXES = (".json", ".jsonl", ".parquet", ".csv")
# Files above this are mapped, not read: the bytes need not fit beside the trace.
_MAP_ABOVE = 8 << 20


def names_file(ref: str | os.PathLike[str], store: str | os.PathLike[str] | Store | None = None) -> bool:
    """Whether a reference is a file's path rather than the id of a trace in the store, or the beginning of one.

    A path that begins with `/`, `.` or `~`, or ends like our files, is the file when it is there. Any other name is the trace of
    that very id, else the file that is there, else what the store finds; what neither has is a path when it looks like one.
    """
    if isinstance(ref, os.PathLike):
        return True
    is_path, is_there = "/" in ref or os.sep in ref or ref.endswith(_SUFFIXES), Path(ref).exists()
    if is_there and (ref.startswith(("/", ".", "~")) or ref.endswith(_SUFFIXES)):
        return True
    if not is_there and not is_path:
        return False
    from counterpoint.store import Store

    if isinstance(store, Store):
        return not _has(store, ref, is_there=is_there)
    if not store_path(store).is_dir():
        return True
    try:
        with Store(store_path(store), create=False, read_only=True) as opened_store:
            return not _has(opened_store, ref, is_there=is_there)
    except InputError:  # a folder that is no store
        return True


def _has(store: Store, ref: str, *, is_there: bool) -> bool:
    """Whether the store has a trace of that id; where no file is there, also one whose id begins so."""
    if ref in store:
        return True
    return not is_there and any(name.startswith(ref) for name in (*store.ids(), *store.open_ids()))


def load(ref: str | os.PathLike[str], *, store: str | os.PathLike[str] | None = None) -> Trace:
    """The trace in a file, or the one in the store whose id is `ref` or begins with it.

    >>> import counterpoint as cpt
    >>> from counterpoint.testing import synthetic_trace
    >>> path = cpt.save(synthetic_trace(3, 9), "run.jsonl")
    >>> cpt.load("run.jsonl") == synthetic_trace(3, 9)
    True
    """
    if names_file(ref, store):
        traces = list(read(ref))
        if len(traces) != 1:
            raise InputError(f"holds {len(traces)} traces, not one", where=os.fspath(ref), fix="import it, then name one by id")
        return traces[0]
    from counterpoint.store import Store

    folder = store_path(store)
    if not folder.exists():
        fix = "name a file, or a store with --store DIR; `counterpoint import` makes one of your sessions"
        raise NotFound(f"no trace {ref!r}: there is no file of that name and no store at {os.fspath(folder)!r}", fix=fix)
    with Store(folder, create=False) as opened_store:
        return opened_store.get(opened_store.find(os.fspath(ref)))


def read(path: str | os.PathLike[str]) -> Iterator[Trace]:
    """Every trace in a file, by whichever format its content shows."""
    with opened(path) as data:
        name = detect(bytes(data[:HEAD]), os.fspath(path))
        format_: Format = registry.get("format", name)
        if format_.read is None:
            raise InputError(f"{name} files are written, not read", where=os.fspath(path))
        with about(os.fspath(path)):
            yield from format_.read(data)


@contextmanager
def about(name: str) -> Iterator[None]:
    """Errors inside say which file or trace they are about."""
    try:
        yield
    except InputError as error:
        if name not in (error.where or ""):
            error.where = f"{name}: {error.where}" if error.where else name
            error.args = (error.one_line(),)
        raise


@contextmanager
def opened(path: str | os.PathLike[str]) -> Iterator[bytes | memoryview]:
    """The bytes of a file: read, or mapped when large. Raises `InputError` for what is no plain file."""
    if os.path.isdir(path):
        raise InputError("is a directory, not a trace file", where=os.fspath(path), fix="name a file in it, or use --store")
    with open_plain(path) as file:
        if os.fstat(file.fileno()).st_size <= _MAP_ABOVE:
            yield file.read()
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            view = memoryview(mapped)
            try:
                yield view
            finally:
                view.release()


def save(trace: Trace, path: str | os.PathLike[str], *, to: str | None = None, overwrite: bool = True) -> Path:
    """Write a trace to a file, whole or not at all; the format is `to`, else what the suffix says, else the survey's.

    A `.jsonl` file keeps texts and `meta`, and is read back as an equal trace; the survey's format leaves both out.

    >>> import counterpoint as cpt
    >>> from counterpoint.testing import synthetic_trace
    >>> cpt.save(synthetic_trace(3, 9), "run.trace.json").name
    'run.trace.json'
    """
    target = Path(path)
    name = to or ("jsonl" if target.suffix == ".jsonl" else "survey")
    format_: Format = registry.get("format", name)
    if format_.write is None:
        raise InputError(f"{name} files are read, not written", fix="use --to survey")
    write: Callable[[Trace], bytes] = format_.write
    put([(target, write(trace))], overwrite=overwrite)
    return target
