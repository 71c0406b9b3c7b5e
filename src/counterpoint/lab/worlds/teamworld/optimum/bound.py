"""The optimum of a whole world from the optima of its items.

Always true: everything the world takes away (wrong specialist, worn context, drift, lossy topologies, attacks) is
left out, so that a value here is never too low; it is called exact only where nothing of that can happen and a policy attains it.

Time enters by a count. A round holds at most cap(n) calls of n agents (and the orchestrator, if it works), and the agents work
from the round after their spawn, so that X calls need clock ≥ X / cap(n) + 1 − cap(0) / cap(n). As all else is a sum over items,
a policy that fixes n and the briefs before it sees a return gets at most

    U(n) = Σ_k count_k · max_b value_k(b, extra = round_price / cap(n)) − spawn_price · n − round_price · (1 − cap(0) / cap(n))

and U = max_n U(n), found by branch and bound: on n1..n2, U(n) ≤ Σ(n2) − cost(n1), because the sum and the cost both rise with n.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil, inf
from typing import Any

import numpy as np

from counterpoint.lab.worlds.teamworld import optimum as offers
from counterpoint.lab.worlds.teamworld.config import KINDS, Config
from counterpoint.lab.worlds.teamworld.optimum import chain, draft, pool, vote
from counterpoint.lab.worlds.teamworld.optimum.draft import Offer
from counterpoint.lab.worlds.world import Optimum

# -- Upper bound and brute force for a project of nodes that depend on each other (P) ---------------------------------
# Always true: whether a node is right does not change what later nodes can do, so nothing is learned on the way and the best
# policy is a plan: which nodes, by whom, in which round. A plan of r rounds does at most
#
#     X(n, r) = min( nodes, n · calls_per_round · r, modules · min(r, node_module_size) )
#
# nodes, the last because a module is a path and a node waits for the round after its dependency; each is worth at most
# v = node_weight · node_right · g − price, interface losses left out. So a project yields at most max over n, r of
# v · X(n, r) − spawn_price · n − round_price · (r + 1), the one round being that of the spawn.


def bound(config: Config, offer: Offer, extra: float = 0.0) -> float:
    """No policy gets more of one node on these terms: all its dependencies its own agent's."""
    terms = offers.single(offer)
    return max(0.0, *(config.node_weight * min(1.0, config.node_right[f] * g) - price - extra for f, (g, price) in terms))


def value(config: Config, b: int, extra: float = 0.0) -> float:
    """`bound` with workers at brief b."""
    return bound(config, offers.workers(config, b), extra)


def project_bound(config: Config) -> float:
    """Points that no plan for the whole project exceeds; the families may be mixed, each brief is tried."""
    nodes, size = config.node_modules * config.node_module_size, config.node_module_size
    helpers = 1 if config.orchestrator_works else 0
    n = np.arange(0, min(config.max_agents, nodes) + 1)[:, None]
    r = np.arange(1, min(nodes, config.max_rounds) + 1)[None]
    most = np.minimum(np.minimum(nodes, (n + helpers) * config.calls_per_round * r), config.node_modules * np.minimum(r, size))
    cost = config.spawn_price * n + config.round_price * (r + (n > 0))
    worth = np.full(n.shape, max(bound(config, offers.team(config, b)) for b in range(4)))
    if helpers:
        worth[0] = bound(config, offers.own(config))
    return max(0.0, float((worth * most - cost).max()))


_BOUNDS: tuple[Callable[[Config, Offer, float], float], ...] = (
    vote.offer_value,
    pool.bound,
    draft.bound,
    chain.bound,
    bound,
)
_FIXED = "policies that fix the team, its families and the size of the brief before they see a return"
_SIZE = "policies that fix the number of agents and each kind's size of the brief before they see a return"
_ANY = "all policies"
Point = tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """Where U(n) is largest: what a policy that wants to come near the bound begins with."""

    value: float
    agents: int
    extra: float
    """Points per call that the round's price amounts to."""
    briefs: tuple[int, ...]
    """The best size of the brief, by kind in the order of `KINDS`; 0 for a kind that is not there."""


def _capacity(config: Config, n: int) -> int:
    """Calls in a round: `calls_per_round` each, no agent twice on an item; a draft, chain or module takes one call a round."""
    workers = n + (1 if config.orchestrator_works else 0)
    width = workers * min(config.calls_per_round, config.items)
    one_each = config.draft_items + config.chain_items + config.node_modules
    return width if config.vote_items or config.pool_items else min(width, one_each)


