"""Which root something belongs to, where each names its parent.

Always true: it ends, also where the parents go round in a circle.
"""

from __future__ import annotations

from collections.abc import Mapping


def root_of(name: str, parents: Mapping[str, str]) -> str:
    """The last one on the way up from a name; in a circle the one where the walk began to repeat."""
    met: set[str] = set()
    while name in parents and name not in met:
        met.add(name)
        name = parents[name]
    return name
