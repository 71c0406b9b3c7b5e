"""What people are shown: who draws a trace, how far long work is, how numbers are written, and bars of them.

The package's face names what draws, and a trace asks here, so that it need not know the rooms above it.
Always true: this module imports nothing of ours, and what draws is loaded when something is drawn, not before. A number that
nobody knows is `-`, never 0, and none has an exponent. The page writes the same (`web/src/numbers.ts`); one table tests both.
"""

from __future__ import annotations

from contextlib import contextmanager

TYPE_CHECKING = False  # type checkers take this name for true; importing `typing` would slow every start
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from typing import Any, Protocol, TypeVar

    T = TypeVar("T")

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
    current: Display = _find[0]()
    return current


# -- how far long work is ----------------------------------------------------------------------------------------------


class _Unwatched:
    """What work tells where nobody watches."""

    def step(self, count: float = 1, about: str = "") -> None:
        """So much more is done; `about` says what comes next."""

    def at(self, done: float, total: float | None = None, about: str = "") -> None:
        """So much is done in all."""


_watch: list[Callable[[str, float | None], AbstractContextManager[Any]]] = []


@contextmanager
def watched_by(show: Callable[[str, float | None], AbstractContextManager[Any]]) -> Iterator[None]:
    """For as long as the block runs, `show(what, total)` makes what shows a piece of work, such as a bar."""
    _watch.append(show)
    try:
        yield
    finally:
        _watch.pop()


@contextmanager
def working(what: str, total: float | None = None) -> Iterator[Any]:
    """Around work that takes long; its `step` and `at` say how far it is. No result may depend on who watches.

    >>> with working("forks", 2) as work:
    ...     for _ in range(2):
    ...         work.step()
    """
    if not _watch:
        yield _Unwatched()
        return
    with _watch[-1](what, total) as shown:
        yield shown


def tracked(items: Sequence[T], what: str) -> Iterator[T]:
    """The items, with how many of them are done."""
    with working(what, len(items)) as work:
        for item in items:
            yield item
            work.step()


# -- numbers and text --------------------------------------------------------------------------------------------------

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


def at_least(figure: str, is_more: object) -> str:
    """A figure that is written already, with a plus where there is more than is known."""
    return f"{figure}+" if is_more and figure != ABSENT else figure


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


def local_moment(seconds: float | None) -> str:
    """The same in this machine's time zone."""
    if seconds is None or not -6e10 < seconds < 2.5e11:
        return ABSENT
    from datetime import datetime

    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M")


def local_day(seconds: float | None) -> str:
    """The day of a time since the epoch, in this machine's time zone."""
    return local_moment(seconds)[:10]


def zone() -> str:
    """This machine's time zone, as it is now: UTC, or CET (UTC+01:00)."""
    from datetime import datetime

    now = datetime.now().astimezone()
    name, shift = now.tzname() or "", now.strftime("%z")
    away = f"UTC{shift[:3]}:{shift[3:5]}"
    return "UTC" if shift == "+0000" else f"{name} ({away})" if name and not name.startswith(("+", "-")) else away


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


def plain_text(text: str, *, keep_lines: bool = False) -> str:
    """Text without control characters: what a trace says must not steer the reader's terminal."""
    return "".join(c if c.isprintable() or (keep_lines and c in "\n\t") else "\N{REPLACEMENT CHARACTER}" for c in text)


# -- a picture of numbers ----------------------------------------------------------------------------------------------

BARS = 24
"""Rows that a picture shows at most."""
_LEFT, _WIDTH, _ROW = 190, 420, 18
_ABOVE, _BELOW, _LINE = "#4477aa", "#cc6633", "#888888"  # each at least 3:1 on white and on black


def bars(rows: list[tuple[str, float | None, float | None, float | None]]) -> str:
    """Numbers as bars from zero: label, value, and the ends of its interval where it has one; static SVG for a notebook.

    Blue is above zero and orange below, and every value is written beside its bar, so that no meaning rests on colour.
    """
    shown = [(label, float(value), low, high) for label, value, low, high in rows if value is not None and value == value][:BARS]
    ends = [0.0, *(x for _, value, low, high in shown for x in (value, low, high) if x is not None and x == x)]
    if not shown or max(ends) == min(ends) or max(abs(x) for x in ends) == float("inf"):
        return ""
    scale = _WIDTH / (max(ends) - min(ends))
    zero = _LEFT - min(ends) * scale
    parts = []
    for i, (label, value, low, high) in enumerate(shown):
        y, begin, size = i * _ROW, zero + min(value, 0.0) * scale, max(abs(value) * scale, 0.5)
        colour = _ABOVE if value >= 0 else _BELOW
        text = _escaped(label if len(label) <= 28 else label[:27] + "…")
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 13}" text-anchor="end" fill="currentColor">{text}</text>')
        parts.append(f'<rect x="{begin:.1f}" y="{y + 3}" width="{size:.1f}" height="12" fill="{colour}"/>')
        if low is not None and high is not None and low <= high:  # not so where one is no number
            ends_at = f'x1="{zero + low * scale:.1f}" x2="{zero + high * scale:.1f}" y1="{y + 9}" y2="{y + 9}"'
            parts.append(f'<line {ends_at} stroke="{_LINE}" stroke-width="2"/>')
        parts.append(f'<text x="{_LEFT + _WIDTH + 6}" y="{y + 13}" fill="currentColor">{number(value)}</text>')
    height = len(shown) * _ROW
    parts.append(f'<line x1="{zero:.1f}" x2="{zero:.1f}" y1="0" y2="{height}" stroke="{_LINE}"/>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + _WIDTH + 80}" height="{height}" role="img" '
    return f'{head}style="font:11px sans-serif;max-width:100%">{"".join(parts)}</svg>'


def _escaped(text: str) -> str:
    return plain_text(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")
