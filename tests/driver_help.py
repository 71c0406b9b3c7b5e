"""For the driver: an engine of lines that are legal, and a task that does something to the worker that plays it."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from counterpoint.lab.lm.chat import Chat
from counterpoint.lab.lm.engine import Answer, Ask, TooLong
from counterpoint.lab.tasks.task import Instance
from counterpoint.lab.worlds.world import parameter
from many_help import Config, Many


class LegalEngine:
    """Answers each call with one of the lines that its prompt names as legal, by prompt and seed alone; in any order."""

    def __init__(self, chat: Chat, *, order: int = 0, at_once: int = 1_000, context: int = 1 << 20) -> None:
        self.chat, self.context, self.at_once, self._draw = chat, context, at_once, random.Random(order)
        self._waiting: dict[int, Ask] = {}
        self.asks: list[Ask] = []

    @property
    def is_busy(self) -> bool:
        return bool(self._waiting)

    def add(self, ask: Ask) -> int:
        if len(ask.prompt) >= self.context:
            raise TooLong(f"{len(ask.prompt)} tokens")
        self.asks.append(ask)
        self._waiting[len(self.asks)] = ask
        return len(self.asks)

    def step(self) -> list[tuple[int, Answer]]:
        tickets = self._draw.sample(sorted(self._waiting), min(self.at_once, len(self._waiting)))
        return [(ticket, self.answer(self._waiting.pop(ticket))) for ticket in tickets]

    def answer(self, ask: Ask) -> Answer:
        """A legal line, drawn by what was asked."""
        prompt = self.chat.decode(ask.prompt)
        drawn = random.Random(hashlib.blake2b(f"{ask.seed}|{ask.temperature}|{prompt}".encode()).digest())
        legal = prompt.rpartition("Legal now:\n")[2].partition("\nYour action:")[0].split("\n")
        going_on = [line for line in legal if not line.startswith(("STOP", "NOOP", "RETURN"))]
        line = drawn.choice(going_on if going_on and drawn.random() < 0.8 else legal).replace("<...>", "p1").partition(" (")[0]
        ids = tuple(self.chat.answer(line))
        return Answer(ids, tuple(-drawn.random() for _ in ids), "stop", 0)


@dataclass(frozen=True)
class OddConfig(Config):
    """The dials."""

    does: str = parameter("", "does", "What happens to the worker.")
    once: str = parameter("", "once", "A file that says that it has happened; each time where there is none.")


@dataclass(frozen=True)
class Odd(Many):
    """A task of two pages that goes wrong when its instance is made."""

    config: OddConfig = field(default_factory=OddConfig)

    def replace(self, **changes: Any) -> Odd:
        return Odd(replace(self.config, **changes))

    def instance(self, seed: int) -> Instance:
        does, once = self.config.does, self.config.once
        if not once or not os.path.exists(once):
            if once:
                Path(once).touch()
            _do(does)
        return super().instance(seed)


def _do(does: str) -> None:
    from counterpoint.lab.train.lm import rollout_worker

    match does:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "raise":
            raise ZeroDivisionError("nothing is divided by nothing")
        case "words":  # no message of ours
            rollout_worker.framed = lambda _: b"\4\0\0\0" + b"\xffoo!"  # type: ignore[assignment]
        case "trace":
            rollout_worker.packed_trace = lambda _: b"no"  # type: ignore[assignment]
        case "modules":
            heavy = {"duckdb", "pyarrow", "torch", "zstandard", "transformers"} & sys.modules.keys()
            raise ImportError(f"loaded: {sorted(heavy)}")


odd = Odd()
