"""Exact answers by trying everything: the best plan of a small project, and how often a panel that votes once is right."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product
from math import ceil, comb

import numpy as np

from counterpoint.lab.worlds.teamworld import optimum as offers
from counterpoint.lab.worlds.teamworld.config import Config


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


def panel_accuracy(config: Config, clones: int, independents: int, rule: str) -> float:
    """P(right) when everybody invited votes once with brief 2 and `rule` (bayes, naive or majority) decides, by enumeration.

    Over (yes of A, yes of B) given y = 1: Σ P(counts | y=1) · (1 if the rule says 1, ½ on a tie, 0 otherwise); y = 0 is its
    mirror. `bayes` reads the votes at knowledge 1; `naive` too, but draws the misconception anew for each vote.
    """
    g = config.brief_factor[2]
    true = _panel_chance(config, clones, independents, (g, g), fresh=False)
    if rule == "majority":
        yes = np.arange(clones + 1)[:, None] + np.arange(independents + 1)[None]
        lead = 2.0 * yes - clones - independents
    elif rule in ("bayes", "naive"):
        given_1 = _panel_chance(config, clones, independents, (1.0, 1.0), fresh=rule == "naive")
        given_0 = given_1[::-1, ::-1]
        lead = np.where(np.isclose(given_1, given_0, rtol=1e-9, atol=0), 0.0, given_1 - given_0)
    else:
        raise ValueError(f"no exact panel for rule {rule!r}; bayes, naive or majority")
    return float((true * (0.5 + 0.5 * np.sign(lead))).sum())


def _panel_chance(config: Config, clones: int, independents: int, g: tuple[float, float], *, fresh: bool) -> np.ndarray:
    """P(yes of A, yes of B | y = 1), (clones + 1, independents + 1)."""
    out = np.zeros((clones + 1, independents + 1))
    for z, share in enumerate(config.difficulty_shares):
        sides = []
        for f, n in enumerate((clones, independents)):
            mis = config.misconception[f][z]
            free, bad = (g[f] * q + (1 - g[f]) / 2 for q in (config.skill[f][z], config.right_if_misled))
            folded = (1 - mis) * free + mis * bad
            sides.append(_binomial(n, folded) if fresh else (1 - mis) * _binomial(n, free) + mis * _binomial(n, bad))
        out += share * np.outer(*sides)
    return out


def _binomial(n: int, p: float) -> np.ndarray:
    return np.array([comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)])
