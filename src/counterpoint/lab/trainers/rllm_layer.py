"""rLLM: Episodes in memory to credit, and back as an advantage for each token of each Step.

    AgentTrainer(..., traj_grouping_hook=RLLMCredit(CreditLayer("agent_wise")))   # rllm.algorithm.use_precomputed_advantage=true

The hook is rLLM's own: it takes the Episodes of a batch, fills in `step.advantage`, and groups by what rLLM groups by. A
Trajectory's name is its agent; `metadata["team"]` of a Trajectory or a Step says more (`team_words`): `parent` is the name of the
Trajectory that called it, `after` the Step of that one.

Written by its source, and not run against the real one: rllm-org/rllm at 4b756cf1 (advantages), d1361cc4 (groups) and 94845b62
(trainer, whose asynchronous loop takes no hook).

Always true: an advantage is a list of the length of `response_ids`, since rLLM takes zeros for any other; Trajectories of which
no Step teaches are in no group, so that no term of the loss reads them; Episodes, Trajectories and Steps are not copied.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from counterpoint.errors import InputError
from counterpoint.lab.trainers.credit_batch import CreditBatch
from counterpoint.lab.trainers.layer import CreditLayer
from counterpoint.lab.trainers.rollout import Rollout, Sample, Status
from counterpoint.lab.trainers.rollout_metadata import Paid, check_payment, of_call, team_reward, team_words

Group = Callable[..., list[Any]]


class RLLMCredit:
    """A `traj_grouping_hook` of rLLM, with the last `batch` for who wants to look."""

    def __init__(self, layer: CreditLayer, *, paid: Paid = "team", group: Group | None = None) -> None:
        """`paid`: whether a Trajectory's reward is that of its team, its own, or a part of the team's. `group` makes the groups
        (None: rLLM's own hook)."""
        check_payment(paid)
        self.layer, self.paid, self.group, self.batch = layer, paid, group, CreditBatch([], [], [], {})

    def __call__(self, episodes: Sequence[Any], transform_config: Any, compact_filtering_config: Any = None) -> list[Any]:
        """Groups of Trajectories whose Steps have their advantages."""
        made = [self._rollout(episode, compact_filtering_config) for episode in episodes]
        versions = [s.version for r, _ in made for s in r.samples if s.version is not None]
        self.batch = self.layer([rollout for rollout, _ in made], version=max(versions, default=None))
        steps = [step for _, own in made for step in own]
        taught = set()
        for step, advantages, mask in zip(steps, self.batch.arrays(), self.batch.masks(), strict=True):
            step.advantage = advantages.tolist()
            if mask.any():
                taught.add(id(step))
        self.batch.check([np.asarray(step.advantage, np.float32) for step in steps])
        group = _rllm_group() if self.group is None else self.group
        return _without_silent(group(episodes, transform_config, compact_filtering_config), taught)

    def _rollout(self, episode: Any, compact: Any) -> tuple[Rollout, list[Any]]:
        samples: list[Sample] = []
        steps: list[Any] = []
        paid: list[float | None] = []
        names = [trajectory.name for trajectory in episode.trajectories]
        for t, trajectory in enumerate(episode.trajectories):
            where = f"{episode.id} {trajectory.name}"
            about = team_words(trajectory.metadata, where)
            reward = _reward_of(trajectory, where)
            paid.append(reward)
            for s, step in enumerate(trajectory.steps):
                words = about | team_words(step.metadata, f"{where} step {s}")
                own = reward if self.paid == "sample" and s == len(trajectory.steps) - 1 else None
                samples.append(_sample(trajectory, step, of_call(words, t, s, names, where), own))
                steps.append(step)
        aborted = all(x is None for x in paid)
        masked = (
            compact is not None and episode.termination_reason is not None and compact.should_mask(episode.termination_reason)
        )
        status: Status = "aborted" if aborted else "dropped" if masked else "complete"
        reward = None if aborted else team_reward(paid, self.paid, episode.id)
        return Rollout(episode.id, episode.task_id, samples, reward=reward, status=status, about=episode), steps


def _sample(trajectory: Any, step: Any, told: Mapping[str, Any], reward: float | None) -> Sample:
    own = {"agent": trajectory.name, "version": getattr(step, "weight_version", None)} | dict(told)
    return Sample(ids=step.response_ids, logps=step.logprobs or None, prompt_ids=step.prompt_ids, reward=reward, **own)


def _reward_of(trajectory: Any, where: str) -> float | None:
    """Of the Trajectory, or else of its last Step, as rLLM has it."""
    value = trajectory.reward
    if value is None and trajectory.steps:
        value = trajectory.steps[-1].reward
    if value is not None and not math.isfinite(value):
        raise InputError(f"the reward is {value}", where=where, fix="None where there is none")
    return None if value is None else float(value)


def _without_silent(groups: Sequence[Any], taught: set[int]) -> list[Any]:
    """The groups without Trajectories that do not teach."""
    out = []
    for group in groups:
        kept = [any(id(step) in taught for step in trajectory.steps) for trajectory in group.trajectories]
        about = group.metadata
        group.trajectories = [trajectory for trajectory, keep in zip(group.trajectories, kept, strict=True) if keep]
        if len(about) == len(kept):
            group.metadata = [one for one, keep in zip(about, kept, strict=True) if keep]
        if group.trajectories:
            out.append(group)
    return out


def _rllm_group() -> Group:
    from rllm.trainer.algorithms import transform

    own: Group = transform._default_traj_grouping_hook
    return own
