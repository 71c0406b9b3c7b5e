"""How many agents a team policy spawns, of which family and type, and what a call's time costs then.

Always true: the size comes from the bound's plan (how many agents make the bound largest), changed only by the named way of
spawning; specialists are split over types as the items are.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np

from counterpoint.envs.teamworld.action import Spawns
from counterpoint.envs.teamworld.config import Config
from counterpoint.envs.teamworld.observation import Observation
from counterpoint.envs.teamworld.optimum import bound, chain, draft, pool, vote

_SPAN = 8  # workers under a lead, in a hierarchical team


@dataclass(frozen=True)
class Size:
    """A team to be."""

    config: Config
    families: tuple[int, int]
    """Agents of A and of B."""
    extra: float
    """Points per call that a round's time amounts to."""
    briefs: tuple[int, ...]
    """The plan's size of brief, by kind."""
    leads: int = 0

    @property
    def waves(self) -> int:
        """Rounds in which agents are spawned."""
        return 0 if not sum(self.families) else 2 if self.leads else 1

    def orders(self, obs: Observation) -> Spawns:
        """What to spawn in this round: leads first, then workers, split over types as the items are."""
        if self.leads and obs.round == 0:
            return Spawns.of(np.flatnonzero(obs.running), self.leads, 1, 0, 0)
        share = np.stack([(obs.item_type == t).sum(axis=1) for t in range(self.config.types)], axis=1).astype(np.float64)
        orders = []
        for family, number in enumerate(self.families):
            numbers = _split(number, share / share.sum(axis=1, keepdims=True))
            orders += [(np.arange(obs.episodes), numbers[:, t], family, t) for t in range(self.config.types)]
        parts = [self._under_leads(obs, *order) for order in orders]
        joined = [np.concatenate([getattr(p, n) for p in parts]) for n in ("ep", "number", "family", "type", "parent")]
        return _within(obs, Spawns(*(column[obs.running[joined[0]]] for column in joined)))

    def _under_leads(self, obs: Observation, ep: np.ndarray, number: np.ndarray, family: int, kind: int) -> Spawns:
        """The workers of one kind, shared out over the leads that are there; under the orchestrator where none is."""
        leads = obs.alive & (obs.depth == 1)
        count = leads.sum(axis=1)[ep]
        if not self.leads or not count.any():
            return Spawns.of(ep, number, family, kind)
        order = np.argsort(~leads, axis=1, kind="stable")
        most = int(count.max())
        each = np.stack([number // np.maximum(1, count) + (lead < number % np.maximum(1, count)) for lead in range(most)], axis=1)
        each[np.arange(most) >= count[:, None]] = 0
        each[count == 0, 0] = number[count == 0]
        at, lead = np.nonzero(each)
        parent = np.where(count[at] == 0, 0, order[ep[at], lead])
        return Spawns.of(ep[at], each[at, lead], family, kind, parent)


def _within(obs: Observation, s: Spawns) -> Spawns:
    """The orders, cut where they would pass the limit of agents."""
    by_ep = np.argsort(s.ep, kind="stable")
    ep, number = s.ep[by_ep], s.number[by_ep]
    total = np.cumsum(number)
    before = total - number
    first = np.searchsorted(ep, ep)
    room = (obs.config.max_agents - obs.spawned)[ep] - (before - before[first] if len(ep) else before)
    cut = np.clip(np.minimum(number, room), 0, None)
    return Spawns.of(ep, cut, s.family[by_ep], s.type[by_ep], s.parent[by_ep])


def _split(number: int, share: np.ndarray) -> np.ndarray:
    """(E, types) whole numbers that sum to `number`, by largest remainder; every type that has items gets one if it can."""
    exact = number * share
    low = np.floor(exact).astype(np.int64)
    if number >= share.shape[1]:
        low = np.maximum(low, (share > 0).astype(np.int64))
    while (over := low.sum(axis=1) - number).max(initial=0) > 0:
        rows = np.flatnonzero(over > 0)
        low[rows, np.argmax(low[rows] - exact[rows], axis=1)] -= 1
    while (under := number - low.sum(axis=1)).max(initial=0) > 0:
        rows = np.flatnonzero(under > 0)
        low[rows, np.argmax(exact[rows] - low[rows], axis=1)] += 1
    return low


def _families(config: Config, briefs: tuple[int, ...], extra: float) -> np.ndarray:
    """Expected calls of family A and of B, for the best play of every kind."""
    calls = np.zeros(2)
    if config.vote_items:
        t = vote.tables(config, briefs[0], extra)
        calls += config.vote_items * np.array([t.calls_A[0], t.calls_B[0]])
    if config.pool_items:
        g, words = config.brief_factor[briefs[1]], config.brief_price * briefs[1]
        worth = [
            pool.fixed_value(config, p * g, config.price[f] + words + extra, config.pool_calls)
            for f, p in enumerate(config.pool_find)
        ]
        calls[int(np.argmax(worth))] += config.pool_items * config.pool_calls / 2
    if config.draft_items:
        calls[draft.rule(config, briefs[2], extra).family] += config.draft_items * config.draft_calls / 2
    if config.chain_items:
        calls[chain.decide(config, False, briefs[3], extra).family] += config.chain_items * config.chain_hops
    if config.counts[4]:
        g = config.brief_factor[briefs[4]]
        calls[int(np.argmax([config.node_weight * config.node_right[f] * g - config.price[f] for f in (0, 1)]))] += config.counts[
            4
        ]
    return calls


def team_size(config: Config, spawn: str, *, cheap: bool, alone: bool) -> Size:
    """The team that a way of spawning gives; `alone` spawns one where the plan spawns nobody."""
    best = bound.plan(config)
    is_panel = config.votes_per_agent < config.max_votes and config.vote_items == config.items
    if is_panel:
        _, clones, independents, brief = bound.panel(config)
        families = np.array([clones, independents])
        briefs: tuple[int, ...] = (brief, 2, 2, 2, 2)
        number = clones + independents
    else:
        number, briefs = best.agents, best.briefs if best.agents else (2,) * len(best.briefs)
        families = _families(config, briefs, best.extra)
    least = 0 if config.orchestrator_works and not alone else 1
    changed = {"plan": number, "serial": least, "all": config.max_agents, "quarter": ceil(number / 4), "fourfold": 4 * number}[
        spawn
    ]
    number = min(config.max_agents, max(least if number or alone or spawn != "plan" else 0, changed))
    if not families.sum():
        families = np.array([0, 1])
    mix = (number, 0) if cheap else tuple(int(v) for v in _split(number, (families / families.sum())[None])[0])
    workers = max(1, number + config.orchestrator_works)
    extra = config.round_price / (workers * config.calls_per_round)
    leads = (
        ceil(number / _SPAN)
        if config.topology == "hierarchical" and config.max_depth > 1 and number + ceil(number / _SPAN) <= config.max_agents
        else 0
    )
    return Size(config, (mix[0], mix[1]), extra, briefs, leads)
