"""Yes/no questions answered by votes (W1, V): skill by family and difficulty, and misconceptions that a whole family shares.

    P(vote right) = g·s + (1 − g)/2,   s = skill[family][difficulty], or right_if_misled if the family is misled on the item

Hidden: truth, difficulty, misled. Seen: tally, rejected, confidence, first, answer. Clones add agreement, not information.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from counterpoint.envs.keyed import purpose, uniform
from counterpoint.envs.teamworld.config import Config
from counterpoint.envs.teamworld.work import Returns, Work, add_at

_TRUTH, _DIFFICULTY, _MISLED, _VOTE, _COPY, _CONFIDENCE = (
    purpose(f"vote {n}") for n in ("truth", "difficulty", "misled", "vote", "copy", "confidence")
)


@dataclass
class VoteState:
    """Axes: E episodes, n questions, 2 families, 2 answers (no, yes)."""

    first_item: int
    truth: np.ndarray  # (E, n) int8
    difficulty: np.ndarray  # (E, n) int8
    misled: np.ndarray  # (E, n, 2) bool
    tally: np.ndarray  # (E, n, 2, 2) votes counted
    rejected: np.ndarray  # (E, n, 2) votes that the critic rejected
    confidence: np.ndarray  # (E, n, 2) sum of reported confidence by answer
    first: np.ndarray  # (E, n) int8, the first vote, -1 without one
    note: np.ndarray  # (E, n) int8, the last vote counted, -1 without one
    public: np.ndarray  # (E, n) bool, the tally was broadcast
    answer: np.ndarray  # (E, n) int8, the draft
    callers: np.ndarray  # (E, n, calls) int16, who was called, -1 padded

    @classmethod
    def start(cls, config: Config, seed: np.ndarray, first_item: int) -> VoteState:
        """Draw the questions of every episode."""
        e, n = len(seed), config.vote_items
        s, items = seed[:, None], np.arange(first_item, first_item + n)[None]
        shares = np.cumsum(config.difficulty_shares)[:-1]
        difficulty = np.searchsorted(shares, uniform(s, _DIFFICULTY, items), side="right").astype(np.int8)
        rate = np.array(config.misconception)[:, difficulty]
        misled = np.stack([uniform(s, _MISLED, items, f) < rate[f] for f in (0, 1)], axis=-1)
        return cls(
            first_item=first_item,
            truth=(uniform(s, _TRUTH, items) < 0.5).astype(np.int8),
            difficulty=difficulty,
            misled=misled,
            tally=np.zeros((e, n, 2, 2), np.int16),
            rejected=np.zeros((e, n, 2), np.int16),
            confidence=np.zeros((e, n, 2)),
            first=np.full((e, n), -1, np.int8),
            note=np.full((e, n), -1, np.int8),
            public=np.zeros((e, n), np.bool_),
            answer=np.zeros((e, n), np.int8),
            callers=np.full((e, n, config.max_votes), -1, np.int16),
        )

    def refusals(self, config: Config, ep: np.ndarray, item: np.ndarray, purpose: np.ndarray) -> np.ndarray:
        """Calls that the state of the item forbids, beyond the limit on their number: none here."""
        return np.zeros(len(ep), np.bool_)

    def work(self, w: Work) -> Returns:
        """One vote per call."""
        difficulty = self.difficulty[w.ep, w.item]
        skill = np.array(w.config.skill)[w.family, difficulty]
        skill = np.where(self.misled[w.ep, w.item, w.family], w.config.right_if_misled, skill)
        right = w.draw(_VOTE) < 0.5 + (skill - 0.5) * w.know
        truth = self.truth[w.ep, w.item]
        claim = np.where(right, truth, 1 - truth).astype(np.int64)
        claim = self._copied(w, claim)
        return Returns(claim, claim == truth)

    def _copied(self, w: Work, claim: np.ndarray) -> np.ndarray:
        """Votes that only repeat what others said: a note in the shared memory (swarm), a public majority (debate)."""
        if w.config.topology == "swarm" and w.config.memory_copy:
            note = self.note[w.ep, w.item]
            claim = np.where((note >= 0) & (w.draw(_COPY) < w.config.memory_copy), note, claim)
        if w.config.topology == "debate" and self.public.any():
            votes = self.tally[w.ep, w.item].sum(axis=1).astype(np.float64)
            total = votes.sum(axis=1)
            lean = np.abs(votes[:, 1] - votes[:, 0]) / np.maximum(total, 1)
            copies = self.public[w.ep, w.item] & (w.draw(_COPY) < w.config.conformity * lean)
            claim = np.where(copies, (votes[:, 1] > votes[:, 0]).astype(np.int64), claim)
        return claim

    def reported(self, w: Work, right: np.ndarray) -> np.ndarray:
        """The confidence a worker reports: its family's mean skill, too high, with a little truth and much noise."""
        mean = np.array(w.config.skill) @ np.array(w.config.difficulty_shares)
        spread = 0.1 * (w.draw(_CONFIDENCE) - 0.5) + 0.02 * right
        return np.clip(mean[w.family] + w.config.overconfidence + spread, 0.5, 0.99)

    def absorb(self, ep: np.ndarray, item: np.ndarray, family: np.ndarray, claim: np.ndarray, confidence: np.ndarray) -> None:
        """Count votes. Several votes on one question in one round are counted in the order given."""
        add_at(self.tally, (ep, item, family, claim), np.int16(1))
        add_at(self.confidence, (ep, item, claim), confidence)
        back = slice(None, None, -1)
        unset = self.first[ep, item] < 0
        # the last assignment wins, so the reversed order leaves the first vote
        self.first[ep[back][unset[back]], item[back][unset[back]]] = claim[back][unset[back]]
        self.note[ep, item] = claim

    def worth(self, config: Config) -> np.ndarray:
        """(E, n) points for each answer as it is."""
        return config.vote_weight * (self.answer == self.truth)
