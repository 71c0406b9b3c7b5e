"""plugin_name: one policy-gradient step on clipped advantages, so that no single row decides.

    loss = -max(-most, min(most, A)) log pi(decision)

Always true: an advantage within the limits counts as it is; the mean is over the rows of a decision type, then over types.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from counterpoint.trace import Trace
from counterpoint.lab.train.learner import update
from counterpoint.lab.train.surrogates import Steps
from counterpoint.lab.train.loss import Learner, Loss
from counterpoint.lab.train.rollouts import Rollout


@dataclass(frozen=True)
class Options:
    """How the step is made."""

    most: float = 2.0
    """Where advantages are cut off, in either direction."""


def limited(advantage: np.ndarray, most: float) -> np.ndarray:
    """The advantages, none beyond `most`."""
    return np.clip(advantage, -most, most)


def _learn(learner: Learner, o: Options, out: Rollout, traces: Sequence[Trace]) -> dict[str, float]:
    advantages, stats = learner.advantages(out, traces)
    cut = {name: limited(a, o.most) for name, a in advantages.items()}
    steps, episodes = Steps(epochs=1), len(out.values)
    return stats | update(learner.net, learner.policy, out.tables, cut, episodes, steps, learner.rng(1), parts=1)


plugin_name = Loss(source="an example of how a loss is written", takes=Options, learn=_learn)


# -- test_plugin_name.py -----------------------------------------------------------------------------------------------
"""plugin_name keeps the contract of a loss, and cuts off what was cut off by hand."""

import numpy as np

# from here import limited, plugin_name
from counterpoint.lab.testing import check_loss


def test_it_keeps_the_contract() -> None:
    check_loss(plugin_name)


def test_a_limit_by_hand() -> None:
    assert limited(np.array([-5.0, 1.0, 2.5]), 2.0).tolist() == [-2.0, 1.0, 2.0]