def _gateway(config: Config) -> float:
    """Every call through the harness pays its gateway."""
    return config.gateway_price if config.topology == "harness" else 0.0


def _is_judged(config: Config) -> bool:
    """Whether votes pass a critic."""
    return config.topology == "planner_executor_critic" and config.vote_items > 0


def _briefs(config: Config) -> list[int]:
    """The sizes of brief of which no other knows at least as much for less; all of them behind a critic (see `bound_any`)."""
    if _is_judged(config):
        return list(range(4))

    def beaten(b: int) -> bool:
        return any(
            config.brief_factor[a] >= config.brief_factor[b]
            and config.brief_price * (b - a) >= 0
            and a != b
            and (a < b or config.brief_factor[a] > config.brief_factor[b])
            for a in range(4)
        )

    return [b for b in range(4) if not beaten(b)]


def _items(config: Config, n: int) -> tuple[float, tuple[int, ...]]:
    """Σ_k count_k · max_b value_k at n agents' price of time, and the best briefs."""
    extra = config.round_price / max(1, _capacity(config, n)) + _gateway(config)
    total, briefs = 0.0, []
    for count, bound in zip(config.counts, _BOUNDS, strict=True):
        options = (
            [(bound(config, offers.team(config, b) if n else offers.own(config), extra), -b) for b in _briefs(config)]
            if count
            else [(0.0, 0)]
        )
        best, b = max(options)
        total += count * best
        briefs.append(-b)
    return total, tuple(briefs)


def _overhead(config: Config, n: int) -> float:
    """What n agents cost before their first call."""
    return config.spawn_price * n + config.round_price * (1 - _capacity(config, 0) / max(1, _capacity(config, n)))


def _maximise(low: Point, high: Point, gain: Callable[[Point], float], cost: Callable[[Point], float]) -> tuple[float, Point]:
    """The largest gain − cost on a box of whole numbers, certified: gain and cost both rise in every coordinate."""
    known: dict[Point, float] = {}

    def at(point: Point) -> float:
        if point not in known:
            known[point] = gain(point)
        return known[point]

    best = max((at(point) - cost(point), point) for point in (low, high))
    heap = [(-(at(high) - cost(low)), low, high)]
    while heap and -heap[0][0] > best[0]:
        _, low, high = heapq.heappop(heap)
        if low == high:
            continue
        axis = max(range(len(low)), key=lambda i: high[i] - low[i])
        middle = (low[axis] + high[axis]) // 2
        lower = (low, (*high[:axis], middle, *high[axis + 1 :]))
        right = ((*low[:axis], middle + 1, *low[axis + 1 :]), high)
        for a, b in (lower, right):
            best = max(best, (at(b) - cost(b), b))
            heapq.heappush(heap, (-(at(b) - cost(a)), a, b))
    return best


@lru_cache(maxsize=256)
def plan(config: Config) -> Plan:
    """max_n U(n) with the n and the briefs that attain it; nobody at all (answer 0 everywhere) is a candidate."""
    nothing = config.vote_items * config.vote_weight / 2
    first = Plan(nothing, 0, 0.0, (0,) * len(KINDS))
    if config.orchestrator_works:
        first = max(
            first,
            Plan(_items(config, 0)[0], 0, config.round_price / _capacity(config, 0), (0,) * len(KINDS)),
            key=lambda p: p.value,
        )
    value, (n,) = _maximise((1,), (config.max_agents,), lambda p: _items(config, p[0])[0], lambda p: _overhead(config, p[0]))
    team = Plan(value, n, config.round_price / _capacity(config, n), _items(config, n)[1])
    return max(first, team, key=lambda p: p.value)


def _chain_calls(config: Config) -> int:
    """Every attempt and every check of a chain."""
    return config.chain_hops * config.hop_attempts * (1 + config.hop_checks)


def _most_calls(config: Config) -> int:
    """No episode makes more calls."""
    per_item = (
        config.max_votes,
        config.pool_calls,
        config.draft_calls,
        _chain_calls(config),
        1,
    )
    most = sum(count * calls for count, calls in zip(config.counts, per_item, strict=True))
    return max(1, min(most, config.max_rounds * max(1, _capacity(config, config.max_agents))))


