"""The five kinds of items: what a call on one does, what is seen of it, and what it is worth when the team stops.

Always true: a kind's state holds arrays whose first axis is the episode; hidden truth and visible evidence are apart (each class
says which is which); `work` draws and `absorb` records, so a return may be delivered later, changed or never.

A draw of a call depends on (seed, purpose, agent's spawn path, item, attempt of this agent at this item), so no other call, agent
or item can shift it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import exp, lgamma, log

import numpy as np

from counterpoint.lab.worlds.teamworld.action import ANSWER, NEXT, VERIFY
from counterpoint.lab.worlds.teamworld.config import Config
from counterpoint.lab.worlds.teamworld.questions import VoteState
from counterpoint.lab.worlds.teamworld.work import Returns, Work
from counterpoint.trace.keyed import bits, mixed, purpose, uniform

# -- pools to search (w2) ----------------------------------------------------------------------------------------------

_COUNT, _FIND = purpose("pool count"), purpose("pool find")


@lru_cache(maxsize=64)
def _cumulative(mean: float, shape: float, slots: int) -> np.ndarray:
    """P(M <= m) for m = 0 .. slots-1."""
    if mean == 0:
        return np.ones(slots)
    if shape == 0:
        mass = [exp(m * log(mean) - mean - lgamma(m + 1)) for m in range(slots)]
    else:
        p = shape / (shape + mean)
        mass = [
            exp(lgamma(shape + m) - lgamma(shape) - lgamma(m + 1) + shape * log(p) + m * log(mean / (shape + mean)))
            for m in range(slots)
        ]
    return np.cumsum(mass)


@dataclass
class PoolState:
    """Pools to search (W2): nobody knows how many relevant finds are hidden, so when to stop is the question.

        M = min(slots, Poisson(γ)),  γ ~ Gamma(shape, mean)  (a negative binomial), or Poisson alone when the shape is 0
        a call finds each hidden find with pool_find[family]·g

    Hidden: present. Seen: found.

    Axes: E episodes, n pools, M slots for finds.
    """

    first_item: int
    present: np.ndarray  # (E, n, M) bool
    found: np.ndarray  # (E, n, M) bool
    news: np.ndarray  # (E, n) finds of the last round in which something came back
    callers: np.ndarray  # (E, n, calls) int16

    @classmethod
    def start(cls, config: Config, seed: np.ndarray, first_item: int) -> PoolState:
        """Draw how much each pool hides."""
        e, n, m = len(seed), config.pool_items, config.pool_slots
        u = uniform(seed[:, None], _COUNT, np.arange(first_item, first_item + n)[None])
        count = np.searchsorted(_cumulative(config.pool_mean, config.pool_shape, m), u, side="right")
        return cls(
            first_item=first_item,
            present=np.arange(m) < count[:, :, None],
            found=np.zeros((e, n, m), np.bool_),
            news=np.zeros((e, n), np.int64),
            callers=np.full((e, n, config.pool_calls), -1, np.int16),
        )

    def refusals(self, config: Config, ep: np.ndarray, item: np.ndarray, purpose: np.ndarray) -> np.ndarray:
        """Calls that the state of the item forbids: none here."""
        return np.zeros(len(ep), np.bool_)

    def work(self, w: Work) -> Returns:
        """Search: each find that is hidden still, each with its own draw."""
        base = (w.draw(_FIND) * 2.0**53).astype(np.uint64)
        u = (mixed(base[:, None], np.arange(w.config.pool_slots)[None]) >> np.uint64(11)).astype(np.float64) * 2.0**-53
        chance = np.array(w.config.pool_find)[w.family] * w.know
        hidden = self.present[w.ep, w.item] & ~self.found[w.ep, w.item]
        finds = hidden & (u < chance[:, None])
        claim = finds.sum(axis=1)
        return Returns(claim, claim > 0, finds)

    def absorb(self, ep: np.ndarray, item: np.ndarray, finds: np.ndarray) -> None:
        """Join what was found; finds of several calls are counted once."""
        before = self.found[ep, item].sum(axis=1)
        np.logical_or.at(self.found, (ep, item), finds)
        self.news[ep, item] = self.found[ep, item].sum(axis=1) - before

    def worth(self, config: Config) -> np.ndarray:
        """(E, n) points for what was found in each."""
        return config.pool_weight * self.found.sum(axis=2)


# -- drafts that improve and then rot (a) ------------------------------------------------------------------------------

_STEP, _HAZARD = purpose("draft step"), purpose("draft hazard")


@dataclass
class DraftState:
    """Drafts that improve and then rot (A): a level that is seen, a soundness that is not, so patience is the art.

        sound: level +1 with draft_gain[family]·g, then rotten with draft_hazard;   rotten: level −1 with draft_loss

    Hidden: sound, level. Seen: shown (the level last returned), zeros (calls since the last gain), lost (a loss was seen).

    Axes: E episodes, n drafts.
    """

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


# -- chains of hops (d) ------------------------------------------------------------------------------------------------

_HOP = purpose("chain call")


@dataclass
class ChainState:
    """Chains of hops (D): each needs the last, so nothing runs in parallel and one wrong hop spoils the rest.

        an attempt at a hop is right with hop_right[family]·g; a check passes a right one with 1 − check_false_reject, a wrong one
        with check_false_accept

    Hidden: right, sound (all accepted attempts right). Seen: hop, has (an attempt is there), passes, fails, attempts, history.

    Axes: E episodes, n chains.
    """

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
        is_right = u < np.array(w.config.hop_right)[w.family] * w.know
        passed = u < np.where(right, 1 - w.config.check_false_reject, w.config.check_false_accept)
        is_check = w.purpose == VERIFY
        claim = np.where(is_check, passed, True).astype(np.int64)
        return Returns(claim, np.where(is_check, passed == right, is_right))

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


# -- nodes of a project (p) --------------------------------------------------------------------------------------------

_ORDER, _EXTRA, _CROSS, _NODE = (purpose(f"node {n}") for n in ("order", "extra", "cross", "work"))


def _projects(config: Config, seed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(needs (E, n, n) bool: node, what it needs), module (E, n); node numbers are shuffled so that they tell nothing."""
    modules, size = config.node_modules, config.node_module_size
    n = modules * size
    module, place = np.divmod(np.arange(n), size)
    later = (module[:, None] == module[None]) & (place[:, None] > place[None])
    path = later & (place[:, None] == place[None] + 1)
    pairs = np.arange(n)[:, None] * n + np.arange(n)[None]
    needs = path | (later & (uniform(seed[:, None, None], _EXTRA, pairs[None]) < config.node_extra_edges))
    could = (module[:, None] != module[None]) & (place[:, None] > place[None])
    rank = np.where(could, uniform(seed[:, None, None], _CROSS, pairs[None]), 2.0).reshape(len(seed), n * n)
    count = min(config.node_cross_edges, int(could.sum()))
    if count:
        chosen = np.argpartition(rank, count - 1, axis=1)[:, :count]
        flat = needs.reshape(len(seed), n * n)
        np.put_along_axis(flat, chosen, True, axis=1)
        needs = flat.reshape(len(seed), n, n)
    order = np.argsort(bits(seed[:, None], _ORDER, np.arange(n)[None]), axis=1)
    rows = np.arange(len(seed))[:, None, None]
    return needs[rows, order[:, :, None], order[:, None, :]], module[order]


