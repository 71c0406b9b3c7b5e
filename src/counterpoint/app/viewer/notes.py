"""Notes, labels and scores for the page: what is said about a trace and its events, and one more.

Always true: what the page adds is stored like `counterpoint notes add` stores it, by whom the server runs as, and is there for
every later question; a trace that lies in no store cannot be annotated here.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

from counterpoint.app.api.annotate import annotate
from counterpoint.app.viewer.annotation_shapes import AnnotationInfo, AnnotationList
from counterpoint.app.viewer.trace_view import view_of
from counterpoint.errors import InputError
from counterpoint.store import Store
from counterpoint.trace import Trace
from counterpoint.trace.annotation import Annotation, annotations_of


class AnnotationBody(Struct, forbid_unknown_fields=True):
    """What the page sends: something to add, about an event where one is named; or the id of an annotation to take back."""

    event: str | None = None
    name: str = ""
    label: str | None = None
    score: float | None = None
    text: str | None = None
    remove: str | None = None


def annotation_list(trace: Trace) -> AnnotationList:
    """What is said about a trace that carries it."""
    return _shapes(trace, annotations_of(trace))


def _shapes(trace: Trace, given: list[Annotation]) -> AnnotationList:
    place, index = view_of(trace).team.place_E, trace.index
    return AnnotationList(
        given=[
            AnnotationInfo(id=a.id, event=-1 if a.event is None or a.event not in index else int(place[index[a.event]]),
                           name=a.name, label=a.label, score=None if a.score is None else float(a.score), text=a.text, by=a.by,
                           at=a.at, is_model=a.is_model)
            for a in given
        ]
    )  # fmt: skip


def read(body: bytes) -> AnnotationBody:
    """What the page sent."""
    try:
        return msgspec.json.decode(body, type=AnnotationBody)
    except msgspec.MsgspecError as error:
        fix = 'as in {"event": "e30", "name": "verdict", "label": "wrong", "text": "why"}'
        raise InputError(f"is not an annotation: {error}", where="body", fix=fix) from error


def store(folder: Path | None, trace: Trace, sent: AnnotationBody) -> AnnotationList:
    """Keep what the page said, and tell what there is then."""
    if folder is None:
        raise InputError("this trace is not in a store", where=trace.trace_id, fix="counterpoint import FILE, and view the store")
    with Store(folder, create=False) as place:
        if sent.remove is not None:
            place.withdraw(sent.remove)
        else:
            label = None if sent.label is None else {sent.name: sent.label}
            score = None if sent.score is None else {sent.name or "score": sent.score}
            annotate(trace, sent.event, note=sent.text, label=label, score=score, store=place)
        return _shapes(trace, place.annotations(trace.trace_id))
