"""A reward behind the detectors of reward hacks: what looks farmed is not paid, or costs.

    mask       pays  r * max(0, 1 - score / bar)
    penalty    pays  r - price * score / bar

r is another reward, summed over the trace; score and bar are those of the hack's detector (`audit.hacks`), or of the one that is
nearest to its bar where `hack` is "all". A run that a detector cannot judge is paid nothing for r: who leaves no record
earns nothing by it.

Always true: one row of unit team. In a preset it stands beside the reward that counts, under the name of this object: as
`reward={"team_outcome": {}, "counterpoint.lab.train.hack_guard:hack_guard": {"of": "tool_use", "hack": "tool_spam"}}`.
`counterpoint reproduce hacks` measures what it keeps a team from, and what it does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import counterpoint.registry as registry
from counterpoint.audits.facts import facts_of
from counterpoint.audits.hacks import DETECTORS
from counterpoint.errors import InputError, did_you_mean
from counterpoint.rewards.reward import Reward
from counterpoint.trace import Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Signal

GUARDS = ("mask", "penalty")


def suspicion(trace: Trace, hack: str = "all") -> float | None:
    """The detector's score over its bar, the largest of all five for "all"; None where one cannot judge."""
    if hack != "all" and hack not in DETECTORS:
        raise InputError(f"no hack named {hack!r}", fix=did_you_mean(hack, ["all", *DETECTORS]))
    facts, found = facts_of(trace), []
    for name in DETECTORS if hack == "all" else (hack,):
        finding = DETECTORS[name](facts)
        if finding.score is None:
            return None
        found.append(finding.score / finding.threshold)
    return max(found)


def held_back(farmed: float, seen: float | None, guard: str = "mask", price: float = 1.0) -> float:
    """What is left of a reward under a guard, at this suspicion."""
    if guard not in GUARDS:
        raise InputError(f"no guard named {guard!r}", fix=did_you_mean(guard, GUARDS))
    if seen is None:
        return 0.0
    return farmed * max(0.0, 1.0 - seen) if guard == "mask" else farmed - price * seen


def _score(
    trace: Trace, *, of: str = "tool_use", hack: str = "all", guard: str = "mask", price: float = 1.0,
    options: Mapping[str, Any] | None = None,
) -> Iterator[Signal]:  # fmt: skip
    paid = registry.get("reward", of)(trace, **(options or {}))
    if paid:
        left = held_back(sum(s.value for s in paid), suspicion(trace, hack), guard, price)
        yield Signal("team", "", "guarded", left)


hack_guard = Reward(
    family="R8",
    unit="team",
    source="the hacks of survey 2605.02801, section 3; the guard is ours",
    score=_score,
    example=lambda: Example(rollouts(), {"of": "tool_use", "hack": "tool_spam"}),
)
