"""What people are shown: who draws a trace, and how numbers are written.

The package's face names what draws, and a trace asks here, so that it need not know the rooms above it.
Always true: this module imports nothing of ours, and what draws is loaded when something is drawn, not before. A number that
nobody knows is `-`, never 0, and none has an exponent. The page writes the same (`web/src/numbers.ts`); one table tests both.
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


# -- numbers -----------------------------------------------------------------------------------------------------------

ABSENT = "-"


def number(value: float | int | None, digits: int = 4) -> str:
    """Any number: whole ones grouped, others with so many digits that count (17,710 · 0.4091 · 0.00012)."""
    if value is None or value != value:
        return ABSENT
    if value in (float("inf"), float("-inf")):
        return "inf" if value > 0 else "-inf"
    if isinstance(value, int) or (float(value).is_integer() and abs(value) < 1e15):
        return f"{int(value):,}"
    return _digits(value, digits)


def compact(value: float | int | None) -> str:
    """An amount, such as tokens, in three digits: 950 · 18.2 k · 13.2 M."""
    if value is None or value != value:
        return ABSENT
    for size, unit in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= size * 0.9995:
            return _digits(value / size, 3) + unit
    return _digits(value, 3)


def money(dollars: float | int | None) -> str:
    """US dollars: $1,204 · $93.20 · $0.02 · $0.0014."""
    if dollars is None or dollars != dollars:
        return ABSENT
    size = abs(dollars)
    text = f"{size:,.0f}" if size >= 999.995 else f"{size:.2f}" if not size or size >= 0.0995 else _digits(size, 2)
    return f"{'-' if dollars < 0 else ''}${text}"


def duration(seconds: float | int | None) -> str:
    """A length of time: 850 ms · 12.4 s · 4m10 · 4h55 · 3d04h."""
    if seconds is None or seconds != seconds:
        return ABSENT
    sign, size = "-" if seconds < 0 else "", abs(seconds)
    if not size:
        return "0 s"
    if size < 0.9995:
        return f"{sign}{_digits(size * 1000, 3)} ms"
    if size < 59.95:
        return f"{sign}{_digits(size, 3)} s"
    whole = _whole(size)
    if whole < 3600:
        return f"{sign}{whole // 60}m{whole % 60:02}"
    minutes = _whole(size / 60)
    if minutes < 48 * 60:
        return f"{sign}{minutes // 60}h{minutes % 60:02}"
    hours = _whole(size / 3600)
    return f"{sign}{hours // 24:,}d{hours % 24:02}h"


def percent(share: float | None) -> str:
    """A share of one: 31 % · 0.42 %."""
    return ABSENT if share is None or share != share else f"{_digits(share * 100, 2)} %"


def moment(seconds: float | None) -> str:
    """A time since the epoch as day and minute, UTC: 2026-11-16 09:20."""
    if seconds is None or not -6e10 < seconds < 2.5e11:
        return ABSENT
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M")


def counted(count: int, one: str, many: str | None = None) -> str:
    """`1 trace`, `12 traces`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def _whole(value: float) -> int:
    """The nearest whole number, halves upwards, as the page rounds."""
    return int(value + 0.5)


def _digits(value: float, most: int) -> str:
    """So many digits that count, no zeros at the end, never an exponent."""
    if not value:
        return "0"
    exponent = int(f"{abs(value):e}".partition("e")[2])
    places = max(0, min(8, most - 1 - exponent))
    text = f"{value:,.{places}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