@dataclass
class NodeState:
    """Nodes of a project (P): a graph of dependencies with planted modules; what is cut between two agents may not fit.

        P(node right) = node_right[family]·g · (1 − interface_loss[brief]) ^ (dependencies done by somebody else)

    Hidden: right, module. Seen: needs (the dependencies), done, by.

    Axes: E episodes, n nodes.
    """

    first_item: int
    module: np.ndarray  # (E, n)
    right: np.ndarray  # (E, n) bool
    needs: np.ndarray  # (E, n, n) bool
    done: np.ndarray  # (E, n) bool
    by: np.ndarray  # (E, n) slot, -1
    callers: np.ndarray  # (E, n, calls) int16

    @classmethod
    def start(cls, config: Config, seed: np.ndarray, first_item: int) -> NodeState:
        """Draw the project."""
        needs, module = _projects(config, seed)
        shape = module.shape
        no = lambda: np.zeros(shape, np.bool_)  # noqa: E731
        callers = np.full((*shape, config.node_calls), -1, np.int16)
        return cls(first_item, module, no(), needs, no(), np.full(shape, -1, np.int64), callers)

    def refusals(self, config: Config, ep: np.ndarray, item: np.ndarray, purpose: np.ndarray) -> np.ndarray:
        """Nodes that are done already, or that need something that is not."""
        blocked = (self.needs[ep, item] & ~self.done[ep]).any(axis=1)
        return blocked | self.done[ep, item]

    def work(self, w: Work) -> Returns:
        """One node per call: the claim is 1, done; whether it fits is not seen."""
        needs = self.needs[w.ep, w.item]
        foreign = (needs & (self.by[w.ep] != w.agent[:, None])).sum(axis=1)
        fits = (1 - np.array(w.config.interface_loss))[w.brief] ** foreign
        right = w.draw(_NODE) < np.array(w.config.node_right)[w.family] * w.know * fits
        return Returns(np.ones(len(w.ep), np.int64), right)

    def absorb(self, ep: np.ndarray, item: np.ndarray, agent: np.ndarray, right: np.ndarray) -> None:
        """Take delivered nodes."""
        self.right[ep, item], self.done[ep, item], self.by[ep, item] = right, True, agent

    def worth(self, config: Config) -> np.ndarray:
        """(E, n) points for each node, if done and right."""
        return config.node_weight * (self.right & self.done)


# -- all of them -------------------------------------------------------------------------------------------------------

KindState = VoteState | PoolState | DraftState | ChainState | NodeState
KIND_STATES: dict[str, type[KindState]] = {
    "vote": VoteState,
    "pool": PoolState,
    "draft": DraftState,
    "chain": ChainState,
    "node": NodeState,
}


@dataclass
class KindStates:
    """The state of each kind that has items."""

    vote: VoteState | None = None
    pool: PoolState | None = None
    draft: DraftState | None = None
    chain: ChainState | None = None
    node: NodeState | None = None

    def present(self) -> list[tuple[str, KindState]]:
        """The kinds that have items, in the order of items."""
        return [(name, state) for name in KIND_STATES if (state := getattr(self, name)) is not None]
