"""`Tabular`: a result that is also a table, for Arrow, for pandas and for a notebook.

Always true: columns have a name and a type that do not depend on the rows, so that an empty result has the same schema; a
missing value is null, never 0. What a notebook shows is escaped, static and small, and says how many rows it leaves out.
"""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, ClassVar

from counterpoint.display import bars
from counterpoint.errors import CounterpointError, install

Bar = tuple[str, float | None, float | None, float | None]
"""A label, a value, and the ends of its interval, where there are any."""
ROWS_SHOWN = 30
COLUMNS_SHOWN = 24
_CELL_SHOWN = 80
_CAPTION_SHOWN = 300


def _fix() -> str:
    return f"{install('frames')}, or use to_arrow()"


class Tabular:
    """What a result inherits; it gives its columns, its rows and one line that says what it is."""

    __slots__ = ()

    TABLE: ClassVar[Mapping[str, str]] = {}
    """Column to its Arrow type: string, double, int64, bool, or list:string."""

    def table_rows(self) -> Iterable[Sequence[Any]]:
        """The rows, a value for each column of `TABLE`."""
        raise NotImplementedError

    def row_count(self) -> int:
        """How many rows there are."""
        return sum(1 for _ in self.table_rows())

    def caption(self) -> str:
        """One line that says what the table is."""
        return type(self).__name__

    def to_arrow(self) -> Any:
        """The rows as a `pyarrow.Table`."""
        import pyarrow as pa

        types = [_arrow_type(pa, name) for name in self.TABLE.values()]
        columns = list(zip(*self.table_rows(), strict=True)) or [()] * len(types)
        arrays = [pa.array(list(column), type_) for column, type_ in zip(columns, types, strict=True)]
        return pa.table(arrays, names=list(self.TABLE))

    def to_pandas(self) -> Any:
        """The rows as a pandas `DataFrame`; pandas comes with the extra `frames`."""
        if importlib.util.find_spec("pandas") is None:
            raise CounterpointError("to_pandas needs pandas, which is not installed", fix=_fix())
        return self.to_arrow().to_pandas()

    def to_polars(self) -> Any:
        """The rows as a polars `DataFrame`; polars comes with the extra `frames`."""
        if importlib.util.find_spec("polars") is None:
            raise CounterpointError("to_polars needs polars, which is not installed", fix=_fix())
        import polars  # type: ignore[import-not-found]  # optional, and known by what it is given

        return polars.from_arrow(self.to_arrow())

    def shown(self) -> tuple[list[str], Iterable[Sequence[Any]]]:
        """The columns and rows as a notebook shows them: as they are, unless people read them better otherwise."""
        return list(self.TABLE), self.table_rows()

    def picture(self) -> list[Bar]:
        """What a notebook draws above the table: a label, a value, and the ends of its interval; nothing where it is empty."""
        return []

    def __str__(self) -> str:
        """What `print` shows: the line that says what it is, and the first rows; `repr` has everything."""
        columns, rows = self.shown()
        return text_table(columns, itertools.islice(rows, ROWS_SHOWN), self.row_count(), self.caption())

    def _repr_html_(self) -> str:
        """What a notebook shows: the picture, where there is one, and the first rows."""
        columns, rows = self.shown()
        shown = itertools.islice(rows, ROWS_SHOWN)
        return bars(self.picture()) + html_table(columns, shown, self.row_count(), self.caption())


def _arrow_type(pa: Any, name: str) -> Any:
    kind, _, of = name.partition(":")
    return pa.list_(_arrow_type(pa, of)) if kind == "list" else pa.type_for_alias(kind)


def html_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], count: int, caption: str) -> str:
    """The first rows of a table as HTML: everything escaped, long texts cut, and what is left out counted."""
    wide = len(columns) - COLUMNS_SHOWN
    head = "".join(f"<th>{_text(name)}</th>" for name in columns[:COLUMNS_SHOWN]) + ("<th>…</th>" if wide > 0 else "")
    shown = [row[:COLUMNS_SHOWN] for row in itertools.islice(rows, ROWS_SHOWN)]
    body = "".join("<tr>" + "".join(map(_cell, row)) + ("<td>…</td>" if wide > 0 else "") + "</tr>" for row in shown)
    left_out = [f"{count - len(shown):,} more rows"] if count > len(shown) else []
    left_out += [f"{wide:,} more columns"] if wide > 0 else []
    foot = f"<div>{' and '.join(left_out)}: to_arrow() has all</div>" if left_out else ""
    title = f'<caption style="text-align:left">{_text(caption, _CAPTION_SHOWN)}</caption>'
    return f"<div><table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{foot}</div>"


def text_table(columns: Sequence[str], rows: Iterable[Sequence[Any]], count: int, caption: str) -> str:
    """The same as plain text; columns in which no row says anything are left out."""
    shown = [[_plain(value) for value in row] for row in itertools.islice(rows, ROWS_SHOWN)]
    kept = [k for k in range(len(columns)) if any(row[k][0] for row in shown)][:COLUMNS_SHOWN]
    wide = {k: max(len(columns[k]), *(len(row[k][0]) for row in shown)) for k in kept}
    is_right = {k: all(row[k][1] or not row[k][0] for row in shown) for k in kept}
    lines = [[columns[k] for k in kept], *([row[k][0] for k in kept] for row in shown)]
    fit = {True: str.rjust, False: str.ljust}
    body = ["  ".join(fit[is_right[k]](cell, wide[k]) for k, cell in zip(kept, line, strict=True)).rstrip() for line in lines]
    more = [f"{count - len(shown):,} more rows: to_arrow() has all"] if count > len(shown) else []
    return "\n".join([_cut(caption, _CAPTION_SHOWN), *(body if shown else []), *more])


def _plain(value: Any) -> tuple[str, bool]:
    """A value in a cell, and whether it is a number."""
    if value is None:
        return "", False
    if isinstance(value, float):
        return f"{value:.6g}", True
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}", True
    if isinstance(value, (list, tuple)):
        value = ", ".join(map(str, itertools.islice(value, _CELL_SHOWN)))
    return _cut(str(value)), False


def _cell(value: Any) -> str:
    text, is_number = _plain(value)
    return f'<td style="text-align:right">{escape(text)}</td>' if is_number else f"<td>{escape(text)}</td>"


def _text(text: str, most: int = _CELL_SHOWN) -> str:
    """A text without control signs, cut and escaped."""
    return escape(_cut(text, most))


def _cut(text: str, most: int = _CELL_SHOWN) -> str:
    """A text without control signs, at most so long."""
    plain = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text[: most + 1])
    return plain if len(plain) <= most else plain[: most - 1] + "…"
