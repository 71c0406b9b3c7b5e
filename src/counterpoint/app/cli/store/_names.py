"""A list of names that may be long."""

from __future__ import annotations

_MOST = 20


def some_names(names: list[str]) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - _MOST:,} more" if len(names) > _MOST else ""
    return ", ".join(names[:_MOST]) + more
