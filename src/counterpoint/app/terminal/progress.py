"""How far a command is: what, how much, how fast, and the time left.

Always true: it writes to stderr alone. On a terminal one line shows after two seconds, rewrites itself, and is gone at the end;
elsewhere a plain line comes every ten seconds, or with `--json` a JSON line, `{"progress": ...}`.
COUNTERPOINT_PROGRESS=off silences it.
A thread draws, so that a step which takes long is seen too; what else is printed never lands in the middle of the bar.

Of bars inside each other the innermost shows, with what the outer one is at before it. Other rooms tell how far they are with
`display.working`, which leads here while a command runs.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sized
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TextIO, TypeVar

from counterpoint.app.words import plain_text
from counterpoint.display import duration, watched_by

T = TypeVar("T")
_AFTER_S, _LINE_S, _DRAW_S = 2.0, 10.0, 0.2
_EARLY, _EARLY_S = 0.01, 30.0
_BAR = 20
_WHOLE_S = 30.0, 60.0
"""Of a command that says nothing itself, where it is no terminal: when its first line comes, and how often."""


class _State:
    """What commands of this process say: whether as JSON, and the bar that is shown now."""

    as_json = False
    bars: list[Bar] = []
    last = 0.0
    """When one of them was last shown."""
    lock = threading.RLock()


class Bar:
    """Something that goes on; tell it with `step` or `at`."""

    line_after_s, line_every_s = _LINE_S, _LINE_S
    """Where it is no terminal."""

    def __init__(self, what: str, total: float | None = None, *, quiet: bool = False) -> None:
        self.what, self.total, self.done, self.about = what, total, 0.0, ""
        self._begin = time.monotonic()
        self._first = 0.0
        """Where the rate is counted from: what was there already took no time."""
        self._is_shown = self._is_drawn = False
        self._outer = _State.bars[-1] if _State.bars else None
        hidden = quiet or (self._outer is not None and self._outer._is_silent)  # who draws itself is not drawn over
        self._is_silent: bool = (hidden and not _State.as_json) or os.environ.get("COUNTERPOINT_PROGRESS") == "off"
        self._ended = threading.Event()

    def step(self, count: float = 1, about: str = "") -> None:
        """So much more is done; `about` is what comes, or came."""
        self.at(self.done + count, about=about)

    def at(self, done: float, total: float | None = None, about: str = "") -> None:
        """So much is done in all."""
        self.done, self.about = done, about or self.about
        self.total = self.total if total is None else total
        self.tick()

    def begin_at(self, done: float) -> None:
        """So much was done before it began."""
        self.done = self._first = done

    @property
    def left_s(self) -> float | None:
        """Seconds left at the pace so far; None where nobody can say, as in a slow first per cent."""
        moved, spent = self.done - self._first, time.monotonic() - self._begin
        if self.total is None or moved <= 0 or (moved < _EARLY * self.total and spent < _EARLY_S):
            return None
        return max(0.0, self.total - self.done) * spent / moved

    @property
    def within(self) -> str:
        """What the bar around this one is at, such as the claim that is run; empty where it says nothing."""
        return self._outer.about if self._outer is not None else ""

    def fields(self) -> dict[str, Any]:
        """As JSON says it."""
        rounded = {"seconds": time.monotonic() - self._begin, "left_s": self.left_s}
        about = {"in": self.within} if self.within else {}
        about |= {"about": self.about} if self.about else {}
        said = {"what": self.what, "done": round(self.done, 2), "total": self.total, **about}
        return said | {name: None if value is None else round(value, 1) for name, value in rounded.items()}

    def line(self, *, width: int | None = None) -> str:
        """As people read it; with a bar where there is a width to fill."""
        spent = time.monotonic() - self._begin
        parts = [f"{plain_text(self.within)}: {self.what}" if self.within else self.what]
        if self.total:
            share = min(1.0, max(0.0, self.done / self.total))
            if width is not None:
                parts.append(_drawn(share))
            count = f"{int(self.done):,}/{self.total:,.0f}" if self.total > 1 else ""
            parts.append(f"{count} {share:.0%}".strip())
        elif self.done:
            parts.append(f"{self.done:,.0f}")
        left = self.left_s
        parts.append(f"{duration(round(spent))} so far" if left is None else f"{duration(round(left))} left")
        if self.about:
            parts.append(plain_text(self.about))
        text = "  ".join(parts)
        return text if width is None or len(text) < width else text[: max(0, width - 1)]

    # -- drawing -------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Show it, where that is due."""
        now = time.monotonic()
        is_terminal = sys.stderr.isatty() and not _State.as_json
        after, every = (_AFTER_S, _DRAW_S) if is_terminal else (self.line_after_s, self.line_every_s)
        since = _State.bars[0]._begin if _State.bars else self._begin  # a bar inside another one is waited for no longer
        if self._is_silent or now - since < after or now - _State.last < every:
            return
        with _State.lock:
            if not _State.bars or _State.bars[-1] is not self or self._ended.is_set():
                return  # the innermost one is shown
            _State.last, self._is_shown, self._is_drawn = now, True, is_terminal
            if _State.as_json:
                text = json.dumps({"progress": self.fields()})
            else:
                text = self.line(width=shutil.get_terminal_size((100, 24)).columns if is_terminal else None)
            _raw(sys.stderr).write(f"\r{text}\x1b[K" if is_terminal else f"{text}\n")
            _raw(sys.stderr).flush()

    def clear(self) -> None:
        """Take the line away, for what is printed next."""
        if self._is_drawn:
            _raw(sys.stderr).write("\r\x1b[K")
            _raw(sys.stderr).flush()
            self._is_drawn, _State.last = False, time.monotonic()

    def run(self) -> None:
        """In its thread: draw until it ends."""
        while not self._ended.wait(_DRAW_S if sys.stderr.isatty() else 1.0):
            self.tick()

    def end(self) -> None:
        """Stop drawing."""
        with _State.lock:
            self._ended.set()
            self.clear()


