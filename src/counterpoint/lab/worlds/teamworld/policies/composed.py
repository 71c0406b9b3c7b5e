"""A team policy in five parts, one per sub-decision; a planted error is one part exchanged for a wrong one.

Always true: parts not named are the reference's. The reference spawns what the bound's plan says, matches specialists to items,
briefs with the best size, aggregates by correlation-aware Bayes, and asks for another vote while it is worth its price; it
stops when nothing is, or when what is left is not worth one more round.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from math import ceil

import numpy as np

from counterpoint.lab.worlds.teamworld import action as do
from counterpoint.lab.worlds.teamworld.action import VERIFY, Action, Calls, Spawns, rule
from counterpoint.lab.worlds.teamworld.config import KINDS, Config
from counterpoint.lab.worlds.teamworld.observation import Observation
from counterpoint.lab.worlds.teamworld.optimum import bound, chain, draft, pool, vote
from counterpoint.lab.worlds.teamworld.policies._assign import builders, matched, panel, searchers

# -- What to call next, kind by kind ----------------------------------------------------------------------------------
# A priority for every item (−inf: leave it), the family to call, and the purpose.
#
# Always true: these functions read what is seen and tables computed in advance. "optimal" play follows the exact tables of
# `optimum/`; "plain" play is the rule of thumb beside it. A question's play is optimal in both.

Want = tuple[np.ndarray, np.ndarray, np.ndarray]
"""(priority, family, purpose), each (E, n)."""


@dataclass(frozen=True)
class Wishes:
    """What the wishes rest on."""

    extra: float
    """Points per call that time costs."""
    brief: tuple[int, ...]
    """By kind."""
    play: str
    """"optimal" or "plain"."""
    cap: int
    """Calls per item, for everybody alike; 0 without a cap."""


def _by_cap(calls: np.ndarray, ready: np.ndarray, cap: int) -> np.ndarray:
    return np.where(ready & (calls < cap), 100.0 - calls, -np.inf)


def next_vote(obs: Observation, wishes: Wishes) -> Want:
    """Call while the next vote is worth its price; first what will take longest."""
    view = obs.of("vote")
    at = slice(view.first_item, view.first_item + obs.config.vote_items)
    if wishes.cap:
        t = vote.tables(obs.config, wishes.brief[0], wishes.extra)
        family = np.full(view.answer.shape, int(np.argmax([t.go_A[0], t.go_B[0]])))
        return _by_cap(obs.calls[:, at], obs.ready[:, at], wishes.cap), family, np.zeros_like(family)
    wanted, whom = _vote_wants(obs.config, wishes.brief[0], wishes.extra)
    state = vote_state(obs)
    family = whom.take(state)
    return np.where(obs.ready[:, at], wanted.take(state), -np.inf), family, np.zeros_like(family)


@lru_cache(maxsize=64)
def _vote_wants(config: Config, brief: int, extra: float) -> tuple[np.ndarray, np.ndarray]:
    """(priority, family) in every state of a question."""
    t = vote.tables(config, brief, extra)
    return np.where(t.action > 0, 1.0 + t.calls, -np.inf), np.where(t.action == 0, -1, t.action - 1)


def vote_state(obs: Observation) -> np.ndarray:
    """(E, n) the state of every question, as the tables count them; worked out once for an observation."""
    view = obs.of("vote")
    if not hasattr(view, "state"):
        tally, side = view.tally, obs.config.max_votes + 1
        view.state = tally[:, :, 0, 1].astype(np.int64)
        for column in (tally[:, :, 0, 0], tally[:, :, 1, 1], tally[:, :, 1, 0]):
            view.state *= side
            view.state += column
    return view.state


def next_pool(obs: Observation, wishes: Wishes) -> Want:
    """Search on while a call is worth its price. Plain: while the last round found more than its calls cost."""
    view, c = obs.of("pool"), obs.config
    at = slice(view.first_item, view.first_item + c.pool_items)
    ready, calls = obs.ready[:, at], obs.calls[:, at]
    family = np.full(calls.shape, _pool_family(obs, wishes))
    zeros = np.zeros_like(family)
    if wishes.cap:
        return np.where(ready & (calls < wishes.cap), 0.5, -np.inf), family, zeros
    price = c.price[int(family.flat[0])] + wishes.extra + c.brief_price * wishes.brief[1]
    if wishes.play == "optimal":
        table = pool.rule(c, wishes.brief[1], wishes.extra, int(family.flat[0]))
        go = table[np.minimum(calls, c.pool_calls - 1), np.minimum(view.count, c.pool_slots)]
    else:
        team = np.maximum(1, obs.alive.sum(axis=1) - 1)[:, None]
        go = (calls < 3 * team) | (c.pool_weight * view.news > price * team)
    return np.where(ready & go, 0.5, -np.inf), family, zeros


def _pool_family(obs: Observation, wishes: Wishes) -> int:
    c = obs.config
    g = c.brief_factor[wishes.brief[1]]
    worth = [
        pool.fixed_value(c, p * g, c.price[f] + c.brief_price * wishes.brief[1] + wishes.extra, c.pool_calls)
        for f, p in enumerate(c.pool_find)
    ]
    return int(np.argmax(worth))


def next_draft(obs: Observation, wishes: Wishes) -> Want:
    """Revise until patience runs out; never after a seen loss. Plain: a patience of four."""
    view, c = obs.of("draft"), obs.config
    at = slice(view.first_item, view.first_item + c.draft_items)
    ready, calls = obs.ready[:, at], obs.calls[:, at]
    rule = draft.rule(c, wishes.brief[2], wishes.extra, c.orchestrator_works)
    family = np.full(calls.shape, rule.family)
    if wishes.cap:
        return _by_cap(calls, ready, wishes.cap), family, np.zeros_like(family)
    if wishes.play == "optimal":
        go = rule.go[(view.shown > 0).astype(np.int64), np.minimum(calls, c.draft_calls), np.minimum(view.zeros, c.draft_calls)]
    else:
        go = (view.zeros < 4) & (rule.value > 0)
    return np.where(ready & go & ~view.lost, 5.0, -np.inf), family, np.zeros_like(family)


def next_chain(obs: Observation, wishes: Wishes) -> Want:
    """Attempt, verify, redo or go on. Plain: one check per attempt, redo what fails it."""
    view, c = obs.of("chain"), obs.config
    at = slice(view.first_item, view.first_item + c.chain_items)
    ready = obs.ready[:, at]
    table = chain.decide(c, c.orchestrator_works, wishes.brief[3], wishes.extra)
    family = np.full(view.hop.shape, table.family)
    last = view.hop == c.chain_hops - 1
    if wishes.cap or wishes.play != "optimal":
        checks = min(wishes.cap - 1 if wishes.cap else 1, c.hop_checks)
        redo = (view.fails > 0) & (view.attempts < c.hop_attempts)
        verify = (view.passes + view.fails < checks) & (view.fails == 0)
        act = np.where(~view.has | redo, chain.ANSWER, np.where(verify, chain.VERIFY, np.where(last, chain.STOP, chain.NEXT)))
    else:
        index = np.zeros(view.hop.shape, np.int64)
        for h in range(c.chain_hops - 1):
            code = view.history[:, :, h]
            index = np.where(
                code >= 0, table.after[index, table.local[np.maximum(code, 0) // 16, np.maximum(code, 0) % 16]], index
            )
        local = table.local[view.passes, view.fails]
        act = np.where(view.has, table.action[index, np.maximum(view.attempts - 1, 0), local], table.first)
    purpose = np.select([act == chain.VERIFY, act == chain.NEXT], [do.VERIFY, do.NEXT], do.ANSWER)
    return np.where(ready & (act != chain.STOP), 10.0, -np.inf), family, purpose


def next_node(obs: Observation, wishes: Wishes) -> Want:
    """Build what is ready, the longest unbuilt paths first."""
    view, c = obs.of("node"), obs.config
    at = slice(view.first_item, view.first_item + c.counts[4])
    g = c.brief_factor[wishes.brief[4]]
    family = int(np.argmax([c.node_weight * c.node_right[f] * g - c.price[f] for f in (0, 1)]))
    wanted = (view.needs & ~view.done[:, :, None]).sum(axis=1)
    shape = view.done.shape
    return np.where(obs.ready[:, at], 1.0 + wanted, -np.inf), np.full(shape, family), np.zeros(shape, np.int64)


NEXT: dict[str, Callable[[Observation, Wishes], Want]] = {
    "vote": next_vote,
    "pool": next_pool,
    "draft": next_draft,
    "chain": next_chain,
    "node": next_node,
}


_SPAN = 8  # workers under a lead, in a hierarchical team


@dataclass(frozen=True)
class Size:
    """A team to be: how many agents, of which family and type, and what a call's time costs then.

    The size comes from the bound's plan (how many agents make the bound largest), changed only by the named way of spawning;
    specialists are split over types as the items are.
    """

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


def _wanted(config: Config, spawn: str, plan: int, least: int) -> int:
    """Agents that a way of spawning asks for, where the bound's plan has `plan` of them; the ways are those of `Parts.spawn`."""
    if spawn.endswith("/item"):
        return round(float(spawn.removesuffix("/item")) * config.items)
    if spawn.isdigit():
        return int(spawn)
    ways = {"plan": plan, "serial": least, "all": config.max_agents, "quarter": ceil(plan / 4), "fourfold": 4 * plan}
    return ways[spawn]


