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
_MOST = float(np.finfo(np.float32).max)
"""Advantages are float32."""


def plain(values: Any) -> NDArray[Any]:
    """An array of a list, of an array, or of a tensor of any device and precision."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        return np.asarray(values.float() if values.is_floating_point() else values)
    return np.asarray(values)


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
        return None if self.mask is None else plain(self.mask).astype(bool, copy=False)

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
    if isinstance(rollouts, Rollout) or not isinstance(rollouts, Collection):
        what = f"a {type(rollouts).__name__} where a list of rollouts is expected"
        raise InputError(what, where="credit layer", fix="[rollout, ...]")
    seen: dict[str, set[int]] = {}
    tasks: dict[str, str] = {}
    for place, rollout in enumerate(rollouts):
        if not isinstance(rollout, Rollout):
            what = f"a {type(rollout).__name__} where a rollout is expected"
            raise InputError(what, where=f"rollouts[{place}]", fix="a list of counterpoint.lab.trainers.rollout.Rollout")
        _check_rollout(rollout)
        if rollout.attempt in seen.setdefault(rollout.name, set()):
            fix = "a name for each rollout, or attempt= for those that were tried again"
            raise InputError("two rollouts of one name", where=rollout.name, fix=fix)
        seen[rollout.name].add(rollout.attempt)
        if tasks.setdefault(rollout.name, rollout.task) != rollout.task:
            what = f"attempts of the tasks {tasks[rollout.name]!r} and {rollout.task!r}"
            raise InputError(what, where=rollout.name, fix="a name for each rollout")
        _check_samples(rollout)


def _check_rollout(rollout: Rollout) -> None:
    for name, value in (("name", rollout.name), ("task", rollout.task)):
        if not isinstance(value, str):
            raise InputError(f"its {name} is {value!r}", where=str(rollout.name), fix="a text")
    if not is_count(rollout.attempt):
        raise InputError(f"attempt {rollout.attempt!r}", where=rollout.name, fix="a number from 0 on")
    if rollout.status not in STATUSES:
        raise InputError(f"no status {rollout.status!r}", where=rollout.name, fix=", ".join(STATUSES))
    samples = rollout.samples
    if isinstance(samples, str | bytes) or not isinstance(samples, Sequence) or not all(isinstance(s, Sample) for s in samples):
        what = "samples that are no list of Sample"
        raise InputError(what, where=rollout.name, fix="Rollout(name, task, [Sample(...), ...])")
    for place, sample in enumerate(samples):
        if sample.reward is not None and not is_finite(sample.reward):
            where = f"{rollout.name} sample {sample.name or place}"
            raise InputError(f"the reward is {sample.reward}", where=where, fix="a number; None where nothing was paid")
    if rollout.status == "aborted":
        return
    paid = rollout.reward if rollout.reward is not None else rollout.team_reward()
    if not is_finite(paid):
        raise InputError(f"the reward is {paid}", where=rollout.name, fix="a number; status='aborted' where none is known")


def is_finite(value: Any) -> bool:
    """Whether it is a finite number, in an array or a tensor of one, too."""
    if isinstance(value, str | bytes):
        return False
    try:
        return bool(abs(float(value)) <= _MOST)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return False


def is_count(value: Any) -> bool:
    """Whether it is a whole number from 0 on."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= 0)


def _check_samples(rollout: Rollout) -> None:
    names = rollout.names()
    if len(set(names)) < len(names):
        raise InputError("two samples of one name", where=rollout.name, fix="name= unique in the rollout, or none at all")
    known = set(names)
    for name, sample in zip(names, rollout.samples, strict=True):
        where = f"{rollout.name} sample {name}"
        _check_words(sample, where)
        for other in (sample.parent, *sample.reads):
            if other is not None and other not in known:
                raise InputError(f"no sample {other!r}", where=where, fix="parent and reads name samples of the same rollout")
        for what in ("mask", "logps"):
            values = getattr(sample, what)
            if values is not None and _places_of(values) != sample.size:
                found = "no row" if _places_of(values) is None else f"{_places_of(values)} places"
                raise InputError(f"{found} of {what} for {sample.size} tokens", where=where, fix="one for each token")
        _check_mask(sample, where)
        if sample.spans is not None or sample.calls is not None:
            _check_calls(sample, where)


def _places_of(values: Any) -> int | None:
    """The length of a row; None for what is none."""
    if isinstance(values, str | bytes) or len(getattr(values, "shape", (1,))) != 1:
        return None
    return len(values) if hasattr(values, "__len__") else None


def _check_words(sample: Sample, where: str) -> None:
    if not isinstance(sample.agent, str) or not sample.agent or not is_count(sample.after) or _places_of(sample.ids) is None:
        what = f"agent {sample.agent!r}, after {sample.after!r}, ids of type {type(sample.ids).__name__}"
        raise InputError(what, where=where, fix="a text, a number from 0 on, and a list, an array or a tensor of one row")
    for word, value, is_fine, fix in (
        ("name", sample.name, sample.name is None or isinstance(sample.name, str), "a text, or None"),
        ("role", sample.role, sample.role is None or isinstance(sample.role, str), "a text, or None"),
        ("policy", sample.policy, isinstance(sample.policy, str), "a text"),
        ("version", sample.version, sample.version is None or is_count(sample.version), "a number from 0 on, or None"),
        ("frozen", sample.frozen, isinstance(sample.frozen, bool | np.bool_), "True or False"),
    ):
        if not is_fine:
            raise InputError(f"{word} {value!r}", where=where, fix=fix)
    if sample.status not in STATUSES:
        raise InputError(f"no status {sample.status!r}", where=where, fix=", ".join(STATUSES))


def _check_mask(sample: Sample, where: str) -> None:
    if sample.mask is None:
        return
    try:
        mask = plain(sample.mask)
        is_fine = mask.ndim == 1 and (mask.dtype == np.bool_ or bool(((mask == 0) | (mask == 1)).all()))
    except ValueError:  # lists of several lengths
        is_fine = False
    if not is_fine:
        raise InputError("a mask that is not a row of 0 and 1", where=where, fix="1 for each token that the policy wrote, else 0")


def _check_calls(sample: Sample, where: str) -> None:
    try:
        spans = sample.calls_at()
    except (TypeError, ValueError):
        fix = "(first place, place after the last) of each call"
        raise InputError(f"spans {sample.spans!r}", where=where, fix=fix) from None
    ends = [0, *(b for _, b in spans)]
    if any(not before <= a < b <= sample.size for before, (a, b) in zip(ends, spans, strict=False)):
        raise InputError(f"spans {spans} of {sample.size} tokens", where=where, fix="in order, apart, and within the tokens")
    mask = sample.mask_of()
    unwritten = [] if mask is None else [(a, b) for a, b in spans if not mask[a:b].any()]
    if unwritten:
        what = f"the call {unwritten[0]} has no token that the policy wrote"
        raise InputError(what, where=where, fix="spans of what the mask says was written")
    if sample.calls is None:
        return
    if isinstance(sample.calls, str) or len(sample.calls) != len(spans):
        raise InputError(f"{len(sample.calls)} names for {len(spans)} calls", where=where, fix="a list with a name for each call")
    if not all(isinstance(call, Hashable) for call in sample.calls):
        raise InputError(f"calls {sample.calls!r}", where=where, fix="texts, numbers, or tuples of them")
