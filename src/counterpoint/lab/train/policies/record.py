"""What a policy decided, row by row: tables of flat columns that grow round by round, without padding.

Always true: the columns of a table have one length; rows are in the order in which they were decided; `joined` concatenates
once. Tables: stop, spawn, item (leave or go, brief), candidate (agents that an item could have had), talk, rule.
"""

from __future__ import annotations

from typing import Any

import numpy as np


class Record:
    """Growing tables."""

    def __init__(self) -> None:
        self._parts: dict[str, list[dict[str, Any]]] = {}
        self._counts: dict[str, int] = {}

    def add(self, table: str, *, ep: np.ndarray, **columns: Any) -> None:
        """Rows of one round; a number stands for a column of it."""
        self._parts.setdefault(table, []).append({"ep": ep, **columns})
        self._counts[table] = self.count(table) + len(ep)

    def count(self, table: str) -> int:
        """Rows so far."""
        return self._counts.get(table, 0)

    def joined(self) -> dict[str, dict[str, np.ndarray]]:
        """Every table as columns."""
        return {name: {k: _column([p[k] for p in parts], parts) for k in parts[0]} for name, parts in self._parts.items()}


def _column(values: list[Any], parts: list[dict[str, Any]]) -> np.ndarray:
    """One column of all rounds; of numbers, each as often as its round has rows."""
    if isinstance(values[0], np.ndarray):
        return np.concatenate(values)
    return np.repeat(np.array(values), [len(p["ep"]) for p in parts])
