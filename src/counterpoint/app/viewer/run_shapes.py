"""What the page is told about several traces: two side by side, runs, comparisons, and what is running.

The same contract as `shapes.py`.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from counterpoint.app.viewer.shapes import Alert


class DiffRow(Struct, frozen=True, kw_only=True):
    """Two events side by side. `what`: same, edited, changed, only-a, only-b."""

    what: str
    a: int
    b: int
    type: str
    agent: str
    before: str
    after: str


class Diff(Struct, frozen=True, kw_only=True):
    """Two traces, aligned."""

    a: str
    b: str
    rows: list[DiffRow]
    same: int
    different: int
    first: int
    """Row of the first difference."""
    sums: dict[str, list[float | None]]
    """tokens, seconds, cost_usd, reward: of a and of b."""
    agents: dict[str, list[float]]
    """Agent to tokens in a and b, where they differ."""
    steered: list[str] = []
    """Those of the two that were steered by hand."""


class RunRow(Struct, frozen=True, kw_only=True):
    """A training run in a list."""

    id: str
    folder: str
    preset: str | None
    world: str | None
    seed: int | None
    updates: int
    reward: float | None
    is_live: bool
    is_steered: bool = False


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


class CompareRow(Struct, frozen=True, kw_only=True):
    """One side of a comparison."""

    name: str
    mean: float
    low: float | None
    high: float | None
    seeds: int
    tokens: float | None
    agents: float | None
    calls: float | None = None
    """Calls of workers per episode, which is what budgets are counted in."""
    steered: int = 0
    """How many of its runs were steered by hand."""


class Compare(Struct, frozen=True, kw_only=True):
    """Groups of runs on the same tasks."""

    metric: str
    rows: list[CompareRow]
    differences: list[dict[str, Any]]
    curves: list[Series]
    moved: list[dict[str, Any]]
    refusal: str | None


class LiveOrder(Struct, frozen=True, kw_only=True):
    """An order that has taken effect on an agent, and the event that says so."""

    id: str
    action: str
    agent: str
    event: str


class LiveTrace(Struct, frozen=True, kw_only=True):
    """A trace that is running."""

    id: str
    task_id: str
    agents: int
    events: int
    last_t: float
    silent_s: float
    open: list[dict[str, Any]]
    """Events that have begun and not ended: id, agent, tool, since when."""
    is_steerable: bool = False
    """Whether its team takes orders."""
    names: list[str] = []
    """Of a team that takes orders: the agents that are in it, as many as the page shows."""
    paused: list[str] = []
    stopped: list[str] = []
    orders: list[LiveOrder] = []
    """The last orders that took effect."""


class Ordered(Struct, frozen=True, kw_only=True):
    """An order that was sent: it acts at the next safe point."""

    id: str
    action: str
    agent: str
    tree: bool
    by: str


class LiveBatch(Struct, frozen=True, kw_only=True):
    """One message of the stream."""

    seq: int
    at: float
    traces: list[LiveTrace]
    events: dict[str, list[dict[str, Any]]]
    """Trace to its new or changed events."""
