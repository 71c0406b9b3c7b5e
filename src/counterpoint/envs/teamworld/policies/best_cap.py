"""Best fixed cap: the same number of calls on every item, the number that does best in a small fixed rehearsal.

Always true: the rehearsal plays seeds of its own, so that the cap depends on the configuration alone.
"""

from __future__ import annotations

from functools import lru_cache

from counterpoint.envs.teamworld.config import Config
from counterpoint.envs.teamworld.legal import limits
from counterpoint.envs.teamworld.play import play
from counterpoint.envs.teamworld.policies.parts import Parts, Team

_REHEARSAL = range(1_000_003, 1_000_003 + 16)
_COARSE = (1, 2, 3, 4, 5, 6, 8, 10, 14, 20, 28, 40, 56, 80, 110, 160, 220)


@lru_cache(maxsize=64)
def best_cap(config: Config) -> Parts:
    """The parts of the best capped policy: the best of a coarse scale, up to the first that is clearly past the best."""
    most = int(limits(config).max()) if config.items > config.chain_items else config.hop_checks + 1
    best, best_worth = 1, float("-inf")
    for cap in (c for c in _COARSE if c <= most):
        worth = float(play(config, Team(config, Parts(cap=cap), "cap"), _REHEARSAL).value().mean())
        if worth > best_worth:
            best, best_worth = cap, worth
        elif cap > 2 * best:
            break
    return Parts(cap=best)
