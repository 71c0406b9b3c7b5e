"""Yes/no questions answered by votes (W1, V): what a look at one gives, what is counted, and what a proposer makes of them.

Always true: hidden truth and visible evidence are apart; a draw depends on (seed, purpose, item), or is the call's own. What only
some worlds have (`held`, `shared`, `asked`, `flawed`) is empty in all others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from counterpoint.lab.worlds.teamworld.config import DIFFICULTIES, Config
from counterpoint.lab.worlds.teamworld.tables import tables_of
from counterpoint.lab.worlds.teamworld.work import Returns, Work, add_at
from counterpoint.trace.keyed import purpose, uniform

_TRUTH, _DIFFICULTY, _MISLED, _VOTE, _COPY, _CONFIDENCE, _FLAW, _SOUND = (
    purpose(f"vote {n}") for n in ("truth", "difficulty", "misled", "vote", "copy", "confidence", "flaw", "sound")
)
_TILT = 0.8  # share of the questions that are as hard as a proposer asks


@dataclass
class VoteState:
    """Yes/no questions answered by votes (W1, V): skill by family and difficulty, and misconceptions that a whole family shares.

        P(vote right) = g·s + (1 − g)/2,   s = skill[family][difficulty], or right_if_misled if the family is misled on the item

    Hidden: truth, difficulty, misled, flawed. Seen: tally, rejected, confidence, first, answer, held, shared, asked. Clones add
    agreement, not information.

    Axes: E episodes, n questions, 2 families, 2 answers (no, yes).
    """

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
    held: np.ndarray  # (E, n, K) int8, each agent's counted answer, -1 without one; K is 0 where workers only report
    held_confidence: np.ndarray  # (E, n, K) what its confidence counts
    shared: np.ndarray  # (E, n, K) bool, that answer is on the board
    asked: np.ndarray  # (E, n) bool, the proposer asks it; n is 0 without a proposer
    flawed: np.ndarray  # (E, n) bool, it has no answer; hidden

    @classmethod
    def start(cls, config: Config, seed: np.ndarray, first_item: int) -> VoteState:
        """Draw the questions of every episode."""
        e, n = len(seed), config.vote_items
        s, items = seed[:, None], np.arange(first_item, first_item + n)[None]
        shares = np.cumsum(config.difficulty_shares)[:-1]
        difficulty = np.searchsorted(shares, uniform(s, _DIFFICULTY, items), side="right").astype(np.int8)
        rate = np.array(config.misconception)[:, difficulty]
        misled = np.stack([uniform(s, _MISLED, items, f) < rate[f] for f in (0, 1)], axis=-1)
        board = (e, n, config.max_agents + 1 if config.acts != "report" else 0)
        flawed = uniform(s, _FLAW, items) < np.array(config.proposal_flaws)[difficulty]
        flawed = flawed if config.proposer else flawed[:, :0]
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
            held=np.full(board, -1, np.int8),
            held_confidence=np.zeros(board),
            shared=np.zeros(board, np.bool_),
            asked=np.ones(flawed.shape, np.bool_),
            flawed=flawed,
        )

    def propose(self, config: Config, seed: np.ndarray, ep: np.ndarray, dials: np.ndarray) -> None:
        """Draw the questions of these episodes again as (how hard, how many) say: four of five of the difficulty that was asked
        for, the others of either of the other two; a third, two thirds or all of them."""
        s, items = seed[ep][:, None], np.arange(self.first_item, self.first_item + config.vote_items)[None]
        shares = np.where(np.eye(DIFFICULTIES, dtype=np.bool_), _TILT, (1 - _TILT) / (DIFFICULTIES - 1)).cumsum(axis=1)[:, :-1]
        difficulty = (uniform(s, _DIFFICULTY, items)[:, :, None] >= shares[dials[:, 0]][:, None]).sum(axis=2)
        rate = np.array(config.misconception)[:, difficulty]
        self.difficulty[ep] = difficulty
        self.misled[ep] = np.stack([uniform(s, _MISLED, items, f) < rate[f] for f in (0, 1)], axis=-1)
        self.flawed[ep] = uniform(s, _FLAW, items) < np.array(config.proposal_flaws)[difficulty]
        self.asked[ep] = np.arange(config.vote_items) < -(-config.vote_items * (1 + dials[:, 1:]) // 3)

    def soundness(self, config: Config, seed: np.ndarray) -> np.ndarray:
        """(E,) the share of the asked questions that judges take for sound, with their errors; without judges the truth."""
        items = np.arange(self.first_item, self.first_item + config.vote_items)[None]
        shares = [
            np.where(self.flawed, u < config.judge_false_accept, u >= config.judge_false_reject)
            for u in (uniform(seed[:, None], _SOUND, items, j) for j in range(config.judges))
        ] or [~self.flawed]
        return (np.mean(shares, axis=0) * self.asked).sum(axis=1) / np.maximum(1, self.asked.sum(axis=1))

    def refusals(self, config: Config, ep: np.ndarray, item: np.ndarray, purpose: np.ndarray) -> np.ndarray:
        """Calls that the state of the item forbids, beyond the limit on their number: none here."""
        return np.zeros(len(ep), np.bool_)

    def look(self, w: Work, what: int = _VOTE, *, gain: np.ndarray | None = None, family: np.ndarray | None = None) -> np.ndarray:
        """What a look of each call gives, drawn for a purpose; with `gain` it is a second one, by another `family` on request."""
        family = w.family if family is None else family
        skill, misled = tables_of(w.config).skill[family, self.difficulty[w.ep, w.item]], self.misled[w.ep, w.item, family]
        if gain is not None:  # a skill below a half would tell less if it were raised
            skill = np.where(gain & (skill >= 0.5), skill + w.config.refine_gain * (1 - skill), skill)
        skill = np.where(misled, w.config.right_if_misled, skill)
        right = w.draw(what) < 0.5 + (skill - 0.5) * w.know
        truth = self.truth[w.ep, w.item]
        return np.where(right, truth, 1 - truth).astype(np.int64)

    def work(self, w: Work) -> Returns:
        """One vote per call."""
        claim = self._copied(w, self.look(w, gain=w.again))
        return Returns(claim, claim == self.truth[w.ep, w.item])

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
        spread = 0.1 * (w.draw(_CONFIDENCE) - 0.5) + 0.02 * right
        return np.clip(tables_of(w.config).mean_skill[w.family] + w.config.overconfidence + spread, 0.5, 0.99)

    def absorb(self, ep: np.ndarray, item: np.ndarray, family: np.ndarray, claim: np.ndarray, confidence: np.ndarray) -> None:
        """Count votes. Several votes on one question in one round are counted in the order given."""
        add_at(self.tally, (ep, item, family, claim), np.int16(1))
        add_at(self.confidence, (ep, item, claim), confidence)
        back = slice(None, None, -1)
        unset = self.first[ep, item] < 0
        # the last assignment wins, so the reversed order leaves the first vote
        self.first[ep[back][unset[back]], item[back][unset[back]]] = claim[back][unset[back]]
        self.note[ep, item] = claim

    def hold(self, t: Mapping[str, np.ndarray]) -> None:
        """Keep counted votes as their agents' answers, and take back what the same agents said before; for workers with acts."""
        ep, item, agent = t["ep"], t["item"], t["agent"]
        old = self.held[ep, item, agent].astype(np.int64)
        had = old >= 0
        where = (ep[had], item[had])
        add_at(self.tally, (*where, t["family"][had], old[had]), np.int16(-1))
        add_at(self.confidence, (*where, old[had]), -self.held_confidence[ep, item, agent][had])
        self.held[ep, item, agent], self.held_confidence[ep, item, agent] = t["claim"], t["confidence"]
        self.shared[ep, item, agent] = t["shared"]

    def worth(self, config: Config) -> np.ndarray:
        """(E, n) points for each answer as it is."""
        right = self.answer == self.truth
        return config.vote_weight * (right & self.asked & ~self.flawed if config.proposer else right)
