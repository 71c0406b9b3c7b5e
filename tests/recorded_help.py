"""What slime, vime, miles and rLLM do with what our hooks give them, as read in their public sources and written anew: not they themselves.

slime at 0d234f3e and 2bebc099, vime at 72e4302c, miles at 01c59eec: a Sample's fields, the conversion to training data, the split over
ranks, the logs, the advantages. rLLM at 4b756cf1 and d1361cc4: its types, its groups, what it takes as precomputed advantages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import SimpleNamespace
from typing import Any

import torch


class Status(Enum):
    PENDING = "pending"
    COMPLETED = "completed"
    TRUNCATED = "truncated"
    ABORTED = "aborted"
    FAILED = "failed"


@dataclass
class Sample:
    """The fields of slime's Sample that matter here; `rollout_id` is vime's and slime's, `adapter` is miles'."""

    group_index: int | None = None
    index: int | None = None
    rollout_id: int | None = None
    tokens: list[int] = field(default_factory=list)
    response_length: int = 0
    reward: Any = None
    loss_mask: list[int] | None = None
    weight_versions: list[str] = field(default_factory=list)
    rollout_log_probs: list[float] | None = None
    remove_sample: bool = False
    status: Status = Status.COMPLETED
    metadata: dict[str, Any] = field(default_factory=dict)
    adapter: Any = None


def arguments(**more: Any) -> SimpleNamespace:
    return SimpleNamespace(**{"reward_key": None, "advantage_estimator": "grpo", "normalize_advantages": False} | more)


def train_data(args: Any, samples: Sequence[Sample], post_process: Any) -> dict[str, list[Any]]:
    """Samples as columns: what RolloutManager makes, after the function that a run names for rewards."""
    raw, rewards = post_process(args, samples)
    assert len(raw) == len(rewards) == len(samples)
    for sample in samples:
        sample.loss_mask = [1] * sample.response_length if sample.loss_mask is None else sample.loss_mask
        assert len(sample.loss_mask) == sample.response_length
        sample.loss_mask = [0] * sample.response_length if sample.remove_sample else sample.loss_mask
    total: dict[Any, int] = {}
    for sample in samples:
        total[sample.rollout_id] = total.get(sample.rollout_id, 0) + sum(sample.loss_mask or ())
    return {
        "tokens": [s.tokens for s in samples], "response_lengths": [s.response_length for s in samples], "rewards": list(rewards),
        "raw_reward": list(raw), "loss_masks": [s.loss_mask for s in samples], "sample_indices": [s.index for s in samples],
        "rollout_mask_sums": [total[s.rollout_id] for s in samples],
    }  # fmt: skip


def on_rank(data: dict[str, list[Any]], rows: Sequence[int]) -> dict[str, Any]:
    """The columns of a rank, with log-probabilities as its forward pass makes them: any, here."""
    out: dict[str, Any] = {key: [values[i] for i in rows] for key, values in data.items()}
    out["loss_masks"] = [torch.tensor(mask) for mask in out["loss_masks"]]
    out["kl"] = [torch.zeros(n) for n in out["response_lengths"]]
    return out


def compute_advantages(args: Any, rollout_data: dict[str, Any], function: Any = None) -> None:
    """The advantages of a rank: the function that a run names, or else each Sample's reward at each of its tokens."""
    if function is not None:
        function(args, rollout_data)
        return
    rewards = torch.tensor(rollout_data["rewards"], dtype=torch.float32)
    rollout_data["advantages"] = [torch.ones_like(kl) * reward for kl, reward in zip(rollout_data["kl"], rewards, strict=True)]


def log_rollout_data(rollout_data: dict[str, Any]) -> dict[str, float]:
    """The means that slime logs: of tensors end to end, of anything else one by one."""
    skip = ("tokens", "loss_masks", "sample_indices")
    out = {}
    for key, values in rollout_data.items():
        if key not in skip:
            whole = torch.cat(values).float().mean().item() if isinstance(values[0], torch.Tensor) else sum(values) / len(values)
            out[key] = whole
    return out


def taught(data: dict[str, Any]) -> list[list[float | None]]:
    """For each Sample what its tokens are taught; None where the mask leaves one out."""
    return [[round(float(a), 6) if m else None for a, m in zip(row, mask, strict=True)]
            for row, mask in zip(data["advantages"], data["loss_masks"], strict=True)]  # fmt: skip


@dataclass
class Step:
    prompt_ids: list[int] = field(default_factory=list)
    response_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    reward: float = 0.0
    metadata: dict[str, Any] | None = None
    advantage: Any = None
    weight_version: int | None = None


@dataclass
class Trajectory:
    name: str = "agent"
    steps: list[Step] = field(default_factory=list)
    reward: float | None = None
    metadata: dict[str, Any] | None = None


@dataclass
class Episode:
    id: str = ""
    trajectories: list[Trajectory] = field(default_factory=list)
    termination_reason: Any = None
    is_correct: bool = False

    @property
    def task_id(self) -> str:
        return self.id.split(":")[0]


@dataclass
class TrajectoryGroup:
    trajectories: list[Trajectory]
    group_id: str
    metadata: list[dict[str, Any]]


def group_by_task_and_name(episodes: Sequence[Episode], transform_config: Any, compact: Any = None) -> list[TrajectoryGroup]:
    """rLLM's own hook: Trajectories of one task and one name, without those of masked Episodes."""
    groups: dict[str, TrajectoryGroup] = {}
    for episode in episodes:
        if compact is not None and compact.should_mask(episode.termination_reason):
            continue
        for trajectory in episode.trajectories:
            if trajectory.steps:
                name = f"{episode.task_id}:{trajectory.name}"
                group = groups.setdefault(name, TrajectoryGroup([], name, []))
                group.trajectories.append(trajectory)
                group.metadata.append({"task_id": episode.task_id})
    return list(groups.values())


def precomputed(groups: Sequence[TrajectoryGroup]) -> list[list[float]]:
    """What rLLM takes as advantages of each Step: the list, or zeros where it has another length."""
    out = []
    for step in (s for group in groups for t in group.trajectories for s in t.steps):
        assert isinstance(step.advantage, list)
        out.append(step.advantage if len(step.advantage) == len(step.response_ids) else [0.0] * len(step.response_ids))
    return out
