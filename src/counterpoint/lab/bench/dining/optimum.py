"""The most meals that N philosophers can eat in T steps, whatever they know, and a fair rule that rotates.

A schedule may do without waiting with one fork in hand (put the first grab off until just before the second: forks are only
freer) and without releases before a meal. So a meal is three steps of its first fork and two of its second: grab, grab and eat,
gone. A philosopher is then idle, holds its left fork, holds its right one, or has eaten, and who holds one takes the other next:

    V_0 = 0;   V_t(s) = meals(s) + max over the starts s -> s' of V_{t-1}(s'),   meals(s) = philosophers that hold one fork

over the states of the ring, those that are turns of another taken once. RELEASE while eating, a flaw of the package that lets two
neighbours eat at once (`tables.py`), is no part of it. Fairness takes nothing away where a fair schedule has as many meals.

The rotation: philosopher i grabs left in the steps t = t_i mod P, right in the next. Neighbours do not meet where t_i - t_{i-1}
is one of 3 .. P - 2 (mod P), so around the table it needs a k with 3 N <= k P <= (P - 2) N; t_i = floor(i k P / N), P the least.
P is 5 where N is a multiple of 5. Only the own number, N and the step are asked.
"""

from __future__ import annotations

import math
from functools import cache

from counterpoint.lab.bench.dining.tables import STEPS

_IDLE, _LEFT, _RIGHT, _ATE = range(4)
Ring = tuple[int, ...]


@cache
def most_meals(size: int, steps: int = STEPS) -> int:
    """The optimum over every joint policy with full knowledge, exact; seconds at 10, three minutes at 15."""
    start = (_IDLE,) * size
    place, order, following = {start: 0}, [start], []
    for ring in order:
        there = []
        for new in _next(ring):
            if new not in place:
                place[new] = len(order)
                order.append(new)
            there.append(place[new])
        following.append(there)
    value = [0] * len(order)
    for _ in range(steps):
        value = [_meals(ring) + max(value[k] for k in there) for ring, there in zip(order, following, strict=True)]
    return value[0]


def _meals(ring: Ring) -> int:
    return sum(s in (_LEFT, _RIGHT) for s in ring)


def _next(ring: Ring) -> set[Ring]:
    """The states that may follow: every choice of who grabs a first fork now."""
    size = len(ring)
    busy = [ring[i] in (_LEFT, _ATE) or ring[i - 1] in (_RIGHT, _ATE) for i in range(size)]
    new = [_IDLE] * size
    for i, s in enumerate(ring):
        if s in (_LEFT, _RIGHT):
            new[i] = _ATE
            busy[(i + 1) % size if s == _LEFT else i] = True
    found: set[Ring] = set()
    _start(ring, new, busy, 0, found)
    return found


def _start(ring: Ring, new: list[int], busy: list[bool], i: int, found: set[Ring]) -> None:
    """Every way for philosophers i and up to start, or not."""
    size = len(ring)
    if i == size:
        if not any(_is_stuck(new, j) for j in range(size)):
            found.add(min(tuple(new[k:] + new[:k]) for k in range(size)))
        return
    _start(ring, new, busy, i + 1, found)
    if ring[i] == _IDLE:
        for side, fork in ((_LEFT, i), (_RIGHT, (i + 1) % size)):
            if not busy[fork]:
                new[i], busy[fork] = side, True
                _start(ring, new, busy, i + 1, found)
                new[i], busy[fork] = _IDLE, False


def _is_stuck(ring: list[int], j: int) -> bool:
    """Whether a philosopher cannot take its second fork next: it is held, or two would take it."""
    if ring[j] not in (_LEFT, _RIGHT):
        return False
    fork = (j + 1) % len(ring) if ring[j] == _LEFT else j
    left_of, right_of = ring[fork], ring[fork - 1]
    return left_of in (_LEFT, _ATE) or right_of in (_RIGHT, _ATE) or (left_of == _RIGHT and right_of == _LEFT)


def rotation(size: int) -> tuple[int, list[int]]:
    """(P, (t_i)) of the rule that rotates."""
    period = next(p for p in range(5, 3 * size + 6) if 3 * size <= p * ((p - 2) * size // p))
    turns = math.ceil(3 * size / period)
    return period, [i * turns * period // size % period for i in range(size)]


def upper_bound(size: int, steps: int = STEPS) -> int:
    """By counting: five fork-steps to a meal, three where it comes in the last step, as it may for half of the table."""
    return (size * steps + 2 * (size // 2)) // 5
