"""The ledger parts a team reward exactly: 10,000 events, random critics, every level of the account tree.

Always true: traces are TeamWorld runs of fresh seeds with more than 10,000 events; critics know nothing (normal numbers of size 1
and of the reward's own size), because the sum must not depend on them. Errors are absolute.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

import counterpoint.registry as registry
from counterpoint.credits.accounts import Ledger
from counterpoint.credits.mechanisms.ledger import accounts, parts_of
from counterpoint.display import tracked
from counterpoint.errors import InputError
from counterpoint.lab.bench.claim import ClaimRow, at_least, at_most
from counterpoint.trace import Trace
from counterpoint.trace.keyed import child_seed, purpose

_LEVELS = ("role", "agent", "turn", "message")


def partition(*, seed: int, seeds: int) -> Iterator[ClaimRow]:
    """One trace and two random critics for every seed."""
    if seeds < 1:
        raise InputError(f"seeds is at least 1, not {seeds}")
    world = registry.get("world", "wide_verify").replace(vote_items=1000, max_agents=256)
    events: list[int] = []
    errors: dict[str, list[float]] = {}
    noticed: list[bool] = []
    for s in tracked(range(seed, seed + seeds), "seeds"):
        fresh = child_seed(s, purpose("partition"))
        trace = world.run("reference", [fresh >> 16], log=True).trace(0)
        rng, reward = np.random.default_rng(fresh), float(trace.rewards["team"])
        events.append(len(trace.events))
        for name, size in (("critic of size 1", 1.0), ("critic of the reward's size", abs(reward))):
            book = _random_book(trace, reward, size, rng)
            sums = {"leaves": book.leaves(), **{f"{level} level": book.cut(level) for level in _LEVELS}}
            for what, amounts in sums.items():
                errors.setdefault(f"{name}: |sum of {what} - R|", []).append(abs(math.fsum(amounts.values()) - reward))
            errors.setdefault(f"{name}: residual", []).append(abs(book.fixed()["residual"]))
        noticed.append(_notices_a_lost_leaf(book, rng))
    yield at_least("events in the smallest trace", float(min(events)), 10_000)
    for name, found in errors.items():
        yield at_most(name, max(found), 1e-9)
    yield at_least("ledgers that notice a lost leaf, share", sum(noticed) / len(noticed), 1.0)


def _random_book(trace: Trace, reward: float, size: float, rng: np.random.Generator) -> Ledger:
    n = len(trace.events)
    q = np.where(rng.random(n) < 0.3, rng.normal(0, size, n), np.nan)
    return accounts(trace, parts_of(trace, value=rng.normal(0, size, n + 1), q=q), reward)


def _notices_a_lost_leaf(book: Ledger, rng: np.random.Generator) -> bool:
    leaves = sorted(book.leaves())
    book.check()
    del book.amounts[leaves[int(rng.integers(len(leaves)))]]
    try:
        book.check()
    except InputError:
        return True
    return False
