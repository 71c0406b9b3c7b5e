"""What went wrong, in words: errors of the recorded team as a trace has them, and problems of recording on stderr.

Always true: nothing here raises; an error of the team is its type and its message, secrets masked, with what caused it.
"""

from __future__ import annotations

import sys

from counterpoint.errors import CounterpointError
from counterpoint.recorder.values import plain

_LONGEST = 2_000
"""Characters of an error that are kept."""
_MASKED = 20_000
"""Characters of a message in which secrets are looked for."""
_MOST_TOLD = 1_000
_MOST = 8
"""Errors of one chain, or members of a group, that are told."""


def error_text(error: BaseException | None) -> str | None:
    """An error as an event has it: `TypeError: its message`, a line more for each cause and each member of a group."""
    if error is None:
        return None
    try:
        return _cut("\n".join(_lines(error, set())))
    except Exception:  # its own code broke
        return type(error).__name__


def masked_error(text: str) -> str:
    """What somebody else says of an error, as an event has it."""
    from counterpoint.formats.masking import mask  # late: most teams raise nothing

    return _cut(mask(plain(text[:_MASKED]).strip())[0])


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} [cut]"


def _lines(error: BaseException, visited: set[int], word: str = "") -> list[str]:
    if id(error) in visited or len(visited) >= _MOST:
        return []
    visited.add(id(error))
    lines = [word + _one(error)]
    for member in error.exceptions if isinstance(error, BaseExceptionGroup) else ():
        lines += _lines(member, visited, "with ")
    if error.__cause__ is not None:
        lines += _lines(error.__cause__, visited, "caused by ")
    elif error.__context__ is not None and not error.__suppress_context__:
        lines += _lines(error.__context__, visited, "while handling ")
    return lines


def _one(error: BaseException) -> str:
    name = type(error).__name__
    try:
        text = masked_error(str(error))
    except Exception:
        return name  # its message cannot be had
    return f"{name}: {text}" if text else name


def one_line(error: Exception) -> str:
    """A problem of recording, in a line."""
    return str(error) if isinstance(error, CounterpointError) else f"{type(error).__name__}: {error}"


_told: set[str] = set()


def say_once(line: str, what: str) -> None:
    """Print a line, unless another one about the very same thing was printed before: a service records a thousand times."""
    if what not in _told:
        if len(_told) > _MOST_TOLD:
            _told.clear()
        _told.add(what)
        say(line)


def forget(where: str) -> None:
    """What is wrong at this place from now on is news."""
    for what in [one for one in _told if where in one]:
        _told.discard(what)


def say(line: str) -> None:
    """Print a line on stderr, if that is possible."""
    try:
        print(line, file=sys.stderr)
    except Exception:
        return  # there is nobody to tell
