"""Annotations: notes, labels and scores that people or models put on a trace or on one of its events.

Always true: an annotation says who made it and when, and never changes; it is withdrawn by its id. In a trace they stand in
`meta`, so that they leave and come with it; in a store they lie beside the traces (`store/annotations.py`).
"""

from __future__ import annotations

import hashlib
import math
import uuid
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from counterpoint.display import moment
from counterpoint.errors import InputError
from counterpoint.trace.records import Number
from counterpoint.trace.trace import Trace

ANNOTATIONS = "annotations"
"""The name in `meta`."""
NOTE, LABEL = "note", "label"
"""The names of a note, and of a label that was given without a name."""
_LONGEST = 100_000


class Annotation(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What somebody says about a trace, or about one event of it: a label, a score, a text, or several of these."""

    id: str
    """Its own, unique everywhere."""
    trace_id: str
    event: str | None = None
    """The event's id; None: about the whole trace."""
    name: str = NOTE
    """What is judged: `helpful`, `verdict`."""
    label: str | None = None
    score: Number | None = None
    text: str | None = None
    """A note, or the reason for the label or the score."""
    by: str
    """Who says so: a person, or a model's name."""
    at: float
    """When, seconds since the epoch."""
    is_model: bool = False
    """Whether a model says so."""
    basis: dict[str, Any] = {}
    """Of a model: the hash of the rubric and of the prompt, the settings, the tokens."""


def annotation(
    trace_id: str,
    *,
    by: str,
    at: float,
    event: str | None = None,
    name: str = "",
    label: str | None = None,
    score: Number | None = None,
    text: str | None = None,
    is_model: bool = False,
    basis: dict[str, Any] | None = None,
) -> Annotation:
    """A new one, checked."""
    text, label, by, name = text or None, None if label is None else label.strip(), by.strip(), name.strip()
    if not by:
        raise InputError("an annotation needs an author", fix="--author NAME")
    if label is None and score is None and text is None:
        raise InputError("an annotation needs a label, a score or a text", fix="--label wrong, --score helpful=3, --note TEXT")
    if label == "" or any(not c.isprintable() for c in (label or "") + name + by):
        raise InputError("a name or a label is empty or has control characters", fix="use words, such as verdict=wrong")
    if score is not None and (not name or not math.isfinite(score)):
        raise InputError(f"{name or 'a score'}={score} is not a score", fix="a name and a finite number, such as helpful=3")
    if text is not None and len(text) > _LONGEST:
        raise InputError(f"the note has {len(text):,} characters, and {_LONGEST:,} is the most", fix="shorten it")
    return Annotation(
        id=uuid.uuid4().hex[:16], trace_id=trace_id, event=event, name=name or (NOTE if label is None else LABEL), label=label,
        score=score, text=text, by=by, at=at, is_model=is_model, basis=basis or {},
    )  # fmt: skip


def annotations_of(trace: Trace) -> list[Annotation]:
    """The annotations that a trace carries, the oldest first; left out is what is none, or is about another trace."""
    records = trace.meta.get(ANNOTATIONS)
    out = []
    for one in records if isinstance(records, list) else ():
        try:
            annotation = msgspec.convert(one, Annotation)
        except msgspec.ValidationError:
            continue
        if annotation.trace_id == trace.trace_id and annotation.id:
            out.append(annotation)
    return out


def with_annotations(trace: Trace, annotations: Sequence[Annotation]) -> Trace:
    """The trace with exactly these annotations."""
    meta = {name: value for name, value in trace.meta.items() if name != ANNOTATIONS}
    if annotations:
        meta[ANNOTATIONS] = [msgspec.to_builtins(one) for one in annotations]
    elif ANNOTATIONS not in trace.meta:
        return trace
    return replace(trace, meta=meta)


def renamed(trace: Trace, name: str) -> Trace:
    """The trace under another id, with what is said about it: under ids of their own, which come out the same each time."""
    annotations = [replace(one, trace_id=name, id=_id(f"{one.id}\0{name}")) for one in annotations_of(trace)]
    return with_annotations(replace(trace, trace_id=name), annotations)


def author_of(one: Annotation) -> str:
    """Who says so, in words: `ann`, `openai:gpt-x, a model`, `fake:0.8, a test double`."""
    if not one.is_model:
        return one.by
    return f"{one.by}, a test double" if one.by.partition(":")[0] == "fake" else f"{one.by}, a model"


def one_line(one: Annotation) -> str:
    """One in words: `verdict=wrong by ann, 2026-11-16 09:20: it never ran the tests`."""
    name = "" if one.name in (NOTE, LABEL) else one.name
    value = one.label if one.label is not None else "" if one.score is None else f"{one.score:g}"
    head = "=".join(part for part in (name, value) if part) or "note"
    return f"{head} by {author_of(one)}, {moment(one.at)}" + (f": {' '.join(one.text.split())}" if one.text else "")


def _id(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def labels_of(annotations: Iterable[Annotation]) -> tuple[str, ...]:
    """The labels among annotations, each once: `wrong`, or `verdict=wrong` where it has a name; a model's with its author."""
    labelled = (one for one in annotations if one.label is not None)
    labels = ((str(one.label) if one.name == LABEL else f"{one.name}={one.label}", one) for one in labelled)
    return tuple(dict.fromkeys(f"{label} by {author_of(one)}" if one.is_model else label for label, one in labels))
