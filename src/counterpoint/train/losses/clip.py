"""Clipped policy steps (PPO) on advantages of the preset's credit mechanism.

    loss = max(-A rho, -A clip(rho, 1 - clip, 1 + clip_high)),  rho = pi(decision) / pi_old(decision)

Always true: the mean is over the rows of each decision type, then the sum over types, so that an episode with many items does not
outweigh many with few. Ratios are per decision.

PPO arXiv 1707.06347; clip-higher: DAPO arXiv 2503.14476; dual clip arXiv 1912.09729.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from counterpoint.trace import Trace
from counterpoint.train.learner import Steps, update
from counterpoint.train.loss import Learner, Loss
from counterpoint.train.rollouts import Rollout


@dataclass(frozen=True)
class Options(Steps):
    """How an update is made; all of it is `Steps`."""


def _learn(learner: Learner, o: Options, out: Rollout, traces: Sequence[Trace]) -> dict[str, float]:
    advantages, stats = learner.advantages(out, traces)
    steps = replace(o, entropy=o.entropy * (1 - learner.progress))
    each, episodes = learner.balancer(out, traces), len(out.values)
    return stats | update(learner.net, learner.policy, out.tables, advantages, episodes, steps, learner.rng(1), balancer=each)


clip = Loss(source="PPO, arXiv 1707.06347", takes=Options, learn=_learn, balances=True)
