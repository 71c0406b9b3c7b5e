"""A price on acts behind a fork audit: with chance q an act is paid what it changed, and fined where that is nothing.

An act is a hired agent, a message (the return of a call) or a tool call. It is deleted, the team plays on by an exact fork with
the same random numbers, and w = R - R(without it) is its worth. One act is paid

    price                        with chance 1 - q
    w - fine * [w <= 0]          with chance q

**What it deters.** An act that farms the price costs the team c of its true return when it is made, and nothing depends on it. If
deleting it gives back r of that (a hire is refunded, a message was paid for: r is c or 0), its worth is w = -r. Beside not
acting it brings

    not audited   gain = price - c             expected   (1 - q) gain - q loss
    audited      -loss = -(c + r + fine)       which is negative where   q > q* = gain / (gain + loss)

which is the threshold of an inspection game (Dresher 1962; Avenhaus, von Stengel and Zamir 2002, in the Handbook of Game Theory)
with the chance of detection 1. How an act is worded has no part in it: a disguise that changes nothing changes no fork.

**Pairs.** Where v has interactions of at most two acts, with w_ij the worth of both together,

    phi_i = w_i - 1/2 sum_j (w_i + w_j - w_ij)

is Shapley's value (1953), which adds up to what all acts changed; of two of which either suffices (w_i = w_j = 0) each gets
half, of two that are both needed (w_i = w_j = w_ij) likewise. Interactions of three it does not see.

Always true: without fines, an act without effect is paid 0 when audited, and where effects add up the payments of audited acts
do, to what all of them changed. Which acts are audited depends on the seed, the trace's name and the act's place alone. In a
preset it stands beside the reward that counts, under the name of this object: `reward={"team_outcome": {}, NAME: {"q": 0.2}}`,
NAME being `counterpoint.lab.train.fork_audit:fork_audit`; its forks are charged to the run's budget. `counterpoint reproduce
fork-audit` measures it; docs/lab/research/fork-audit.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from counterpoint.credits.forks import Contrast, effects, needed
from counterpoint.errors import InputError, did_you_mean
from counterpoint.options import NonNegative, NonNegativeInt, Share
from counterpoint.rewards.reward import Reward
from counterpoint.trace import Event, Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.keyed import purpose, uniform
from counterpoint.trace.replay import Delete, Replay
from counterpoint.trace.rows import Signal

ACTS = {"agent": "spawn", "message": "return", "tool": "tool_call"}
"""What is audited, and the type of the event that is deleted."""
NOTHING = 1e-9
"""A worth up to this is none: rounding of sums of prices."""


def threshold(gain: float, loss: float) -> float:
    """The share of audits q* = gain / (gain + loss) above which an act does not pay; 0 where it never does, infinite where no
    share makes it lose."""
    if gain <= 0:
        return 0.0 if loss >= 0 else math.inf
    return gain / (gain + loss) if loss > 0 else math.inf


def audit_pay(worth_U: np.ndarray, is_audit_U: np.ndarray | bool, price: float | np.ndarray, fine: float) -> np.ndarray:
    """What acts are paid: the price, or where audited their worth, less the fine where that is nothing or harm."""
    worth_U = np.asarray(worth_U, np.float64)
    out: np.ndarray = np.where(is_audit_U, worth_U - fine * (worth_U <= NOTHING), price)
    return out


def pair_worths(worth_U: np.ndarray, both_UU: np.ndarray) -> np.ndarray:
    """Worths with the interactions of pairs shared by halves; `both_UU` is the worth of two together, NaN where it was not
    asked, which counts as no interaction. The diagonal is not read."""
    worth_U, both_UU = np.asarray(worth_U, np.float64), np.asarray(both_UU, np.float64)
    if both_UU.shape != (len(worth_U), len(worth_U)):
        raise InputError(f"worths of pairs are {both_UU.shape}, of single acts {worth_U.shape}", fix="one row and column per act")
    excess_UU = np.nan_to_num(worth_U[:, None] + worth_U[None] - both_UU, nan=0.0)
    np.fill_diagonal(excess_UU, 0.0)
    out: np.ndarray = worth_U - 0.5 * excess_UU.sum(axis=1)
    return out


def acts_of(trace: Trace, unit: str) -> list[Event]:
    """The acts of this unit, in the file's order."""
    if unit not in ACTS:
        raise InputError(f"no unit {unit!r} to audit", fix=did_you_mean(unit, ACTS))
    return [e for e in trace.events if e.type == ACTS[unit]]


def _score(
    trace: Trace, *, unit: str = "tool", price: NonNegative = 0.1, q: Share = 0.2, fine: NonNegative = 0.4,
    seed: NonNegativeInt = 0, replay: Replay | None = None,
) -> Iterator[Signal]:  # fmt: skip
    acts = acts_of(trace, unit)
    if not acts:
        return
    is_audit = uniform(seed, purpose(trace.trace_id), np.arange(len(acts))) < q
    worth = np.zeros(len(acts))
    if is_audit.any():
        asked = [Contrast(acts[i].id, None, Delete()) for i in np.flatnonzero(is_audit)]
        worth[is_audit] = effects(needed(replay, "a fork audit"), trace, asked).effect_U
    pay = audit_pay(worth, is_audit, price, fine)
    yield Signal("team", "", "audited", float(np.nansum(pay)))  # an act that the replay refuses to fork is paid nothing


fork_audit = Reward(
    family="R8",
    unit="team",
    source="ours; the threshold is that of an inspection game (Avenhaus, von Stengel and Zamir 2002)",
    score=_score,
    example=lambda: Example(rollouts(), {"q": 0.0}),
)
