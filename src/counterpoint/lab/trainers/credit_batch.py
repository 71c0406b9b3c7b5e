"""What a batch of rollouts is taught: advantages in the shapes that trainers take, and the account of every rollout.

Always true: an array of advantages has the length of its sample's `ids`; it is 0 where the sample's mask is 0, where a call is
kept out (frozen, dropped, ...) and where nothing is known of it, and `masks` tells these apart from calls that earned 0. Arrays
are made when they are asked for.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from counterpoint.credits.call_rows import CallRow, CallRows
from counterpoint.errors import InputError
from counterpoint.lab.trainers.rollout import Rollout, Sample, is_finite

Floats32 = NDArray[np.float32]
_EXACT, _ROUNDED = 1e-9, 1e-5


class CallCredit(NamedTuple):
    """One call of a sample, and what it is taught."""

    start: int
    stop: int
    advantage: float | Floats32 | None
    """Of every token, or one for each; None where nothing is known of the call."""
    share: float
    """What of the rollout's credit the call stands for."""
    weight: float
    """1; a k-th where k samples of the batch teach this same call; 0 where it is kept out."""
    why: str | None
    """Why it is kept out."""


@dataclass(frozen=True)
class RolloutAccount:
    """Where the credit of one rollout went: `given` is the sum of all the others."""

    rollout: str
    given: float
    taught: float
    repeated: float
    """What forks that repeat the same calls teach instead."""
    kept_out: Mapping[str, float]
    """By reason."""
    replaced: float
    """What a finer level says instead."""
    unplaced: float
    """What no call caused."""

    def check(self) -> None:
        """Raise `InputError` where an amount was lost."""
        parts = (self.taught, self.repeated, *self.kept_out.values(), self.replaced, self.unplaced)
        gap = abs(math.fsum((self.given, *(-x for x in parts))))
        if not gap <= _EXACT * max(1.0, abs(self.given), *map(abs, parts)):
            fix = "a bug in Counterpoint: please report it"
            raise InputError(f"{gap:.3g} of its credit was lost", where=self.rollout, fix=fix)


@dataclass(frozen=True, eq=False)
class CreditBatch:
    """The advantages of a batch, sample by sample, in the order in which rollouts and their samples were given."""

    rollouts: Sequence[Rollout]
    calls: list[list[CallCredit]]
    """Of each sample."""
    accounts: list[RolloutAccount]
    """Of each rollout that was compared."""
    unknown: Mapping[str, str]
    """Rollout to the reason why it teaches nothing: aborted, retried, nobody to compare with."""

    @property
    def samples(self) -> list[tuple[Rollout, Sample]]:
        """Every sample with its rollout."""
        return [(rollout, sample) for rollout in self.rollouts for sample in rollout.samples]

    def of_policy(self, policy: str) -> list[int]:
        """The places of one learner's samples."""
        return [i for i, (_, sample) in enumerate(self.samples) if sample.policy == policy and not sample.frozen]

    def arrays(self) -> list[Floats32]:
        """An advantage for each token of each sample."""
        return [self._array(sample, calls) for (_, sample), calls in zip(self.samples, self.calls, strict=True)]

    def masks(self) -> list[NDArray[np.bool_]]:
        """For each token whether it teaches: written by a policy that learns, and something is known of it."""
        out = []
        for (_, sample), calls in zip(self.samples, self.calls, strict=True):
            mask = np.zeros(sample.size, np.bool_)
            for call in calls:
                if call.weight and call.advantage is not None:
                    mask[call.start : call.stop] = True
            written = sample.mask_of()
            out.append(mask if written is None else mask & written)
        return out

    def padded(self, width: int, *, before: Sequence[int] | int = 0) -> Floats32:
        """(samples, width) the same, 0 elsewhere; `before` is where each sample's first token stands."""
        arrays = self.arrays()
        starts = [before] * len(arrays) if isinstance(before, int) else list(before)
        if len(starts) != len(arrays) or any(start < 0 for start in starts):
            what = f"{len(starts)} first places for {len(arrays)} samples, the least {min(starts, default=0)}"
            raise InputError(what, where="credit layer", fix="before: a place from 0 on for each sample")
        out = np.zeros((len(arrays), width), np.float32)
        for row, start, array, (rollout, _) in zip(out, starts, arrays, self.samples, strict=True):
            if start + len(array) > width:
                what = f"{len(array)} tokens from place {start} on, and rows of {width}"
                raise InputError(what, where=rollout.name, fix="the width of the batch that the trainer pads to")
            row[start : start + len(array)] = array
        return out

    def packed(self) -> Floats32:
        """All samples end to end, as packed sequences lie."""
        return np.concatenate(self.arrays()) if self.calls else np.zeros(0, np.float32)

    def numbers(self) -> list[float]:
        """One advantage for each sample; refused where its calls earned different ones."""
        out = []
        for (rollout, sample), calls in zip(self.samples, self.calls, strict=True):
            known = [c for c in calls if c.weight and c.advantage is not None]
            values = {float(x) for c in known for x in np.unique(np.multiply(c.advantage, c.weight))}  # type: ignore[arg-type]
            if len(values) > 1 or (values and len(known) < len(calls)):
                what = f"calls of {sample.agent} earned {', '.join(f'{v:.3g}' for v in sorted(values))}"
                raise InputError(what, where=rollout.name, why="the trainer takes one number for each sample",
                                 fix="a credit by team, role or agent, or a sample for each call")  # fmt: skip
            out.append(values.pop() if values else 0.0)
        return out

    def check(self, arrays: Sequence[ArrayLike | None] | None = None) -> None:
        """Raise where credit was lost, naming the rollout: in the accounts, or in what the loss is about to use: for each sample
        its advantages (padding of zeros may follow), None where the trainer dropped it."""
        for account in self.accounts:
            account.check()
        if arrays is None:
            return
        if len(arrays) != len(self.calls):
            what = f"{len(arrays)} rows of advantages for {len(self.calls)} samples"
            raise InputError(what, where="credit layer", fix="None for those that were dropped")
        for (rollout, sample), wanted, given in zip(self.samples, self.arrays(), arrays, strict=True):
            if given is None:
                continue
            found = np.asarray(given, np.float32)
            whole = np.zeros(max(len(found), len(wanted)), np.float32)
            whole[: len(wanted)] = wanted
            if len(found) < len(wanted) or not np.allclose(found, whole, rtol=_ROUNDED, atol=_ROUNDED):
                what = f"advantages of {sample.agent} are not those that it was given"
                raise InputError(what, where=rollout.name, why=f"they sum to {found.sum():.6g}, not to {wanted.sum():.6g}",
                                 fix="samples in the order of the batch, whole; None for those that were dropped")  # fmt: skip

    @staticmethod
    def _array(sample: Sample, calls: Sequence[CallCredit]) -> Floats32:
        out = np.zeros(sample.size, np.float32)
        for call in calls:
            if call.weight and call.advantage is not None:
                out[call.start : call.stop] = np.multiply(call.advantage, call.weight)
        written = sample.mask_of()
        if written is not None:
            out[~written] = 0.0
        return out


