"""A block of lines that is drawn again: the cursor goes back to its first line, whatever the lines hold."""

from __future__ import annotations

import io

import pytest

from counterpoint.app.terminal.screen import Screen


def drawn(text: str) -> list[str]:
    """What a terminal shows: lines, after every move of the cursor."""
    lines: list[str] = []
    for part in text.split("\x1b["):
        body = part
        if part[:-1].isdigit() and part.endswith("F"):
            del lines[len(lines) - int(part[:-1]) :]
            continue
        if part.startswith("J"):
            body = part[1:]
        lines += body.split("\n")[:-1]
    return lines


def test_lines_replace_those_before_and_a_cleared_screen_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("LINES", "5")
    stream = io.StringIO()
    screen = Screen(stream)
    screen.draw(["one", "two", "three"])
    assert drawn(stream.getvalue()) == ["one", "two", "three"]
    screen.draw(["only"])
    assert drawn(stream.getvalue()) == ["only"]
    screen.draw([f"line {i}" for i in range(9)])
    assert drawn(stream.getvalue()) == ["line 5", "line 6", "line 7", "line 8"]  # as many as the terminal has room for
    screen.clear()
    assert drawn(stream.getvalue()) == []


def test_a_line_is_cut_to_the_width_and_holds_no_control_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "11")
    stream = io.StringIO()
    Screen(stream).draw(["\x1b[2Jabcdefghijklmnop"])
    assert "\x1b" not in stream.getvalue()
    assert max(map(len, stream.getvalue().splitlines())) == 10
