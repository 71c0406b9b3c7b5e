"""Certified optima of TeamWorld: what the best policy can expect, from the rules alone.

Always true: nothing here imports the simulator; the rules (`teamworld/__init__.py`) and the config are all that both sides share,
so that an agreement of the two is evidence. One file per kind of item (`vote`, `pool`, `draft`, `chain`, `node`) on the terms
of the `offer`; `bound` puts them together.
"""

from __future__ import annotations

from counterpoint.lab.worlds.teamworld.config import Config

# -- What a call of each family knows and costs: the only thing about the team that one item's optimum needs ----------
# Always true: an offer is a pair of terms (A, B); a term is (knowledge g, points per call) or None where nobody of the family
# can be called. A dearer or less knowing offer is never worth more: every kind's value falls in the price, and a call that
# knows less can be imitated with one that knows more (turn the vote into a coin, look away from a find, a gain or a right
# attempt).

Term = tuple[float, float]
Offer = tuple[Term | None, Term | None]


def workers(config: Config, b: int) -> Offer:
    """Spawned agents of both families with a brief of size b, the right specialist, fresh: g = brief_factor[b]."""
    a, c = (price + config.brief_price * b for price in config.price)
    return ((config.brief_factor[b], a), (config.brief_factor[b], c))


def own(config: Config) -> Offer:
    """The orchestrator alone: family B, knowledge 1, no brief."""
    return (None, (1.0, config.price[1]))


def team(config: Config, b: int) -> Offer:
    """Agents, and the orchestrator if it works: its own calls know no less than a B agent's and cost no more."""
    return (workers(config, b)[0], own(config)[1]) if config.orchestrator_works else workers(config, b)


def best(config: Config) -> Offer:
    """No call of any policy knows more or costs less: the best brief at the price of none."""
    g = max(*config.brief_factor, 1.0 if config.orchestrator_works else 0.0)
    return ((g, config.price[0]), (g, config.price[1]))


def single(offer: Offer) -> list[tuple[int, Term]]:
    """The families on offer, each with its term."""
    return [(family, term) for family, term in enumerate(offer) if term is not None]
