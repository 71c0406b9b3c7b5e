"""Which traces a function works on: traces, files, ids and queries of a store, in any mixture.

Always true: a name is a path as in `load`, else an id or the unique beginning of one, else a query of `counterpoint ls` that
names a field or a flag; what stands for no trace is an error, never an empty result. A trace that several names mean is one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from counterpoint.app.load_save import load, names_file, read, store_path
from counterpoint.errors import InputError, NotFound
from counterpoint.trace import Trace

if TYPE_CHECKING:
    from counterpoint.store import Store
    from counterpoint.store.query import Result
    from counterpoint.trace.batch import TraceBatch

    Source = Trace | str | os.PathLike[str] | TraceBatch | Store | Result | Iterable[Any]
    """One trace or many: itself, a file, an id or a query, a store, an answer to SQL with a column `trace_id`; or several."""
    StorePlace = str | os.PathLike[str] | Store | None
    """The store that ids and queries are looked up in; None is the one that commands use (docs/store.md)."""


def one_trace(source: Trace | str | os.PathLike[str], store: StorePlace = None) -> Trace:
    """The one trace that is meant."""
    if isinstance(source, Trace):
        return source
    if isinstance(source, (str, os.PathLike)) and (store is None or isinstance(store, (str, os.PathLike))):
        return load(source, store=store)
    found = list(each_trace(source, store))
    if len(found) != 1:
        raise InputError(f"{len(found):,} traces where one is needed", fix="name one of them")
    return found[0]


def many_traces(source: Source, store: StorePlace = None) -> list[Trace]:
    """All traces that are meant, each once, in the order given."""
    found = once(each_trace(source, store))
    if not found:
        raise InputError("no traces", fix="give at least one: a trace, a file, an id or a query of a store")
    return found


def once(traces: Iterable[Trace]) -> list[Trace]:
    """Each trace once, however many of the names given mean it: a run that counted twice would pull its group's mean towards
    itself. Different traces that share an id both stay."""
    kept: dict[str, list[Trace]] = {}
    out: list[Trace] = []
    for trace in traces:
        before = kept.setdefault(trace.trace_id, [])
        if not any(trace is one or trace == one for one in before):
            before.append(trace)
            out.append(trace)
    return out


def each_trace(source: Source, store: StorePlace = None) -> Iterator[Trace]:
    """The same, one at a time."""
    if isinstance(source, Trace):
        yield source
    elif isinstance(source, (str, os.PathLike)) and _is_file(source, store):
        yield from read(source)
    elif isinstance(source, str):
        yield from _stored(source, store)
    elif isinstance(source, (list, tuple)):
        for one in source:
            yield from each_trace(one, store)
    else:
        yield from _of_object(source, store)


def _is_file(source: str | os.PathLike[str], store: StorePlace) -> bool:
    """As in `load`; but a query that names a field may have a slash too."""
    from counterpoint.app.search import is_narrow

    is_query = isinstance(source, str) and not os.path.exists(source) and is_narrow(source)
    return not is_query and names_file(source, store)


def _of_object(source: Any, store: StorePlace) -> Iterator[Trace]:
    """The traces of a store, of an answer to SQL, of a batch, or of anything else that can be gone through."""
    from counterpoint.store import Store
    from counterpoint.store.query import Result
    from counterpoint.trace.batch import TraceBatch

    if isinstance(source, Store):
        for name in source.ids():
            yield source.get(name)
    elif isinstance(source, TraceBatch):
        yield from source.traces()
    elif isinstance(source, Result):
        if "trace_id" not in source.columns:
            raise InputError("the answer has no column trace_id", fix="select trace_id from traces where ...")
        for name in dict.fromkeys(source.to_arrow().column("trace_id").to_pylist()):
            yield from _stored(name, store)
    elif isinstance(source, Iterable):
        for one in source:
            yield from each_trace(one, store)
    else:
        raise InputError(f"a {type(source).__name__} is not a trace", fix="give a trace, a file, an id or a query of a store")


def _stored(name: str, place: StorePlace) -> Iterator[Trace]:
    """The trace of an id, or those that a query finds."""
    from counterpoint.store import Store

    if isinstance(place, Store):
        yield from _found(place, name)
        return
    if not store_path(place).exists():
        load(name, store=place)  # the error that says what would help
    with Store(store_path(place), create=False, read_only=True) as opened:
        yield from _found(opened, name)


def _found(store: Store, name: str) -> Iterator[Trace]:
    for one in found_ids(store, name):
        yield store.get(one)


def found_ids(store: Store, name: str) -> list[str]:
    """The ids that a name or a query stands for in a store: one, or at least one."""
    from counterpoint.app.search import is_narrow, matcher

    try:
        return [store.find(name)]
    except NotFound:
        if not is_narrow(name):
            raise
    matches = matcher(name, store.datasets())
    ids = [row.id for row in store.rows() if matches(row)]
    if not ids:
        raise NotFound(f"no trace matches {name!r}", where=os.fspath(store.path), fix="counterpoint ls shows what there is")
    return ids


def expanded(refs: Iterable[str], store: str | os.PathLike[str] | None = None) -> list[str]:
    """Files and ids as they were named, and for each query the ids of what it finds; a name that is nothing stays as it is."""
    from counterpoint.app.search import is_narrow
    from counterpoint.store import Store

    out: list[str] = []
    for ref in refs:
        if _is_file(ref, store) or not store_path(store).is_dir() or not is_narrow(ref):
            out.append(ref)
        else:
            with Store(store_path(store), create=False, read_only=True) as opened:
                out += found_ids(opened, ref)
    return out


def chosen_ids(folder: str, where: str) -> list[str]:
    """The finished traces of a store that match a query of `counterpoint ls`."""
    from counterpoint.app.load_save import store_path
    from counterpoint.app.search import matcher
    from counterpoint.store import Store

    with Store(store_path(folder), create=False, read_only=True) as store:
        matches = matcher(where, store.datasets())
        ids = [row.id for row in store.rows() if not row.is_open and matches(row)]
        if not ids:
            fix = f"counterpoint ls --store {folder} shows what there is"
            raise NotFound(f"none of {len(store)} finished traces matches", where=folder, fix=fix)
    return ids
