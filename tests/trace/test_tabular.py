"""A result as a table: the same schema with and without rows, a small escaped picture, pandas only where it is."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import pytest

from counterpoint.answer import html
from counterpoint.display import bars
from counterpoint.errors import CounterpointError
from counterpoint.trace.tabular import COLUMNS_SHOWN, ROWS_SHOWN, Tabular, sample_section


class Made(Tabular):
    TABLE: ClassVar = {"name": "string", "n": "int64", "x": "double", "ids": "list:string"}

    def __init__(self, *rows: Sequence[Any]) -> None:
        self.rows = rows

    def table_rows(self) -> Iterator[Sequence[Any]]:
        return iter(self.rows)

    def caption(self) -> str:
        return "made <here>"


def test_columns_have_their_types_also_without_rows() -> None:
    full = Made(("a", 1, None, ["e1"]), (None, 2, 0.5, [])).to_arrow()
    assert full.schema == Made().to_arrow().schema
    assert full.to_pylist() == [{"name": "a", "n": 1, "x": None, "ids": ["e1"]}, {"name": None, "n": 2, "x": 0.5, "ids": []}]
    assert Made().to_arrow().num_rows == 0


def test_the_picture_escapes_everything_and_says_what_it_leaves_out() -> None:
    rows = [("<script>alert(1)</script>\x1b[31m" + "y" * 500, 12345, 0.1234567, ["<b>"])] * (ROWS_SHOWN + 7)
    html = Made(*rows)._repr_html_()
    assert "<script" not in html
    assert "<b>" not in html
    assert "\x1b" not in html
    assert "made &lt;here&gt;" in html
    assert "12,345" in html
    assert html.count("<tr>") == ROWS_SHOWN + 1
    assert "7 more rows" in html
    assert len(html) < 20_000
    assert "more rows" not in Made(*rows[:3])._repr_html_()


def test_what_is_printed_is_a_table_too() -> None:
    printed = str(Made(*[("a\x1b", 12345, None, ["e1"])] * (ROWS_SHOWN + 7))).splitlines()
    assert printed[:3] == ["made <here>", "name       n  ids", "a\N{REPLACEMENT CHARACTER}    12,345  e1"]
    assert printed[-1] == "7 more rows: to_arrow() has all"
    assert str(Made()) == "made <here>"


def test_a_table_of_many_columns_is_cut_too() -> None:
    names = [f"c{i}" for i in range(COLUMNS_SHOWN + 5)]
    page = html([sample_section(names, [["x"] * len(names)], 1, "")])
    assert page.count("<td>") == COLUMNS_SHOWN
    assert "5 more columns" in page


@pytest.mark.parametrize("name", ["pandas", "polars"])
def test_without_a_library_of_frames_there_is_one_clear_error(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CounterpointError, match=rf"needs {name}.*frames.*to_arrow"):
        getattr(Made(), f"to_{name}")()


def test_with_pandas_there_is_a_frame() -> None:
    pytest.importorskip("pandas")
    frame = Made(("a", 1, None, ["e1"])).to_pandas()
    assert list(frame.columns) == ["name", "n", "x", "ids"]
    assert frame.loc[0, "n"] == 1


def test_with_polars_there_is_a_frame() -> None:
    pytest.importorskip("polars")
    frame = Made(("a", 1, None, ["e1"])).to_polars()
    assert frame.to_dicts() == [{"name": "a", "n": 1, "x": None, "ids": ["e1"]}]


def test_bars_are_escaped_signed_and_left_out_where_they_say_nothing() -> None:
    drawn = bars([("<b>&\x1b", 2.0, 1.0, 3.0), ("below", -1.0, None, None), ("none", None, None, None)])
    assert "&lt;b&gt;&amp;\N{REPLACEMENT CHARACTER}" in drawn
    assert drawn.count("<rect") == 2
    assert drawn.count("<line") == 2  # one interval, and the axis
    assert ">-1</text>" in drawn
    for nothing in ([], [("a", 0.0, None, None)], [("a", float("nan"), None, None)], [("a", float("inf"), None, None)]):
        assert bars(nothing) == ""
    assert bars([(str(k), k + 1.0, None, None) for k in range(99)]).count("<rect") == 24
