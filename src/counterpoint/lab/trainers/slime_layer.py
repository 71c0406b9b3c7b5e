"""slime, vime and miles: their Samples in memory to credit, and back to the rewards and masks that their losses read.

    # a module `team_credit` of yours, on the path of the run
    credit = SlimeCredit(CreditLayer("agent_wise"))
    rewards, advantages = credit.rewards, credit.advantages

`--custom-reward-post-process-path team_credit.rewards` for all three: one advantage for each Sample. For slime and vime
`--custom-advantage-function-path team_credit.advantages` besides: one for each token. Samples of one run have the same
`rollout_id` (else the word `rollout`, else `index`), runs of one task the same `group_index`; `metadata["team"]` says who wrote
a Sample (`team_words`), and without it vime's `segment_kind` does.

Written by their sources, and not run against the real ones: THUDM/slime at 0d234f3e, vllm-project/vime at 72e4302c and 57e6e0bd,
radixark/miles at 01c59eec.

Always true: Samples that do not teach have a `loss_mask` of zeros, so that no term of the loss reads them; a run of which Samples
are missing (trimmed) is compared with nothing; tokens are not copied.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from counterpoint.errors import InputError, Refused
from counterpoint.lab.trainers.credit_batch import CreditBatch
from counterpoint.lab.trainers.layer import CreditLayer
from counterpoint.lab.trainers.rollout import Rollout, Sample, Status
from counterpoint.lab.trainers.rollout_metadata import Paid, check_payment, of_sample, team_reward, team_words

BROADCAST = ("grpo", "gspo", "cispo")
"""Estimators that give each token the reward of its Sample, unchanged."""


class Answer(Sequence[int]):
    """The last tokens of a list, without a copy."""

    __slots__ = ("size", "tokens")

    def __init__(self, tokens: Any, size: int) -> None:
        self.tokens, self.size = tokens, size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, places: Any) -> Any:
        first = len(self.tokens) - self.size
        if isinstance(places, slice):
            start, stop, step = places.indices(self.size)
            return self.tokens[first + start : first + stop : step]
        if not -self.size <= places < self.size:
            raise IndexError(places)
        return self.tokens[first + places % self.size]


class SlimeCredit:
    """The two functions that a run of slime, vime or miles names, with the last `batch` for who wants to look."""

    def __init__(self, layer: CreditLayer, *, paid: Paid = "team") -> None:
        """`paid`: whether a Sample's reward is that of its team, its own, or its part of the team's (reward / K)."""
        check_payment(paid)
        self.layer, self.paid, self.batch = layer, paid, CreditBatch([], [], [], {})

    def rollouts(self, args: Any, samples: Sequence[Any]) -> tuple[list[Rollout], list[int]]:
        """The Samples as runs of teams, and the place in `samples` of each of theirs, in order."""
        runs: dict[tuple[str, int], list[tuple[int, dict[str, Any]]]] = {}
        for i, sample in enumerate(samples):
            if isinstance(sample, Sequence):
                raise InputError("a list of lists", where=f"sample {i}", fix="Samples, flat, as slime hands them on")
            words = team_words(sample.metadata, f"sample {i}")
            runs.setdefault((_run_of(sample, words, i), int(words.get("attempt", 0))), []).append((i, words))
        rollouts = [self._rollout(args, samples, name, attempt, rows) for (name, attempt), rows in runs.items()]
        return rollouts, [i for rows in runs.values() for i, _ in rows]

    def rewards(self, args: Any, samples: Sequence[Any]) -> tuple[list[float], list[Any]]:
        """For --custom-reward-post-process-path: the rewards as they were paid, and advantages in their place.

        Advantages are one number for each Sample, or a tensor of one for each token where the run names an advantage function."""
        by_token = getattr(args, "custom_advantage_function_path", None) is not None
        _check_arguments(args, by_token)
        rollouts, order = self.rollouts(args, samples)
        versions = [s.version for r in rollouts for s in r.samples if s.version is not None]
        self.batch = self.layer(rollouts, version=max(versions, default=None))
        values: list[Any] = self.batch.arrays() if by_token else self.batch.numbers()
        out: list[Any] = [0.0] * len(samples)
        for place, value, mask, (_, own) in zip(order, values, self.batch.masks(), self.batch.samples, strict=True):
            if np.count_nonzero(mask) < (own.size if own.mask is None else np.count_nonzero(own.mask)):
                samples[place].loss_mask = mask.astype(int).tolist()
            out[place] = _tensor(value) if by_token else value
        return [_paid(args, sample) or 0.0 for sample in samples], out

    def advantages(self, args: Any, rollout_data: dict[str, Any]) -> None:
        """For --custom-advantage-function-path of slime and vime: `advantages` and `returns` from what `rewards` gave."""
        import torch

        out = []
        columns = ("rewards", "response_lengths", "kl", "sample_indices")
        for reward, size, like, index in zip(*(rollout_data[name] for name in columns), strict=True):
            where = f"sample {index}"
            if not isinstance(reward, torch.Tensor):
                fix = "--custom-reward-post-process-path of the same SlimeCredit"
                raise InputError(f"a reward of {type(reward).__name__}, not one for each token", where=where, fix=fix)
            if not len(reward) == int(size) == len(like):
                what, why = f"{len(like)} places for {len(reward)} advantages", "answers are cut over GPUs"
                raise InputError(
                    what, where=where, why=why, fix="--context-parallel-size 1, or no advantage function: one number each"
                )
            out.append(reward.to(device=like.device, dtype=torch.float32))
        rollout_data["advantages"], rollout_data["returns"] = out, [value.clone() for value in out]

    def _rollout(
        self, args: Any, samples: Sequence[Any], name: str, attempt: int, rows: Sequence[tuple[int, dict[str, Any]]]
    ) -> Rollout:
        own = [samples[i] for i, _ in rows]
        tasks = {_task_of(samples[i], words, name) for i, words in rows}
        if len(tasks) > 1:
            raise InputError(f"samples of {len(tasks)} tasks", where=name, fix="a rollout_id of its own for each run")
        rewards = [_paid(args, sample) for sample in own]
        status: Status = "complete"
        trimmed = len(own) < _expected(own[0], rows[0][1])
        if trimmed or all(_status(sample) == "aborted" for sample in own) or all(x is None for x in rewards):
            status = "aborted"
        reward = None if status == "aborted" else team_reward(rewards, self.paid, name)
        made = [_sample(sample, _without_links(words) if trimmed else words, x if self.paid == "sample" else None)
                for sample, (_, words), x in zip(own, rows, rewards, strict=True)]  # fmt: skip
        return Rollout(name, tasks.pop(), made, reward=reward, attempt=attempt, status=status, about=own)


def _run_of(sample: Any, words: Mapping[str, Any], place: int) -> str:
    for name in (words.get("rollout"), getattr(sample, "rollout_id", None), getattr(sample, "group_id", None), sample.index):
        if name is not None:
            return str(name)
    raise InputError(
        "neither rollout_id nor index", where=f"sample {place}", fix="the same rollout_id for the Samples of one run"
    )


def _task_of(sample: Any, words: Mapping[str, Any], name: str) -> str:
    task = words.get("task", sample.group_index)
    if task is None:
        raise InputError("no group_index", where=name, fix="group_index, or metadata['team']['task']")
    return str(task)


def _expected(sample: Any, words: Mapping[str, Any]) -> int:
    """How many Samples the run had when it ended, where that is said."""
    return int(words.get("samples") or (sample.metadata or {}).get("num_segments") or 0)


def _without_links(words: Mapping[str, Any]) -> dict[str, Any]:
    """The words of a Sample whose parent may have been trimmed away."""
    return {word: value for word, value in words.items() if word not in ("parent", "reads")}


def _paid(args: Any, sample: Any) -> float | None:
    if sample.reward is None:
        return None
    value = sample.reward[args.reward_key] if getattr(args, "reward_key", None) else sample.reward
    if not isinstance(value, int | float | np.number) or not math.isfinite(value):
        raise InputError(f"the reward is {value!r}", where=f"sample {sample.index}", fix="a number, or --reward-key")
    return float(value)


def _status(sample: Any) -> Status:
    told = getattr(sample.status, "value", sample.status)
    if told == "aborted":
        return "aborted"
    if getattr(sample, "remove_sample", False):
        return "dropped"
    return "truncated" if told == "truncated" else "complete"


def _sample(sample: Any, words: Mapping[str, Any], reward: float | None) -> Sample:
    told = of_sample(words)
    if "agent" not in told and (kind := (sample.metadata or {}).get("segment_kind")):
        told["agent"] = "subagent" if kind == "subagent" else "main"
    adapter = getattr(getattr(sample, "adapter", None), "name", None)
    if "policy" not in told and adapter is not None:
        told["policy"] = str(adapter)
    told.setdefault("version", _version(sample))
    mask = None if sample.loss_mask is None else np.asarray(sample.loss_mask, bool)  # of a list, once
    return Sample(
        ids=Answer(sample.tokens, sample.response_length), mask=mask, logps=sample.rollout_log_probs, reward=reward,
        status=_status(sample), **told,
    )  # fmt: skip


def _version(sample: Any) -> int | None:
    """The oldest weights that spoke in it."""
    try:
        return min((int(version) for version in sample.weight_versions or ()), default=None)
    except ValueError:
        return None


def _tensor(value: Any) -> Any:
    import torch

    return torch.from_numpy(value)


def _check_arguments(args: Any, by_token: bool) -> None:
    """Refuse what would change the advantages on their way to the loss."""
    if getattr(args, "normalize_advantages", False):
        raise Refused("--normalize-advantages", where="slime", why="it would whiten the credit", fix="leave it out")
    estimator = getattr(args, "advantage_estimator", "grpo")
    if not by_token and estimator not in BROADCAST:
        why = "it makes something else of a reward"
        raise Refused(f"--advantage-estimator {estimator}", where="slime", why=why, fix=f"one of {', '.join(BROADCAST)}")
