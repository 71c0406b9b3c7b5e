"""Behaviour cloning: the recorded decisions become likely, whatever they were worth.

    loss = -log pi(decision),  the mean over the rows of each decision type, then the sum over types

Always true: no credit is read, so there is nothing that the log must identify; the result is at best as good as what was
recorded. Critics are fitted on the same episodes, for what comes after. (Pomerleau, ALVINN, 1988.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from counterpoint.lab.train.learner import EXTRA, finite, log_probs, rows_of
from counterpoint.lab.train.loss import Learner, Loss
from counterpoint.lab.train.rollouts import Rollout
from counterpoint.options import PositiveInt
from counterpoint.trace import Trace

_MAX_NORM = 1.0  # of the gradient


@dataclass(frozen=True)
class Options:
    """How the steps are made."""

    steps: PositiveInt = 12
    """On the whole batch, per update."""


def _learn(learner: Learner, o: Options, out: Rollout, traces: Sequence[Trace]) -> dict[str, float]:
    stats = learner.fit_critics(out)
    tables = {n: t for n, t in out.tables.items() if n not in ("worker", *EXTRA)}
    names = ("item", "brief", "point", "stop", "rule", "talk", "spawn")
    ones = {n: np.ones(len(tables[_table(n)]["ep"])) for n in names if _table(n) in tables}
    rows = rows_of(tables, ones, scale=False)
    for _ in range(o.steps):
        logp = log_probs(learner.net, tables)[0]
        loss = torch.stack([-logp[n][torch.from_numpy(r.at)].mean() for n, r in rows.items()]).sum()
        learner.policy.zero_grad()
        finite(loss, "cloning").backward()
        torch.nn.utils.clip_grad_norm_(learner.net.policy_parameters(), _MAX_NORM)
        learner.policy.step()
    return stats | {"loss": float(loss.detach())}


def _table(name: str) -> str:
    return "item" if name in ("brief", "point") else name


clone = Loss(source="behaviour cloning (Pomerleau 1988)", takes=Options, learn=_learn)
