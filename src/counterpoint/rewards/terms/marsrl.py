"""R3, MarsRL: who answers is paid for a right answer, who checks for a true verdict.

    solver, corrector: 1 if the answer is right, else 0        verifier: 1 if the verdict equals the truth, else 0

Always true: one row of unit message per message or return that was scored, 0 or 1, in channel R3_answer or R3_verdict, so that
a mechanism can keep the two apart. An answer is right where its amount in `answer` (R2) is above 0.5; a verdict is true where
its amount in `verdict` (R6) is above 0; an event with both is an answer.

Source: MarsRL arXiv 2511.11373 (its text says positive and negative; its section on sampling fixes 1 and 0).
"""

from __future__ import annotations

from collections.abc import Iterator

from counterpoint.rewards.reward import Reward, events_of_types
from counterpoint.trace import Trace
from counterpoint.trace.example import Example, rollouts
from counterpoint.trace.rows import Signal


def verifier_reward(is_right: bool, says_right: bool) -> float:
    """1 where the verdict says what is true."""
    return float(is_right == says_right)


def _marsrl_signals(trace: Trace) -> Iterator[Signal]:
    for event in events_of_types(trace, ("message", "return")):
        paid = event.reward or {}
        if "R2" in paid:
            yield Signal("message", event.id, "R3_answer", float(paid["R2"] > 0.5))
        elif "R6" in paid:
            yield Signal("message", event.id, "R3_verdict", verifier_reward(True, paid["R6"] > 0.0))


marsrl = Reward(
    family="R3",
    unit="message",
    source="MarsRL, arXiv 2511.11373",
    score=_marsrl_signals,
    example=lambda: Example(rollouts()),
)
