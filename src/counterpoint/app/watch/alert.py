"""An alert: one thing that people are told about one run.

Always true: the id is made of the rule, the run and what in it broke the rule, so that the same event has the same id however
often a run is judged; words and titles are masked.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec
from msgspec import Struct

from counterpoint.app.words import plain_text
from counterpoint.display import local_moment
from counterpoint.formats.masking import mask
from counterpoint.store.handles import handle

_TITLE, _WORDS = 80, 300


class Alert(Struct, frozen=True, kw_only=True):
    """What is told."""

    id: str
    rule: str
    """`stuck`, `runaway`, `spend`, `failure`, `loop`, `injection`, `regression` or `model`."""
    trace_id: str
    title: str | None
    project: str | None
    agent: str | None
    event: str | None
    """Where in the run it shows."""
    words: str
    at: float
    """When it was noticed, seconds since the epoch."""

    def as_dict(self) -> dict[str, Any]:
        """What a webhook and `--json` carry."""
        return {**msgspec.to_builtins(self), "text": self.text()}

    def text(self) -> str:
        """One line for people."""
        title = f" “{self.title}”" if self.title else ""
        where = f"{self.project}: " if self.project else ""
        return f"{self.rule}: {where}{self.words} (run {handle(self.trace_id)}{title})"

    def line(self) -> str:
        """The same with its time, for a terminal."""
        return f"{local_moment(self.at)}  {self.text()}"


def alert_id(rule: str, trace_id: str, *subject: str) -> str:
    """What tells an event from all others."""
    return hashlib.sha256("\0".join((rule, trace_id, *subject)).encode("utf-8", "surrogatepass")).hexdigest()[:24]


def clean(text: str | None, most: int = _WORDS) -> str | None:
    """A text without secrets of known forms or control characters, on one line and not long."""
    if text is None:
        return None
    line = " ".join(plain_text(mask(text)[0]).split())
    return line if len(line) <= most else line[: most - 1] + "…"


def clean_title(text: str | None) -> str | None:
    """The same of a run's title."""
    return clean(text, _TITLE)