def batch_of(
    rollouts: Sequence[Rollout],
    here: Sequence[int],
    placed: CallRows,
    reasons: Sequence[Sequence[str | None]],
    repeats: Mapping[tuple[str, Hashable], int],
    unknown: Mapping[str, str],
) -> CreditBatch:
    """The batch of these rollouts, of which those in `here` were credited, with why each sample does not teach."""
    rows: list[dict[str, CallRow]] = [{} for _ in here]
    for row in placed.rows:
        rows[row.trace][row.event] = row
    number = {i: k for k, i in enumerate(here)}
    unplaced: list[list[float]] = [[] for _ in here]
    for lost in placed.placement.unplaced:
        unplaced[lost.trace].append(lost.value)
    calls: list[list[CallCredit]] = []
    accounts: list[RolloutAccount] = []
    for i, rollout in enumerate(rollouts):
        found = rows[number[i]] if i in number else {}
        own = [_calls(rollout, s, name, why, found, repeats)
               for name, s, why in zip(rollout.names(), rollout.samples, reasons[i], strict=True)]  # fmt: skip
        calls += own
        if i in number:
            accounts.append(_account(rollout.name, number[i], own, placed, math.fsum(unplaced[number[i]])))
    return CreditBatch(rollouts, calls, accounts, unknown)


def _calls(
    rollout: Rollout, sample: Sample, name: str, why: str | None, rows: Mapping[str, CallRow], repeats: Mapping[Any, int]
) -> list[CallCredit]:
    out = []
    for k, (a, b) in enumerate(sample.calls_at()):
        row = rows.get(f"{name}#{k}")
        named = None if sample.calls is None else (rollout.task, sample.calls[k])
        weight = 0.0 if why is not None else 1.0 if named is None else 1.0 / repeats.get(named, 1)
        if row is None or row.advantage is None:
            out.append(CallCredit(a, b, None, 0.0, weight, why))
            continue
        value = row.advantage if row.token_advantages is None else row.token_advantages.astype(np.float32)
        if not is_finite(row.advantage):
            what = f"an advantage of {row.advantage:g}"
            raise InputError(what, where=f"{rollout.name} sample {name}", fix="rewards whose differences float32 can hold")
        out.append(CallCredit(a, b, value, row.share, weight, why))
    return out


def _account(name: str, trace: int, samples: Sequence[Sequence[CallCredit]], placed: CallRows, unplaced: float) -> RolloutAccount:
    """What the placement says that a trace was given, against what its calls hold."""
    taught, repeated, kept = [], [], dict[str, list[float]]()
    for call in (call for calls in samples for call in calls):
        if call.why is not None:
            kept.setdefault(call.why, []).append(call.share)
        else:
            taught.append(call.share * call.weight)
            repeated.append(call.share * (1 - call.weight))
    sides = (placed.placement.given, placed.placement.replaced)
    given, replaced = (math.fsum(float(amounts[trace]) for amounts in side.values()) for side in sides)
    sums = {why: math.fsum(amounts) for why, amounts in kept.items()}
    return RolloutAccount(name, given, math.fsum(taught), math.fsum(repeated), sums, replaced, unplaced)
