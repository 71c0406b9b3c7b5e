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
        self._parts: dict[str, list[dict[str, np.ndarray]]] = {}
        self._counts: dict[str, int] = {}

    def add(self, table: str, *, ep: np.ndarray, **columns: Any) -> None:
        """Rows of one round; a number stands for a column of it."""
        n = len(ep)
        part = {"ep": ep} | {k: v if isinstance(v, np.ndarray) else np.full(n, v) for k, v in columns.items()}
        self._parts.setdefault(table, []).append(part)
        self._counts[table] = self.count(table) + n

    def count(self, table: str) -> int:
        """Rows so far."""
        return self._counts.get(table, 0)

    def joined(self) -> dict[str, dict[str, np.ndarray]]:
        """Every table as columns."""
        return {
            name: {k: np.concatenate([p[k] for p in parts]) for k in parts[0]} for name, parts in self._parts.items() if parts
        }