@lru_cache(maxsize=256)
def bound_any(config: Config) -> float:
    """Points that no policy exceeds, adaptive in everything.

    Proof. (1) No call knows more than `offer.best` or costs less, and a call that knows less can be imitated by one that knows
    more. (2) A path with X calls and n agents pays for time and spawns at least round_price · X / cap(n) + spawn_price · n ≥
    κ(X), where κ(X) = min_n of that (plus a spawn round if the orchestrator does not work, for X > 0). κ is a minimum of lines,
    hence concave, and κ(0) = 0, so that on 0..X_max it lies above its chord: κ(X) ≥ λ·X with λ = κ(X_max) / X_max, on every path,
    whatever decided n. (3) Charged λ per call, the items are independent and each gets at most its own optimum at extra = λ.

    Behind a critic (1) fails: it judges the vote as it was cast, and where a family is mostly misled, a vote that knows less is
    right more often. Such questions have no bound here (inf).
    """
    if _is_judged(config):
        return inf
    most = _most_calls(config)
    least = 0 if config.orchestrator_works else 1
    sizes = range(least, max(least, config.max_agents) + 1)
    time = min(config.round_price * most / _capacity(config, n) + config.spawn_price * n for n in sizes)
    extra = (time + config.round_price * least) / most + _gateway(config)
    parts = zip(config.counts, _BOUNDS, strict=True)
    return sum(count * bound(config, offers.best(config), extra) for count, bound in parts if count)


@lru_cache(maxsize=64)
def panel(config: Config) -> tuple[float, int, int, int]:
    """(points, clones, independents, brief) of the best panel for questions, where an agent has `votes_per_agent` votes on each.

    max over c agents of A, i of B and b of vote_items · panel_value(c, i, b, extra(c + i)) − overhead(c + i); exact if rounds are
    free, as then votes are asked one at a time, and an upper bound otherwise, by the same count of rounds.
    """
    side = config.max_agents if config.round_price else min(config.max_agents, ceil(config.max_votes / config.votes_per_agent))
    best = (config.vote_items * config.vote_weight / 2, 0, 0, 0)

    def cost(p: Point) -> float:
        return _overhead(config, sum(p)) if sum(p) <= config.max_agents else inf

    for b in _briefs(config):

        def gain(p: Point, b: int = b) -> float:
            extra = config.round_price / max(1, _capacity(config, sum(p))) + _gateway(config)
            return config.vote_items * vote.panel_value(config, p[0], p[1], b, extra)

        value, (clones, independents) = _maximise((0, 0), (side, side), gain, cost)
        best = max(best, (value, clones, independents, b))
    return best


def _lossless(config: Config) -> bool:
    """Whether nothing of the team's work can be lost to topology, attack, type or drift."""
    same = config.types == 1 or config.mismatch == 1 or config.items == 1
    calm = (config.attack == "none" or config.attack_rate == 0) and config.drift == (0.0, 0.0)
    votes = config.vote_items > 0
    quiet = {
        "centralized": True,
        "planner_executor_critic": not votes,
        "debate": True,
        "swarm": not (votes and config.memory_copy),
        "hierarchical": True,
        "harness": False,  # every call pays the gateway
    }
    return same and calm and quiet[config.topology]


def _room(config: Config, calls: int, each: int) -> bool:
    """Whether `calls` calls on every item, at most `each` by one agent, end before the last round and wear no agent's context."""
    rounds = ceil(config.items / config.calls_per_round) * calls
    fresh = config.items * each <= config.context_capacity
    return fresh and rounds + 1 <= config.max_rounds


def _one_worker(config: Config) -> Optimum | None:
    """Drafts or chains alone with free rounds, or a single one: more hands do not help, one agent (or the orchestrator) is best.

    A single item takes a call a round, so that time costs exactly `round_price` per call. Teams of two and more, and an agent
    beside a working orchestrator, are bounded with the families mixed at will; if that is below the one worker's value, it is
    exact.
    """
    extra = config.round_price
    kind, count, value = (
        (draft, config.draft_items, draft.value) if config.draft_items else (chain, config.chain_items, chain.value)
    )
    calls = config.draft_calls if config.draft_items else _chain_calls(config)
    one = count * max(value(config, b, extra) for b in _briefs(config)) - config.spawn_price - config.round_price
    alone = count * value(config, 0, extra, own=True) if config.orchestrator_works else 0.0
    best = max(0.0, one, alone)
    least, waiting = (1, 0.0) if config.orchestrator_works else (2, config.round_price)
    more = (
        count * max(kind.bound(config, offers.team(config, b), extra) for b in _briefs(config))
        - config.spawn_price * least
        - waiting
    )
    if more > best + 1e-9 or not _room(config, calls, calls):
        return None
    return Optimum(value=best, kind="exact", over=_FIXED, how="dynamic programme of one item, one worker; a second cannot pay")


