"""The exact optimum of one draft that improves and then rots, unseen (A).

Always true: with one family, (calls, has it ever gained, zeros since the last gain) is sufficient. The chance s that the draft is
sound starts at 1, is 1 − h after a gain (the call found it sound; then it rots with hazard h), and after a zero

    s ← s·(1−a)·(1−h) / ( s·(1−a) + (1−s)·(1−l) )        a = draft_gain[f]·g, h = draft_hazard, l = draft_loss

A seen loss proves rot; a rotten draft only loses, so that the value to go is 0 and the team stops.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from counterpoint.lab.worlds.teamworld import optimum as offers
from counterpoint.lab.worlds.teamworld.config import Config
from counterpoint.lab.worlds.teamworld.optimum import Offer, Term

_GRID = 2049


@dataclass(frozen=True)
class DraftRule:
    """When to leave a draft alone."""

    family: int
    value: float
    """Points from the start."""
    go: np.ndarray
    """bool (2, calls + 1, calls + 1): whether to call, by (ever gained, calls so far, zeros since the last gain or the start)."""
    patience: np.ndarray
    """int (2, draft_calls + 1): by (ever gained, calls so far), the number of zeros at which to stop. After a loss: stop."""


@lru_cache(maxsize=1024)
def _fixed(config: Config, family: int, term: Term, extra: float) -> DraftRule:
    """V(t, s) = max(0, −price − extra + s·a·(w + V(t+1, 1−h)) − (1−s)·l·w + P(zero)·V(t+1, s after a zero))."""
    a, h, loss = config.draft_gain[family] * term[0], config.draft_hazard, config.draft_loss
    w, most = config.draft_weight, config.draft_calls
    sound = np.empty((2, most + 1))
    sound[:, 0] = 1.0, 1.0 - h
    for z in range(most):
        s = sound[:, z]
        zero = s * (1 - a) + (1 - s) * (1 - loss)
        sound[:, z + 1] = np.where(zero > 0, s * (1 - a) * (1 - h) / np.where(zero > 0, zero, 1.0), 0.0)
    zero = sound * (1 - a) + (1 - sound) * (1 - loss)
    now = (sound * a - (1 - sound) * loss) * w - term[1] - extra
    best, go = np.zeros((2, most + 2)), np.zeros((2, most + 1, most + 1), dtype=bool)
    for t in range(most - 1, -1, -1):
        ahead = now + sound * a * best[1, 0] + zero * best[:, 1:]
        go[:, t] = ahead > 0
        best = np.concatenate([np.maximum(0.0, ahead), np.zeros((2, 1))], axis=1)
    return DraftRule(family, float(best[0, 0]), go, np.argmin(go, axis=2))


def rule(config: Config, b: int, extra: float = 0.0, own: bool = False) -> DraftRule:
    """The optimal stop with one family, the better of the two, at brief b and `extra` points more per call."""
    offer = offers.own(config) if own else offers.workers(config, b)
    return max((_fixed(config, f, term, extra) for f, term in offers.single(offer)), key=lambda r: r.value)


def value(config: Config, b: int, extra: float = 0.0, own: bool = False) -> float:
    """Points of one draft under `rule`."""
    return rule(config, b, extra, own).value


def bound(config: Config, offer: Offer, extra: float = 0.0) -> float:
    """No policy gets more of one draft on these terms, however it mixes the families.

    The value to go V_t(s) is convex in the belief s (the best of functions that are linear in it). So the chord between grid
    points lies above it, and backward induction on the grid with linear interpolation bounds V from above. One family: exact.
    """
    terms = offers.single(offer)
    if len(terms) == 1:
        return _fixed(config, terms[0][0], terms[0][1], extra).value
    return _mixed(config, offer, extra)


@lru_cache(maxsize=4096)
def _mixed(config: Config, offer: Offer, extra: float) -> float:
    h, loss, w = config.draft_hazard, config.draft_loss, config.draft_weight
    s = np.linspace(0.0, 1.0, _GRID)
    parts = []
    for f, (g, price) in offers.single(offer):
        a = config.draft_gain[f] * g
        zero = s * (1 - a) + (1 - s) * (1 - loss)
        after = np.where(zero > 0, s * (1 - a) * (1 - h) / np.where(zero > 0, zero, 1.0), 0.0)
        parts.append(((s * a - (1 - s) * loss) * w - price - extra, s * a, zero, after))
    best = np.zeros(_GRID)
    for _ in range(config.draft_calls):
        gained = np.interp(1 - h, s, best)
        best = np.maximum.reduce(
            [np.zeros(_GRID), *(now + up * gained + zero * np.interp(after, s, best) for now, up, zero, after in parts)]
        )
    return float(best[-1])
