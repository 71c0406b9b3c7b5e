"""A rollout as trainers have it in memory: the samples of one run of a team, with the trainer's own arrays.

Always true: token ids, masks and log-probabilities are the trainer's objects and are never copied; a sample's mask,
log-probabilities and advantages have as many places as its `ids`. What is wrong with a rollout is one error that names it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from counterpoint.errors import InputError

Status = Literal["complete", "truncated", "aborted", "dropped"]
STATUSES: tuple[Status, ...] = ("complete", "truncated", "aborted", "dropped")
Span = tuple[int, int]


@dataclass(frozen=True, eq=False, slots=True)
class Sample:
    """One row of a trainer: what an agent wrote in one call, or in several calls with what it read between them."""

    ids: Any
    """The tokens that advantages are for (an answer, or prompt and answer together): list, array or tensor."""
    agent: str = "agent"
    role: str | None = None
    policy: str = "policy"
    """Which learner the sample is for: a model or an adapter."""
    mask: Any = None
    """1 for each of the tokens that the policy wrote, 0 for what it read; None: it wrote all of them."""
    logps: Any = None
    """Of each token, under what it was sampled from; only looked at for its length."""
    prompt_ids: Any = None
    """What stands before `ids`, where the trainer keeps it apart; never looked at."""
    name: str | None = None
    """Unique in the rollout; None: its place."""
    parent: str | None = None
    """The sample whose agent called this one's, or which this one continues where the agent is the same."""
    after: int = 0
    """The call of the parent after which that was, from 0."""
    reads: Sequence[str] = ()
    """Further samples of the rollout whose results this one read."""
    reward: float | None = None
    """What was paid for this sample itself; None: nothing was."""
    spans: Sequence[Span] | None = None
    """The calls, as first place and place after the last; None: the runs of the mask."""
    calls: Sequence[Hashable] | None = None
    """A name for each call, the same wherever forks of a task repeat it; None: no call is repeated."""
    version: int | None = None
    """The number of the weights that spoke."""
    frozen: bool = False
    """Written by a model that does not learn."""
    status: Status = "complete"
    """`truncated`: cut off by a limit; `dropped`: the trainer leaves it out; `aborted`: it never ended."""

    @property
    def size(self) -> int:
        """How many tokens it has."""
        return len(self.ids)

    def mask_of(self) -> NDArray[np.bool_] | None:
        """The mask as an array; None where all tokens were written."""
        return None if self.mask is None else np.asarray(self.mask).astype(bool, copy=False)

    def calls_at(self) -> list[Span]:
        """First place and place after the last of every call."""
        if self.spans is not None:
            return [(int(a), int(b)) for a, b in self.spans]
        mask = self.mask_of()
        if mask is None:
            return [(0, self.size)] if self.size else []
        if not len(mask):
            return []
        edges = [0] * bool(mask[0]) + (np.flatnonzero(mask[1:] != mask[:-1]) + 1).tolist() + [len(mask)] * bool(mask[-1])
        return list(zip(edges[::2], edges[1::2], strict=True))


@dataclass(frozen=True, eq=False, slots=True)
class Rollout:
    """One run of a team on one task, as a trainer has it before it learns."""

    name: str
    """Unique in the batch, over all ranks."""
    task: str
    """Rollouts of one task are compared with each other."""
    samples: Sequence[Sample]
    reward: float | None = None
    """Of the team; None: the sum of what its samples were paid."""
    attempt: int = 0
    """Of several attempts under one name the last counts."""
    status: Status = "complete"
    """`aborted`: it has no reward and is compared with nothing; `truncated` and `dropped`: it is compared, as it was paid."""
    about: Any = None
    """Whatever a checker wants to know: the trainer's own object."""

    @property
    def agents(self) -> list[str]:
        """Who acts in it, in order of first appearance."""
        return list(dict.fromkeys(sample.agent for sample in self.samples))

    def names(self) -> list[str]:
        """The name of each sample."""
        return [str(i) if sample.name is None else sample.name for i, sample in enumerate(self.samples)]

    def team_reward(self) -> float:
        """What the team was paid; refused where nobody says it."""
        paid = [s.reward for s in self.samples if s.reward is not None]
        if self.reward is None and not paid:
            raise InputError("no reward", where=self.name, fix="reward= of the rollout or of samples, or status='aborted'")
        return math.fsum(paid) if self.reward is None else float(self.reward)


