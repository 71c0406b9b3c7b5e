"""Clipped policy steps (PPO) on advantages of the preset's credit mechanism, of decisions, turns or sequences.

    loss = max(-A rho, -A clip(rho, 1 - clip, 1 + clip_high)),  rho = pi(decision) / pi_old(decision)

Always true: with the defaults the mean is over the rows of each decision type, then the sum over types, so that an episode with
many items does not outweigh many with few, and ratios are per decision. Other levels, means, PARL's mask and a KL to the network
at the start are options (`surrogates.Steps`).

PPO arXiv 1707.06347; clip-higher: DAPO arXiv 2503.14476; dual clip arXiv 1912.09729; turns: ReMA arXiv 2503.09501; sequences:
GSPO arXiv 2507.18071; mask and pull: PARL (Kimi K2.5) arXiv 2602.02276; KL: k1 to k3 as in GRPO arXiv 2402.03300.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from counterpoint.lab.train.learner import log_probs, update
from counterpoint.lab.train.loss import Learner, Loss
from counterpoint.lab.train.rollouts import Rollout
from counterpoint.lab.train.surrogates import Reference, Steps, less_kl
from counterpoint.trace import Trace

_TABLE = {"brief": "item", "point": "item", "size": "spawn"}


@dataclass(frozen=True)
class Options(Steps):
    """How an update is made; all of it is `Steps`."""


def _learn(learner: Learner, o: Options, out: Rollout, traces: Sequence[Trace]) -> dict[str, float]:
    advantages, stats = learner.advantages(out, traces)
    steps = replace(o, entropy=o.entropy * (1 - learner.progress))
    each, episodes, ref = learner.balancer(out, traces), len(out.values), None
    if o.kl_weight:
        assert isinstance(learner.module, Reference)
        with torch.no_grad():
            then = log_probs(learner.module.network(learner.net), out.tables)[0]
            now = log_probs(learner.net, out.tables)[0]
        ref = {name: x.numpy().astype(np.float64) for name, x in then.items()}
        if o.kl_in == "reward":
            own = {name: x.numpy().astype(np.float64) for name, x in now.items()}
            advantages = less_kl(advantages, _places(out, [name for name in advantages if name in own]), own, ref, o.kl_weight)
    rng = learner.rng(1)
    return stats | update(learner.net, learner.policy, out.tables, advantages, episodes, steps, rng, balancer=each, ref=ref)


def _places(out: Rollout, names: Iterable[str]) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """(episode, round, agent) of every row, by decision type; the orchestrator is agent 0."""
    found = {}
    for name in names:
        t = out.tables[_TABLE.get(name, name)]
        found[name] = (t["ep"], t["round"], t["agent"] if name in ("worker", "act", "option") else np.zeros_like(t["ep"]))
    return found


clip = Loss(source="PPO, arXiv 1707.06347", takes=Options, learn=_learn, balances=True, module=Reference)
