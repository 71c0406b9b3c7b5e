"""The shapes of notes, labels and scores on the page."""

from __future__ import annotations

from msgspec import Struct


class AnnotationInfo(Struct, kw_only=True):
    """One annotation."""

    id: str
    event: int
    """The event's number on the page; -1: about the whole trace, or about an event that is not in it."""
    name: str
    label: str | None
    score: float | None
    text: str | None
    by: str
    at: float
    is_model: bool


class AnnotationList(Struct, kw_only=True):
    """What is said about a trace, the oldest first."""

    given: list[AnnotationInfo]
