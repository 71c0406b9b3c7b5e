"""The shapes of the board of issues on the page."""

from __future__ import annotations

from msgspec import Struct


class IssueLine(Struct, kw_only=True):
    """What recurs, as a line of the board."""

    id: str
    kind: str
    name: str
    state: str
    """`open`, `regressed`, `resolved` or `ignored`."""
    runs: int
    count: int
    open: int
    """How many of them nothing mended later in the run."""
    seen: str
    tokens: int
    cost_usd: float | None
    """Of the model calls that led to it: at least this much."""
    projects: dict[str, int]
    trend: list[int]
    """Runs in each of the last weeks, the oldest first."""
    is_rare: bool
    decided: str
    """What somebody decided last: who, when and why; empty where nobody did."""


class IssueBoard(Struct, kw_only=True):
    """The board of a store."""

    issues: list[IssueLine]
    kinds: dict[str, str]
    """What each kind is, the gravest first."""
    runs: int
    unread: list[str]


class IssueRunLine(Struct, kw_only=True):
    """One run with an issue."""

    trace_id: str
    title: str | None
    project: str | None
    seen: str
    count: int
    open: int
    events: list[str]
    words: str


class IssuePage(Struct, kw_only=True):
    """One issue and its runs, the newest first."""

    issue: IssueLine
    what: str
    runs: list[IssueRunLine]
    left_out: int
    """Runs that are not listed."""
