"""Patterns that are compiled when they are first asked for: most of the hundreds in this folder never are.

Always true: apart from that, such a pattern is the compiled one; each of its methods is looked up once.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, cast


class _LazyPattern:
    """A pattern that knows how to become one."""

    def __init__(self, source: str | Callable[[], str], flags: int) -> None:
        self._source, self._flags = source, flags
        self._compiled: re.Pattern[str] | None = None

    def __getattr__(self, name: str) -> Any:
        if self._compiled is None:
            self._compiled = re.compile(self._source if isinstance(self._source, str) else self._source(), self._flags)
        value = getattr(self._compiled, name)
        setattr(self, name, value)
        return value


def lazy(source: str | Callable[[], str], flags: int = 0) -> re.Pattern[str]:
    """A pattern by its text, or by what makes its text."""
    return cast("re.Pattern[str]", _LazyPattern(source, flags))
