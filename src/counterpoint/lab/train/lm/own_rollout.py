"""One run of a person's own team on one case: what a worker is told.

Always true: it is plain data; nothing of the model is loaded here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class OwnRollout:
    """A team of a person's own, to be run once on one case."""

    case: str
    line: Mapping[str, Any]
    seed: int
    """Of every draw of the model."""
    temperature: float | None
    """Of every call; None: as the code asks."""
    trace_id: str
    version: str = ""
    is_held_out: bool = False
    """Whether it is judged by: then it counts, as 0, also where it is lost, so that runs stay comparable case by case."""

    @property
    def name(self) -> str:
        """Its trace's id."""
        return self.trace_id
