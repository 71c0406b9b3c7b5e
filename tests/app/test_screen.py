"""Lines that are drawn over each other, as a terminal shows them."""

from __future__ import annotations

import io
import re

import pytest

from counterpoint.app.terminal.screen import Screen


def shown(text: str) -> list[str]:
    """What a terminal shows of text with the signs that a screen writes."""
    lines, row = [""], 0
    for part in re.findall(r"\x1b\[\d*[AJK]|\r|\n|[^\x1b\r\n]+", text):
        if part.endswith("A") and part.startswith("\x1b"):
            row -= int(part[2:-1])
        elif part == "\x1b[J":
            lines = [*lines[:row], ""]
        elif part == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif part not in ("\r", "\x1b[K"):
            lines[row] += part
    return lines


def test_each_drawing_covers_the_one_before_whatever_its_height() -> None:
    stream = io.StringIO()
    screen = Screen(stream)
    for lines in (["one"], ["one", "two", "three"], ["four"], [], ["five", "six"]):
        screen.draw(lines)
        assert shown(stream.getvalue()) == [*lines, ""]
    screen.clear()
    assert shown(stream.getvalue()) == [""]


def test_what_does_not_fit_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "10")
    monkeypatch.setenv("LINES", "4")
    stream = io.StringIO()
    screen = Screen(stream)
    screen.draw([f"{k}" * 30 for k in range(9)])
    assert shown(stream.getvalue()) == ["6" * 9, "7" * 9, "8" * 9, ""]
    screen.draw(["end"])
    assert shown(stream.getvalue()) == ["end", ""]
