"""Chains of hops (D): each needs the last, so nothing runs in parallel and one wrong hop spoils the rest.

    an attempt at a hop is right with hop_right[family]·g; a check passes a right one with 1 − check_false_reject, a wrong one
    with check_false_accept

Hidden: right, sound (all accepted attempts right). Seen: hop, has (an attempt is there), passes, fails, attempts, history.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from counterpoint.envs.keyed import purpose
from counterpoint.envs.teamworld.action import ANSWER, NEXT, VERIFY
from counterpoint.envs.teamworld.config import Config
from counterpoint.envs.teamworld.work import Returns, Work

_HOP = purpose("chain call")


@dataclass
class ChainState:
    """Axes: E episodes, n chains."""

    first_item: int
    right: np.ndarray  # (E, n) bool, the present attempt
    sound: np.ndarray  # (E, n) bool, all accepted ones
    hop: np.ndarray  # (E, n)
    has: np.ndarray  # (E, n) bool
    attempts: np.ndarray  # (E, n) at this hop
    passes: np.ndarray  # (E, n) of the present attempt
    fails: np.ndarray  # (E, n)
    history: np.ndarray  # (E, n, hops) int8: passes·16 + fails of each accepted attempt, -1 where there is none yet
    callers: np.ndarray  # (E, n, calls) int16

    @classmethod
    def start(cls, config: Config, seed: np.ndarray, first_item: int) -> ChainState:
        """Every chain before its first hop."""
        shape = (len(seed), config.chain_items)
        no, zero = (lambda: np.zeros(shape, np.bool_)), (lambda: np.zeros(shape, np.int64))
        calls = config.chain_hops * config.hop_attempts * (1 + config.hop_checks)
        callers = np.full((*shape, calls), -1, np.int16)
        return cls(
            first_item,
            no(),
            np.ones(shape, np.bool_),
            zero(),
            no(),
            zero(),
            zero(),
            zero(),
            np.full((*shape, config.chain_hops), -1, np.int8),
            callers,
        )

    def refusals(self, config: Config, ep: np.ndarray, item: np.ndarray, purpose: np.ndarray) -> np.ndarray:
        """Attempts beyond the limit, checks of nothing or beyond the limit, a next hop that is not there."""
        has, hop = self.has[ep, item], self.hop[ep, item]
        attempts, checks = self.attempts[ep, item], (self.passes + self.fails)[ep, item]
        return (
            ((purpose == ANSWER) & (attempts >= config.hop_attempts))
            | ((purpose == VERIFY) & (~has | (checks >= config.hop_checks)))
            | ((purpose == NEXT) & (~has | (hop + 1 >= config.chain_hops)))
        )

    def work(self, w: Work) -> Returns:
        """Attempts and checks. The claim is 1 for an attempt made or a check passed, 0 for a check failed."""
        u, right = w.draw(_HOP), self.right[w.ep, w.item]
        made = u < np.array(w.config.hop_right)[w.family] * w.know
        passed = u < np.where(right, 1 - w.config.check_false_reject, w.config.check_false_accept)
        is_check = w.purpose == VERIFY
        claim = np.where(is_check, passed, True).astype(np.int64)
        return Returns(claim, np.where(is_check, passed == right, made))

    def absorb(self, ep: np.ndarray, item: np.ndarray, claim: np.ndarray, right: np.ndarray, purpose: np.ndarray) -> None:
        """Take a delivered attempt or verdict; going to the next hop accepts the attempt before."""
        check = purpose == VERIFY
        self.passes[ep[check], item[check]] += claim[check]
        self.fails[ep[check], item[check]] += 1 - claim[check]
        onward = purpose == NEXT
        e, i = ep[onward], item[onward]
        self.sound[e, i] &= self.right[e, i]
        self.history[e, i, self.hop[e, i]] = 16 * self.passes[e, i] + self.fails[e, i]
        self.hop[e, i] += 1
        self.attempts[e, i] = 0
        e, i = ep[~check], item[~check]
        self.right[e, i], self.has[e, i] = right[~check], True
        self.attempts[e, i] += 1
        self.passes[e, i] = self.fails[e, i] = 0

    def worth(self, config: Config) -> np.ndarray:
        """(E, n) points for each chain, if it is finished and right throughout."""
        finished = self.has & (self.hop == config.chain_hops - 1)
        return config.chain_weight * (finished & self.right & self.sound)
