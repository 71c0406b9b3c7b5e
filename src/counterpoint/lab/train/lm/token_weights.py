"""What a token weighs in an update of a language model: the same everywhere, or by rollout, agent or turn.

    token     1 / T                    T tokens in all
    rollout   1 / (T_i G)              T_i tokens of rollout i, G rollouts                     Agent Lightning, arXiv 2508.03680
    agent     1 / (T_a N_i G)          T_a tokens of agent a, N_i agents of its rollout i      WideSeek-R1, arXiv 2602.04634
    turn      1 / (T_c C_i G)          T_c tokens of call c, C_i calls of its rollout i        ReMA, arXiv 2503.09501

Always true: the weights of all tokens of an update sum to 1. Counted is what the policy learns from in this update: calls whose
advantage is 0, or whose role does not learn, are not there. Agent Lightning divides by the rows of the batch where G stands here,
a factor that all tokens share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np

from counterpoint.credits.mechanisms.agent_lightning import token_divisors
from counterpoint.credits.mechanisms.wideseek import agent_token_weights
from counterpoint.errors import InputError

WEIGHTS = ("token", "rollout", "agent", "turn")


class CallPlace(NamedTuple):
    """Where a call stands, and how long it is."""

    rollout: Hashable
    agent: Hashable
    tokens: int


def token_weights(weigh: str, calls: Sequence[CallPlace]) -> list[float]:
    """What each token of a call weighs, call by call."""
    if weigh not in WEIGHTS:
        raise InputError(f"no weights by {weigh!r}", fix=" or ".join(WEIGHTS))
    total, rollouts = sum(c.tokens for c in calls), list(dict.fromkeys(c.rollout for c in calls))
    if weigh == "token":
        return [1 / total] * len(calls)
    if weigh == "rollout":
        number = {name: i for i, name in enumerate(rollouts)}
        divisors = token_divisors([number[c.rollout] for c in calls], [c.tokens for c in calls])
        return (len(calls) / len(rollouts) / np.asarray(divisors)).tolist() if calls else []
    if weigh == "turn":
        turns = Counter(c.rollout for c in calls)
        return [1 / (c.tokens * turns[c.rollout] * len(rollouts)) for c in calls]
    own: Counter[tuple[Hashable, Hashable]] = Counter()
    for c in calls:
        own[c.rollout, c.agent] += c.tokens
    weight: dict[tuple[Hashable, Hashable], float] = {}
    for rollout in rollouts:
        agents = [place for place in own if place[0] == rollout]
        weight |= dict(zip(agents, agent_token_weights([own[a] for a in agents]), strict=True))
    return [weight[c.rollout, c.agent] / len(rollouts) for c in calls]
