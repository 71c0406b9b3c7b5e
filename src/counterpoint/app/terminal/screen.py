"""Lines on a terminal that are drawn again and again in the same place.

Always true: what is drawn fits the terminal, so that the next drawing covers it; a line that is too long is cut, and of too many
the last ones stay.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import TextIO


class Screen:
    """Draws lines over those it drew before."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._height = 0
        """How many lines stand there now."""

    def draw(self, lines: Sequence[str]) -> None:
        """These lines in the place of the last ones."""
        size = shutil.get_terminal_size((100, 24))
        fitting = [line[: size.columns - 1] for line in lines][-(size.lines - 1) :]
        self._stream.write(self._back() + "".join(f"{line}\x1b[K\n" for line in fitting))
        self._stream.flush()
        self._height = len(fitting)

    def clear(self) -> None:
        """Take the lines away."""
        self._stream.write(self._back())
        self._stream.flush()
        self._height = 0

    def _back(self) -> str:
        """To the first line, and everything from there on erased."""
        return f"\x1b[{self._height}A\r\x1b[J" if self._height else ""
