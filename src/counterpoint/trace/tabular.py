"""`Tabular`: a result that is also a table, for Arrow, for pandas and for a notebook.

Always true: columns have a name and a type that do not depend on the rows, so that an empty result has the same schema; a
missing value is null, never 0. What a notebook shows is escaped, static and small, and says how many rows it leaves out.
"""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from counterpoint.answer import Section, html, text
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
    """What a result inherits; it gives its columns, its rows and one line that says what it is.

    A result with `rows`, whose attributes have the names of the columns, has no more to say."""

    __slots__ = ()

    TABLE: ClassVar[Mapping[str, str]] = {}
    """Column to its Arrow type: string, double, int64, bool, or list:string."""

    def table_rows(self) -> Iterable[Sequence[Any]]:
        """The rows, a value for each column of `TABLE`."""
        return (tuple(getattr(row, name) for name in self.TABLE) for row in getattr(self, "rows", ()))

    def row_count(self) -> int:
        """How many rows there are."""
        rows = getattr(self, "rows", None)
        return sum(1 for _ in self.table_rows()) if rows is None else len(rows)

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

    def sample(self) -> tuple[list[str], Iterable[Sequence[Any]]]:
        """The columns and rows as a notebook shows them: as they are, unless people read them better otherwise."""
        return list(self.TABLE), self.table_rows()

    def picture(self) -> list[Bar]:
        """What a notebook draws above the table: a label, a value, and the ends of its interval; nothing where it is empty."""
        return []

    def section(self) -> Section:
        """The line that says what it is and the first rows, as print and a notebook show them; `repr` has everything."""
        columns, rows = self.sample()
        return sample_section(columns, rows, self.row_count(), self.caption())

    def __str__(self) -> str:
        return text(self.section())

    def _repr_html_(self) -> str:
        return bars(self.picture()) + html([self.section()])


def _arrow_type(pa: Any, name: str) -> Any:
    kind, _, of = name.partition(":")
    return pa.list_(_arrow_type(pa, of)) if kind == "list" else pa.type_for_alias(kind)


def sample_section(columns: Sequence[str], rows: Iterable[Sequence[Any]], count: int, caption: str) -> Section:
    """The first rows of a table: long texts cut, columns in which none says anything left out, and the rest counted."""
    first = [[_plain(value) for value in row] for row in itertools.islice(rows, ROWS_SHOWN)]
    filled = [k for k in range(len(columns)) if any(row[k][0] for row in first)]
    places, wide = filled[:COLUMNS_SHOWN], len(filled) - COLUMNS_SHOWN
    left_out = [f"{count - len(first):,} more rows"] if count > len(first) else []
    left_out += [f"{wide:,} more columns"] if wide > 0 else []
    return Section(
        words=_cut(caption, _CAPTION_SHOWN),
        head=[_cut(columns[k]) for k in places],
        rows=[[row[k][0] for k in places] for row in first],
        right=[i for i, k in enumerate(places) if all(row[k][1] or not row[k][0] for row in first)],
        more=f"{' and '.join(left_out)}: to_arrow() has all" if left_out else "",
    )


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


def _cut(words: str, most: int = _CELL_SHOWN) -> str:
    """A text at most so long."""
    return words if len(words) <= most else words[: most - 1] + "…"