def _clear() -> None:
    for bar in _State.bars:
        bar.clear()


def _drawn(share: float) -> str:
    full, empty = ("█", "░") if "utf" in (getattr(sys.stderr, "encoding", "") or "").lower() else ("#", ".")
    return full * round(share * _BAR) + empty * (_BAR - round(share * _BAR))


@contextmanager
def progress(what: str, total: float | None = None, *, quiet: bool = False) -> Iterator[Bar]:
    """A bar for as long as the block runs; inside another one, it is the one that shows."""
    with _State.lock:
        _clear()
        _State.last = _State.last if _State.bars else 0.0
        bar = Bar(what, total, quiet=quiet)
        _State.bars.append(bar)
    drawer = threading.Thread(target=bar.run, name="progress", daemon=True)
    drawer.start()
    try:
        yield bar
    finally:
        bar.end()
        with _State.lock:
            _State.bars.remove(bar)


def track(items: Iterable[T], label: str, *, total: int | None = None, quiet: bool = False) -> Iterator[T]:
    """Yield the items, showing how far it is; `total` says how many there will be where they cannot be counted."""
    count = len(items) if isinstance(items, Sized) else total
    with progress(label, count, quiet=quiet) as bar:
        for item in items:
            yield item
            bar.step()


# -- a command as a whole ------------------------------------------------------------------------------------------------


class _Stream:
    """A stream of the terminal that takes the bar away before it prints."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with _State.lock:
            _clear()
            return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._stream)


def _raw(stream: Any) -> Any:
    return stream._stream if isinstance(stream, _Stream) else stream


_QUIET = frozenset({"view", "serve", "watch", "models serve", "play", "guard", "mcp", "steer", "completion", "commands"})
"""Commands that wait for others, or draw themselves."""
_FOLLOWS = frozenset({"--follow", "-h", "--help"})


@contextmanager
def command_bar(args: list[str]) -> Iterator[None]:
    """Around a command: after two seconds in which no bar of its own shows, its name and how long it has run."""
    words = [arg for arg in args if not arg.startswith("-")]
    name = words[0] if words else ""
    _State.as_json = "--json" in args
    if not name or {name, " ".join(words[:2])} & _QUIET or _FOLLOWS & {*args}:
        try:
            yield
        finally:
            _State.as_json = False
        return
    out, err = sys.stdout, sys.stderr
    if sys.stderr.isatty():
        sys.stderr = _Stream(err)
        sys.stdout = _Stream(out) if out.isatty() else out
    process = os.getpid()

    def inner(what: str, total: float | None) -> AbstractContextManager[Bar]:
        if os.getpid() == process:
            return progress(what, total)
        unseen = Bar(what, total)  # of a forked worker, whose locks nobody opens
        unseen._is_silent = True
        return nullcontext(unseen)

    try:
        with progress(name) as bar, watched_by(inner):
            if not _State.as_json:
                bar.line_after_s, bar.line_every_s = _WHOLE_S
            yield
    finally:
        sys.stdout, sys.stderr, _State.as_json = out, err, False
