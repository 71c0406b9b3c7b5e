"""`cpt.annotate`, `cpt.notes`, `cpt.dataset`: what people say about traces, and collections of traces by name.

Always true: an annotation goes to the store that holds the trace and is durable when the call returns; a collection is a query,
asked anew each time, or a list; `in:NAME` stands for it wherever a query does.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec.structs import replace

from counterpoint.app.api.inputs import found_ids, many_traces
from counterpoint.app.human_scores import author
from counterpoint.app.load_save import store_path
from counterpoint.app.search import is_narrow, matcher
from counterpoint.display import counted, moment
from counterpoint.errors import InputError, NotFound, did_you_mean
from counterpoint.store import Store
from counterpoint.store.annotations import Change, Dataset
from counterpoint.trace import Trace
from counterpoint.trace.annotation import Annotation, annotation, annotations_of
from counterpoint.trace.tabular import Tabular

if TYPE_CHECKING:
    from counterpoint.app.api.inputs import Source, StorePlace

_NAME = re.compile(r"[\w.+-]{1,100}")


@dataclass(frozen=True)
class Annotations(Tabular):
    """Notes, labels and scores, the oldest first."""

    TABLE: ClassVar = {
        "trace_id": "string", "event": "string", "name": "string", "label": "string", "score": "double", "text": "string",
        "by": "string", "at": "double", "is_model": "bool", "id": "string",
    }  # fmt: skip

    rows: tuple[Annotation, ...]

    def __iter__(self) -> Iterator[Annotation]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def sample(self) -> tuple[list[str], Iterator[Sequence[Any]]]:
        """With the time as people write it."""
        names = ["trace_id", "event", "name", "label", "score", "text", "by", "when"]
        return names, ((a.trace_id, a.event, a.name, a.label, a.score, a.text, a.by, moment(a.at)) for a in self.rows)

    def caption(self) -> str:
        """How many, by how many."""
        people, models = ({row.by for row in self.rows if row.is_model is is_model} for is_model in (False, True))
        who = f"{counted(len(people), 'person', 'people')} and {counted(len(models), 'model')}"
        return f"{counted(len(self.rows), 'annotation')} by {who}"


def annotate(
    traces: Trace | str | Sequence[Any],
    event: str | None = None,
    *,
    note: str | None = None,
    label: str | Mapping[str, str] | None = None,
    score: Mapping[str, float] | None = None,
    by: str | None = None,
    store: StorePlace = None,
) -> Annotations:
    """Put a note, labels or scores on a stored trace, on one event of it, or on every trace of a query.

    A note beside a label or a score is its reason. A label alone is named `label`.

    >>> import counterpoint as cpt
    >>> store = cpt.Store("annotated")
    >>> _ = store.add(cpt.world("W1", vote_items=8).run("reference", [0], log=True).trace(0))
    >>> said = cpt.annotate("finished", label={"verdict": "right"}, score={"helpful": 3}, by="ann", store=store)
    >>> [(one.name, one.label, one.score) for one in cpt.notes(store=store)]
    [('verdict', 'right', None), ('helpful', None, 3)]
    """
    labels = {} if label is None else {"": label} if isinstance(label, str) else dict(label)
    at, who = time.time(), by or author()
    with opened(store, writes=True) as place:
        names = chosen_names(place, traces)
        if event is not None and len(names) != 1:
            raise InputError(f"an event belongs to one trace, and these are {len(names):,}", fix="name one trace")
        made = []
        for name in names:
            about: dict[str, Any] = {"by": who, "at": at, "event": event}
            made += [annotation(name, name=key, label=one, text=note, **about) for key, one in labels.items()]
            made += [annotation(name, name=key, score=one, text=note, **about) for key, one in (score or {}).items()]
            if not labels and not score:
                made.append(annotation(name, text=note, **about))
        place.annotate(made)
    return Annotations(tuple(made))


def notes(traces: Source | None = None, *, store: StorePlace = None) -> Annotations:
    """What people and models said about traces: notes, labels and scores.

    `traces` is a trace that carries them, ids or a query; without it, everything in the store.

    >>> import counterpoint as cpt
    >>> from counterpoint.testing import synthetic_trace
    >>> with cpt.Store("traces") as store:
    ...     _ = store.add(synthetic_trace(3, 9))
    >>> _ = cpt.annotate("finished", label={"verdict": "right"}, by="ann")
    >>> [(note.name, note.label, note.by) for note in cpt.notes("finished")]
    [('verdict', 'right', 'ann')]
    """
    if isinstance(traces, Trace):
        return Annotations(tuple(annotations_of(traces)))
    with opened(store) as place:
        if traces is None:
            return Annotations(tuple(place.annotations()))
        return Annotations(tuple(one for name in chosen_names(place, traces) for one in place.annotations(name)))


@contextmanager
def opened(store: StorePlace, *, writes: bool = False) -> Iterator[Store]:
    """The store that is meant, which has to be there."""
    if isinstance(store, Store):
        yield store
        return
    if not store_path(store).exists():
        fix = "name one with store= or --store DIR; `counterpoint import` makes one of your sessions"
        raise NotFound("there is no store here", where=os.fspath(store_path(store)), fix=fix)
    with Store(store_path(store), create=False, read_only=not writes) as place:
        yield place


def chosen_names(place: Store, traces: Any) -> list[str]:
    """The ids of stored traces that are meant: by themselves, by id or its beginning, or by a query with a field or a flag."""
    if isinstance(traces, str):
        return found_ids(place, traces)
    if isinstance(traces, Trace):
        return [place.find(traces.trace_id)]
    if isinstance(traces, (list, tuple)):
        return list(dict.fromkeys(name for one in traces for name in chosen_names(place, one)))
    return [place.find(trace.trace_id) for trace in many_traces(traces, place)]


# -- collections -------------------------------------------------------------------------------------------------------


def dataset(
    name: str,
    traces: Source | None = None,
    *,
    frozen: bool = False,
    note: str | None = None,
    by: str | None = None,
    store: StorePlace = None,
) -> Dataset:
    """Name a collection of traces, or look one up: `cpt.dataset("hard", "task:T1 reward<0.5")`, then `cpt.credit("in:hard")`.

    A query is kept as a query and asked anew each time, unless `frozen`; anything else is kept as a list of ids.

    >>> import counterpoint as cpt
    >>> from counterpoint.testing import synthetic_trace
    >>> with cpt.Store("traces") as store:
    ...     _ = store.add(synthetic_trace(3, 9))
    >>> cpt.dataset("finished", "finished").query
    'finished'
    >>> len(cpt.audit("in:finished", only="scale").traces)
    1
    """
    if traces is None:
        with opened(store) as place:
            return known_dataset(place.datasets(), name)
    with opened(store, writes=True) as place:
        made = new_dataset(place, name, traces, frozen=frozen, note=note, by=by)
        place.change_datasets(lambda known: [Change(dataset=made)])
    return made


def new_dataset(place: Store, name: str, traces: Any, *, frozen: bool, note: str | None, by: str | None) -> Dataset:
    """A collection that can be saved: its name is one word, its traces are there, and it is not made of itself."""
    if not _NAME.fullmatch(name):
        raise InputError(f"{name!r} cannot name a dataset", fix="use letters, digits, and . _ + -")
    made = Dataset(name=name, by=by or author(), at=time.time(), note=note or None)
    if isinstance(traces, str) and not frozen and not _is_id(place, traces):
        if not is_narrow(traces):
            place.find(traces)  # the error that suggests one
        made = replace(made, query=traces)
        matcher(f"in:{name}", {**place.datasets(), name: made})  # an unknown field, an unknown dataset or itself is an error
        return made
    return replace(made, ids=tuple(chosen_names(place, traces)))


def _is_id(place: Store, word: str) -> bool:
    try:
        place.find(word)
    except NotFound:
        return False
    return True


def known_dataset(known: Mapping[str, Dataset], name: str) -> Dataset:
    """The collection of a name."""
    if name not in known:
        fix = did_you_mean(name, known) if known else "counterpoint notes dataset save NAME QUERY makes one"
        raise NotFound(f"no dataset named {name!r}", fix=fix)
    return known[name]


def change_list(place: Store, name: str, ids: Sequence[str], *, add: bool, by: str | None = None) -> Dataset:
    """A list with these traces more, or less; whoever else changes it, no trace is lost."""

    def decide(known: Mapping[str, Dataset]) -> list[Change]:
        if name in known and known[name].query is not None:
            fix = f"counterpoint notes dataset add {name}-list 'in:{name} ...' makes a list of it"
            raise InputError(f"{name!r} is a query, not a list: {known[name].query}", fix=fix)
        if not add:
            known_dataset(known, name)
        change = Dataset(name=name, ids=tuple(ids), by=by or author(), at=time.time())
        return [Change(extend=change) if add else Change(reduce=change)]

    if not _NAME.fullmatch(name):
        raise InputError(f"{name!r} cannot name a dataset", fix="use letters, digits, and . _ + -")
    place.change_datasets(decide)
    return place.datasets()[name]


def members(place: Store, found: Dataset) -> list[str]:
    """The traces of a collection that the store has now."""
    matches = matcher(f"in:{found.name}", place.datasets())
    return [row.id for row in place.rows() if matches(row)]