def team_size(config: Config, spawn: str, *, only: int | None, alone: bool) -> Size:
    """The team that a way of spawning gives, of the family `only` where one is named; `alone` spawns one where the plan spawns
    nobody."""
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
    changed = _wanted(config, spawn, number, least)
    number = min(config.max_agents, max(least if number or alone or spawn != "plan" else 0, changed))
    if not families.sum():
        families = np.array([0, 1])
    if only is not None:
        families = np.array([only == 0, only == 1], np.int64)
    mix = tuple(int(v) for v in _split(number, (families / families.sum())[None])[0])
    workers = max(1, number + config.orchestrator_works)
    extra = config.round_price / (workers * config.calls_per_round)
    leads = (
        ceil(number / _SPAN)
        if config.topology == "hierarchical" and config.max_depth > 1 and number + ceil(number / _SPAN) <= config.max_agents
        else 0
    )
    return Size(config, (mix[0], mix[1]), extra, briefs, leads)


_ONLY = {"cheap": 0, "dear": 1}


@dataclass(frozen=True)
class Parts:
    """How each sub-decision is taken."""

    spawn: str = "plan"
    """O1: "plan", "serial" (one at most), "all" (as many as may be), "quarter" or "fourfold" of the plan, "8" (that many),
    "0.5/item" (by the size of the task)."""
    delegate: str = "matched"
    """O2: "matched" (by type and family), "by_type" or "by_family" alone, "blind" (whoever is free), "cheap" (family A only),
    "dear" (family B only), "others" (never the orchestrator itself)."""
    brief: int = -1
    """O3: size of every brief; -1 is the plan's."""
    broadcast: bool = False
    """O3: read all returns to everybody."""
    aggregate: str = "bayes"
    """O4: a rule."""
    cap: int = 0
    """O5: that many calls on every item, whatever comes back; 0 asks while it is worth it."""
    rounds: int = 0
    """O5: stop after that many rounds; 0 does not."""
    play: str = "plain"
    """How pools, drafts and chains are played: "plain" rules of thumb, or "optimal" by the exact tables."""


