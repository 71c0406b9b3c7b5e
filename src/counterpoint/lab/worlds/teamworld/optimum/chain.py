"""The exact optimum of one chain of hops: redo, verify, go on or give up (D).

Always true: a chain's future depends on (hop, confidence that the accepted attempts are all right, attempts at this hop, passes
and fails of the present attempt). The present attempt is right with

    ρ(passes, fails) = p·(1−r)^passes·r^fails / ( p·(1−r)^passes·r^fails + (1−p)·a^passes·(1−a)^fails )

with p = hop_right[f]·g, r = check_false_reject, a = check_false_accept, and the confidence is the product of the accepted ρ; as a
product does not mind the order, the multisets of accepted (passes, fails) number all reachable confidences. A check does not
depend on the brief, so that it is asked without one and costs `check_price`; `extra` is paid by every call.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import comb

import numpy as np

from counterpoint.errors import InputError
from counterpoint.lab.worlds.teamworld import optimum as offers
from counterpoint.lab.worlds.teamworld.config import Config
from counterpoint.lab.worlds.teamworld.optimum.draft import Offer, Term

STOP, ANSWER, VERIFY, NEXT = 0, 1, 2, 3
_GRID = 1025
MOST = 100_000


@dataclass(frozen=True)
class ChainTable:
    """What to do with a chain, as arrays to look up.

    Begin at `index = 0` with `first`; then `action[index, attempts − 1, local[passes, fails]]`; a NEXT moves to
    `index = after[index, local[passes, fails]]` with one attempt and no checks.
    """

    family: int
    value: float
    """Points from the start."""
    first: int
    """ANSWER, or STOP where a chain is not worth its first call."""
    action: np.ndarray
    """int8 (indices, hop_attempts, local states): STOP, ANSWER (redo), VERIFY or NEXT."""
    worth: np.ndarray
    """Points to go, in the shape of `action`."""
    after: np.ndarray
    """int (indices, local states): the index after NEXT; −1 at the last hop."""
    local: np.ndarray
    """int (hop_checks + 1, hop_checks + 1): the local state of (passes, fails); −1 where there is none."""
    hop: np.ndarray
    """int (indices,): the hop, 0 first."""
    confidence: np.ndarray
    """(indices,): P(all accepted attempts are right)."""


def confidences(config: Config) -> int:
    """How many (hop, multiset of accepted local states) there are: at most hops − 1 accepted, of (checks+1)(checks+2)/2 kinds."""
    local = (config.hop_checks + 1) * (config.hop_checks + 2) // 2
    return comb(config.chain_hops - 1 + local, local)


def _local(config: Config) -> tuple[list[tuple[int, int]], np.ndarray]:
    """The (passes, fails) in order of their sum, and their numbers."""
    pairs = [(n - fails, fails) for n in range(config.hop_checks + 1) for fails in range(n + 1)]
    number = np.full((config.hop_checks + 1,) * 2, -1)
    for i, pair in enumerate(pairs):
        number[pair] = i
    return pairs, number


def _right(config: Config, p: float, pairs: list[tuple[int, int]]) -> np.ndarray:
    """ρ of every local state."""
    reject, accept = config.check_false_reject, config.check_false_accept
    good = np.array([p * (1 - reject) ** n * reject**m for n, m in pairs])
    bad = np.array([(1 - p) * accept**n * (1 - accept) ** m for n, m in pairs])
    return np.where(good + bad > 0, good / np.where(good + bad > 0, good + bad, 1.0), 0.0)


def _checks(
    config: Config, pairs: list[tuple[int, int]], number: np.ndarray, rho: np.ndarray, extra: float, best: np.ndarray
) -> np.ndarray:
    """Points of one more check in every local state (last axis), −inf if none is left; `best` is raised to them."""
    out = np.full(best.shape, -np.inf)
    for i in range(len(pairs) - 1, -1, -1):
        passes, fails = pairs[i]
        if passes + fails < config.hop_checks:
            up = rho[i] * (1 - config.check_false_reject) + (1 - rho[i]) * config.check_false_accept
            out[..., i] = up * best[..., number[passes + 1, fails]] + (1 - up) * best[..., number[passes, fails + 1]]
            out[..., i] -= config.check_price + extra
        best[..., i] = np.maximum(best[..., i], out[..., i])
    return out


def _multisets(local: int, hops: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """For each hop: counts of accepted local states (C, local), and the next hop's index after accepting each (C, local)."""
    out, level = [], {(0,) * local: 0}
    for hop in range(hops):
        counts = list(level)
        ahead: dict[tuple[int, ...], int] = {}
        after = np.full((len(counts), local), -1)
        if hop < hops - 1:
            for i, c in enumerate(counts):
                for j in range(local):
                    after[i, j] = ahead.setdefault((*c[:j], c[j] + 1, *c[j + 1 :]), len(ahead))
        out.append((np.array(counts), after))
        level = ahead
    return out


