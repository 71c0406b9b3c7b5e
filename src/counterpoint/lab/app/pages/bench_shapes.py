"""What the Bench page shows: results by name, and tables of words.

Always true: every cell of a table is the text that `counterpoint bench` prints for it.
"""

from __future__ import annotations

from msgspec import Struct


class BenchResult(Struct, kw_only=True):
    """A folder of results."""

    id: str
    team: str
    suite: str
    digest: str
    """Of the suite's cells: only results of one digest can be compared."""
    runs: int


class BenchTable(Struct, kw_only=True):
    """A table, and a sentence above it."""

    title: str
    words: str
    head: list[str]
    rows: list[list[str]]
    right: list[int]
    """Columns of numbers."""
    results: list[str]
    """Which result each row is about; empty where rows are about something else."""


class Bench(Struct, kw_only=True):
    """One look at the bench: the leaderboard, a card, or two results side by side."""

    title: str
    results: list[BenchResult]
    tables: list[BenchTable]
