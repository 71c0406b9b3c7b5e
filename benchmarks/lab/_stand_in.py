"""An engine of a known speed, for measuring what stands before it: `Engines` as the engine's thread sees it, without a network.

Always true: a step takes as long as one of SmolLM2-135M on an H200 was measured to take (results.md: 2.4 ms for a token of 256
rows; the rest of a round is reading, about 900,000 tokens a second). The processor works for as long as it starts kernels, and
the rest is waited for without the interpreter's lock, as a GPU is. What is written are plausible tokens, by the seed.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

from counterpoint.lab.lm.engine import Answer, AnswerDraft, Ask, Stats
from counterpoint.lab.lm.slots import hashes_of

_TOKEN_S, _READ_PER_S = 2.4e-3, 900_000
_LAUNCH_S = 5e-3
"""Processor time in which a pass that reads prompts starts its kernels: 270 of them."""
_KEPT = 256 * 1200 // 16
"""Blocks of prompts that 256 slots hold."""
_READS, _LOOK, _CONTEXT, _LONGEST = 65_536, 4, 8192, 4096


@dataclass
class _Row:
    ask: Ask
    prompt: np.ndarray
    hashes: list[int]
    ids: list[int]
    logps: list[float]
    reused: int = 0
    tokens: list[int] = field(default_factory=list)
    said: list[float] = field(default_factory=list)


class StandIn:
    """Calls in, answers out, after the time that a GPU would take."""

    def __init__(self, size: int, slots: int) -> None:
        """`size`: tokens that there are."""
        network = SimpleNamespace(shape=SimpleNamespace(context=_CONTEXT))
        self.engines: dict[str, Any] = {"": SimpleNamespace(network=network, load=lambda weights: None)}
        self.stats = Stats()
        self._slots, self._next = slots, 0
        draw = np.random.default_rng(0)
        self._said = draw.integers(300, size, _LONGEST).tolist()
        self._logps = (-draw.exponential(1.0, _LONGEST)).tolist()
        self._known: dict[int, None] = {}
        self._waiting: deque[tuple[int, Ask]] = deque()
        self._rows: dict[int, _Row] = {}

    @property
    def is_busy(self) -> bool:
        """Whether somebody waits for an answer."""
        return bool(self._waiting or self._rows)

    def add(self, ask: Ask) -> int:
        """Ask; the ticket comes back with the answer."""
        self._waiting.append((self._next, ask))
        self._next += 1
        self.stats.asked += 1
        return self._next - 1

    def step(self) -> list[tuple[int, Answer]]:
        """Who waits joins and writes a token; then everybody writes a few."""
        while self._waiting and len(self._rows) < self._slots:
            self._read()
        for row in self._rows.values():
            self._write(row, _LOOK)
        time.sleep(_LOOK * _TOKEN_S * max(0.6, len(self._rows) / 256))
        self.stats.passes += _LOOK
        self.stats.widest = max(self.stats.widest, len(self._rows))
        over = [t for t, row in self._rows.items() if len(row.tokens) >= row.ask.most]
        return [(t, self._let_go(t)) for t in over]

    def _read(self) -> None:
        begin, read, joined = time.perf_counter(), 0, list[_Row]()
        while self._waiting and len(self._rows) < self._slots and read < _READS:
            ticket, ask = self._waiting.popleft()
            prompt = np.asarray(ask.prompt, np.int64)
            hashes = hashes_of(prompt)
            known = sum(1 for h in hashes if h in self._known)
            at = ask.seed % (_LONGEST - ask.most)
            row = _Row(ask, prompt, hashes, self._said[at : at + ask.most], self._logps[at : at + ask.most])
            row.reused = min(known * (len(prompt) // max(1, len(hashes))), len(prompt) - 1)
            read += len(prompt) - row.reused
            self._known.update(dict.fromkeys(hashes))
            self._rows[ticket] = row
            joined.append(row)
        while len(self._known) > _KEPT:
            del self._known[next(iter(self._known))]
        launched = time.thread_time() + _LAUNCH_S
        while time.thread_time() < launched:
            pass
        time.sleep(max(0.0, read / _READ_PER_S - (time.perf_counter() - begin)))
        self.stats.read += read
        for row in joined:
            self._write(row, 1)

    def _write(self, row: _Row, count: int) -> None:
        had = len(row.tokens)
        row.tokens += row.ids[had : had + count]
        row.said += row.logps[had : had + count]
        self.stats.written += len(row.tokens) - had

    def _let_go(self, ticket: int) -> Answer:
        row = self._rows.pop(ticket)
        return Answer(tuple(row.tokens), tuple(row.said), "length", row.reused)

    def tokens_so_far(self, ticket: int) -> Sequence[int]:
        """What a call has written so far."""
        return self._rows[ticket].tokens if ticket in self._rows else ()

    def under_way(self) -> dict[int, AnswerDraft]:
        """What every call has written so far, by its ticket."""
        return {t: AnswerDraft(row.tokens, row.said, (), row.reused) for t, row in self._rows.items()}

    def cancel(self, ticket: int) -> Answer | None:
        """End a call now."""
        self._waiting = deque(one for one in self._waiting if one[0] != ticket)
        return self._let_go(ticket) if ticket in self._rows else None

    def reset(self) -> None:
        """Forget every call."""
        self._waiting.clear()
        self._rows.clear()
