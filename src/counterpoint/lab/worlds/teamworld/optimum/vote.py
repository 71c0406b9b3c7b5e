"""The exact optimum of one question: whom to ask next, and when to answer (W1, V).

Always true: the state is the number of yes and no of each family, (yes_A, no_A, yes_B, no_B), with at most `max_votes` in all
(1,001 states at 10). Votes of one family are exchangeable given the latents (truth y, difficulty z, misled_A, misled_B), so that
the counts are sufficient, and the posterior is a sum over these 24 latents:

    P(vote of f is right | z, misled) = g · (right_if_misled if misled else skill[f][z]) + (1 − g) / 2
    value(s) = max( vote_weight · max(P(y=1|s), P(y=0|s)),  max_f [ −price_f − extra + Σ_o P(o|s, f) · value(s + o) ] )

solved backwards in the number of votes. With the critic a call has a third outcome, rejected, and the state counts it too
(8,008 states at 10); a rejection says nothing about y but something about z and the misconceptions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

import numpy as np

from counterpoint.lab.worlds.teamworld import optimum as offers
from counterpoint.lab.worlds.teamworld.config import DIFFICULTIES, Config
from counterpoint.lab.worlds.teamworld.optimum.draft import Offer

STOP, CALL_A, CALL_B = 0, 1, 2


@dataclass(frozen=True)
class VoteTables:
    """What to do with a question, for every count of votes; arrays over the flat index of (yes_A, no_A, yes_B, no_B)."""

    max_votes: int
    posterior: np.ndarray
    """P(y = 1)."""
    stop: np.ndarray
    """Points if no more votes are asked."""
    go_A: np.ndarray
    """Points of one more vote of family A and the best play after it; −inf where no vote is left."""
    go_B: np.ndarray
    value: np.ndarray
    """The larger of stop, go_A and go_B."""
    action: np.ndarray
    """int8: 0 stop, 1 call A, 2 call B."""
    gain: np.ndarray
    """max(go_A, go_B) − stop: what the next call is worth."""
    calls: np.ndarray
    """Expected further calls under `action`."""
    calls_A: np.ndarray
    """Those of family A."""
    calls_B: np.ndarray
    """Those of family B."""
    accuracy: np.ndarray
    """Expected P(right answer) at the end, under `action`."""

    def index(self, yA: np.ndarray | int, nA: np.ndarray | int, yB: np.ndarray | int, nB: np.ndarray | int) -> np.ndarray:
        """The flat index of counts (arrays or numbers)."""
        side = self.max_votes + 1
        return ((np.asarray(yA) * side + nA) * side + yB) * side + nB


@dataclass(frozen=True)
class _Space:
    """All states with `axes` counts that sum to at most m, in the order of that sum."""

    counts: np.ndarray  # (S, axes)
    layers: tuple[int, ...]  # state layers[t]..layers[t+1] has t calls
    after: np.ndarray  # (S, axes): the state with one more of that count; 0 in the last layer


@dataclass(frozen=True)
class _Model:
    """A space with its beliefs."""

    space: _Space
    posterior: np.ndarray  # (S,) P(y = 1)
    chance: np.ndarray  # (S, axes): P(this outcome | state, call of its family)


@lru_cache(maxsize=16)
def _space(axes: int, m: int) -> _Space:
    """Stars and bars: a choice of `axes` bars among m + axes places is a state, its gaps are the counts."""
    bars = np.array(list(combinations(range(m + axes), axes)), dtype=np.int64).reshape(-1, axes)
    counts = np.diff(bars, axis=1, prepend=-1) - 1
    weight = (m + 1) ** np.arange(axes - 1, -1, -1, dtype=np.int64)
    counts = counts[np.lexsort((counts @ weight, counts.sum(axis=1)))]
    total, flat = counts.sum(axis=1), counts @ weight
    layers = tuple(int(x) for x in np.searchsorted(total, np.arange(m + 2)))
    order = np.argsort(flat)
    after = np.zeros_like(counts)
    inner = slice(0, layers[m])
    for axis in range(axes):
        after[inner, axis] = order[np.searchsorted(flat, flat[inner] + weight[axis], sorter=order)]
    return _Space(counts, layers, after)


def _latents(config: Config, g: tuple[float, float], critic: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(prior (L,), is y=1 (L,), P(outcome | latent) (axes, L)); outcomes of A, then of B: yes, no (, rejected)."""
    prior, yes, rows = [], [], []
    for y in (0, 1):
        for z in range(DIFFICULTIES):
            for bits in ((0, 0), (0, 1), (1, 0), (1, 1)):
                weight, row = 0.5 * config.difficulty_shares[z], []
                for f, misled in enumerate(bits):
                    share = config.misconception[f][z]
                    weight *= share if misled else 1 - share
                    right = g[f] * (config.right_if_misled if misled else config.skill[f][z]) + (1 - g[f]) / 2
                    row += _outcomes(config, right, y, critic)
                prior.append(weight)
                yes.append(y == 1)
                rows.append(row)
    return np.array(prior), np.array(yes), np.array(rows).T


def _outcomes(config: Config, right: float, y: int, critic: bool) -> list[float]:
    """Chances of yes, no (and rejected) of a vote that is right with chance `right` when the truth is y."""
    keep, leak = (1 - config.critic_false_reject, config.critic_false_accept) if critic else (1.0, 1.0)
    passed = (right * keep, (1 - right) * leak)
    pair = [passed[0], passed[1]] if y else [passed[1], passed[0]]
    return [*pair, 1 - passed[0] - passed[1]] if critic else pair


