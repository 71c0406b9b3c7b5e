"""Rollouts that wait as model calls do: longer where the team is wide or the task hard, and one in five is a straggler.

Always true: what comes back follows from the payload; only how long it takes is real time (`time.sleep`, in the process that
runs the job). A launch is one group of rollouts of the same task and width, as in group-relative training; it finishes as a
whole.

    E[R | a, u] = 0.3 + 0.2 u + a (0.02 + 0.38 u)                     a: spawn or not, u: difficulty in {0, 1/3, 2/3, 1}
    seconds = pace (1 + 0.5 u) (1 + a (0.5 + u)) LogNormal(0, 0.8), times 4 for one in five
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

LEVELS = 4
EFFECT = 0.02 + 0.38 / 2
"""Mean effect of spawning over the difficulties."""
_GROUP, _NOISE, _TAIL, _TIMES = 256, 0.1, 0.2, 4.0

Launch = tuple[int, int, int, float]
"""Seed, arm, level, pace in seconds."""


def rollouts(payload: Launch, weights: Any) -> float:
    """Waits, and gives the mean return of the group, times the scale of the weights where there is one."""
    seed, arm, level, pace_s = payload
    rng = np.random.default_rng(seed)
    u = level / (LEVELS - 1)
    slow = _TIMES if rng.random() < _TAIL else 1.0
    time.sleep(pace_s * slow * (1 + 0.5 * u) * (1 + arm * (0.5 + u)) * float(rng.lognormal(0.0, 0.8)))
    mean = float(np.mean(0.3 + 0.2 * u + arm * (0.02 + 0.38 * u) + _NOISE * rng.standard_normal(_GROUP)))
    return mean if weights is None else mean * float(weights["scale"])
