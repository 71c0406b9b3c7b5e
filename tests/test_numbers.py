"""Numbers people read: one table for the commands and for the page (`web/tests/numbers.test.ts` reads the same)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from counterpoint import display

TABLE = json.loads((Path(__file__).parent / "numbers.json").read_text())


@pytest.mark.parametrize("kind", list(TABLE))
def test_numbers_are_written_as_the_table_says(kind: str) -> None:
    write = getattr(display, kind)
    assert [write(value) for value, _ in TABLE[kind]] == [text for _, text in TABLE[kind]]
    assert write(None) == "-"


def test_no_number_has_an_exponent() -> None:
    assert [display.number(x) for x in (17_714.3, 0.4091, 0.0001234, 1e15, 1.5e20, 12, 3.0, -0.5)] == [
        "17,714", "0.4091", "0.0001234", "1,000,000,000,000,000", "150,000,000,000,000,000,000", "12", "3", "-0.5",
    ]  # fmt: skip
    assert (display.number(None), display.number(float("nan")), display.number(float("inf"))) == ("-", "-", "inf")
    assert (display.money(-3.5), display.duration(-70), display.compact(-1500)) == ("-$3.50", "-1m10", "-1.5 k")
    assert (display.counted(1, "trace"), display.counted(1204, "child", "children")) == ("1 trace", "1,204 children")
