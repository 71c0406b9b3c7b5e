"""A panel of the trace page: one file in `panels/`, which says what it answers, and one TSX file that shows it.

Always true: nothing else lists panels. The address `/api/t/ID/NAME`, the one-file page, the tab, its key and the TypeScript
shapes follow from the file; `web/src/panels/Name.tsx` is found by its name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

import counterpoint.registry as registry
from counterpoint.trace import Trace


class Panel(NamedTuple):
    """What a file of `panels/` defines, under its own name."""

    name: str
    """What the tab says."""
    key: str
    """The key that shows it; 1 to 4 are taken by Map, Time, Text and Credit."""
    answer: Callable[[Trace], msgspec.Struct]
    """What the page is told, as one of `shapes`."""
    shapes: tuple[type[msgspec.Struct], ...]
    """The shapes of the answer, those inside it first."""
    offline: Callable[[Trace], msgspec.Struct] | None = None
    """What a page in one file holds instead, in the same shape, where the answer takes trials; None: the answer."""


def panels() -> dict[str, Panel]:
    """Every panel by its id, in the order of their keys."""
    found: dict[str, Any] = {name: registry.get("panel", name) for name in registry.ids("panel")}
    return dict(sorted(found.items(), key=lambda one: one[1].key))
