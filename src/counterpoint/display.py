"""Who draws a trace: the package's face names it, and a trace asks here, so that it need not know the rooms above it.

Always true: this module imports nothing of ours, and what draws is loaded when something is drawn, not before.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers take this name for true; importing `typing` would slow every start
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    class Display(Protocol):
        """What can draw a trace."""

        def card(self, trace: Any) -> str:
            """The picture in a notebook: static HTML."""

        def save_html(self, trace: Any, path: Any, *, masked: bool, overwrite: bool) -> Any:
            """The viewer with the trace in it, as one file; gives its path."""

        def view(self, trace: Any, *, height: int, masked: bool) -> Any:
            """The viewer: a frame in a notebook, elsewhere a local server."""


_find: list[Callable[[], Any]] = []


def drawn_by(find: Callable[[], Any]) -> None:
    """Name what draws, by a function that loads it."""
    _find[:] = [find]


def display() -> Display:
    """What draws."""
    found: Display = _find[0]()
    return found
