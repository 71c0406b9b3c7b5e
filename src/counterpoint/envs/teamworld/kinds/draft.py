"""Drafts that improve and then rot (A): a level that is seen, a soundness that is not, so patience is the art.

    sound: level +1 with draft_gain[family]·g, then rotten with draft_hazard;   rotten: level −1 with draft_loss

Hidden: sound, level. Seen: shown (the level last returned), zeros (calls since the last gain), lost (a loss was seen).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from counterpoint.envs.keyed import purpose
from counterpoint.envs.teamworld.config import Config
from counterpoint.envs.teamworld.work import Returns, Work

_STEP, _HAZARD = purpose("draft step"), purpose("draft hazard")


@dataclass
class DraftState:
    """Axes: E episodes, n drafts."""

    first_item: int
    sound: np.ndarray  # (E, n) bool
    level: np.ndarray  # (E, n)
    shown: np.ndarray  # (E, n)
    zeros: np.ndarray  # (E, n)
    lost: np.ndarray  # (E, n) bool
    callers: np.ndarray  # (E, n, calls) int16

    @classmethod
    def start(cls, config: Config, seed: np.ndarray, first_item: int) -> DraftState:
        """Blank drafts, all sound."""
        e, n = len(seed), config.draft_items
        zeros = np.zeros((e, n), np.int64)
        callers = np.full((e, n, config.draft_calls), -1, np.int16)
        return cls(first_item, np.ones((e, n), np.bool_), zeros, zeros.copy(), zeros.copy(), np.zeros((e, n), np.bool_), callers)

    def refusals(self, config: Config, ep: np.ndarray, item: np.ndarray, purpose: np.ndarray) -> np.ndarray:
        """Calls that the state of the item forbids: none here (one call per draft and round is checked elsewhere)."""
        return np.zeros(len(ep), np.bool_)

    def work(self, w: Work) -> Returns:
        """One revision per call; the claim is the level after it."""
        sound, u = self.sound[w.ep, w.item], w.draw(_STEP)
        gain = sound & (u < np.array(w.config.draft_gain)[w.family] * w.know)
        loss = ~sound & (u < w.config.draft_loss)
        rots = sound & (w.draw(_HAZARD) < w.config.draft_hazard)
        self.level[w.ep, w.item] += gain.astype(np.int64) - loss
        self.sound[w.ep, w.item] = sound & ~rots
        return Returns(self.level[w.ep, w.item], gain)

    def absorb(self, ep: np.ndarray, item: np.ndarray, claim: np.ndarray) -> None:
        """See the level that came back."""
        change = claim - self.shown[ep, item]
        self.zeros[ep, item] = np.where(change > 0, 0, self.zeros[ep, item] + 1)
        self.lost[ep, item] |= change < 0
        self.shown[ep, item] = claim

    def worth(self, config: Config) -> np.ndarray:
        """(E, n) points for the levels as they are."""
        return config.draft_weight * self.level
