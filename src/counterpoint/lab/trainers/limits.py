"""Which rollouts are compared and which samples teach: what was aborted, tried again, dropped, cut off or is too old.

Always true: whatever does not teach has a reason, and what was kept out for it is in the account of its rollout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from counterpoint.errors import InputError
from counterpoint.lab.trainers.rollout import Rollout, Sample, is_count


@dataclass(frozen=True)
class Limits:
    """What a sample must be, to teach."""

    most_stale: int | None = None
    """Updates that its weights may be behind."""
    truncated: bool = True
    """Whether samples that a limit cut off teach; their reward counts in the comparison either way."""
    group_size: int | None = None
    """Rollouts that a task must have; a group of fewer is refused, since its others are somewhere else."""

    def __post_init__(self) -> None:
        for name, value in (("most_stale", self.most_stale), ("group_size", self.group_size)):
            if value is not None and not is_count(value):
                raise InputError(f"{name}={value!r}", where="Limits", fix="a number from 0 on, or None")


class KeptOut(NamedTuple):
    """Why a rollout is not compared, and why a sample does not teach; None where it is, and does."""

    rollouts: list[str | None]
    samples: list[list[str | None]]


def kept_out(rollouts: Sequence[Rollout], limits: Limits, version: int | None) -> KeptOut:
    """The reasons of all rollouts and of all their samples."""
    last: dict[str, int] = {}
    for rollout in rollouts:
        last[rollout.name] = max(rollout.attempt, last.get(rollout.name, rollout.attempt))
    whole: list[str | None] = []
    for rollout in rollouts:
        reason = "retried" if rollout.attempt < last[rollout.name] else "aborted" if rollout.status == "aborted" else None
        whole.append(reason or (None if any(s.calls_at() for s in rollout.samples) else "wrote nothing"))
    samples = [[why or _of_rollout(r, limits) or _of_sample(r, s, limits, version) for s in r.samples]
               for r, why in zip(rollouts, whole, strict=True)]  # fmt: skip
    return KeptOut(whole, samples)


def _of_rollout(rollout: Rollout, limits: Limits) -> str | None:
    if rollout.status == "truncated" and limits.truncated:
        return None
    return None if rollout.status == "complete" else rollout.status


def _of_sample(rollout: Rollout, sample: Sample, limits: Limits, version: int | None) -> str | None:
    if sample.frozen:
        return "frozen"
    if sample.status in ("aborted", "dropped") or (sample.status == "truncated" and not limits.truncated):
        return sample.status
    if limits.most_stale is None:
        return None
    if version is None or sample.version is None:
        what = "most_stale, and no version that learns" if version is None else "most_stale, and a sample without a version"
        raise InputError(what, where=rollout.name, fix="layer(rollouts, version=the trainer's step), Sample(version=...)")
    return "stale" if version - sample.version > limits.most_stale else None