class ComposedPolicy:
    """A policy made of parts."""

    def __init__(self, config: Config, parts: Parts, name: str) -> None:
        self.config, self.parts, self.name = config, parts, name

    @cached_property
    def size(self) -> Size:
        """How many agents, for whom time costs how much per call."""
        delegate = self.parts.delegate
        return team_size(self.config, self.parts.spawn, only=_ONLY.get(delegate), alone=delegate in ("others", "cheap"))

    @cached_property
    def wishes(self) -> Wishes:
        """What the wishes for calls rest on."""
        brief = self.size.briefs if self.parts.brief < 0 else (self.parts.brief,) * len(KINDS)
        return Wishes(self.size.extra, brief, self.parts.play, self.parts.cap)

    def act(self, obs: Observation) -> Action:
        """Spawn first; then call what is worth it until nothing is."""
        go = np.zeros(obs.episodes, np.bool_)
        action = Action(stop=go, rule=np.full(obs.episodes, rule(self.parts.aggregate)))
        if obs.round < self.size.waves:
            spawns = self.size.orders(obs)
            if len(spawns):
                return replace(action, spawns=spawns)
        return self.work(obs, action)

    def work(self, obs: Observation, action: Action) -> Action:
        """The action with calls of what is worth it, or a stop where nothing is."""
        priority, family, purpose = self._wants(obs)
        wanted = (priority > -np.inf).any(axis=1)
        stop = obs.running & ~wanted
        if self.parts.rounds:
            stop |= obs.running & (obs.round >= self.parts.rounds)
        elif not self.parts.cap:
            stop |= obs.running & self._not_worth_a_round(obs, priority)
        priority[stop | ~obs.running] = -np.inf
        calls = self._calls(obs, priority, family, purpose)
        called = np.bincount(calls.ep, minlength=obs.episodes) > 0
        stop |= obs.running & ~called
        flags = np.full(obs.episodes, self.parts.broadcast) & ~stop
        return replace(
            action, stop=stop, calls=calls, broadcast=flags, full_return=np.full(obs.episodes, self.parts.aggregate == "weighted")
        )

    def _wants(self, obs: Observation) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        parts = [NEXT[kind](obs, self.wishes) for kind in KINDS if obs.of(kind) is not None]
        columns = parts[0] if len(parts) == 1 else [np.concatenate(column, axis=1) for column in zip(*parts, strict=True)]
        priority, family, purpose = columns
        if 0 in self.size.families:  # who is not there cannot be asked
            family = np.full_like(family, int(self.size.families[0] == 0))
        return priority.astype(np.float64, copy=False), family, purpose

    def _not_worth_a_round(self, obs: Observation, priority: np.ndarray) -> np.ndarray:
        """(E,) only questions are wanted, and all that their next votes are worth, time apart, is less than a round."""
        view = obs.of("vote")
        if view is None or not obs.config.round_price:
            return np.zeros(obs.episodes, np.bool_)
        n = obs.config.vote_items
        t = vote.tables(obs.config, self.wishes.brief[0], 0.0)
        gain = np.where(priority[:, :n] > -np.inf, t.gain.take(vote_state(obs)), 0.0).sum(axis=1)
        return (gain < obs.config.round_price) & ~(priority[:, n:] > -np.inf).any(axis=1)

    def _calls(self, obs: Observation, priority: np.ndarray, family: np.ndarray, purpose: np.ndarray) -> Calls:
        free, delegate, parts = obs.free.copy(), self.parts.delegate, []
        by = {"by_type": delegate not in ("blind", "by_family"), "by_family": delegate not in ("blind", "by_type")}
        if delegate in ("others", "cheap"):
            free[:, 0] = False
        if obs.of("node") is not None:
            parts += builders(obs, priority, free, blind=delegate == "blind")
        apart = (obs.kind == KINDS.index("pool")) | (obs.kind == KINDS.index("node"))
        first = np.where(apart, -np.inf, priority)
        if obs.of("vote") is not None and obs.config.votes_per_agent < obs.config.max_votes:
            n = obs.config.vote_items
            parts += panel(obs, first[:, :n], family[:, :n], free)
            first[:, :n] = -np.inf
        parts += matched(obs, first, family, free, **by)
        if obs.of("pool") is not None:
            parts += searchers(obs, priority, family, free, **by)
        ep, item, agent = (np.concatenate(column) for column in zip(*parts, strict=True))
        brief = np.array(self.wishes.brief)[obs.kind[item]]
        return Calls.of(ep, item, agent, np.where(purpose[ep, item] == VERIFY, 0, brief), purpose[ep, item])
