"""What the page is told of a race: the shapes that `races.py` fills.

Always true: as in `app/viewer/shapes.py`, the page's TypeScript types are made from these.
"""

from __future__ import annotations

from msgspec import Struct

from counterpoint.lab.app.pages.run_shapes import Series


class RaceRow(Struct, frozen=True, kw_only=True):
    """A folder of `counterpoint compare methods` in a list."""

    id: str
    plan: str
    suite: str
    rows: int
    methods: int
    worlds: list[str]
    is_released: bool
    """Whether its rows come with the package."""


class RaceDifference(Struct, frozen=True, kw_only=True):
    """A method minus a baseline, as shares of the bound."""

    baseline: str
    mean: float
    low: float | None
    high: float | None
    p: float
    p_holm: float
    verdict: str
    seeds: int


class RaceLine(Struct, frozen=True, kw_only=True):
    """One method in one world."""

    method: str
    point: str
    is_ranked: bool
    rank: float
    rank_low: int
    rank_high: int
    seeds: int
    mean: float
    low: float | None
    high: float | None
    area: float
    calls: list[float | None]
    """What was charged at 50, 80 and 90 % of the best known."""
    reached: list[int]
    """How many seeds got there."""
    cpu_s: float
    collapsed: float
    differences: list[RaceDifference]
    sees: str
    """The finest feedback that the method learns from; empty where the rows do not say."""
    families: list[str]
    unit: str
    trains: list[str]
    regime: str
    source: str
    guessed: list[str]
    command: str


class RaceWorld(Struct, frozen=True, kw_only=True):
    """All methods in one world."""

    world: str
    decision: str
    bound: float
    budget: int
    best_known: float
    is_screening: bool
    rules: dict[str, float]
    """Hand-made rules, as shares of the bound."""
    lines: list[RaceLine]
    notes: list[str]
    curves: list[Series]


class Race(Struct, frozen=True, kw_only=True):
    """Every method side by side, world by world."""

    id: str
    plan: str
    suite: str
    worlds: list[RaceWorld]
