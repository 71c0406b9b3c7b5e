"""A block of lines on a terminal that is drawn again in place.

Always true: a line is cut to the width of the terminal and the block to its height, so that the cursor comes back to its first
line; text is plain, without control characters.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import TextIO

from counterpoint.app.words import plain_text

_UP, _CLEAR = "\x1b[{}F", "\x1b[J"


class Screen:
    """Lines that replace those drawn before."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._height = stream, 0

    def draw(self, lines: Sequence[str]) -> None:
        """Show these lines, the last ones where the terminal is too low for all."""
        columns, rows = shutil.get_terminal_size((110, 24))
        block = [plain_text(line)[: columns - 1] for line in lines[-(rows - 1) :]]
        self._stream.write(self._back() + "".join(f"{line}\n" for line in block))
        self._stream.flush()
        self._height = len(block)

    def clear(self) -> None:
        """Take the lines away."""
        self._stream.write(self._back())
        self._stream.flush()
        self._height = 0

    def _back(self) -> str:
        return _UP.format(self._height) + _CLEAR if self._height else ""
