"""Upper bound and brute force for a project of nodes that depend on each other (P).

Always true: whether a node is right does not change what later nodes can do, so nothing is learned on the way and the best policy
is a plan: which nodes, by whom, in which round. A plan of r rounds does at most

    X(n, r) = min( nodes, n · calls_per_round · r, modules · min(r, node_module_size) )

nodes, the last because a module is a path and a node waits for the round after its dependency; each is worth at most
v = node_weight · node_right · g − price, interface losses left out. So a project yields at most max over n, r of
v · X(n, r) − spawn_price · n − round_price · (r + 1), the one round being that of the spawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product
from math import ceil

import numpy as np

from counterpoint.envs.teamworld.config import Config
from counterpoint.envs.teamworld.optimum import offer as offers
from counterpoint.envs.teamworld.optimum.offer import Offer


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


def makespan(dependencies: Sequence[Sequence[int]], who: Sequence[int], calls_per_round: int) -> int:
    """The fewest rounds in which everybody does their nodes (`who[i]` < 0: not done), by search over the sets of done nodes.

    Breadth first; an agent with more ready nodes than calls tries every choice of as many as it can (doing less never helps).
    """
    todo = frozenset(i for i, w in enumerate(who) if w >= 0)
    front, rounds = {frozenset[int]()}, 0
    while todo not in front:
        ahead: set[frozenset[int]] = set()
        for done in front:
            queue: dict[int, list[int]] = {}
            for i in todo - done:
                if all(j in done for j in dependencies[i]):
                    queue.setdefault(who[i], []).append(i)
            choices = [list(combinations(q, min(calls_per_round, len(q)))) for q in queue.values()]
            ahead |= {done.union(*pick) for pick in product(*choices)}
        front, rounds = ahead, rounds + 1
    return rounds


def brute_force(config: Config, dependencies: Sequence[Sequence[int]], b: int, family: int, most: int) -> float:
    """The exact optimum of one small project with up to `most` agents of one family, over all plans.

    `dependencies[i]` are nodes before i (a topological order). Every node is left out or given to an agent, used before or the
    next new one (agents of one family are alike); a branch ends where even v for each open node cannot reach the best so far.
    """
    g, price = offers.single(offers.workers(config, b))[family][1]
    right, keep = config.node_weight * config.node_right[family] * g, 1 - config.interface_loss[b]
    size, best = len(dependencies), 0.0

    def least_rounds(who: list[int]) -> int:
        done = [w for w in who if w >= 0]
        return max((ceil(done.count(a) / config.calls_per_round) for a in set(done)), default=0)

    def grow(who: list[int], points: float, agents: int) -> None:
        nonlocal best
        i = len(who)
        open_points = (size - i) * max(0.0, right - price)
        base = points - config.spawn_price * agents - config.round_price
        if base + open_points - config.round_price * least_rounds(who) <= best:
            return
        if i == size:
            best = max(best, base - config.round_price * makespan(dependencies, who, config.calls_per_round))
            return
        if all(who[j] >= 0 for j in dependencies[i]):
            for agent in range(min(agents + 1, most)):
                cut = sum(who[j] != agent for j in dependencies[i])
                grow([*who, agent], points + right * keep**cut - price, max(agents, agent + 1))
        grow([*who, -1], points, agents)

    grow([], 0.0, 0)
    return best
