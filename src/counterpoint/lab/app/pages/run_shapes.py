"""What the page is told of training runs and comparisons: the shapes that `runs.py` fills.

Always true: as in `app/viewer/shapes.py`, the page's TypeScript types are made from these.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from counterpoint.app.viewer.shapes import Alert


class RunRow(Struct, frozen=True, kw_only=True):
    """A training run in a list."""

    id: str
    folder: str
    preset: str | None
    world: str | None
    seed: int | None
    updates: int
    reward: float | None
    bound: float | None
    """The optimum of its held-out tasks, or an upper bound of it."""
    is_live: bool
    written: float
    """When it last wrote something, seconds since the epoch."""
    is_steered: bool = False


class Level(Struct, frozen=True, kw_only=True):
    """A value to compare with: the optimum or an upper bound of it, or what a hand-made policy gets on the same tasks."""

    name: str
    value: float
    is_bound: bool


class Series(Struct, frozen=True, kw_only=True):
    """A curve of a run, with a band where there are several seeds."""

    name: str
    x: list[float]
    y: list[float | None]
    low: list[float | None] = []
    high: list[float | None] = []


class Run(Struct, frozen=True, kw_only=True):
    """A run and its curves."""

    row: RunRow
    series: list[Series]
    alerts: list[Alert]
    samples: list[str]
    """Ids of traces to look at."""
    levels: list[Level]


class CompareRow(Struct, frozen=True, kw_only=True):
    """One side of a comparison."""

    name: str
    mean: float
    low: float | None
    high: float | None
    share_of_optimum: float | None
    """The mean as a share of the optimum, or of an upper bound of it."""
    seeds: int
    tokens: float | None
    agents: float | None
    calls: float | None = None
    """Calls of workers per episode, which is what budgets are counted in."""
    spent: float | None = None
    """Calls that a run spent on training."""
    steered: int = 0
    """How many of its runs were steered by hand."""


class Compare(Struct, frozen=True, kw_only=True):
    """Groups of runs on the same tasks."""

    metric: str
    heading: str
    """On what they were compared, in a line."""
    rows: list[CompareRow]
    differences: list[dict[str, Any]]
    curves: list[Series]
    moved: list[dict[str, Any]]
    levels: list[Level]
    remarks: list[str]
    """What to know beside the numbers."""
    refusal: str | None
