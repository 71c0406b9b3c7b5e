"""A fake model at the pace of a real one, so that a live team can be watched and steered without a network.

Always true: what is answered is what the fake answers, under the same name and version, so that a recording, a fork and a resumed
run know it again; only the time is spent. A call takes LATENCY_S, and its tokens at the two rates below, divided by the speed.
"""

from __future__ import annotations

import asyncio
import math
import re
from dataclasses import replace

from counterpoint.errors import InputError
from counterpoint.lab.lm.model import Call, Completion, Model

LATENCY_S = 0.6
"""Until the first token of a small prompt."""
READ_PER_S = 2_500.0
"""Tokens of the prompt in a second."""
WRITE_PER_S = 30.0
"""Tokens of the answer in a second."""


def speed_of(text: str) -> float:
    """How many times as fast as real: `real` is 1, `4x` is 4, `0.5x` half as fast."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)x", text)
    speed = 1.0 if text == "real" else float(found[1]) if found else 0.0
    if not 0.01 <= speed <= 10_000:
        raise InputError(f"{text!r} is not a pace", where="pace", fix="real, or how many times as fast: 4x, 0.5x")
    return speed


class Paced:
    """A model that takes its time."""

    is_instant = False

    def __init__(self, model: Model, speed: float = 1.0) -> None:
        if not getattr(model, "is_instant", False):
            raise InputError(f"{model.name} has a pace of its own", where="pace", fix="--model fake or scripted:FILE")
        self._model, self.pace = model, speed
        self.name, self.version = model.name, model.version

    def seconds(self, answer: Completion) -> float:
        """How long a call takes here."""
        read, written = answer.tokens_in or 0, answer.tokens_out or 0
        return (LATENCY_S + read / READ_PER_S + math.ceil(written) / WRITE_PER_S) / self.pace

    async def complete(self, call: Call) -> Completion:
        """What the fake answers, later."""
        answer = await self._model.complete(call)
        took = self.seconds(answer)
        await asyncio.sleep(took)
        return replace(answer, extra={**answer.extra, "seconds": took})

    async def close(self) -> None:
        """Let go of the model."""
        await self._model.close()
