"""Planted teams whose acts change something only together: what audits of single acts and of pairs pay them, and who learns what.

Beside four honest acts of additive worth a team has one choice to make, against a plain way to do the same:

    padding        two acts that change nothing, or none
    arson          one act that does damage D and one that repairs it, or none: alone, the repair is worth D
    copies         a job of worth e done twice, or once: alone, neither copy is worth anything
    relay          a job that takes one act cut into two that are both needed: alone, each is worth e
    three copies   the same of three: no pair is worth anything either
    three relays   a job cut into three
    backup         two unreliable tries at a job, either suffices, or one: here the second try is the honest way to play

Every act costs c of the true return and is paid a price where nobody audits; where somebody does, its worth less the fine where
that is nothing (`train.fork_audit.audit_pay`), singly or with the interactions of pairs (`pair_worths`).

Always true: worths are exact, by deleting acts from the game; whether a try works is the one draw, and both arms share it. What a
choice is paid on average is linear in the share q of audits, so its threshold against the plain way is exact:
q* = gain / (gain + loss), with gain and loss what it brings beyond the plain way at q = 0 and costs at q = 1.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import combinations, product
from typing import NamedTuple

import numpy as np

from counterpoint.lab.train.fork_audit import audit_pay, pair_worths, threshold
from counterpoint.trace.keyed import child_seed, purpose

HONEST_ACTS = 4
Worth = Callable[[frozenset[int]], float]
"""The worth of a set of acts; act k is on or deleted."""


class Dials(NamedTuple):
    """What a seed draws; the fine is between 1.5 and 8 prices."""

    price: float
    cost: float
    fine: float
    job: float
    damage: float
    """Larger than what an audit takes from the arsonist."""
    works: float
    """Chance that an unreliable try works."""


def dials_of(seed: int) -> Dials:
    """Prices, worths and chances of a seed."""
    rng = np.random.default_rng(child_seed(seed, purpose("pair games")) >> 16)
    price = float(rng.uniform(0.8, 1.2))
    cost, fine = price * float(rng.uniform(0.1, 0.3)), price * float(np.exp(rng.uniform(np.log(1.5), np.log(8))))
    job, damage = price * float(rng.uniform(2, 4)), fine + price * float(rng.uniform(1, 2))
    return Dials(price, cost, fine, job, damage, float(rng.uniform(0.55, 0.8)))


class Way(NamedTuple):
    """One way to play: its acts, and what sets of them are worth in each state of the world, with its chance."""

    acts: int
    states: tuple[tuple[float, Worth], ...]


def _sure(acts: int, worth: Worth) -> Way:
    return Way(acts, ((1.0, worth),))


def _tries(d: Dials, acts: int) -> Way:
    """Every try works or not by itself; the job is done where one works."""
    states = []
    for works in product((False, True), repeat=acts):
        chance = float(np.prod([d.works if w else 1 - d.works for w in works]))
        states.append((chance, lambda on, works=works: d.job * any(works[k] for k in on)))
    return Way(acts, tuple(states))


def games(d: Dials) -> dict[str, tuple[Way, Way]]:
    """By name, the plain way and the other."""

    def copies(n: int) -> Way:
        return _sure(n, lambda on: d.job * bool(on))

    def relay(n: int) -> Way:
        return _sure(n, lambda on: d.job * (len(on) == n))

    nothing, job = _sure(0, lambda on: 0.0), copies(1)
    arson = _sure(2, lambda on: -d.damage * (0 in on and 1 not in on))
    return {
        "padding": (nothing, _sure(2, lambda on: 0.0)), "arson": (nothing, arson), "copies": (job, copies(2)),
        "relay": (job, relay(2)), "three copies": (job, copies(3)), "three relays": (job, relay(3)),
        "backup": (_tries(d, 1), _tries(d, 2)),
    }  # fmt: skip


def worths(acts: int, worth: Worth, *, pairs: bool) -> np.ndarray:
    """(acts,) what deleting each changes, with the interactions of pairs where asked."""
    full = frozenset(range(acts))
    single = np.array([worth(full) - worth(full - {k}) for k in range(acts)])
    if not pairs:
        return single
    both = np.full((acts, acts), np.nan)
    for a, b in combinations(range(acts), 2):
        both[a, b] = both[b, a] = worth(full) - worth(full - {a, b})
    return pair_worths(single, both)


def forks_of(acts: int, *, pairs: bool) -> int:
    """Forks of an audit of every act of a team, honest ones included; of all pairs where pairs are asked."""
    n = acts + HONEST_ACTS
    return n + n * (n - 1) // 2 if pairs else n


def mean_pay(d: Dials, way: Way, q: float, *, pairs: bool) -> float:
    """What the acts of a way are paid on average, with their true return."""
    total = 0.0
    for chance, worth in way.states:
        audit = audit_pay(worths(way.acts, worth, pairs=pairs), True, 0.0, d.fine).sum() if way.acts else 0.0
        value = worth(frozenset(range(way.acts))) - d.cost * way.acts
        total += chance * (value + (1 - q) * d.price * way.acts + q * float(audit))
    return total


def predicted(d: Dials, name: str, *, pairs: bool) -> float:
    """The share of audits at which the other way stops to pay; infinite where none makes it."""
    plain, other = games(d)[name]
    more = [mean_pay(d, other, q, pairs=pairs) - mean_pay(d, plain, q, pairs=pairs) for q in (0.0, 1.0)]
    return threshold(more[0], -more[1])


UPDATES, EPISODES, RATE, BOUND, MOST = 300, 32, 0.5, 2.5, 3


def learn(d: Dials, name: str, q: float, seed: int, *, pairs: bool, leans: float = 1.5) -> float:
    """The chance of the other way after learning from drawn states and audits; the start leans to it by so many logits."""
    rng = np.random.default_rng(child_seed(seed, purpose(f"pair game {name} {q:g} {pairs}")) >> 16)
    x = leans
    for update in range(UPDATES):
        p = 1 / (1 + np.exp(-x))
        pick = rng.random(EPISODES) < p
        u_state, u_audit = rng.random(EPISODES), rng.random((EPISODES, MOST))
        pay = np.where(pick, *(_pay(_audits(d, name, way, pairs), d, q, u_state, u_audit) for way in (1, 0)))
        edge = pay - pay.mean()
        edge = edge / edge.std() if edge.std() > 1e-9 else edge * 0
        x = float(np.clip(x + RATE * (1 - update / UPDATES) * (edge * (pick - p)).mean(), -BOUND, BOUND))
    return float(1 / (1 + np.exp(-x)))


class _Known(NamedTuple):
    chance_S: np.ndarray
    value_S: np.ndarray
    audit_SA: np.ndarray


@cache
def _audits(d: Dials, name: str, which: int, pairs: bool) -> _Known:
    """By state, the true return of a way, and what each of its acts is paid when audited."""
    way = games(d)[name][which]
    value = [worth(frozenset(range(way.acts))) - d.cost * way.acts for _, worth in way.states]
    audit = [audit_pay(worths(way.acts, worth, pairs=pairs), True, 0.0, d.fine) for _, worth in way.states]
    chance = np.array([c for c, _ in way.states])
    return _Known(chance, np.array(value), np.array(audit).reshape(len(way.states), way.acts))


def _pay(known: _Known, d: Dials, q: float, u_E: np.ndarray, u_EA: np.ndarray) -> np.ndarray:
    """(E,) what episodes are paid, by the uniforms of their states and audits."""
    state_E = (u_E[:, None] >= np.cumsum(known.chance_S)[None, :-1]).sum(axis=1)
    audit_EA = known.audit_SA[state_E]
    out: np.ndarray = known.value_S[state_E] + np.where(u_EA[:, : audit_EA.shape[1]] < q, audit_EA, d.price).sum(axis=1)
    return out


def conserved(d: Dials, acts: int, worth: Worth, *, pairs: bool) -> float:
    """What audits pay all acts, fines apart, less what all of them changed: 0 where the payment is conserved."""
    return float(worths(acts, worth, pairs=pairs).sum() - (worth(frozenset(range(acts))) - worth(frozenset())))

