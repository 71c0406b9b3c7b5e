"""The trace itself as a span around all that is in it, for sources that list it beside its spans.

Always true: a wrapper ends with the last of what it holds, and has no end while anything in it has none.
"""

from __future__ import annotations

from collections.abc import Set

from counterpoint.formats.spans.span import Span


def close(spans: list[Span], wrappers: Set[str]) -> None:
    """Give each wrapper the beginning and the end of what is in it."""
    inside: dict[str, list[Span]] = {}
    for span in spans:
        if span.id not in wrappers:
            inside.setdefault(span.trace, []).append(span)
    for span in spans:
        held = inside.get(span.trace, [])
        if span.id not in wrappers or not held:
            continue
        starts = [s.start for s in held if s.start is not None]
        ends = [s.end for s in held if s.end is not None]
        span.start = min(starts, default=span.start)
        span.end = max(ends) if len(ends) == len(held) else None