def _exact(config: Config) -> Optimum | None:
    """The optimum where one of the exact cases holds."""
    if not _lossless(config):
        return None
    kinds = {kind for kind, count in zip(KINDS, config.counts, strict=True) if count}
    if kinds == {"pool"} and config.pool_items == 1 and not config.orchestrator_works and config.topology != "debate":
        if config.pool_calls + min(config.max_agents, config.pool_calls) <= config.max_rounds and _room(
            config, config.pool_calls, config.pool_calls
        ):
            over = "policies of one family with one size of the brief, adaptive in the number of agents and the stop"
            return Optimum(
                value=pool.team_value(config), kind="exact", over=over, how="dynamic programme over (calls, finds, agents)"
            )
    elif kinds in ({"draft"}, {"chain"}) and (config.round_price == 0 or config.items == 1):
        return _one_worker(config) if config.draft_items or chain.confidences(config) <= chain.MOST else None
    elif (
        kinds == {"vote"}
        and config.round_price == 0
        and not config.orchestrator_works
        and _room(config, config.max_votes, min(config.max_votes, config.votes_per_agent))
    ):
        value, clones, independents, b = panel(config)
        if config.brief_factor[b] == 1 or clones + independents == 0:
            how = f"dynamic programme on vote counts for every panel; the best is {clones} of A, {independents} of B, brief {b}"
            return Optimum(value=value, kind="exact", over=_FIXED, how=how)
    return None


def _generous(config: Config) -> Optimum:
    """A bound where workers, judges or a proposer bring in what the tables do not know: every question right, and free."""
    rest = replace(config, acts="report", judges=0, proposer=False, vote_items=0) if config.items > config.vote_items else None
    value = config.vote_weight * config.vote_items + (0.0 if rest is None else optimum(rest).value)
    return Optimum(value=value, kind="upper bound", over=_ANY, how="every question answered right, at no price")


@lru_cache(maxsize=256)
def optimum(config: Config) -> Optimum:
    """The best that can be expected in one episode of this world."""
    if config.acts == "communicate" or config.judges or config.proposer:
        return _generous(config)
    if config.acts == "deliberate":  # what is said without a look tells nothing new, and a look is at best a second one
        raised: list[Any] = [tuple(s + config.refine_gain * (1 - s) if s >= 0.5 else s for s in skill) for skill in config.skill]
        plain = optimum(replace(config, acts="report", skill_a=raised[0], skill_b=raised[1]))
        how = f"as if every look were a second one: {plain.how}"
        return Optimum(value=plain.value, kind="upper bound", over=plain.over, how=how)
    exact = _exact(config)
    if exact is not None:
        return exact
    best, anyhow = plan(config), bound_any(config)
    if anyhow <= best.value:
        return Optimum(
            value=anyhow, kind="upper bound", over=_ANY, how="sum of the items' optima at the chord of the price of time"
        )
    if config.counts[:4] == (0, 0, 0, 0):
        project = project_bound(config)
        if project <= best.value:
            how = "nodes that fit into n agents and r rounds along the planted paths, without interface losses"
            return Optimum(value=project, kind="upper bound", over=_ANY, how=how)
    few = (
        config.votes_per_agent < config.max_votes
        and not config.orchestrator_works
        and config.topology != "planner_executor_critic"
    )
    if few and config.vote_items == config.items:
        value, clones, independents, b = panel(config)
        how = f"dynamic programme on vote counts for every panel; largest at {clones} of A, {independents} of B, brief {b}"
        return Optimum(value=min(value, best.value), kind="upper bound", over=_FIXED, how=how)
    briefs = ", ".join(f"{kind} brief {b}" for kind, b, count in zip(KINDS, best.briefs, config.counts, strict=True) if count)
    how = f"sum of the items' dynamic programmes at the price of time of n agents; largest at n = {best.agents}, {briefs}"
    return Optimum(value=best.value, kind="upper bound", over=_SIZE, how=how)