@lru_cache(maxsize=64)
def _model(config: Config, g: tuple[float, float], critic: bool, most: int) -> _Model:
    """Bayes' rule in every state: likelihood Π_o P(o|latent)^count(o), times the prior."""
    prior, yes, p = _latents(config, g, critic)
    space = _space(len(p), most)
    joint = np.repeat(prior[None], len(space.counts), axis=0)
    for axis, row in enumerate(p):
        joint *= (row[None] ** np.arange(most + 1)[:, None])[space.counts[:, axis]]
    norm = joint.sum(axis=1)
    safe = np.where(norm > 0, norm, 1.0)
    posterior = np.where(norm > 0, joint[:, yes].sum(axis=1) / safe, 0.5)
    chance = joint @ p.T / safe[:, None]
    return _Model(space, posterior, chance)


def _solve(
    config: Config, offer: Offer, extra: float, limit: tuple[int, int] | None = None, critic: bool = False
) -> tuple[_Model, np.ndarray, np.ndarray]:
    """Backward induction: (model, value (S,), go (S, 2)); `limit` caps the calls of each family."""
    most = config.max_votes if limit is None else min(config.max_votes, sum(limit))
    g = (offer[0][0] if offer[0] else 0.0, offer[1][0] if offer[1] else 0.0)
    model = _model(config, g, critic, most)
    space, width = model.space, 3 if critic else 2
    best = config.vote_weight * np.maximum(model.posterior, 1 - model.posterior)
    go = np.full((len(best), 2), -np.inf)
    for t in range(most - 1, -1, -1):
        rows = slice(space.layers[t], space.layers[t + 1])
        for f, term in offers.single(offer):
            axes = slice(f * width, (f + 1) * width)
            ahead = (model.chance[rows, axes] * best[space.after[rows, axes]]).sum(axis=1) - term[1] - extra
            if critic:
                ahead -= config.critic_price
            if limit is not None:
                ahead[space.counts[rows, axes].sum(axis=1) >= limit[f]] = -np.inf
            go[rows, f] = ahead
        best[rows] = np.maximum(best[rows], go[rows].max(axis=1))
    return model, best, go


def offer_value(config: Config, offer: Offer, extra: float) -> float:
    """The optimum of one question on these terms (with the critic's signal where the topology has one)."""
    return _offer_value(config, offer, extra)


@lru_cache(maxsize=4096)
def _offer_value(config: Config, offer: Offer, extra: float) -> float:
    critic = config.topology == "planner_executor_critic"
    return float(_solve(config, offer, extra, critic=critic)[1][0])


def value(config: Config, b: int, extra: float = 0.0) -> float:
    """Points of one question, asked one vote at a time of either family, at brief b and `extra` points more per call."""
    return float(_solve(config, offers.workers(config, b), extra)[1][0])


def critic_value(config: Config, b: int, extra: float = 0.0) -> float:
    """The same when every vote passes the critic, at `critic_price` a verdict."""
    return float(_solve(config, offers.workers(config, b), extra, critic=True)[1][0])


def panel_value(config: Config, clones: int, independents: int, b: int, extra: float = 0.0) -> float:
    """The same when `clones` agents of A and `independents` of B are there, each for `votes_per_agent` votes at most."""
    limit = (clones * config.votes_per_agent, independents * config.votes_per_agent)
    return float(_solve(config, offers.workers(config, b), extra, limit=limit)[1][0])


@lru_cache(maxsize=64)
def tables(config: Config, b: int, extra: float = 0.0) -> VoteTables:
    """The optimal play of a question in every state, as arrays to look up."""
    model, best, go = _solve(config, offers.workers(config, b), extra)
    space = model.space
    right = np.maximum(model.posterior, 1 - model.posterior)
    stop = config.vote_weight * right
    action = np.where(np.maximum(go[:, 0], go[:, 1]) > stop, np.where(go[:, 0] >= go[:, 1], CALL_A, CALL_B), STOP)
    by_family, accuracy = np.zeros((len(stop), 2)), right.copy()
    for t in range(config.max_votes - 1, -1, -1):
        rows = np.arange(space.layers[t], space.layers[t + 1])
        for f in (0, 1):
            on = rows[action[rows] == 1 + f]
            weight, ahead = model.chance[on, 2 * f : 2 * f + 2], space.after[on, 2 * f : 2 * f + 2]
            by_family[on] = (weight[:, :, None] * by_family[ahead]).sum(axis=1)
            by_family[on, f] += 1
            accuracy[on] = (weight * accuracy[ahead]).sum(axis=1)
    side = config.max_votes + 1
    flat = space.counts @ (side ** np.arange(3, -1, -1))

    def spread(column: np.ndarray, blank: float) -> np.ndarray:
        out = np.full(side**4, blank, dtype=column.dtype)
        out[flat] = column
        out.flags.writeable = False
        return out

    half = config.vote_weight / 2
    return VoteTables(
        config.max_votes,
        spread(model.posterior, 0.5),
        spread(stop, half),
        spread(go[:, 0], -np.inf),
        spread(go[:, 1], -np.inf),
        spread(best, half),
        spread(action.astype(np.int8), STOP),
        spread(go.max(axis=1) - stop, -np.inf),
        spread(by_family.sum(axis=1), 0.0),
        spread(by_family[:, 0], 0.0),
        spread(by_family[:, 1], 0.0),
        spread(accuracy, 0.5),
    )
