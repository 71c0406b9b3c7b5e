"""Work for the tests of runners: importable by any process."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import numpy as np


def double(payload: int, weights: Any) -> int:
    """Twice the payload, plus the bias of the weights."""
    return 2 * payload + (0 if weights is None else int(weights["bias"][0]))


def late(payload: tuple[int, float], weights: Any) -> tuple[int, bytes]:
    """Sleeps as told, then random bytes of its seed and the weights: what must not depend on time."""
    seed, pause_s = payload
    time.sleep(pause_s)
    return seed, (np.random.default_rng(seed).random(4) * weights["scale"]).tobytes()


def bad(payload: int, weights: Any) -> int:
    """Raises."""
    raise ValueError(f"no good: {payload}")


def unsendable(payload: int, weights: Any) -> Any:
    """A result that cannot travel."""
    return threading.Lock()


def spoil(payload: int, weights: Any) -> float:
    """Tries to change the weights that the next job sees."""
    weights["bias"][0] += 1
    return 0.0


def die(payload: int, weights: Any) -> None:
    """Kills its own process."""
    os.kill(os.getpid(), signal.SIGKILL)


def stand_still(payload: int, weights: Any) -> None:
    """Stops its own process, heartbeat and all."""
    os.kill(os.getpid(), signal.SIGSTOP)


def stand_still_once(payload: str, weights: Any) -> str:
    """Stops its own process the first time; the payload is a file that says that it has."""
    if not os.path.exists(payload):
        open(payload, "w").close()
        os.kill(os.getpid(), signal.SIGSTOP)
    return "played again"


def threads(payload: int, weights: Any) -> tuple[str | None, str]:
    """What numpy and torch are told, and how Ctrl-C is met."""
    return os.environ.get("OMP_NUM_THREADS"), str(signal.getsignal(signal.SIGINT))


def about(payload: int, weights: Any) -> int:
    """The process id."""
    return os.getpid()