@lru_cache(maxsize=256)
def _fixed(config: Config, family: int, term: Term, extra: float) -> ChainTable:
    """Backward induction over hops, attempts and checks; actions are compared in the order STOP, ANSWER, VERIFY, NEXT."""
    if confidences(config) > MOST:
        raise InputError(f"{confidences(config):,} confidences in a chain", fix="fewer chain_hops or hop_checks")
    pairs, number = _local(config)
    rho, price = _right(config, config.hop_right[family] * term[0], pairs), term[1] + extra
    levels, tries = _multisets(len(pairs), config.chain_hops), config.hop_attempts
    worths: list[np.ndarray] = []
    actions: list[np.ndarray] = []
    for hop in range(config.chain_hops - 1, -1, -1):
        counts, after = levels[hop]
        sure = np.prod(rho[None] ** counts, axis=1)
        last = hop == config.chain_hops - 1
        end = config.chain_weight * sure[:, None] * rho[None] if last else np.zeros((len(sure), len(pairs)))
        on = np.full(end.shape, -np.inf) if last else worths[0][after, 0, 0] - price
        worth, action = np.empty((len(sure), tries, len(pairs))), np.empty((len(sure), tries, len(pairs)), dtype=np.int8)
        for attempt in range(tries - 1, -1, -1):
            redo = np.full(end.shape, -np.inf)
            if attempt < tries - 1:
                redo[:] = worth[:, attempt + 1, :1] - price
            best = np.maximum.reduce([end, redo, on])
            check = _checks(config, pairs, number, rho, extra, best)
            worth[:, attempt], action[:, attempt] = best, np.argmax([end, redo, check, on], axis=0)
        worths.insert(0, worth)
        actions.insert(0, action)
    first = float(worths[0][0, 0, 0] - price)
    start = np.cumsum([0, *(len(counts) for counts, _ in levels)])
    after = np.concatenate([np.where(a >= 0, a + start[h + 1], -1) for h, (_, a) in enumerate(levels)])
    hops = np.repeat(np.arange(config.chain_hops), np.diff(start))
    sure = np.concatenate([np.prod(rho[None] ** counts, axis=1) for counts, _ in levels])
    begin = ANSWER if first > 0 else STOP
    return ChainTable(family, max(0.0, first), begin, np.concatenate(actions), np.concatenate(worths), after, number, hops, sure)


def decide(config: Config, own: bool = False, b: int = 2, extra: float = 0.0) -> ChainTable:
    """The optimal play with one family, the better of the two; `own`: the orchestrator itself (family B, g = 1, no brief)."""
    offer = offers.own(config) if own else offers.workers(config, b)
    return max((_fixed(config, f, term, extra) for f, term in offers.single(offer)), key=lambda table: table.value)


def value(config: Config, b: int, extra: float = 0.0, own: bool = False) -> float:
    """Points of one chain under `decide`."""
    return decide(config, own, b, extra).value


@lru_cache(maxsize=1024)
def bound(config: Config, offer: Offer, extra: float = 0.0) -> float:
    """No policy gets more of one chain on these terms, however it mixes the families.

    Whether the accepted attempts are all right is one hidden bit with belief c, on which no later signal depends. So the value is
    convex in c (the best of lines c·P(rest right) · weight − cost), a chord lies above it, and backward induction on a grid of c
    with linear interpolation bounds it from above, with the family of each attempt free.
    """
    pairs, number = _local(config)
    c = np.linspace(0.0, 1.0, _GRID)
    terms = [(_right(config, config.hop_right[f] * g, pairs), price + extra) for f, (g, price) in offers.single(offer)]
    fresh = np.zeros(_GRID)
    for hop in range(config.chain_hops - 1, -1, -1):
        last, redo = hop == config.chain_hops - 1, np.full(_GRID, -np.inf)
        for _ in range(config.hop_attempts):
            tops = []
            for rho, price in terms:
                if last:
                    end = config.chain_weight * c[:, None] * rho[None]
                else:  # `fresh` has the next hop's first call paid by its own family
                    end = np.maximum(0.0, np.interp(c[:, None] * rho[None], c, fresh))
                best = np.maximum(end, redo[:, None])
                _checks(config, pairs, number, rho, extra, best)
                tops.append(best[:, 0] - price)
            redo = np.maximum.reduce(tops)
        fresh = redo
    return float(max(0.0, fresh[-1]))
