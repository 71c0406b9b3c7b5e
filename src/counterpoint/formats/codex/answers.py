"""Codex's records put together to answers of a model, and the few values they share.

Always true: what the model wrote up to the `token_count` that pays for it is one step, its calls follow it, then what came
in; nothing is left out or told twice. A step is `(time, rank, name, at, values)` for the method of `Team` of that name;
rank puts causes before effects of the same moment.
"""

from __future__ import annotations

import contextlib
import re
from typing import Any

from counterpoint.errors import InputError
from counterpoint.formats.codex.head import Head
from counterpoint.formats.importing.report import Report
from counterpoint.formats.importing.usage import Usage
from counterpoint.formats.importing.values import as_dict, decode, string, text_of

Step = tuple[float, int, str, float | None, tuple[Any, ...]]

_CAUSES = frozenset({"step", "call", "spawned", "complete"})
_TAGGED = re.compile(r"\s*<([A-Za-z_][\w-]*)[ >]")
_EXIT = re.compile(r"(?:Process exited with code|[Ee]xit code:?) (-?\d+)")


class Answers:
    """The answer that is being put together, and the steps that are ready."""

    def __init__(self, head: Head, report: Report) -> None:
        self.head, self.report = head, report
        self.ready: list[Step] = []
        self._rest: list[Step] | None = None
        """What came after the first item of the open answer; None when no answer is open."""
        self._is_answered = self._is_compaction = False
        self._words: list[str] = []
        self._thoughts: list[str] = []
        self._called = False
        self._first: tuple[float | None, str] = (None, "")
        self._end: float | None = None
        self.model: str | None = None
        self._asked: list[tuple[float | None, str, str]] = []
        """Words in the user's name of which it is not yet known whether a human said them."""
        self._says_who = False
        self.at: float | None = None
        self.clock = float("-inf")

    def _step(self, name: str, *values: Any, at: float | None = None) -> Step:
        return (self.clock, 0 if name in _CAUSES else 1, name, at if at is not None else self.at, values)

    def do(self, name: str, *values: Any) -> None:
        """Something that says more about what was done."""
        (self.ready if self._rest is None else self._rest).append(self._step(name, *values))

    def hear(self, name: str, *values: Any, at: float | None = None) -> None:
        """Something that the model reads in its next answer."""
        if self._rest is not None:
            self._is_answered = True
        (self.ready if self._rest is None else self._rest).append(self._step(name, *values, at=at))

    def _add(self, name: str, *values: Any) -> None:
        assert self._rest is not None
        self._rest.append(self._step(name, *values))

    def _answer(self, number: int, item: dict[str, Any]) -> None:
        """An item that the model wrote: of the open answer, or of a new one when this one has been answered."""
        self.settle_asked()
        if self._rest is not None and self._is_answered:
            self.close(None)
        self.open(string(item.get("id")) or f"{self.head.id}:{number}")
        self._end = self.at

    def open(self, name: str) -> None:
        if self._rest is None:
            self._rest, self._first, self._end = [], (self.at, name), self.at

    def close(self, usage: Usage | None) -> None:
        rest, self._rest = self._rest, None
        if rest is None:
            return
        at, name = self._first
        if self._words or self._thoughts or self._called or usage:
            text, thinking = "\n\n".join(self._words), "\n\n".join(self._thoughts)
            values = (name, self._end, text, thinking, usage, self.model, self._called, self._is_compaction)
            time = rest[0][0] if rest else self.clock
            self.ready.append((min(time, at if at is not None else time), 0, "step", at, values))
        self.ready += rest
        self._words, self._thoughts, self._called = [], [], False
        self._is_answered = self._is_compaction = False

    def settle_asked(self) -> None:
        """Words in the user's name that no event claims: a human's where the log has no such events, else the harness's."""
        asked, self._asked = self._asked, []
        for at, text, name in asked:
            if not _TAGGED.match(text):
                self.hear("injected" if self._says_who else "asked", text, name, at=at)


def usage_of(usage: Any) -> Usage | None:
    """The tokens of one call, as Codex names them."""
    got = as_dict(usage)
    return Usage.whole(
        got.get("input_tokens"),
        got.get("output_tokens"),
        cached=got.get("cached_input_tokens"),
        written=got.get("cache_write_input_tokens"),
        reasoning=got.get("reasoning_output_tokens"),
    )


def result_of(output: Any) -> tuple[str, bool | None]:
    """A tool's words, and whether it worked where they say so."""
    if isinstance(output, str) and output.startswith('{"output":'):
        with contextlib.suppress(InputError):
            output = decode(output)
    if isinstance(output, dict):
        code = as_dict(output.get("metadata")).get("exit_code")
        ok = output.get("success")
        return text_of(output), code == 0 if isinstance(code, int) else ok if isinstance(ok, bool) else None
    text = text_of(output)
    if found := _EXIT.search(text, 0, 300):
        return text, int(found[1]) == 0
    if text.startswith("Script "):
        return text, {"completed": True, "failed": False}.get(text[7:20].split()[0] if text[7:20].split() else "")
    return text, False if text.startswith("aborted by user") else None
