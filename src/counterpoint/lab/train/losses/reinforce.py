"""Plain policy-gradient steps on advantages of the preset's credit mechanism (REINFORCE, Williams 1992).

    loss = -A log pi(decision)

Always true: one step over the whole batch is the first step of the clipped loss, at which every ratio is 1; several divide the
tasks of the batch among them, so that each episode is used once, and none has a ratio.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from counterpoint.lab.train.learner import update
from counterpoint.lab.train.loss import Learner, Loss
from counterpoint.lab.train.rollouts import Rollout
from counterpoint.lab.train.surrogates import Steps
from counterpoint.options import NonNegative, PositiveInt
from counterpoint.trace import Trace


@dataclass(frozen=True)
class Options:
    """How the step is made."""

    entropy: NonNegative = 0.005
    """Weight of the entropy bonus at the start; it falls to 0."""
    steps: PositiveInt = 1
    """Steps among which the tasks of an update are divided."""
    scale: bool = True
    """Divide advantages by their spread within a decision type and kind of item."""


def _learn(learner: Learner, o: Options, out: Rollout, traces: Sequence[Trace]) -> dict[str, float]:
    advantages, stats = learner.advantages(out, traces)
    bonus = o.entropy * (1 - learner.progress)
    steps = Steps(epochs=1, entropy=bonus, scale=o.scale, level="decision" if o.steps == 1 else "none")
    each, episodes, tasks = learner.balancer(out, traces), len(out.values), None if o.steps == 1 else out.seeds
    told = update(
        learner.net, learner.policy, out.tables, advantages, episodes, steps, learner.rng(1), balancer=each, parts=o.steps,
        tasks=tasks,
    )  # fmt: skip
    return stats | told


reinforce = Loss(source="REINFORCE, Williams 1992", takes=Options, learn=_learn, balances=True)