def check_rollouts(rollouts: Collection[Rollout]) -> None:
    """Refuse what would be credited wrongly; the error names the rollout and the sample."""
    seen: set[tuple[str, int]] = set()
    for place, rollout in enumerate(rollouts):
        if not isinstance(rollout, Rollout):
            what = f"a {type(rollout).__name__} where a rollout is expected"
            raise InputError(what, where=f"rollouts[{place}]", fix="a list of counterpoint.lab.trainers.rollout.Rollout")
        for name, value in (("name", rollout.name), ("task", rollout.task)):
            if not isinstance(value, str):
                raise InputError(f"its {name} is {value!r}", where=str(rollout.name), fix="a text")
        if (rollout.name, rollout.attempt) in seen:
            fix = "a name for each rollout, or attempt= for those that were tried again"
            raise InputError("two rollouts of one name", where=rollout.name, fix=fix)
        seen.add((rollout.name, rollout.attempt))
        if rollout.status not in STATUSES:
            raise InputError(f"no status {rollout.status!r}", where=rollout.name, fix=", ".join(STATUSES))
        if rollout.status != "aborted" and not math.isfinite(rollout.team_reward()):
            raise InputError(f"the reward is {rollout.reward}", where=rollout.name, fix="status='aborted' where none is known")
        _check_samples(rollout)


def _check_samples(rollout: Rollout) -> None:
    names = rollout.names()
    if len(set(names)) < len(names):
        raise InputError("two samples of one name", where=rollout.name, fix="name= unique in the rollout, or none at all")
    known = set(names)
    for name, sample in zip(names, rollout.samples, strict=True):
        where = f"{rollout.name} sample {name}"
        for other in (sample.parent, *sample.reads):
            if other is not None and other not in known:
                raise InputError(f"no sample {other!r}", where=where, fix="parent and reads name samples of the same rollout")
        if not isinstance(sample.agent, str) or sample.after < 0 or not hasattr(sample.ids, "__len__"):
            what = f"agent {sample.agent!r}, after {sample.after}, ids of type {type(sample.ids).__name__}"
            raise InputError(what, where=where, fix="a text, a number from 0 on, and a list, an array or a tensor")
        for what in ("mask", "logps"):
            values = getattr(sample, what)
            if values is not None and len(values) != sample.size:
                fix = "one for each token"
                raise InputError(f"{len(values)} places of {what} for {sample.size} tokens", where=where, fix=fix)
        _check_mask(sample, where)
        if sample.reward is not None and not math.isfinite(sample.reward):
            raise InputError(f"the reward is {sample.reward}", where=where, fix="None where nothing was paid")
        if sample.status not in STATUSES:
            raise InputError(f"no status {sample.status!r}", where=where, fix=", ".join(STATUSES))
        if sample.spans is not None or sample.calls is not None:
            _check_calls(sample, where)


def _check_mask(sample: Sample, where: str) -> None:
    if sample.mask is None:
        return
    mask = np.asarray(sample.mask)
    if mask.ndim != 1 or not (mask.dtype == np.bool_ or not mask.size or bool(((mask == 0) | (mask == 1)).all())):
        raise InputError("a mask that is not a row of 0 and 1", where=where, fix="1 for each token that the policy wrote, else 0")


def _check_calls(sample: Sample, where: str) -> None:
    spans = sample.calls_at()
    ends = [0, *(b for _, b in spans)]
    if any(not before <= a < b <= sample.size for before, (a, b) in zip(ends, spans, strict=False)):
        raise InputError(f"spans {spans} of {sample.size} tokens", where=where, fix="in order, apart, and within the tokens")
    if sample.calls is not None and len(sample.calls) != len(spans):
        raise InputError(f"{len(sample.calls)} names for {len(spans)} calls", where=where, fix="a name for each call")
